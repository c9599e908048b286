/* Patterns of tokenizer.json. The files are written for Oniguruma; the few spellings that mean
 * something else to PCRE2 are translated or refused: \s       Unicode White_Space there; PCRE2's
 * own \s also takes U+180E \h       a hexadecimal digit there, white space in PCRE2: refused [a[b]]
 * nested classes and && (intersection): refused ^ and $  match at every line: PCRE2_MULTILINE */
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

static const char spaces[] = "\\p{Z}\\x09-\\x0d\\x{85}";

/* What Unicode 15 to 16 added to each class: the reference knows these characters, and PCRE2 does
 * from 10.45 on. They are rare, but decide where a word ends. */
static const char new_letters[] =
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"
    "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}"
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}"
    "\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}"
    "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"
    "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
static const char new_numbers[] =
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}"
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}"
    "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";
static const char new_marks[] =
    "\\x{897}\\x{CF3}\\x{ECE}\\x{10D69}-\\x{10D6D}\\x{10EFC}-\\x{10EFF}\\x{11241}"
    "\\x{113B8}-\\x{113C0}\\x{113C2}\\x{113C5}\\x{113C7}-\\x{113CA}\\x{113CC}-\\x{113D0}"
    "\\x{113D2}\\x{113E1}-\\x{113E2}\\x{11F00}-\\x{11F01}\\x{11F03}\\x{11F34}-\\x{11F3A}"
    "\\x{11F3E}-\\x{11F42}\\x{11F5A}\\x{13440}\\x{13447}-\\x{13455}\\x{1611E}-\\x{1612F}"
    "\\x{1E08F}\\x{1E4EC}-\\x{1E4EF}\\x{1E5EE}-\\x{1E5EF}";
static const char new_punctuation[] =
    "\\x{1B4E}-\\x{1B4F}\\x{1B7F}\\x{10D6E}\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}"
    "\\x{11B00}-\\x{11B09}\\x{11BE1}\\x{11F43}-\\x{11F4F}\\x{16D6D}-\\x{16D6F}\\x{1E5FF}";
static const char new_symbols[] =
    "\\x{2427}-\\x{2429}\\x{2FFC}-\\x{2FFF}\\x{31E4}-\\x{31E5}\\x{31EF}"
    "\\x{10D8E}-\\x{10D8F}\\x{1CC00}-\\x{1CCEF}\\x{1CD00}-\\x{1CEB3}\\x{1F6DC}"
    "\\x{1F774}-\\x{1F776}\\x{1F77B}-\\x{1F77F}\\x{1F7D9}\\x{1F8B2}-\\x{1F8BB}"
    "\\x{1F8C0}-\\x{1F8C1}\\x{1FA75}-\\x{1FA77}\\x{1FA87}-\\x{1FA89}\\x{1FA8F}"
    "\\x{1FAAD}-\\x{1FAAF}\\x{1FABB}-\\x{1FABF}\\x{1FAC6}\\x{1FACE}-\\x{1FACF}"
    "\\x{1FADA}-\\x{1FADC}\\x{1FADF}\\x{1FAE8}-\\x{1FAE9}\\x{1FAF7}-\\x{1FAF8}"
    "\\x{1FBCB}-\\x{1FBEF}";

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

/* An escape that is spelled out as members of a class. */
struct spelling {
    const char *escape;
    bool negated, keep; /* keep: the escape itself is a member as well */
    const char *members;
};

static const struct spelling *find_spelling(const char *regex, bool in_class)
{
    static const struct spelling all[] = {
        {"\\s", false, false, spaces},        {"\\S", true, false, spaces},
        {"\\p{L}", false, true, new_letters}, {"\\p{N}", false, true, new_numbers},
        {"\\p{M}", false, true, new_marks},   {"\\p{P}", false, true, new_punctuation},
        {"\\p{S}", false, true, new_symbols},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strncmp(regex, all[i].escape, strlen(all[i].escape)) && !(all[i].negated && in_class))
            return &all[i];
    return NULL;
}

static hop_status spell(const struct spelling *s, bool in_class, struct hop_string *out,
                        struct hop_error *err)
{
    const char *const opening = s->negated ? "[^" : "[";
    return hop_string_printf(out, err, "%s%s%s%s", in_class ? "" : opening,
                             s->keep ? s->escape : "", s->members, in_class ? "" : "]");
}

/* Translates the escape at regex and stores its length, 0 when it is refused. */
static hop_status translate_escape(const char *regex, bool in_class, struct hop_string *out,
                                   size_t *length, struct hop_error *err)
{
    const struct spelling *const spelling = find_spelling(regex, in_class);
    if (spelling) {
        *length = strlen(spelling->escape);
        return spell(spelling, in_class, out, err);
    }
    *length = regex[1] ? 2 : 1;
    if (regex[1] == 'h' || regex[1] == 'H')
        *length = 0;
    return hop_string_append(out, regex, *length, err);
}

static bool refused_in_class(const char *regex)
{
    return (regex[0] == '[' && regex[1] != ':') || (regex[0] == '&' && regex[1] == '&');
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

/* Length of what ends a POSIX name such as [:alpha:], or 1. */
static size_t class_member(const char *regex)
{
    const char *const end = regex[0] == '[' ? strstr(regex, ":]") : NULL;
    return end ? (size_t)(end - regex) + 2 : 1;
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
            n = refused_in_class(at) ? 0 : class_member(at);
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
