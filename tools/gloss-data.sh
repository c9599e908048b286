#!/bin/sh
# Make the demo's data: WordNet definitions of nouns, to be sorted into six
# classes.
#
#   tools/gloss-data.sh DIR [DATA.NOUN]
#
# Writes DIR/train.jsonl (1,700 rows a class) and DIR/eval.jsonl (250 a class).
# A row is {"prompt": "DEFINITION\nClass:", "completion": " animal"}.  Needs
# only POSIX sh, awk and sort, and makes the same bytes everywhere.
#
# Split and order come from a hash of the synset's offset.  Evaluation rows are
# drawn from buckets 0 to 11 of 100; tools/wordnet.py computes the same buckets,
# and the embedded model was pretrained without these definitions.

set -eu

train_rows=1700
eval_rows=250

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: tools/gloss-data.sh DIR [DATA.NOUN]" >&2
    exit 2
fi
out=$1
nouns=${2:-/usr/share/wordnet/data.noun}

if [ ! -r "$nouns" ]; then
    echo "gloss-data: cannot read $nouns: WordNet is not installed there." >&2
    echo "Install it (Debian, Ubuntu: apt-get install wordnet-base) or give" \
        "the path of data.noun as second argument." >&2
    exit 1
fi

LC_ALL=C
export LC_ALL
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# Lines "key offset split class<TAB>definition".  The products stay below 2^53,
# so doubles, all that awk has, hold them exactly.
awk '
BEGIN {
    # Lexicographer files, lexnames(5WN).
    class["04"] = "act"; class["05"] = "animal"; class["06"] = "object"
    class["13"] = "food"; class["18"] = "person"; class["20"] = "plant"
}
/^  / { next }                            # the licence, at the top of the file
!($2 in class) { next }
{
    text = substr($0, index($0, " | ") + 3)
    quote = index(text, "\"")             # usage examples follow
    if (quote) text = substr(text, 1, quote - 1)
    gsub(/\t/, " ", text)
    sub(/[; \r]+$/, "", text)
    if (text == "" || text in seen) next  # the same text is never in both files
    seen[text] = 1
    offset = $1
    sub(/^0+/, "", offset)                # some awks would read octal
    hash = offset * 48271 % 2147483647 * 40692 % 2147483399
    split_name = hash % 100 < 12 ? "eval" : "train"
    key = hash * 69621 % 2147483647
    printf "%d %d %s %s\t%s\n", key, offset, split_name, class[$2], text
}' "$nouns" >"$scratch/all"

sort -n -k 1,1 -k 2,2 "$scratch/all" >"$scratch/shuffled"

# The first rows of each class, escaped for JSON, in shuffled order.
awk -v train_rows="$train_rows" -v eval_rows="$eval_rows" -v out="$scratch" '
function escaped(text,    i, c, result) {
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\\" || c == "\"") c = "\\" c
        else if (c in control) c = control[c]
        result = result c
    }
    return result
}
BEGIN {
    FS = "\t"
    for (i = 1; i < 32; i++)
        control[sprintf("%c", i)] = sprintf("\\u%04x", i)
    limit["train"] = train_rows
    limit["eval"] = eval_rows
}
{
    split($1, head, " ")
    if (++count[head[3], head[4]] > limit[head[3]]) next
    printf "{\"prompt\": \"%s\\nClass:\", \"completion\": \" %s\"}\n",
        escaped($2), head[4] >(out "/" head[3] ".jsonl")
    written[head[3]]++
}
END {
    for (name in limit) {
        wanted = limit[name] * 6
        if (written[name] == wanted) continue
        printf "gloss-data: only %d of %d %s rows: not WordNet 3.0 nouns?\n",
            written[name], wanted, name >"/dev/stderr"
        failed = 1
    }
    exit failed
}' "$scratch/shuffled"

mv "$scratch/train.jsonl" "$scratch/eval.jsonl" "$out/"
echo "$out: $((train_rows * 6)) training rows, $((eval_rows * 6)) evaluation rows"
