/* Byte-pair encoding of one piece. Characters become symbols in a linked list; a heap yields the
 * merge of the lowest rank, leftmost first, so n characters cost O(n log n) whatever they are.
 * Entries are not removed from the heap when a neighbour changes; they are recognised as stale when
 * popped: a pair only ever grows, so its rank at that place never comes back. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/json.h"
#include "text/tokenizer_internal.h"

struct hop_merge {
    uint64_t pair; /* left id << 32 | right id; NO_PAIR when free */
    uint32_t rank;
    int32_t id;
};

struct hop_symbol {
    int32_t id; /* -1 once merged into its left neighbour */
    int32_t previous, next;
};

#define NO_PAIR UINT64_MAX

/* U+2581, which stands for a space in SentencePiece-style vocabularies. */
static const char mark[] = "\xE2\x96\x81";
enum { MARK = sizeof mark - 1 };

static bool starts_with_mark(const char *text, size_t n)
{
    return n >= MARK && !memcmp(text, mark, MARK);
}

/* Where the word at the start of text ends: before a mark that follows something else. */
static size_t word_length(const char *text, size_t n)
{
    size_t i = 0;
    while (starts_with_mark(text + i, n - i))
        i += MARK;
    const char *const next = hop_utf8_find(text + i, n - i, mark, MARK);
    return next ? (size_t)(next - text) : n;
}

/* ---- the table of merges ---- */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct hop_merge *merge_slot(const struct hop_bpe *bpe, uint64_t pair)
{
    const size_t mask = bpe->merge_slots - 1;
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct hop_merge *const slot = &bpe->merges[i];
        if (slot->pair == pair || slot->pair == NO_PAIR)
            return slot;
    }
}

static const struct hop_merge *find_merge(const struct hop_bpe *bpe, int32_t left, int32_t right)
{
    const struct hop_merge *const slot = merge_slot(bpe, pair_of(left, right));
    return slot->pair == NO_PAIR ? NULL : slot;
}

/* ---- reading ---- */

/* The two sides of a merge. */
struct sides {
    const char *left, *right;
    size_t left_length, right_length;
};

static hop_status read_sides(const json_t *json, const char *path, size_t rank, struct sides *out,
                             struct hop_error *err)
{
    const bool pair = json_is_array(json) && json_array_size(json) == 2;
    const char *const left = json_string_value(pair ? json_array_get(json, 0) : json);
    const char *const space = left ? strchr(left, ' ') : NULL;
    const char *right = space ? space + 1 : NULL;
    if (pair)
        right = json_string_value(json_array_get(json, 1));
    if (!left || !right || (!pair && strchr(right, ' ')))
        return hop_fail(err, HOP_INPUT,
                        "%s: model.merges[%zu] must be \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]",
                        path, rank);
    *out = (struct sides){.left = left,
                          .right = right,
                          .left_length = pair ? strlen(left) : (size_t)(space - left),
                          .right_length = strlen(right)};
    return HOP_OK;
}

static hop_status merge_token(const struct hop_bpe *bpe, const char *text, size_t n,
                              const char *path, size_t rank, int32_t *id, struct hop_error *err)
{
    *id = hop_vocabulary_find(bpe->vocabulary, text, n);
    if (*id >= 0)
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "%s: model.merges[%zu] names \"%.*s\", which is not in model.vocab", path, rank,
                    (int)(n < 100 ? n : 100), text);
}

static hop_status add_merge(struct hop_bpe *bpe, const json_t *json, const char *path, size_t rank,
                            struct hop_string *whole, struct hop_error *err)
{
    struct sides sides = {0};
    int32_t left, right, id;
    HOP_TRY(read_sides(json, path, rank, &sides, err));
    whole->length = 0;
    HOP_TRY(hop_string_append(whole, sides.left, sides.left_length, err));
    HOP_TRY(hop_string_append(whole, sides.right, sides.right_length, err));
    HOP_TRY(merge_token(bpe, sides.left, sides.left_length, path, rank, &left, err));
    HOP_TRY(merge_token(bpe, sides.right, sides.right_length, path, rank, &right, err));
    HOP_TRY(merge_token(bpe, whole->data, whole->length, path, rank, &id, err));
    if (word_length(whole->data, whole->length) < whole->length)
        bpe->cuts_at_marks = false;
    const uint64_t pair = pair_of(left, right);
    *merge_slot(bpe, pair) = (struct hop_merge){.pair = pair, .rank = (uint32_t)rank, .id = id};
    return HOP_OK;
}

