/* Loading, encoding and decoding: the order of the stages. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"
#include "text/tokenizer_internal.h"

struct hop_tokenizer {
    struct hop_vocabulary vocabulary;
    struct hop_added_tokens added;
    struct hop_normalizer normalizer;
    struct hop_pretokenizer pretokenizer;
    struct hop_bpe bpe;
    struct hop_template post;
    struct hop_decoder decoder;
    struct hop_pieces pieces, scratch; /* of the text being encoded */
};

void hop_ids_free(struct hop_ids *ids)
{
    if (!ids)
        return;
    free(ids->data);
    *ids = (struct hop_ids){0};
}

hop_status hop_ids_append(struct hop_ids *ids, int32_t id, struct hop_error *err)
{
    HOP_TRY(hop_grow(&ids->data, &ids->capacity, ids->count + 1, sizeof *ids->data, err));
    ids->data[ids->count++] = id;
    return HOP_OK;
}

/* ---- loading ---- */

static hop_status read_parts(struct hop_tokenizer *t, json_t *root, const char *path,
                             struct hop_error *err)
{
    if (!json_is_object(root))
        return hop_fail(err, HOP_INPUT, "%s: a JSON object was expected", path);
    HOP_TRY(hop_bpe_read(root, path, &t->vocabulary, &t->bpe, err));
    HOP_TRY(hop_normalizer_read(root, path, &t->normalizer, err));
    HOP_TRY(hop_added_tokens_read(root, path, &t->normalizer, &t->vocabulary, &t->added, err));
    HOP_TRY(hop_pretokenizer_read(root, path, &t->pretokenizer, err));
    HOP_TRY(hop_template_read(root, path, &t->vocabulary, &t->post, err));
    return hop_decoder_read(root, path, &t->decoder, err);
}

hop_status hop_tokenizer_load(const char *directory, struct hop_tokenizer **out,
                              struct hop_error *err)
{
    struct hop_tokenizer *tokenizer = NULL;
    json_t *root = NULL;
    char *path = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "tokenizer.json", &path, err));
    HOP_TRY_DONE(hop_json_load(path, &root, err));
    HOP_TRY_DONE(hop_calloc(&tokenizer, 1, sizeof *tokenizer, err));
    HOP_TRY_DONE(read_parts(tokenizer, root, path, err));
    *out = tokenizer;
    tokenizer = NULL;
done:
    hop_tokenizer_free(tokenizer);
    json_decref(root);
    free(path);
    return status;
}

void hop_tokenizer_free(struct hop_tokenizer *t)
{
    if (!t)
        return;
    hop_pieces_free(&t->pieces);
    hop_pieces_free(&t->scratch);
    hop_decoder_free(&t->decoder);
    hop_template_free(&t->post);
    hop_pretokenizer_free(&t->pretokenizer);
    hop_added_tokens_free(&t->added);
    hop_normalizer_free(&t->normalizer);
    hop_bpe_free(&t->bpe);
    hop_vocabulary_free(&t->vocabulary);
    free(t);
}

int32_t hop_tokenizer_vocabulary(const struct hop_tokenizer *tokenizer)
{
    return (int32_t)tokenizer->vocabulary.count;
}

int32_t hop_tokenizer_id(const struct hop_tokenizer *tokenizer, const char *content)
{
    return hop_vocabulary_find(&tokenizer->vocabulary, content, strlen(content));
}

struct hop_token_sides hop_tokenizer_sides(const struct hop_tokenizer *tokenizer, int32_t id)
{
    const struct hop_added_token *const token = hop_added_tokens_find(&tokenizer->added, id);
    if (!token)
        return (struct hop_token_sides){0};
    return (struct hop_token_sides){.before = token->lstrip, .behind = token->rstrip};
}

/* ---- encoding ---- */

static hop_status check_text(const char *text, size_t length, struct hop_error *err)
{
    const size_t valid = hop_utf8_valid_prefix(text, length);
    if (valid == length)
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "byte %zu of the text (0x%02X) is not UTF-8; convert the text to UTF-8",
                    valid + 1, (unsigned char)text[valid]);
}

/* Fills t->pieces with added tokens and words. `plain` leaves special tokens in the text, which is
 * then not the first. */
