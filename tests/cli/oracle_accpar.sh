#!/bin/sh
# planner-oracle accpar prints what the authors' program prints, and refuses what is no layer list.
set -eu
oracle="$BUILD/planner-oracle"
data="${HYBRIDOP_TESTDATA:-$SOURCE/../shared/testdata}/planners/accpar"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

refused() { # FILE-TEXT EXPECTED
    printf "$1" > "$scratch/list.txt"
    if "$oracle" accpar "$scratch/list.txt" 512 7 > "$scratch/out" 2> "$scratch/err"; then
        echo "accepted: $1"
        exit 1
    fi
    [ ! -s "$scratch/out" ] || { echo "printed a result for: $1"; exit 1; }
    [ "$(wc -l < "$scratch/err")" -eq 1 ] && grep -q -- "$2" "$scratch/err" || {
        echo "expected '$2', found:"
        cat "$scratch/err"
        exit 1
    }
}
refused '' 'list.txt:1: the file ends where num_layers was expected'
refused 'layers 1\n' "found 'layers' where num_layers was expected"
refused 'num_layers 0\n' "num_layers: '0' is no whole number"
refused 'num_layers 1\nfc1 POOL\n' "list.txt:2: found 'POOL' where CONV or FC was expected"
refused 'num_layers 1\nfc1 FC\nin_ch 3\n' 'list.txt:4: the file ends where out_ch was expected'
refused 'num_layers 1\nfc1 FC\nin_ch -3\nout_ch 1\n' "list.txt:3: in_ch: '-3' is no number above 0"
refused 'num_layers 1\nfc1 FC\nout_ch 3\nin_ch 1\n' "found 'out_ch' where in_ch was expected"

[ -f "$data/Alexnet.txt" ] || { echo "skip: $data is not there; set HYBRIDOP_TESTDATA"; exit 77; }
"$oracle" accpar "$data/Alexnet.txt" 512 7 | diff - "$data/Alexnet.expected.txt"
