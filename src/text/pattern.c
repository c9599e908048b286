/* Patterns of tokenizer.json. The files are written for Oniguruma; what means something else to
 * PCRE2 is translated or refused:
 *
 * \s         Unicode White_Space; PCRE2's own also takes U+180E
 * \w \b      letters, marks, decimal digits and connectors; PCRE2's take all numbers and no marks
 * \p{Han}    characters of the script; PCRE2's also those that several scripts share
 * \p{L} ...  the reference knows newer characters
 * ^ and $    match at every line: PCRE2_MULTILINE
 * \h         a hexadecimal digit, white space in PCRE2: refused
 * [a[b]]     nested classes, && (intersection) and POSIX names: refused
 *
 * One difference stays: Oniguruma's (?i) also lets "ss" match U+00DF and U+1E9E. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

struct hop_pattern {
    char *literal; /* NULL for a regular expression */
    size_t length;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool jit;
};

enum { JIT_STACK_START = 32 * 1024, JIT_STACK_LIMIT = 8 * 1024 * 1024 };

#define SPACES "\\p{Z}\\x09-\\x0d\\x{85}"

/* What Unicode 15 to 16 added to each class: the reference knows these characters, and PCRE2 does
 * from 10.45 on. They are rare, but decide where a word ends. */
#define NEW_LETTERS                                                                                \
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"               \
    "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}"           \
    "\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}"          \
    "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"                    \
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"                     \
    "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"          \
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NEW_DIGITS                                                                                 \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}"         \
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1E4F0}-\\x{1E4F9}"         \
    "\\x{1E5F1}-\\x{1E5FA}"
#define NEW_MARKS                                                                                  \
    "\\x{897}\\x{CF3}\\x{ECE}\\x{10D69}-\\x{10D6D}\\x{10EFC}-\\x{10EFF}\\x{11241}"                 \
    "\\x{113B8}-\\x{113C0}\\x{113C2}\\x{113C5}\\x{113C7}-\\x{113CA}\\x{113CC}-\\x{113D0}"          \
    "\\x{113D2}\\x{113E1}-\\x{113E2}\\x{11F00}-\\x{11F01}\\x{11F03}\\x{11F34}-\\x{11F3A}"          \
    "\\x{11F3E}-\\x{11F42}\\x{11F5A}\\x{13440}\\x{13447}-\\x{13455}\\x{1611E}-\\x{1612F}"          \
    "\\x{1E08F}\\x{1E4EC}-\\x{1E4EF}\\x{1E5EE}-\\x{1E5EF}"
#define NEW_PUNCTUATION                                                                            \
    "\\x{1B4E}-\\x{1B4F}\\x{1B7F}\\x{10D6E}\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}"             \
    "\\x{11B00}-\\x{11B09}\\x{11BE1}\\x{11F43}-\\x{11F4F}\\x{16D6D}-\\x{16D6F}\\x{1E5FF}"
#define NEW_SYMBOLS                                                                                \
    "\\x{2427}-\\x{2429}\\x{2FFC}-\\x{2FFF}\\x{31E4}-\\x{31E5}\\x{31EF}"                           \
    "\\x{10D8E}-\\x{10D8F}\\x{1CC00}-\\x{1CCEF}\\x{1CD00}-\\x{1CEB3}\\x{1F6DC}"                    \
    "\\x{1F774}-\\x{1F776}\\x{1F77B}-\\x{1F77F}\\x{1F7D9}\\x{1F8B2}-\\x{1F8BB}"                    \
    "\\x{1F8C0}-\\x{1F8C1}\\x{1FA75}-\\x{1FA77}\\x{1FA87}-\\x{1FA89}\\x{1FA8F}"                    \
    "\\x{1FAAD}-\\x{1FAAF}\\x{1FABB}-\\x{1FABF}\\x{1FAC6}\\x{1FACE}-\\x{1FACF}"                    \
    "\\x{1FADA}-\\x{1FADC}\\x{1FADF}\\x{1FAE8}-\\x{1FAE9}\\x{1FAF7}-\\x{1FAF8}"                    \
    "\\x{1FBCB}-\\x{1FBEF}"

static hop_status no_memory(struct hop_error *err)
{
    return hop_fail(err, HOP_MEMORY, "out of memory while preparing a tokenizer pattern");
}

