/* Added tokens: strings that are cut out of the text before the model sees it, the longest of those
 * that start leftmost. The sorted list serves as a trie: matching narrows a range of it byte by
 * byte. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/json.h"
#include "text/tokenizer_internal.h"

static int compare_content(const void *a, const void *b)
{
    const struct hop_added_token *const left = a, *const right = b;
    const size_t n = left->length < right->length ? left->length : right->length;
    const int order = memcmp(left->content, right->content, n);
    if (order)
        return order;
    return (left->length > right->length) - (left->length < right->length);
}

static void index_set(struct hop_added_set *set)
{
    if (set->count)
        qsort(set->items, set->count, sizeof *set->items, compare_content);
    size_t at = 0;
    for (size_t byte = 0; byte <= 256; byte++) {
        while (at < set->count && (unsigned char)set->items[at].content[0] < byte)
            at++;
        set->start[byte] = at;
    }
}

static unsigned char byte_at(const struct hop_added_set *set, size_t item, size_t depth)
{
    return (unsigned char)set->items[item].content[depth];
}

/* First item in [low, high) whose byte at depth is at least `byte`. They share the bytes before
 * depth and are longer than it, so the bytes there are in order. */
static size_t lower_bound(const struct hop_added_set *set, size_t low, size_t high, size_t depth,
                          unsigned int byte)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (byte_at(set, middle, depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text[0..n) starts with, or NULL. */
static const struct hop_added_token *longest_at(const struct hop_added_set *set, const char *text,
                                                size_t n)
{
    const struct hop_added_token *best = NULL;
    const unsigned char *const bytes = (const unsigned char *)text;
    size_t low = set->start[bytes[0]], high = set->start[bytes[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (set->items[low].length == depth)
            best = &set->items[low++];
        /* Two tokens may normalize to the same string; the first one counts. */
        while (low < high && set->items[low].length == depth)
            low++;
        if (depth == n)
            break;
        low = lower_bound(set, low, high, depth, bytes[depth]);
        high = lower_bound(set, low, high, depth, bytes[depth] + 1U);
    }
    return best;
}

/* The next match at or after `from`. */
static const struct hop_added_token *find_next(const struct hop_added_set *set, const char *text,
                                               size_t n, size_t from, size_t *begin)
{
    for (size_t i = from; i < n; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (set->start[byte] == set->start[byte + 1])
            continue;
        const struct hop_added_token *const token = longest_at(set, text + i, n - i);
        if (token) {
            *begin = i;
            return token;
        }
    }
    return NULL;
}

static bool stands_alone(const char *text, size_t n, size_t begin, size_t end)
{
    int32_t codepoint;
    if (begin) {
        hop_utf8_decode(text + hop_utf8_last(text, begin), &codepoint);
        if (hop_utf8_is_word(codepoint))
            return false;
    }
    if (end == n)
        return true;
    hop_utf8_decode(text + end, &codepoint);
    return !hop_utf8_is_word(codepoint);
}

/* Start of the white space that ends at `begin`, not before `floor`. */
static size_t spaces_before(const char *text, size_t begin, size_t floor)
{
    while (begin > floor) {
        int32_t codepoint;
        const size_t last = hop_utf8_last(text, begin);
        hop_utf8_decode(text + last, &codepoint);
        if (!hop_utf8_is_space(codepoint))
            break;
        begin = last;
    }
    return begin;
}

static size_t spaces_after(const char *text, size_t n, size_t end)
{
    while (end < n) {
        int32_t codepoint;
        const size_t length = hop_utf8_decode(text + end, &codepoint);
        if (!hop_utf8_is_space(codepoint))
            break;
        end += length;
    }
    return end;
}

static hop_status add_text(struct hop_pieces *out, struct hop_piece piece, size_t begin, size_t end,
                           struct hop_error *err)
{
    if (begin >= end)
        return HOP_OK;
    const struct hop_piece part = {.begin = piece.begin + begin,
                                   .end = piece.begin + end,
                                   .id = -1,
                                   .first = piece.first && begin == 0};
    return hop_pieces_add(out, part, err);
}

struct division {
    const struct hop_added_set *set;
    bool plain;
};

static hop_status divide(const void *context, const char *text, struct hop_piece piece,
                         struct hop_pieces *out, struct hop_error *err)
{
    const struct division *const division = context;
    const struct hop_added_set *const set = division->set;
    const size_t n = piece.end - piece.begin;
    size_t done = 0, from = 0, begin;
    const struct hop_added_token *token;
    while ((token = find_next(set, text, n, from, &begin))) {
        size_t end = begin + token->length;
        from = end;
        if (division->plain && token->special)
            continue;
        if (token->single_word && !stands_alone(text, n, begin, end))
            continue;
        if (token->lstrip)
            begin = begin < done ? done : spaces_before(text, begin, done);
        if (token->rstrip)
            end = spaces_after(text, n, end);
        /* The white space that the token before took may have been all of this one. */
        if (begin >= end)
            continue;
        HOP_TRY(add_text(out, piece, done, begin, err));
        const struct hop_piece found = {
            .begin = piece.begin + begin, .end = piece.begin + end, .id = token->id};
        HOP_TRY(hop_pieces_add(out, found, err));
        done = end;
    }
    return add_text(out, piece, done, n, err);
}

hop_status hop_added_set_divide(const struct hop_added_set *set, bool plain,
                                struct hop_pieces *pieces, struct hop_pieces *scratch,
                                struct hop_error *err)
{
    const struct division division = {.set = set, .plain = plain};
    if (!set->count)
        return HOP_OK;
    return hop_pieces_divide(pieces, scratch, divide, &division, err);
}

static const struct hop_added_token *find_in_set(const struct hop_added_set *set, int32_t id)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i].id == id)
            return &set->items[i];
    return NULL;
}

