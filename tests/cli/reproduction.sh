#!/bin/sh
# docs/reproduction.md and docs/planning.md have the figures that the planners and the simulator give.
set -eu
command -v python3 > /dev/null || { echo "skip: python3 is not there"; exit 77; }
cd "$SOURCE"
export HYBRIDOP_TESTDATA="${HYBRIDOP_TESTDATA:-$SOURCE/../shared/testdata}"
python3 tools/reproduce.py --hybridop "$HYBRIDOP" --check docs/reproduction.md
python3 tools/reproduce.py --hybridop "$HYBRIDOP" --check docs/planning.md estimators
