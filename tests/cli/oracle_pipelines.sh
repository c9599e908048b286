#!/bin/sh
# planner-oracle prints what the authors' programs print for Chimera and PipeDream.
set -eu
oracle="$BUILD/planner-oracle"
data="${HYBRIDOP_TESTDATA:-$SOURCE/../shared/testdata}/planners"
[ -d "$data" ] || { echo "skip: $data is not there; set HYBRIDOP_TESTDATA"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n 's/^D=\([0-9]*\) pipelines=\([0-9]*\) N=\([0-9]*\)$/\1 \2 \3/p' "$data/chimera/expected.txt" |
    while read -r d pipelines n; do "$oracle" chimera "$d" "$pipelines" "$n"; done > "$scratch/chimera"
diff "$data/chimera/expected.txt" "$scratch/chimera"
# The authors number the pipelines of one direction first; the fourth is the second one up.
"$oracle" chimera 8 4 8 > "$scratch/four"
grep -q "^   up 1 mb \[6, 7\] map {'7': \[4\], '6': \[5\]" "$scratch/four"
[ "$(grep -c '^   t=' "$scratch/four")" = 19 ]
grep -q "^   t= 0  \['0@down@f', '.', '.', '3@up@f', '1@down@f', '.', '.', '2@up@f'\]$" "$scratch/four"

# Words must be equal and numbers nearly so: the authors' program adds up in the order of a hash table.
cat > "$scratch/compare.awk" <<'AWK'
function number(word) { return word ~ /^[0-9]+\.[0-9]*(e[-+][0-9]+)?$/ }
function same(a, b) { return a == b || (number(a) && number(b) && a - b < 1e-12 && b - a < 1e-12) }
{
    if ((getline other < expected) <= 0) { print "one line too many: " $0; failed = 1; exit }
    n = split($0, mine, " ")
    wrong = split(other, theirs, " ") != n
    for (i = 1; i <= n && !wrong; i++) wrong = !same(mine[i], theirs[i])
    if (wrong) { print "< " other "\n> " $0; failed = 1 }
}
END { if ((getline other < expected) > 0) { print "missing: " other; failed = 1 }; exit failed }
AWK
# Between stages of equal times theirs chooses by addresses of objects, which shows in `straight`.
sed '/^### vgg16 straight/,$d' "$data/pipedream/expected.txt" > "$scratch/expected"
for n in 2 4 8; do
    echo "### vgg16 n=$n bw=1e9"
    "$oracle" pipedream "$data/pipedream/vgg16_graph.txt" "$n" 1e9
done > "$scratch/pipedream"
awk -v expected="$scratch/expected" -f "$scratch/compare.awk" "$scratch/pipedream"
straight=$(sed -n '/^### vgg16 straight/,$s/^Time per stage in pipeline: //p' "$data/pipedream/expected.txt")
"$oracle" pipedream "$data/pipedream/vgg16_graph.txt" 4 1e9 straight > "$scratch/straight"
grep -qx "Time per stage in pipeline: $straight" "$scratch/straight"
grep -q '^(0, 10) ' "$scratch/straight"
"$oracle" pipedream "$data/pipedream/gnmt_graph.txt" 4 1e9 > "$scratch/gnmt"
grep -q '^(0, 4) 0.021096' "$scratch/gnmt"
grep -q '^(.*, 99) 0.025868' "$scratch/gnmt"
grep -q '^Time per stage in pipeline: 0.025868' "$scratch/gnmt"

# Refusals are one line and status 2.
refused() {
    status=0
    "$oracle" "$@" > "$scratch/out" 2> "$scratch/message" || status=$?
    [ "$status" = 2 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l < "$scratch/message")" = 1 ]
}
refused chimera 5 2 5
refused chimera 6 4 6
refused chimera 4 2
refused pipedream "$data/chimera/expected.txt" 4 1e9
refused pipedream "$data/pipedream/vgg16_graph.txt" 4 1e9 crooked
printf 'a -- x -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n\ta -- a\n' > "$scratch/loop"
refused pipedream "$scratch/loop" 2 1e9