const struct hop_added_token *hop_added_tokens_find(const struct hop_added_tokens *added,
                                                    int32_t id)
{
    const struct hop_added_token *const token = find_in_set(&added->raw, id);
    return token ? token : find_in_set(&added->normalized, id);
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const struct hop_normalizer *normalizer;
    struct hop_vocabulary *vocabulary;
    struct hop_added_tokens *out;
};

/* *out = malloc'ed normal form of content. */
static hop_status normalize_content(const struct hop_normalizer *normalizer, const char *content,
                                    char **out, struct hop_error *err)
{
    struct hop_pieces pieces = {0}, scratch = {0};
    const struct hop_piece whole = {.end = strlen(content), .id = -1, .first = true};
    hop_status status;
    HOP_TRY_DONE(hop_string_append(&pieces.text, content, strlen(content), err));
    HOP_TRY_DONE(hop_pieces_add(&pieces, whole, err));
    HOP_TRY_DONE(hop_normalizer_apply(normalizer, &pieces, &scratch, err));
    HOP_TRY_DONE(hop_string_copy(out, pieces.count ? pieces.text.data : "", err));
done:
    hop_pieces_free(&pieces);
    hop_pieces_free(&scratch);
    return status;
}

/* Takes the token's content over. */
static hop_status add_to_set(struct hop_added_set *set, struct hop_added_token token,
                             struct hop_error *err)
{
    const hop_status status =
        hop_grow(&set->items, &set->capacity, set->count + 1, sizeof *set->items, err);
    if (status == HOP_OK && token.length)
        set->items[set->count++] = token;
    else
        free(token.content);
    return status;
}

/* A normalized token is searched for, and shown when decoding, in its normal form. */
static hop_status add_token(const struct reader *reader, const char *content, bool normalized,
                            struct hop_added_token token, struct hop_error *err)
{
    if (!normalized) {
        HOP_TRY(hop_string_copy(&token.content, content, err));
        token.length = strlen(token.content);
        return add_to_set(&reader->out->raw, token, err);
    }
    HOP_TRY(normalize_content(reader->normalizer, content, &token.content, err));
    token.length = strlen(token.content);
    hop_status status = HOP_OK;
    if (strcmp(token.content, content))
        status = hop_vocabulary_show(reader->vocabulary, token.id, token.content, token.length,
                                     reader->path, err);
    if (status == HOP_OK)
        return add_to_set(&reader->out->normalized, token, err);
    free(token.content);
    return status;
}

/* Enters the token unless the model's vocabulary has it under the same id. */
static hop_status enter(const struct reader *reader, const char *content, int64_t id, bool special,
                        struct hop_error *err)
{
    const size_t n = strlen(content);
    if (id < 0 || id != hop_vocabulary_find(reader->vocabulary, content, n))
        HOP_TRY(hop_vocabulary_add(reader->vocabulary, content, n, id, reader->path, err));
    reader->vocabulary->tokens[id].special = special;
    return HOP_OK;
}

static hop_status read_token(const struct reader *reader, const json_t *json, const char *where,
                             struct hop_error *err)
{
    struct hop_added_token token = {0};
    const char *content;
    int64_t id;
    bool normalized;
    HOP_TRY(hop_json_get_string(json, "content", where, "", &content, err));
    HOP_TRY(hop_json_get_int(json, "id", where, -1, &id, err));
    HOP_TRY(hop_json_get_bool(json, "special", where, false, &token.special, err));
    HOP_TRY(hop_json_get_bool(json, "normalized", where, !token.special, &normalized, err));
    HOP_TRY(hop_json_get_bool(json, "single_word", where, false, &token.single_word, err));
    HOP_TRY(hop_json_get_bool(json, "lstrip", where, false, &token.lstrip, err));
    HOP_TRY(hop_json_get_bool(json, "rstrip", where, false, &token.rstrip, err));
    if (!*content)
        return HOP_OK;
    HOP_TRY(enter(reader, content, id, token.special, err));
    token.id = (int32_t)id;
    return add_token(reader, content, normalized, token, err);
}

static hop_status read_list(const struct reader *reader, const json_t *list, struct hop_error *err)
{
    struct hop_string where = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < json_array_size(list) && status == HOP_OK; i++) {
        where.length = 0;
        status = hop_string_printf(&where, err, "%s: added_tokens[%zu]", reader->path, i);
        if (status == HOP_OK)
            status = read_token(reader, json_array_get(list, i), hop_string_text(&where), err);
    }
    hop_string_free(&where);
    return status;
}

hop_status hop_added_tokens_read(json_t *root, const char *path,
                                 const struct hop_normalizer *normalizer,
                                 struct hop_vocabulary *vocabulary, struct hop_added_tokens *out,
                                 struct hop_error *err)
{
    const struct reader reader = {
        .path = path, .normalizer = normalizer, .vocabulary = vocabulary, .out = out};
    const json_t *const list = json_object_get(root, "added_tokens");
    if (list && !json_is_null(list) && !json_is_array(list))
        return hop_fail(err, HOP_INPUT, "%s: added_tokens must be a list", path);
    HOP_TRY(read_list(&reader, list, err));
    index_set(&out->raw);
    index_set(&out->normalized);
    return HOP_OK;
}

static void free_set(struct hop_added_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->items[i].content);
    free(set->items);
    *set = (struct hop_added_set){0};
}

void hop_added_tokens_free(struct hop_added_tokens *added)
{
    free_set(&added->raw);
    free_set(&added->normalized);
}