hop_status hop_pattern_literal(const char *text, struct hop_pattern **out, struct hop_error *err)
{
    struct hop_pattern *pattern;
    HOP_TRY(hop_calloc(&pattern, 1, sizeof *pattern, err));
    const hop_status status = hop_string_copy(&pattern->literal, text, err);
    if (status != HOP_OK) {
        free(pattern);
        return status;
    }
    pattern->length = strlen(text);
    *out = pattern;
    return HOP_OK;
}

#define NEW_UPPER "\\x{1C89}\\x{A7CB}-\\x{A7CC}\\x{A7DA}\\x{A7DC}\\x{10D50}-\\x{10D65}"
#define NEW_LOWER "\\x{1C8A}\\x{A7CD}\\x{A7DB}\\x{10D70}-\\x{10D85}\\x{1DF25}-\\x{1DF2A}"
#define NEW_MODIFIERS                                                                              \
    "\\x{10D4E}\\x{10D6F}\\x{16D40}-\\x{16D42}\\x{16D6B}-\\x{16D6C}\\x{1E030}-\\x{1E06D}\\x{"      \
    "1E4EB}"
#define NEW_IDEOGRAPHS "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NEW_OTHER_LETTERS                                                                          \
    "\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D4D}\\x{10D4F}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{"     \
    "11240}"                                                                                       \
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}" \
    "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}"          \
    "\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D43}-\\x{16D6A}\\x{"     \
    "18CFF}"                                                                                       \
    "\\x{1B132}\\x{1B155}\\x{1E4D0}-\\x{1E4EA}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}" NEW_IDEOGRAPHS

/* The symbols are those that are letters to Unicode's Alphabetic. */
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{"     \
    "1F169}"                                                                                       \
    "\\x{1F170}-\\x{1F189}" NEW_LETTERS NEW_MARKS NEW_DIGITS
/* Outside of classes Oniguruma takes Latin-1's superscripts and fractions as well. */
#define LATIN_NUMBERS "\\xb2\\xb3\\xb9\\xbc-\\xbe"

/* From 10.40 on, the name of a script also means its extensions. */
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
#define SCRIPT(name) "\\p{sc:" name "}"
#else
#define SCRIPT(name) "\\p{" name "}"
#endif

/* An escape that is spelled out as members of a class. */
struct spelling {
    const char *escape;
    bool negated;
    const char *members;
    const char *outside; /* further members where the escape is no part of a class */
};

static const struct spelling spellings[] = {
    {"\\s", false, SPACES, ""},
    {"\\S", true, SPACES, ""},
    {"\\w", false, WORD, LATIN_NUMBERS},
    {"\\W", true, WORD, LATIN_NUMBERS},
    {"\\d", false, "\\p{Nd}" NEW_DIGITS, ""},
    {"\\D", true, "\\p{Nd}" NEW_DIGITS, ""},
    {"\\p{L}", false, "\\p{L}" NEW_LETTERS, ""},
    {"\\P{L}", true, "\\p{L}" NEW_LETTERS, ""},
    {"\\p{N}", false, "\\p{N}\\x{1D2C0}-\\x{1D2D3}" NEW_DIGITS, ""},
    {"\\P{N}", true, "\\p{N}\\x{1D2C0}-\\x{1D2D3}" NEW_DIGITS, ""},
    {"\\p{M}", false, "\\p{M}" NEW_MARKS, ""},
    {"\\p{P}", false, "\\p{P}" NEW_PUNCTUATION, ""},
    {"\\p{S}", false, "\\p{S}" NEW_SYMBOLS, ""},
    {"\\p{Lu}", false, "\\p{Lu}" NEW_UPPER, ""},
    {"\\p{Ll}", false, "\\p{Ll}" NEW_LOWER, ""},
    {"\\p{Lm}", false, "\\p{Lm}" NEW_MODIFIERS, ""},
    {"\\p{Lo}", false, "\\p{Lo}" NEW_OTHER_LETTERS, ""},
    {"\\p{Nd}", false, "\\p{Nd}" NEW_DIGITS, ""},
    {"\\p{Han}", false, SCRIPT("Han") NEW_IDEOGRAPHS, ""},
    {"\\p{Hiragana}", false, SCRIPT("Hiragana") "\\x{1B132}", ""},
    {"\\p{Katakana}", false, SCRIPT("Katakana") "\\x{1B155}", ""},
};