static hop_status read_merges(struct hop_bpe *bpe, const json_t *model, const char *path,
                              struct hop_error *err)
{
    const json_t *const list = json_object_get(model, "merges");
    if (!json_is_array(list))
        return hop_fail(err, HOP_INPUT, "%s: model.merges must be a list", path);
    const size_t count = json_array_size(list);
    bpe->merge_slots = 16;
    while (bpe->merge_slots < 2 * count)
        bpe->merge_slots *= 2;
    HOP_TRY(hop_calloc(&bpe->merges, bpe->merge_slots, sizeof *bpe->merges, err));
    for (size_t i = 0; i < bpe->merge_slots; i++)
        bpe->merges[i].pair = NO_PAIR;
    bpe->cuts_at_marks =
        !bpe->ignore_merges && hop_vocabulary_find(bpe->vocabulary, mark, MARK) >= 0;
    struct hop_string whole = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < count && status == HOP_OK; i++)
        status = add_merge(bpe, json_array_get(list, i), path, i, &whole, err);
    hop_string_free(&whole);
    return status;
}

static hop_status read_vocabulary(json_t *model, const char *path,
                                  struct hop_vocabulary *vocabulary, struct hop_error *err)
{
    json_t *const tokens = json_object_get(model, "vocab");
    if (!json_is_object(tokens))
        return hop_fail(err, HOP_INPUT, "%s: model.vocab must be an object", path);
    const char *content;
    json_t *id;
    json_object_foreach(tokens, content, id)
    {
        if (!json_is_integer(id))
            return hop_fail(err, HOP_INPUT,
                            "%s: the id of model.vocab[\"%.100s\"] must be an integer", path,
                            content);
        HOP_TRY(hop_vocabulary_add(vocabulary, content, strlen(content), json_integer_value(id),
                                   path, err));
    }
    return HOP_OK;
}

/* Ids of single bytes and short characters, looked up once. */
static void index_characters(struct hop_bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        static const char digits[] = "0123456789ABCDEF";
        const char name[6] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        bpe->bytes[byte] = hop_vocabulary_find(bpe->vocabulary, name, sizeof name);
    }
    for (int32_t codepoint = 0; codepoint < HOP_BPE_SHORT; codepoint++) {
        char text[4];
        const size_t n = hop_utf8_encode(codepoint, text);
        bpe->characters[codepoint] = hop_vocabulary_find(bpe->vocabulary, text, n);
    }
}

static hop_status check_model(const json_t *model, const char *path, struct hop_error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *text;
    double dropout;
    if (!json_is_object(model))
        return hop_fail(err, HOP_INPUT, "%s: \"model\" must be an object", path);
    HOP_TRY(hop_json_get_string(model, "type", path, "BPE", &text, err));
    if (strcmp(text, "BPE"))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: model of type \"%s\" is not supported; only BPE is", path, text);
    HOP_TRY(hop_json_get_real(model, "dropout", path, 0, &dropout, err));
    if (dropout != 0)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: model.dropout %g is not supported; set it to null", path, dropout);
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        HOP_TRY(hop_json_get_string(model, affixes[i], path, "", &text, err));
        if (*text)
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%s: model.%s \"%s\" is not supported; only null and \"\" are", path,
                            affixes[i], text);
    }
    return HOP_OK;
}

static hop_status read_unknown(const json_t *model, const char *path, struct hop_bpe *bpe,
                               struct hop_error *err)
{
    const char *text;
    HOP_TRY(hop_json_get_string(model, "unk_token", path, NULL, &text, err));
    HOP_TRY(hop_json_get_bool(model, "fuse_unk", path, false, &bpe->fuse_unknown, err));
    bpe->unknown = text ? hop_vocabulary_find(bpe->vocabulary, text, strlen(text)) : -1;
    bpe->unknown_missing = text && bpe->unknown < 0;
    return HOP_OK;
}

