# Plans of a third party where they follow from the published equations; docs/baselines.md says why
# the last one does not.
. "$(dirname "$0")/support.sh"
need asteroid/cases.json
cat >"$SCRATCH/plans" <<'PLANS'
[
 {"name": "homog3", "cuts": [3, 5], "groups": [[0], [1], [2]], "samples": {"0": 2, "1": 2, "2": 2}, "latency_ms": 720},
 {"name": "hetero3", "cuts": [4, 5], "groups": [[0], [1], [2]], "samples": {"0": 2, "1": 2, "2": 2}, "latency_ms": 480},
 {"name": "hetero4_slow_backward", "cuts": [5], "groups": [[0], [1, 2, 3]], "samples": {"0": 4, "1": 4, "2": 0, "3": 0}, "latency_ms": 2960}
]
PLANS
"$ORACLE" asteroid "$DATA/asteroid/cases.json" >"$SCRATCH/found" || fail "status $?"
# Latencies to a microsecond.
sed -E 's/("latency_ms": [0-9]+\.[0-9]{3})[0-9]*/\1/; s/\.0+\}/}/' "$SCRATCH/found" >"$SCRATCH/short"
diff "$SCRATCH/plans" "$SCRATCH/short" || fail "other plans"

refuse 'usage: ' asteroid
refuse 'no-such-file' asteroid no-such-file
echo '{}' >"$SCRATCH/object.json"
refuse 'an array of cases was expected' asteroid "$SCRATCH/object.json"
sed 's/"speed": \[/"speed": [7,/' "$DATA/asteroid/cases.json" >"$SCRATCH/long.json"
refuse 'case 0: speed[0]: one of 3 numbers above 0 was expected' asteroid "$SCRATCH/long.json"
exit 0
