#!/bin/sh
# Makes the tables, figures and report of this campaign again from its raw files, and compares them
# with the ones in this archive. Needs Python 3.11 or newer and neither a GPU nor torch.
#
#   ./reproduce.sh                 sets up .venv beside this file if the packages are not there
#   PYTHON=python3.12 ./reproduce.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
if ! "$python" -c 'import altair, pyarrow, pydantic, scipy, snakemake, vl_convert' 2>/dev/null; then
	"$python" -m venv "$here/.venv"
	"$here/.venv/bin/python" -m pip install --quiet -r "$here/code/envs/requirements-analysis.txt"
	python=$here/.venv/bin/python
fi
"$python" -m snakemake --cores all --snakefile "$here/code/Snakefile" \
	--directory "$here/reproduced" --configfile "$here/config.json" --replace-workflow-config \
	--config source=archive archive="$here"
PYTHONPATH="$here/code/src" "$python" -m wattslice verify "$here/reproduced/results/@CAMPAIGN@" \
	--against "$here"