hop_status hop_bpe_read(json_t *root, const char *path, struct hop_vocabulary *vocabulary,
                        struct hop_bpe *out, struct hop_error *err)
{
    json_t *const model = json_object_get(root, "model");
    HOP_TRY(check_model(model, path, err));
    out->vocabulary = vocabulary;
    HOP_TRY(read_vocabulary(model, path, vocabulary, err));
    HOP_TRY(hop_json_get_bool(model, "byte_fallback", path, false, &out->byte_fallback, err));
    HOP_TRY(hop_json_get_bool(model, "ignore_merges", path, false, &out->ignore_merges, err));
    HOP_TRY(read_unknown(model, path, out, err));
    HOP_TRY(read_merges(out, model, path, err));
    index_characters(out);
    return hop_word_cache_init(&out->cache, err);
}

void hop_bpe_free(struct hop_bpe *bpe)
{
    free(bpe->merges);
    free(bpe->symbols);
    free(bpe->heap);
    hop_word_cache_free(&bpe->cache);
    *bpe = (struct hop_bpe){0};
}

/* ---- characters to symbols ---- */

/* Room was made for one symbol a byte. */
static void add_symbol(struct hop_bpe *bpe, int32_t id)
{
    const int32_t at = (int32_t)bpe->symbol_count++;
    bpe->symbols[at] = (struct hop_symbol){.id = id, .previous = at - 1, .next = at + 1};
}

static bool add_byte_symbols(struct hop_bpe *bpe, const char *text, size_t n)
{
    if (!bpe->byte_fallback)
        return false;
    for (size_t i = 0; i < n; i++)
        if (bpe->bytes[(unsigned char)text[i]] < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        add_symbol(bpe, bpe->bytes[(unsigned char)text[i]]);
    return true;
}

static int32_t character_id(const struct hop_bpe *bpe, const char *text, size_t *n)
{
    int32_t codepoint;
    *n = hop_utf8_decode(text, &codepoint);
    if (codepoint < HOP_BPE_SHORT)
        return bpe->characters[codepoint];
    return hop_vocabulary_find(bpe->vocabulary, text, *n);
}

/* An unknown symbol is held back until the next known character, as fuse_unk joins a run of them;
 * bytes of byte_fallback do not end the run (the reference does the same). Without unk_token an
 * unknown character vanishes. */
static hop_status add_characters(struct hop_bpe *bpe, const char *text, size_t n,
                                 struct hop_error *err)
{
    bool held = false;
    for (size_t i = 0, length; i < n; i += length) {
        const int32_t id = character_id(bpe, text + i, &length);
        if (id >= 0) {
            if (held)
                add_symbol(bpe, bpe->unknown);
            held = false;
            add_symbol(bpe, id);
            continue;
        }
        if (add_byte_symbols(bpe, text + i, length))
            continue;
        if (bpe->unknown_missing)
            return hop_fail(
                err, HOP_INPUT,
                "the tokenizer has no token for \"%.*s\" and its unk_token is not in its "
                "vocabulary",
                (int)length, text + i);
        if (held && !bpe->fuse_unknown)
            add_symbol(bpe, bpe->unknown);
        held = bpe->unknown >= 0;
    }
    if (held)
        add_symbol(bpe, bpe->unknown);
    return HOP_OK;
}

/* ---- merging ---- */

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    const uint64_t item = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (item <= heap[child])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
}

static uint64_t heap_pop(struct hop_bpe *bpe)
{
    const uint64_t top = bpe->heap[0];
    bpe->heap[0] = bpe->heap[--bpe->heap_count];
    if (bpe->heap_count)
        sift_down(bpe->heap, bpe->heap_count, 0);
    return top;
}

static void sift_up(uint64_t *heap, size_t at)
{
    const uint64_t item = heap[at];
    while (at && item < heap[(at - 1) / 2]) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = item;
}

/* Room: a merge pops one entry and pushes at most two, and there are fewer merges than symbols. */
static void offer(struct hop_bpe *bpe, int32_t left, int32_t right)
{
    const struct hop_merge *const merge =
        find_merge(bpe, bpe->symbols[left].id, bpe->symbols[right].id);
    if (merge)
        bpe->heap[bpe->heap_count++] = (uint64_t)merge->rank << 32 | (uint32_t)left;
}

static void push(struct hop_bpe *bpe, int32_t left, int32_t right)
{
    const size_t before = bpe->heap_count;
    offer(bpe, left, right);
    if (bpe->heap_count > before)
        sift_up(bpe->heap, before);
}