static hop_status split_text(struct hop_tokenizer *t, const char *text, size_t length, bool plain,
                             struct hop_error *err)
{
    struct hop_pieces *const pieces = &t->pieces, *const scratch = &t->scratch;
    const struct hop_piece whole = {.begin = 0, .end = length, .id = -1, .first = !plain};
    hop_pieces_clear(pieces);
    if (!length)
        return HOP_OK;
    HOP_TRY(hop_string_append(&pieces->text, text, length, err));
    HOP_TRY(hop_pieces_add(pieces, whole, err));
    HOP_TRY(hop_added_set_divide(&t->added.raw, plain, pieces, scratch, err));
    HOP_TRY(hop_normalizer_apply(&t->normalizer, pieces, scratch, err));
    HOP_TRY(hop_added_set_divide(&t->added.normalized, plain, pieces, scratch, err));
    return hop_pretokenizer_apply(&t->pretokenizer, pieces, scratch, err);
}

static hop_status append_all(struct hop_ids *out, const struct hop_ids *ids, struct hop_error *err)
{
    for (size_t i = 0; i < ids->count; i++)
        HOP_TRY(hop_ids_append(out, ids->data[i], err));
    return HOP_OK;
}

static hop_status encode_pieces(struct hop_tokenizer *t, struct hop_ids *out, struct hop_error *err)
{
    for (size_t i = 0; i < t->pieces.count; i++) {
        const struct hop_piece *const piece = &t->pieces.items[i];
        if (piece->id >= 0)
            HOP_TRY(hop_ids_append(out, piece->id, err));
        else
            HOP_TRY(hop_bpe_encode(&t->bpe, t->pieces.text.data + piece->begin,
                                   piece->end - piece->begin, out, err));
    }
    return HOP_OK;
}

hop_status hop_tokenizer_encode(struct hop_tokenizer *t, const char *text, size_t length,
                                bool add_special, struct hop_ids *out, struct hop_error *err)
{
    const size_t before = out->count;
    hop_status status;
    HOP_TRY_DONE(check_text(text, length, err));
    HOP_TRY_DONE(split_text(t, text, length, false, err));
    if (add_special)
        HOP_TRY_DONE(append_all(out, &t->post.before, err));
    HOP_TRY_DONE(encode_pieces(t, out, err));
    if (add_special)
        HOP_TRY_DONE(append_all(out, &t->post.after, err));
done:
    if (status != HOP_OK)
        out->count = before;
    return status;
}

hop_status hop_tokenizer_encode_plain(struct hop_tokenizer *t, const char *text, size_t length,
                                      struct hop_ids *out, struct hop_error *err)
{
    const size_t before = out->count;
    hop_status status;
    HOP_TRY_DONE(check_text(text, length, err));
    HOP_TRY_DONE(split_text(t, text, length, true, err));
    HOP_TRY_DONE(encode_pieces(t, out, err));
done:
    if (status != HOP_OK)
        out->count = before;
    return status;
}

/* ---- decoding ---- */

static hop_status token_pieces(const struct hop_vocabulary *vocabulary, const int32_t *ids,
                               size_t n, bool skip_special, struct hop_pieces *out,
                               struct hop_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct hop_token *const token = hop_vocabulary_token(vocabulary, ids[i]);
        if (!token)
            return hop_fail(err, HOP_INPUT, "token %zu: id %d is not in the vocabulary (0..%zu)",
                            i + 1, ids[i], vocabulary->count - 1);
        if (skip_special && token->special)
            continue;
        const size_t begin = out->text.length;
        HOP_TRY(hop_string_append(&out->text, vocabulary->text.data + token->shown,
                                  token->shown_length, err));
        const struct hop_piece piece = {.begin = begin, .end = out->text.length, .id = -1};
        HOP_TRY(hop_pieces_add(out, piece, err));
    }
    return HOP_OK;
}

hop_status hop_tokenizer_decode(const struct hop_tokenizer *t, const int32_t *ids, size_t n,
                                bool skip_special, struct hop_string *out, struct hop_error *err)
{
    struct hop_pieces tokens = {0};
    const size_t before = out->length;
    hop_status status;
    HOP_TRY_DONE(token_pieces(&t->vocabulary, ids, n, skip_special, &tokens, err));
    HOP_TRY_DONE(hop_decoder_apply(&t->decoder, &tokens, out, err));
done:
    if (status != HOP_OK && out->data) {
        out->length = before;
        out->data[before] = '\0';
    }
    hop_pieces_free(&tokens);
    return status;
}
