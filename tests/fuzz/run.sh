#!/bin/sh
# Look for new inputs with every fuzz target of a build, starting from the stored ones. What breaks a
# target is left in the scratch folder that is named, and ends the run.
#
#   tests/fuzz/run.sh [build folder, default build-fuzz] [seconds a target, default 60]
set -eu
build=$(cd "${1:-build-fuzz}" && pwd)
seconds=${2:-60}
corpus=$(cd "$(dirname "$0")/corpus" && pwd)
scratch=$(mktemp -d)
cd "$scratch"
for target in "$build"/tests/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=${target##*/fuzz_}
    mkdir "$name"
    if ! "$target" -seed=1 -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=300 \
        -max_len=6000 -verbosity=0 "$name" "$corpus/$name" >"$name.log" 2>&1; then
        tail -n 60 "$name.log" >&2
        echo "fuzz_$name is broken by the input in $scratch" >&2
        exit 1
    fi
    echo "fuzz_$name: $(find "$name" -type f | wc -l) new inputs"
done
cd /
rm -r "$scratch"
