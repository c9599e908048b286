/* Decoders: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, and Sequences of them. A
 * decoder turns a list of token texts into another; the last list is joined. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/json.h"
#include "text/tokenizer_internal.h"

enum kind { BYTE_LEVEL, REPLACE, BYTE_FALLBACK, FUSE, STRIP, METASPACE };

struct hop_decoder_step {
    enum kind kind;
    struct hop_pattern *pattern;
    char *text;          /* replacement; the character to strip; the mark for a space */
    int64_t start, stop; /* how many to strip on either side */
    bool prepended;      /* a mark at the very start was added by the encoder */
};

/* ---- reading ---- */

static hop_status read_text(const struct hop_component *c, const char *key,
                            struct hop_decoder_step *step, struct hop_error *err)
{
    const char *text;
    HOP_TRY(hop_component_text(c, key, &text, err));
    return hop_string_copy(&step->text, text, err);
}

static hop_status read_replace(const struct hop_component *c, struct hop_decoder_step *step,
                               struct hop_error *err)
{
    step->kind = REPLACE;
    HOP_TRY(hop_pattern_read(c, "pattern", &step->pattern, err));
    return read_text(c, "content", step, err);
}

static hop_status read_strip(const struct hop_component *c, struct hop_decoder_step *step,
                             struct hop_error *err)
{
    step->kind = STRIP;
    HOP_TRY(hop_json_get_int(c->json, "start", c->path, 0, &step->start, err));
    HOP_TRY(hop_json_get_int(c->json, "stop", c->path, 0, &step->stop, err));
    HOP_TRY(read_text(c, "content", step, err));
    if (!*step->text)
        return hop_component_bad(c, "content", "one character", err);
    return HOP_OK;
}

static hop_status read_metaspace(const struct hop_component *c, struct hop_decoder_step *step,
                                 struct hop_error *err)
{
    const char *scheme;
    bool prefix;
    step->kind = METASPACE;
    HOP_TRY(hop_json_get_bool(c->json, "add_prefix_space", c->path, true, &prefix, err));
    HOP_TRY(hop_json_get_string(c->json, "prepend_scheme", c->path, prefix ? "always" : "never",
                                &scheme, err));
    step->prepended = strcmp(scheme, "never") != 0;
    HOP_TRY(read_text(c, "replacement", step, err));
    if (!*step->text)
        return hop_component_bad(c, "replacement", "one character", err);
    return hop_pattern_literal(step->text, &step->pattern, err);
}

static hop_status read_step(const struct hop_component *c, struct hop_decoder_step *step,
                            struct hop_error *err)
{
    if (!strcmp(c->type, "Replace"))
        return read_replace(c, step, err);
    if (!strcmp(c->type, "Strip"))
        return read_strip(c, step, err);
    if (!strcmp(c->type, "Metaspace"))
        return read_metaspace(c, step, err);
    if (!strcmp(c->type, "ByteLevel"))
        step->kind = BYTE_LEVEL;
    else if (!strcmp(c->type, "ByteFallback"))
        step->kind = BYTE_FALLBACK;
    else if (!strcmp(c->type, "Fuse"))
        step->kind = FUSE;
    else
        return hop_component_unsupported(c, err);
    return HOP_OK;
}

static hop_status add_step(const struct hop_component *c, void *context, struct hop_error *err)
{
    struct hop_decoder *const decoder = context;
    HOP_TRY(hop_grow(&decoder->steps, &decoder->capacity, decoder->count + 1,
                     sizeof *decoder->steps, err));
    struct hop_decoder_step *const step = &decoder->steps[decoder->count++];
    *step = (struct hop_decoder_step){0};
    return read_step(c, step, err);
}

hop_status hop_decoder_read(json_t *root, const char *path, struct hop_decoder *out,
                            struct hop_error *err)
{
    return hop_component_walk(root, path, "decoder", "decoders", add_step, out, err);
}

void hop_decoder_free(struct hop_decoder *decoder)
{
    for (size_t i = 0; i < decoder->count; i++) {
        hop_pattern_free(decoder->steps[i].pattern);
        free(decoder->steps[i].text);
    }
    free(decoder->steps);
    *decoder = (struct hop_decoder){0};
}

/* ---- applying ---- */

/* Ends the piece that starts at `begin` where out's text ends now. */
static hop_status close_piece(struct hop_pieces *out, size_t begin, struct hop_error *err)
{
    const struct hop_piece piece = {.begin = begin, .end = out->text.length, .id = -1};
    return hop_pieces_add(out, piece, err);
}

/* Appends the bytes a token's characters stand for; a token with any other character is itself. */
static hop_status append_token_bytes(const char *text, size_t n, struct hop_string *out,
                                     struct hop_error *err)
{
    const size_t before = out->length;
    for (size_t i = 0; i < n;) {
        int32_t codepoint;
        i += hop_utf8_decode(text + i, &codepoint);
        const int byte = hop_codepoint_to_byte(codepoint);
        if (byte < 0) {
            out->length = before;
            return hop_string_append(out, text, n, err);
        }
        const char c = (char)byte;
        HOP_TRY(hop_string_append(out, &c, 1, err));
    }
    return HOP_OK;
}

