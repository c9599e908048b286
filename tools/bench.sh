#!/bin/sh
# Run every benchmark of a build folder; one JSON line a case on stdout.
set -eu
build=${1:-build}
for bench in "$build"/bench/bench_*; do
    [ -x "$bench" ] && [ -f "$bench" ] && "$bench"
done