static const struct spelling *find_spelling(const char *regex)
{
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (!strncmp(regex, spellings[i].escape, strlen(spellings[i].escape)))
            return &spellings[i];
    return NULL;
}

static hop_status spell(const struct spelling *s, bool in_class, struct hop_string *out,
                        struct hop_error *err)
{
    if (in_class)
        return hop_string_printf(out, err, "%s", s->members);
    return hop_string_printf(out, err, "[%s%s%s]", s->negated ? "^" : "", s->members, s->outside);
}

/* Inside a class, a complement cannot be spelled; PCRE2's own will do but for words. */
static bool spelled_out(const struct spelling *s, bool in_class)
{
    return s && !(s->negated && in_class);
}

/* Between a word character and another, or anywhere else. */
static hop_status spell_edge(bool edge, struct hop_string *out, struct hop_error *err)
{
    static const char word[] = WORD LATIN_NUMBERS;
    return hop_string_printf(out, err, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", word,
                             edge ? '!' : '=', word, word, edge ? '=' : '!', word);
}

/* Translates the escape at regex and stores its length, 0 when it is refused. */
static hop_status translate_escape(const char *regex, bool in_class, struct hop_string *out,
                                   size_t *length, struct hop_error *err)
{
    const struct spelling *const spelling = find_spelling(regex);
    if (spelled_out(spelling, in_class)) {
        *length = strlen(spelling->escape);
        return spell(spelling, in_class, out, err);
    }
    *length = regex[1] ? 2 : 1;
    if (!in_class && (regex[1] == 'b' || regex[1] == 'B'))
        return spell_edge(regex[1] == 'b', out, err);
    if (regex[1] == 'h' || regex[1] == 'H' || (in_class && regex[1] == 'W'))
        *length = 0;
    return hop_string_append(out, regex, *length, err);
}

static bool refused_in_class(const char *regex)
{
    return regex[0] == '[' || (regex[0] == '&' && regex[1] == '&');
}

/* Length of what opens a class: "[", "[^", and a "]" right behind it, which is literal. */
static size_t class_opening(const char *regex)
{
    size_t n = 1;
    if (regex[n] == '^')
        n++;
    if (regex[n] == ']')
        n++;
    return n;
}

static hop_status translate(const char *regex, const char *path, struct hop_string *out,
                            struct hop_error *err)
{
    bool in_class = false;
    for (size_t i = 0, n; regex[i]; i += n) {
        const char *const at = regex + i;
        hop_status status = HOP_OK;
        if (*at == '\\') {
            status = translate_escape(at, in_class, out, &n, err);
        } else if (in_class) {
            n = refused_in_class(at) ? 0 : 1;
            in_class = *at != ']';
            status = hop_string_append(out, at, n, err);
        } else {
            in_class = *at == '[';
            n = in_class ? class_opening(at) : 1;
            status = hop_string_append(out, at, n, err);
        }
        if (!n)
            return hop_fail(err, HOP_UNSUPPORTED,
                            "%s: pattern \"%.200s\": \"%.2s\" at byte %zu is not supported", path,
                            regex, at, i);
        HOP_TRY(status);
    }
    return HOP_OK;
}

static hop_status compile(struct hop_pattern *pattern, const char *regex, const char *shown,
                          const char *path, struct hop_error *err)
{
    int code;
    PCRE2_SIZE where;
    pattern->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                  &code, &where, NULL);
    if (!pattern->code) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(code, message, sizeof message);
        return hop_fail(err, HOP_UNSUPPORTED, "%s: pattern \"%.200s\": %s", path, shown,
                        (const char *)message);
    }
    pattern->jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    pattern->match = pcre2_match_data_create(1, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->match || !pattern->context)
        return no_memory(err);
    pcre2_set_depth_limit(pattern->context, UINT32_MAX);
    pcre2_set_heap_limit(pattern->context, UINT32_MAX);
    if (!pattern->jit)
        return HOP_OK;
    pattern->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_LIMIT, NULL);
    if (!pattern->stack)
        return no_memory(err);
    pcre2_jit_stack_assign(pattern->context, NULL, pattern->stack);
    return HOP_OK;
}