static void merge_at(struct hop_bpe *bpe, int32_t at, uint32_t rank)
{
    struct hop_symbol *const symbols = bpe->symbols, *const left = &symbols[at];
    const int32_t count = (int32_t)bpe->symbol_count;
    if (left->id < 0 || left->next >= count)
        return;
    struct hop_symbol *const right = &symbols[left->next];
    const struct hop_merge *const merge = find_merge(bpe, left->id, right->id);
    if (!merge || merge->rank != rank)
        return;
    left->id = merge->id;
    left->next = right->next;
    right->id = -1;
    if (left->previous >= 0)
        push(bpe, left->previous, at);
    if (left->next < count) {
        symbols[left->next].previous = at;
        push(bpe, at, left->next);
    }
}

static void merge_all(struct hop_bpe *bpe)
{
    bpe->heap_count = 0;
    for (size_t i = 0; i + 1 < bpe->symbol_count; i++)
        offer(bpe, (int32_t)i, (int32_t)i + 1);
    for (size_t i = bpe->heap_count / 2; i-- > 0;)
        sift_down(bpe->heap, bpe->heap_count, i);
    while (bpe->heap_count) {
        const uint64_t top = heap_pop(bpe);
        merge_at(bpe, (int32_t)(top & UINT32_MAX), (uint32_t)(top >> 32));
    }
}

/* ---- a piece ---- */

/* The token that a whole piece is where merges are ignored, or -1. Special tokens do not come from
 * merging: one that reaches this place was spelled in a text that must stay text. */
static int32_t whole_token(const struct hop_bpe *bpe, const char *word, size_t n)
{
    if (!bpe->ignore_merges)
        return -1;
    const int32_t id = hop_vocabulary_find(bpe->vocabulary, word, n);
    return id >= 0 && !bpe->vocabulary->tokens[id].special ? id : -1;
}

static hop_status encode_new(struct hop_bpe *bpe, const char *word, size_t n, struct hop_ids *out,
                             struct hop_error *err)
{
    const int32_t whole = whole_token(bpe, word, n);
    if (whole >= 0)
        return hop_ids_append(out, whole, err);
    HOP_TRY(hop_grow(&bpe->symbols, &bpe->symbol_capacity, n, sizeof *bpe->symbols, err));
    HOP_TRY(hop_grow(&bpe->heap, &bpe->heap_capacity, 2 * n, sizeof *bpe->heap, err));
    bpe->symbol_count = 0;
    HOP_TRY(add_characters(bpe, word, n, err));
    merge_all(bpe);
    for (size_t i = 0; i < bpe->symbol_count; i = (size_t)bpe->symbols[i].next)
        HOP_TRY(hop_ids_append(out, bpe->symbols[i].id, err));
    return HOP_OK;
}

static hop_status append_ids(struct hop_ids *out, const int32_t *ids, size_t count,
                             struct hop_error *err)
{
    HOP_TRY(hop_grow(&out->data, &out->capacity, out->count + count, sizeof *ids, err));
    for (size_t i = 0; i < count; i++)
        out->data[out->count++] = ids[i];
    return HOP_OK;
}

static hop_status encode_word(struct hop_bpe *bpe, const char *word, size_t n, struct hop_ids *out,
                              struct hop_error *err)
{
    if (n > INT32_MAX / 2)
        return hop_fail(err, HOP_INPUT, "a piece of text of %zu bytes is over the limit of 1 GiB",
                        n);
    if (n > HOP_WORD_CACHE_MAX_LENGTH)
        return encode_new(bpe, word, n, out, err);
    size_t count;
    const int32_t *const known = hop_word_cache_get(&bpe->cache, word, n, &count);
    if (known)
        return append_ids(out, known, count, err);
    const size_t before = out->count;
    HOP_TRY(encode_new(bpe, word, n, out, err));
    const int32_t *const added = out->count > before ? out->data + before : NULL;
    return hop_word_cache_put(&bpe->cache, word, n, added, out->count - before, err);
}

/* SentencePiece-style files have no pre-tokenizer: the whole text is one piece. Where no merge
 * contains the start of a word, words can be merged, and remembered, one by one with the same
 * result. */
hop_status hop_bpe_encode(struct hop_bpe *bpe, const char *piece, size_t n, struct hop_ids *out,
                          struct hop_error *err)
{
    if (!bpe->cuts_at_marks)
        return encode_word(bpe, piece, n, out, err);
    for (size_t i = 0; i < n;) {
        const size_t length = word_length(piece + i, n - i);
        HOP_TRY(encode_word(bpe, piece + i, length, out, err));
        i += length;
    }
    return HOP_OK;
}
