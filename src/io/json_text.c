/* JSON text with short reals: jansson writes 17 digits, so that 0.1 becomes 0.10000000000000001. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"

/* What may stand in a number. */
static size_t number_length(const char *text)
{
    return strspn(text, "0123456789+-.eE");
}

/* The shortest of the spellings with 15 to 17 digits that is the same number. */
static void shorten(double value, char *out, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, value);
        const double back = strtod(out, NULL);
        if (!(back < value) && !(back > value))
            break;
    }
    if (!strpbrk(out, ".e"))
        strncat(out, ".0", size - strlen(out) - 1);
}

static hop_status append_number(const char *text, size_t n, struct hop_string *out,
                                struct hop_error *err)
{
    char token[64], shortened[64];
    const bool real = memchr(text, '.', n) || memchr(text, 'e', n);
    if (n >= sizeof token || !real)
        return hop_string_append(out, text, n, err);
    memcpy(token, text, n);
    token[n] = '\0';
    shorten(strtod(token, NULL), shortened, sizeof shortened);
    return hop_string_append(out, shortened, strlen(shortened), err);
}

/* A string token with its quotes. */
static size_t string_length(const char *text)
{
    size_t n = 1;
    while (text[n] && text[n] != '"')
        n += text[n] == '\\' && text[n + 1] ? 2 : 1;
    return text[n] ? n + 1 : n;
}

static hop_status copy_shortened(const char *text, struct hop_string *out, struct hop_error *err)
{
    while (*text) {
        const bool number = *text == '-' || (*text >= '0' && *text <= '9');
        size_t n = *text == '"' ? string_length(text) : number ? number_length(text) : 1;
        if (number)
            HOP_TRY(append_number(text, n, out, err));
        else
            HOP_TRY(hop_string_append(out, text, n, err));
        text += n;
    }
    return HOP_OK;
}

hop_status hop_json_text(const json_t *value, size_t indent, struct hop_string *out,
                         struct hop_error *err)
{
    char *const text =
        json_dumps(value, JSON_INDENT(indent) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text)
        return hop_fail(err, HOP_INTERNAL, "a value cannot be written as JSON");
    const hop_status status = copy_shortened(text, out, err);
    free(text);
    return status;
}
