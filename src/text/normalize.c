/* Normalizers: Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, and Sequences of them. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

enum kind { PREPEND, REPLACE, COMPOSE, LOWERCASE, STRIP };

struct hop_normalizer_step {
    enum kind kind;
    char *text; /* what to prepend, or the replacement */
    struct hop_pattern *pattern;
    utf8proc_option_t form;
    bool left, right; /* sides to strip */
};

static const struct {
    const char *name;
    int form;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static hop_status read_text(const struct hop_component *c, const char *key,
                            struct hop_normalizer_step *step, struct hop_error *err)
{
    const char *text;
    HOP_TRY(hop_component_text(c, key, &text, err));
    return hop_string_copy(&step->text, text, err);
}

static hop_status read_strip(const struct hop_component *c, struct hop_normalizer_step *step,
                             struct hop_error *err)
{
    const json_t *const left = json_object_get(c->json, "strip_left");
    const json_t *const right = json_object_get(c->json, "strip_right");
    if (!json_is_boolean(left) || !json_is_boolean(right))
        return hop_component_bad(c, "strip_left\" and \"strip_right", "true or false", err);
    step->kind = STRIP;
    step->left = json_is_true(left);
    step->right = json_is_true(right);
    return HOP_OK;
}

static hop_status read_step(const struct hop_component *c, struct hop_normalizer_step *step,
                            struct hop_error *err)
{
    if (!strcmp(c->type, "Prepend")) {
        step->kind = PREPEND;
        return read_text(c, "prepend", step, err);
    }
    if (!strcmp(c->type, "Replace")) {
        step->kind = REPLACE;
        HOP_TRY(hop_pattern_read(c, "pattern", &step->pattern, err));
        return read_text(c, "content", step, err);
    }
    if (!strcmp(c->type, "Lowercase")) {
        step->kind = LOWERCASE;
        return HOP_OK;
    }
    if (!strcmp(c->type, "Strip"))
        return read_strip(c, step, err);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(c->type, forms[i].name)) {
            step->kind = COMPOSE;
            step->form = (utf8proc_option_t)forms[i].form;
            return HOP_OK;
        }
    return hop_component_unsupported(c, err);
}

static hop_status add_step(const struct hop_component *c, void *context, struct hop_error *err)
{
    struct hop_normalizer *const normalizer = context;
    HOP_TRY(hop_grow(&normalizer->steps, &normalizer->capacity, normalizer->count + 1,
                     sizeof *normalizer->steps, err));
    struct hop_normalizer_step *const step = &normalizer->steps[normalizer->count++];
    *step = (struct hop_normalizer_step){0};
    return read_step(c, step, err);
}

hop_status hop_normalizer_read(json_t *root, const char *path, struct hop_normalizer *out,
                               struct hop_error *err)
{
    return hop_component_walk(root, path, "normalizer", "normalizers", add_step, out, err);
}

static hop_status compose(utf8proc_option_t form, const char *text, size_t n,
                          struct hop_string *out, struct hop_error *err)
{
    utf8proc_uint8_t *composed = NULL;
    const utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &composed, form);
    if (length < 0)
        return hop_fail(err, length == UTF8PROC_ERROR_NOMEM ? HOP_MEMORY : HOP_INTERNAL,
                        "Unicode normalization: %s", utf8proc_errmsg(length));
    const hop_status status = hop_string_append(out, (const char *)composed, (size_t)length, err);
    free(composed);
    return status;
}

static hop_status lowercase(const char *text, size_t n, struct hop_string *out,
                            struct hop_error *err)
{
    for (size_t i = 0; i < n;) {
        int32_t codepoint;
        char bytes[4];
        i += hop_utf8_decode(text + i, &codepoint);
        const size_t length = hop_utf8_encode(utf8proc_tolower(codepoint), bytes);
        HOP_TRY(hop_string_append(out, bytes, length, err));
        /* The one character whose lower case is two: I with dot above. */
        if (codepoint == 0x130)
            HOP_TRY(hop_string_append(out, "\xCC\x87", 2, err));
    }
    return HOP_OK;
}

static hop_status strip(const struct hop_normalizer_step *step, const char *text, size_t n,
                        struct hop_string *out, struct hop_error *err)
{
    int32_t codepoint;
    size_t begin = 0, end = n;
    while (step->left && begin < end) {
        const size_t length = hop_utf8_decode(text + begin, &codepoint);
        if (!hop_utf8_is_space(codepoint))
            break;
        begin += length;
    }
    while (step->right && begin < end) {
        const size_t last = hop_utf8_last(text, end);
        hop_utf8_decode(text + last, &codepoint);
        if (!hop_utf8_is_space(codepoint))
            break;
        end = last;
    }
    return hop_string_append(out, text + begin, end - begin, err);
}

static hop_status apply_step(const void *context, const char *text, size_t n, bool first,
                             struct hop_string *out, struct hop_error *err)
{
    const struct hop_normalizer_step *const step = context;
    (void)first;
    switch (step->kind) {
    case PREPEND:
        HOP_TRY(hop_string_append(out, step->text, strlen(step->text), err));
        return hop_string_append(out, text, n, err);
    case REPLACE:
        return hop_pattern_replace(step->pattern, step->text, text, n, out, err);
    case COMPOSE:
        return compose(step->form, text, n, out, err);
    case LOWERCASE:
        return lowercase(text, n, out, err);
    case STRIP:
        return strip(step, text, n, out, err);
    }
    return hop_fail(err, HOP_INTERNAL, "unknown normalizer step");
}

hop_status hop_normalizer_apply(const struct hop_normalizer *normalizer, struct hop_pieces *pieces,
                                struct hop_pieces *scratch, struct hop_error *err)
{
    for (size_t i = 0; i < normalizer->count; i++)
        HOP_TRY(hop_pieces_rewrite(pieces, scratch, apply_step, &normalizer->steps[i], err));
    return HOP_OK;
}

void hop_normalizer_free(struct hop_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->count; i++) {
        free(normalizer->steps[i].text);
        hop_pattern_free(normalizer->steps[i].pattern);
    }
    free(normalizer->steps);
    *normalizer = (struct hop_normalizer){0};
}
