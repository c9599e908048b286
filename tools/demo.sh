#!/bin/sh
# The main job on real data: fine-tune the bundled model with HybridOP over four processes, two of them
# without backward, and show what it has learned.
#
#   tools/demo.sh          200 steps, all evaluation rows
#   tools/demo.sh --short  120 steps, 300 evaluation rows (for continuous integration)
set -eu
cd "$(dirname "$0")/.."
hybridop=${HYBRIDOP:-build/hybridop}
job=examples/demo/job.yaml
short=""
[ "${1:-}" = --short ] && short="--set train.max_steps=120 --set data.eval_limit=300"

tools/gloss-data.sh examples/demo/data
echo "Two BP-free processes (npu0, npu1) hold the first blocks, two BP-capable ones (gpu0, gpu1) the rest."
"$hybridop" train "$job" $short

# summary.json is indented, one key a line.
number() {
    sed -n "/\"$1\"/,/}/s/.*\"accuracy\": *\([0-9.]*\).*/\1/p" runs/demo/summary.json
}
before=$(number eval_before)
after=$(number eval_after)

echo
echo "What the fine-tuned model makes of definitions it has not seen:"
for text in "a large cat that lives in forests and hunts at night" \
    "someone who repairs watches" \
    "a sweet dish of baked fruit"; do
    answer=$("$hybridop" generate --model models/wordnet-3m --adapter runs/demo/adapter \
        --max-tokens 1 --prompt "$text
Class:")
    echo "  $text ->$answer"
done

echo
awk -v before="$before" -v after="$after" 'BEGIN {
    printf "Accuracy on held-out definitions: %.1f %% before, %.1f %% after.\n", 100 * before, 100 * after
}'
echo "Adapter (opens in PEFT):  runs/demo/adapter"
echo "Timeline of all devices:  runs/demo/trace.json (open it at https://ui.perfetto.dev or chrome://tracing)"
awk -v before="$before" -v after="$after" 'BEGIN { exit !(after > before + 0.1) }' || {
    echo "demo: the accuracy has not risen by 10 points; something is wrong" >&2
    exit 1
}
