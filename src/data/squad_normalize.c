#include "data/squad_normalize.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <utf8proc.h>

enum { REPLACEMENT = 0xFFFD, CAPITAL_SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2, DOTTED_I = 0x130 };

/* Decodes one character of text[0..n), n > 0, and returns its length. */
static size_t decode(const char *text, size_t n, int32_t *c)
{
    const utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, c);
    if (length > 0)
        return (size_t)length;
    *c = REPLACEMENT;
    return 1;
}

/* ---- classes ---- */

static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0x2028 ||
           c == 0x2029 || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

/* Python's \w, but for "_", which is gone by then. */
static bool is_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

/* Unicode's Cased, but for modifier letters, which are case-ignorable. */
static bool is_cased(int32_t c)
{
    static const struct {
        int32_t first, last;
    } others[] = {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2160, 0x217F},  {0x24B6, 0x24E9},
                  {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
    const utf8proc_category_t category = utf8proc_category(c);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (c >= others[i].first && c <= others[i].last)
            return true;
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* Unicode's Case_Ignorable: marks, modifiers, formats, and what stands inside of words. */
static bool is_case_ignorable(int32_t c)
{
    static const int32_t inside[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (c == inside[i])
            return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* ---- lower case ---- */

static bool cased_before(const char *text, size_t at)
{
    while (at) {
        int32_t c;
        const size_t end = at--;
        while (at && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
        decode(text + at, end - at, &c);
        if (!is_case_ignorable(c))
            return is_cased(c);
    }
    return false;
}

static bool cased_behind(const char *text, size_t n, size_t at)
{
    while (at < n) {
        int32_t c;
        at += decode(text + at, n - at, &c);
        if (!is_case_ignorable(c))
            return is_cased(c);
    }
    return false;
}

/* The lower case of c, which stands at text[begin..end); returns how many characters it has. */
static size_t lower(const char *text, size_t n, size_t begin, size_t end, int32_t c, int32_t out[2])
{
    out[0] = utf8proc_tolower(c);
    if (c == CAPITAL_SIGMA && cased_before(text, begin) && !cased_behind(text, n, end))
        out[0] = FINAL_SIGMA;
    if (c != DOTTED_I)
        return 1;
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
}

/* ---- words ---- */

struct writer {
    struct hop_string *out;
    bool space; /* one is due before the next character */
    bool in_word;
    size_t word; /* where the word begins, the space before it included */
};

static bool is_article(const char *word, size_t n)
{
    return (n == 1 && word[0] == 'a') || (n == 2 && memcmp(word, "an", 2) == 0) ||
           (n == 3 && memcmp(word, "the", 3) == 0);
}

static void end_word(struct writer *w)
{
    if (!w->in_word)
        return;
    w->in_word = false;
    const char *const end = w->out->data + w->out->length;
    const char *word = w->out->data + w->word;
    if (*word == ' ')
        word++;
    if (!is_article(word, (size_t)(end - word)))
        return;
    w->out->length = w->word;
    w->out->data[w->word] = '\0';
    w->space = true;
}

static hop_status put(struct writer *w, int32_t c, struct hop_error *err)
{
    utf8proc_uint8_t bytes[4];
    const bool word = is_word(c);
    if (!word)
        end_word(w);
    if (is_space(c)) {
        w->space = true;
        return HOP_OK;
    }
    if (word && !w->in_word)
        w->word = w->out->length;
    w->in_word = word;
    if (w->space && w->out->length)
        HOP_TRY(hop_string_append(w->out, " ", 1, err));
    w->space = false;
    const utf8proc_ssize_t n = utf8proc_encode_char(c, bytes);
    return hop_string_append(w->out, (const char *)bytes, (size_t)n, err);
}

hop_status hop_squad_normalize(const char *text, struct hop_string *out, struct hop_error *err)
{
    const size_t n = strlen(text);
    struct writer writer = {.out = out};
    out->length = 0;
    HOP_TRY(hop_string_append(out, "", 0, err));
    for (size_t at = 0; at < n;) {
        int32_t c, low[2];
        const size_t length = decode(text + at, n - at, &c);
        const size_t count = lower(text, n, at, at + length, c, low);
        at += length;
        for (size_t i = 0; i < count; i++)
            if (low[i] >= 0x80 || !ispunct(low[i]))
                HOP_TRY(put(&writer, low[i], err));
    }
    end_word(&writer);
    return HOP_OK;
}
