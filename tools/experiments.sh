#!/bin/sh
# The experiments of docs/experiments.md: what estimated gradients are worth.
#
#   tools/experiments.sh wordnet            definitions, sorted into six classes
#   tools/experiments.sh two-thirds         the same with four blocks of six on boards without backward
#   tools/experiments.sh ag-news DIR        AG News; DIR holds train.csv and test.csv
#
# Results: runs/experiments/TASK/study.html. A run that is there is not repeated. More options of
# `hybridop study` may follow, e.g. --parallel 2.
set -eu
cd "$(dirname "$0")/.."
hybridop=${HYBRIDOP:-build/hybridop}
out=runs/experiments
folder=examples/experiments
task=${1:-}
[ $# -gt 0 ] && shift

# The rates are chosen by runs of the same length with one seed, on rows that are not those of the table.
job=$folder/$task.yaml
case $task in
wordnet | two-thirds)
    tools/gloss-data.sh examples/demo/data
    mkdir -p $out
    head -n 300 examples/demo/data/eval.jsonl >$out/wordnet-valid.jsonl
    tail -n +301 examples/demo/data/eval.jsonl >$out/wordnet-test.jsonl
    valid=$out/wordnet-valid.jsonl
    job=$folder/wordnet.yaml
    [ $task = wordnet ] || set -- --set 'plan.blocks={npu0: 2, npu1: 2, gpu0: 1, gpu1: 1}' "$@"
    ;;
ag-news)
    source=${1:?"the folder with train.csv and test.csv of AG News is missing"}
    shift
    mkdir -p $out
    head -n 4500 "$source/train.csv" >$out/ag-news-train.csv
    tail -n +4501 "$source/train.csv" | head -n 300 >$out/ag-news-valid.csv
    head -n 1000 "$source/test.csv" >$out/ag-news-test.csv
    valid=$out/ag-news-valid.csv
    ;;
*)
    echo "usage: tools/experiments.sh wordnet | two-thirds | ag-news DIR" >&2
    exit 2
    ;;
esac

"$hybridop" study $job -o $out/$task --variants $folder/variants-$task.yaml \
    --tune-set data.eval=$valid --tune-set train.eval_every=0 \
    --between "frozen,exact, every board" "$@"
