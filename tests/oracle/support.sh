# What the checks of planner-oracle share. ORACLE is the program, SOURCE the source tree.
DATA=${HYBRIDOP_TESTDATA:-$SOURCE/../shared/testdata}/planners
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

# The folder of a system's inputs; skips where it is missing.
need() {
    if [ ! -e "$DATA/$1" ]; then
        echo "skip: $DATA/$1 is not there; set HYBRIDOP_TESTDATA"
        exit 77
    fi
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Runs the program with the other words; its output must be what the file in front of them says.
expect() {
    file=$1
    shift
    "$ORACLE" "$@" >"$SCRATCH/found" || fail "planner-oracle $* ended with status $?"
    diff "$file" "$SCRATCH/found" || fail "planner-oracle $* printed something else"
}

# The program must refuse the other words with status 2 and one line that holds the first.
refuse() {
    part=$1
    shift
    "$ORACLE" "$@" >"$SCRATCH/found" 2>"$SCRATCH/message"
    status=$?
    [ "$status" -eq 2 ] || fail "planner-oracle $* ended with status $status, not 2"
    [ -s "$SCRATCH/found" ] && fail "planner-oracle $* printed a result"
    [ "$(wc -l <"$SCRATCH/message")" -eq 1 ] || fail "planner-oracle $*: not one line of error"
    grep -qF -- "$part" "$SCRATCH/message" || fail "'$part' is not in: $(cat "$SCRATCH/message")"
}
