# What the authors' program prints, and published results of theirs.
. "$(dirname "$0")/support.sh"
need dapple/expected.txt
dumps=$DATA/dapple

# A case begins with "### profile pbs gbs mbs seps [bi] = WORDS".
cases=0
while read -r line; do
    case $line in
    '### '*)
        cases=$((cases + 1))
        echo "${line#*= }" >"$SCRATCH/words.$cases"
        : >"$SCRATCH/lines.$cases"
        ;;
    *) printf '%s\n' "$line" >>"$SCRATCH/lines.$cases" ;;
    esac
done <"$dumps/expected.txt"
[ "$cases" -ge 10 ] || fail "only $cases cases in $dumps/expected.txt"
for i in $(seq "$cases"); do
    read -r dump words <"$SCRATCH/words.$i"
    # shellcheck disable=SC2086
    expect "$SCRATCH/lines.$i" dapple "$dumps/$dump" $words
done

# Results of profiles whose layers branch, and of one that is not among the cases.
published() {
    result=$1
    shift
    "$ORACLE" dapple "$dumps/$@" | sed 1d | head -1 >"$SCRATCH/found"
    grep -qF -- "$result" "$SCRATCH/found" ||
        fail "planner-oracle dapple $*: $(cat "$SCRATCH/found"), not $result"
}
published 'speedup 12.826291770498276 stages [(0, 13, 8, {0, 1, 2, 3, 4, 5, 6, 7}), (13, 25, 8,' \
    bert_large.dump 2 128 2 8,16 bi
published 'speedup 10.55614907310198 stages [(0, 30, 8, {0, 1, 2, 3, 4, 5, 6, 7}), (30, 54, 8,' \
    bert-48-pbs-2.dump 2 64 2 8,16 bi
published 'speedup 3.626539 rp 1 stages [(0, 18, 1, {0}), (18, 30, 1, {1}), (30, 42, 1, {2}), (42,' \
    bert-48-pbs-2.dump 2 64 2 1,2,3,4

refuse 'usage: ' dapple
refuse 'no-such-file' dapple no-such-file 32 1024 32 2,4
refuse "PROFILE_BATCH: '0' is no whole number" dapple "$dumps/vgg19.dump" 0 1024 32 2,4
refuse "SEPS: '4' is no whole number of 5 to 64" dapple "$dumps/vgg19.dump" 32 1024 32 4,4
refuse "SEPS: '1' is one GPU" dapple "$dumps/vgg19.dump" 32 1024 32 1
head -c 5000 "$dumps/vgg19.dump" >"$SCRATCH/short.dump"
refuse 'short.dump: compute[' dapple "$SCRATCH/short.dump" 32 1024 32 2,4
{
    cat "$dumps/vgg19.dump"
    echo 1
} >"$SCRATCH/long.dump"
refuse 'long.dump: more follows' dapple "$SCRATCH/long.dump" 32 1024 32 2,4
exit 0