static hop_status byte_level(const struct hop_pieces *in, struct hop_pieces *out,
                             struct hop_error *err)
{
    struct hop_string bytes = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < in->count && status == HOP_OK; i++)
        status = append_token_bytes(in->text.data + in->items[i].begin,
                                    in->items[i].end - in->items[i].begin, &bytes, err);
    if (status == HOP_OK)
        status = hop_utf8_append_lossy(&out->text, bytes.data, bytes.length, err);
    hop_string_free(&bytes);
    return status == HOP_OK ? close_piece(out, 0, err) : status;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of a token such as <0x0A>, or -1. */
static int fallback_byte(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
        return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Ends a run of byte tokens: their text, or as many U+FFFD when together they are not UTF-8. */
static hop_status flush_bytes(struct hop_string *bytes, struct hop_pieces *out,
                              struct hop_error *err)
{
    const size_t begin = out->text.length, n = bytes->length;
    if (!n)
        return HOP_OK;
    bytes->length = 0;
    if (hop_utf8_valid_prefix(bytes->data, n) == n) {
        HOP_TRY(hop_string_append(&out->text, bytes->data, n, err));
    } else {
        for (size_t i = 0; i < n; i++)
            HOP_TRY(hop_string_append(&out->text, "\xEF\xBF\xBD", 3, err));
    }
    return close_piece(out, begin, err);
}

static hop_status byte_fallback(const struct hop_pieces *in, struct hop_pieces *out,
                                struct hop_error *err)
{
    struct hop_string bytes = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < in->count; i++) {
        const char *const text = in->text.data + in->items[i].begin;
        const size_t n = in->items[i].end - in->items[i].begin;
        const int byte = fallback_byte(text, n);
        if (byte >= 0) {
            const char c = (char)byte;
            HOP_TRY_DONE(hop_string_append(&bytes, &c, 1, err));
            continue;
        }
        HOP_TRY_DONE(flush_bytes(&bytes, out, err));
        const size_t begin = out->text.length;
        HOP_TRY_DONE(hop_string_append(&out->text, text, n, err));
        HOP_TRY_DONE(close_piece(out, begin, err));
    }
    HOP_TRY_DONE(flush_bytes(&bytes, out, err));
done:
    hop_string_free(&bytes);
    return status;
}

static hop_status fuse(const struct hop_pieces *in, struct hop_pieces *out, struct hop_error *err)
{
    for (size_t i = 0; i < in->count; i++)
        HOP_TRY(hop_string_append(&out->text, in->text.data + in->items[i].begin,
                                  in->items[i].end - in->items[i].begin, err));
    return close_piece(out, 0, err);
}

static hop_status strip(const struct hop_decoder_step *step, const char *text, size_t n,
                        struct hop_string *out, struct hop_error *err)
{
    const size_t unit = strlen(step->text);
    size_t begin = 0, end = n;
    for (int64_t i = 0; i < step->start && end - begin >= unit; i++, begin += unit)
        if (memcmp(text + begin, step->text, unit))
            break;
    for (int64_t i = 0; i < step->stop && end - begin >= unit; i++, end -= unit)
        if (memcmp(text + end - unit, step->text, unit))
            break;
    return hop_string_append(out, text + begin, end - begin, err);
}

static hop_status each(const struct hop_decoder_step *step, const struct hop_pieces *in,
                       struct hop_pieces *out, struct hop_error *err)
{
    for (size_t i = 0; i < in->count; i++) {
        const char *const text = in->text.data + in->items[i].begin;
        const size_t n = in->items[i].end - in->items[i].begin, begin = out->text.length;
        if (step->kind == STRIP) {
            HOP_TRY(strip(step, text, n, &out->text, err));
        } else {
            const char *const space = i == 0 && step->prepended ? "" : " ";
            const char *const replacement = step->kind == METASPACE ? space : step->text;
            HOP_TRY(hop_pattern_replace(step->pattern, replacement, text, n, &out->text, err));
        }
        HOP_TRY(close_piece(out, begin, err));
    }
    return HOP_OK;
}

static hop_status apply_step(const struct hop_decoder_step *step, const struct hop_pieces *in,
                             struct hop_pieces *out, struct hop_error *err)
{
    switch (step->kind) {
    case BYTE_LEVEL:
        return byte_level(in, out, err);
    case BYTE_FALLBACK:
        return byte_fallback(in, out, err);
    case FUSE:
        return fuse(in, out, err);
    default:
        return each(step, in, out, err);
    }
}

/* Without a decoder the reference puts spaces between tokens. */
static hop_status join(const struct hop_pieces *tokens, const char *separator,
                       struct hop_string *out, struct hop_error *err)
{
    for (size_t i = 0; i < tokens->count; i++) {
        if (i)
            HOP_TRY(hop_string_append(out, separator, strlen(separator), err));
        HOP_TRY(hop_string_append(out, tokens->text.data + tokens->items[i].begin,
                                  tokens->items[i].end - tokens->items[i].begin, err));
    }
    return HOP_OK;
}

hop_status hop_decoder_apply(const struct hop_decoder *decoder, struct hop_pieces *tokens,
                             struct hop_string *out, struct hop_error *err)
{
    struct hop_pieces next = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < decoder->count && status == HOP_OK; i++) {
        hop_pieces_clear(&next);
        status = apply_step(&decoder->steps[i], tokens, &next, err);
        hop_pieces_swap(tokens, &next);
    }
    if (status == HOP_OK)
        status = join(tokens, decoder->count ? "" : " ", out, err);
    hop_pieces_free(&next);
    return status;
}