hop_status hop_pattern_regex(const char *text, const char *path, struct hop_pattern **out,
                             struct hop_error *err)
{
    struct hop_pattern *pattern = NULL;
    struct hop_string regex = {0};
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&pattern, 1, sizeof *pattern, err));
    HOP_TRY_DONE(translate(text, path, &regex, err));
    HOP_TRY_DONE(compile(pattern, hop_string_text(&regex), text, path, err));
    *out = pattern;
    pattern = NULL;
done:
    hop_pattern_free(pattern);
    hop_string_free(&regex);
    return status;
}

hop_status hop_pattern_read(const struct hop_component *component, const char *key,
                            struct hop_pattern **out, struct hop_error *err)
{
    json_t *const json = json_object_get(component->json, key);
    const char *const literal = json_string_value(json_object_get(json, "String"));
    const char *const regex = json_string_value(json_object_get(json, "Regex"));
    if (literal && *literal)
        return hop_pattern_literal(literal, out, err);
    if (regex && *regex)
        return hop_pattern_regex(regex, component->path, out, err);
    return hop_component_bad(component, key, "{\"String\": text} or {\"Regex\": text}", err);
}

void hop_pattern_free(struct hop_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_jit_stack_free(pattern->stack);
    pcre2_match_context_free(pattern->context);
    pcre2_match_data_free(pattern->match);
    pcre2_code_free(pattern->code);
    free(pattern->literal);
    free(pattern);
}

static bool search_literal(struct hop_matches *m)
{
    const char *const at = hop_utf8_find(m->text + m->from, m->length - m->from,
                                         m->pattern->literal, m->pattern->length);
    if (!at)
        return false;
    m->begin = (size_t)(at - m->text);
    m->end = m->begin + m->pattern->length;
    return true;
}

/* Backtracking in proportion to the text is fine; a pattern that explodes is stopped. */
static uint32_t match_limit(size_t n)
{
    const size_t limit = 10000000 + 64 * n;
    return limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX;
}

static hop_status search_regex(struct hop_matches *m, bool *found, struct hop_error *err)
{
    const struct hop_pattern *const p = m->pattern;
    PCRE2_SPTR const text = (PCRE2_SPTR)m->text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    pcre2_set_match_limit(p->context, match_limit(m->length));
    if (p->jit)
        rc = pcre2_jit_match(p->code, text, m->length, m->from, 0, p->match, p->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, text, m->length, m->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         p->match, p->context);
    *found = rc >= 0;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(rc, message, sizeof message);
        return hop_fail(err, rc == PCRE2_ERROR_NOMEMORY ? HOP_MEMORY : HOP_INPUT,
                        "splitting text by the tokenizer's pattern: %s", (const char *)message);
    }
    const PCRE2_SIZE *const ends = pcre2_get_ovector_pointer(p->match);
    m->begin = ends[0];
    m->end = ends[1];
    return HOP_OK;
}

hop_status hop_matches_next(struct hop_matches *m, bool *found, struct hop_error *err)
{
    for (;;) {
        *found = false;
        if (m->from > m->length)
            return HOP_OK;
        if (m->pattern->literal)
            *found = search_literal(m);
        else
            HOP_TRY(search_regex(m, found, err));
        if (!*found)
            return HOP_OK;
        const bool again = m->begin == m->end && m->matched && m->end == m->from;
        if (!again)
            break;
        /* An empty match right behind the previous one is no progress: look one character later. */
        int32_t codepoint;
        m->from += m->from < m->length ? hop_utf8_decode(m->text + m->from, &codepoint) : 1;
        m->matched = false;
    }
    m->from = m->end;
    m->matched = true;
    return HOP_OK;
}

hop_status hop_pattern_replace(const struct hop_pattern *pattern, const char *replacement,
                               const char *text, size_t n, struct hop_string *out,
                               struct hop_error *err)
{
    struct hop_matches m = {.pattern = pattern, .text = text, .length = n};
    const size_t replacement_length = strlen(replacement);
    size_t copied = 0;
    while (n) {
        bool found;
        HOP_TRY(hop_matches_next(&m, &found, err));
        if (!found)
            break;
        HOP_TRY(hop_string_append(out, text + copied, m.begin - copied, err));
        HOP_TRY(hop_string_append(out, replacement, replacement_length, err));
        copied = m.end;
    }
    return hop_string_append(out, text + copied, n - copied, err);
}
