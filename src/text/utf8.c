/* UTF-8: checking, stepping, repairing, and the character classes the tokenizer's rules name. */
#include <string.h>

#include <utf8proc.h>

#include "text/tokenizer_internal.h"

/* What may follow a lead byte: how many bytes, and the range of the first of them, which is what
 * excludes overlong forms, surrogates and values past U+10FFFF. */
struct lead {
    unsigned char follow, low, high;
};

static struct lead lead_of(unsigned char byte)
{
    if (byte >= 0xC2 && byte <= 0xDF)
        return (struct lead){1, 0x80, 0xBF};
    if (byte >= 0xE0 && byte <= 0xEF)
        return (struct lead){2, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF};
    if (byte >= 0xF0 && byte <= 0xF4)
        return (struct lead){3, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF};
    return (struct lead){0, 0, 0};
}

/* Length of the character at s, or, when it is not valid, of the longest start of one (at least 1).
 */
static size_t character_span(const unsigned char *s, size_t n, bool *valid)
{
    *valid = s[0] < 0x80;
    const struct lead lead = lead_of(s[0]);
    if (!lead.follow)
        return 1;
    for (size_t i = 1; i <= lead.follow; i++) {
        const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
        if (i == n || s[i] < low || s[i] > high)
            return i;
    }
    *valid = true;
    return (size_t)lead.follow + 1;
}

static bool eight_ascii(const char *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return !(word & UINT64_C(0x8080808080808080));
}

size_t hop_utf8_valid_prefix(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if (n - i >= 8 && eight_ascii(text + i)) {
            i += 8;
            continue;
        }
        bool valid;
        const size_t span = character_span((const unsigned char *)text + i, n - i, &valid);
        if (!valid)
            return i;
        i += span;
    }
    return n;
}

size_t hop_utf8_decode(const char *text, int32_t *codepoint)
{
    const unsigned char *const s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *codepoint = s[0];
        return 1;
    }
    if (s[0] < 0xE0) {
        *codepoint = (s[0] & 0x1F) << 6 | (s[1] & 0x3F);
        return 2;
    }
    if (s[0] < 0xF0) {
        *codepoint = (s[0] & 0x0F) << 12 | (s[1] & 0x3F) << 6 | (s[2] & 0x3F);
        return 3;
    }
    *codepoint = (s[0] & 0x07) << 18 | (s[1] & 0x3F) << 12 | (s[2] & 0x3F) << 6 | (s[3] & 0x3F);
    return 4;
}

size_t hop_utf8_encode(int32_t codepoint, char out[4])
{
    return (size_t)utf8proc_encode_char(codepoint, (utf8proc_uint8_t *)out);
}

size_t hop_utf8_last(const char *text, size_t n)
{
    size_t i = n - 1;
    while (i && ((unsigned char)text[i] & 0xC0) == 0x80)
        i--;
    return i;
}

const char *hop_utf8_find(const char *text, size_t n, const char *wanted, size_t m)
{
    const char *at = text, *const end = text + n;
    while ((size_t)(end - at) >= m) {
        at = memchr(at, wanted[0], (size_t)(end - at) - m + 1);
        if (!at || !memcmp(at, wanted, m))
            return at;
        at++;
    }
    return NULL;
}

hop_status hop_utf8_append_lossy(struct hop_string *out, const char *bytes, size_t n,
                                 struct hop_error *err)
{
    size_t i = 0;
    while (i < n) {
        const size_t good = hop_utf8_valid_prefix(bytes + i, n - i);
        HOP_TRY(hop_string_append(out, bytes + i, good, err));
        i += good;
        if (i == n)
            break;
        bool valid;
        i += character_span((const unsigned char *)bytes + i, n - i, &valid);
        HOP_TRY(hop_string_append(out, "\xEF\xBF\xBD", 3, err));
    }
    return HOP_OK;
}

bool hop_utf8_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool hop_utf8_is_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200C || c == 0x200D;
    }
}
