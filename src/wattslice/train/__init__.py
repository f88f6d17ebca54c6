"""One run: the launcher with the meter, and the workers that train."""
