import sys

from wattslice.train.launcher import main

sys.exit(main())
