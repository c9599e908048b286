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

#define SPACE_CLASS "\\p{Z}\\x09-\\x0d\\x{85}"

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

/* Appends the escape at regex[0..], a backslash and what follows, and returns its length (0:
 * refused). */
static size_t translate_escape(const char *regex, bool in_class, struct hop_string *out,
                               hop_status *status, struct hop_error *err)
{
    const char *text = NULL;
    if (regex[1] == 's')
        text = in_class ? SPACE_CLASS : "[" SPACE_CLASS "]";
    else if (regex[1] == 'S' && !in_class)
        text = "[^" SPACE_CLASS "]";
    else if (regex[1] == 'h' || regex[1] == 'H')
        return 0;
    const size_t n = regex[1] ? 2 : 1;
    *status = text ? hop_string_append(out, text, strlen(text), err)
                   : hop_string_append(out, regex, n, err);
    return n;
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
            n = translate_escape(at, in_class, out, &status, err);
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
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &where, NULL);
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
    /* Long lines are fine: the patterns are known when the file is read, only the text varies. */
    pcre2_set_match_limit(pattern->context, UINT32_MAX);
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
    const char *const at =
        memmem(m->text + m->from, m->length - m->from, m->pattern->literal, m->pattern->length);
    if (!at)
        return false;
    m->begin = (size_t)(at - m->text);
    m->end = m->begin + m->pattern->length;
    return true;
}

static hop_status search_regex(struct hop_matches *m, bool *found, struct hop_error *err)
{
    const struct hop_pattern *const p = m->pattern;
    PCRE2_SPTR const text = (PCRE2_SPTR)m->text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit)
        rc = pcre2_jit_match(p->code, text, m->length, m->from, 0, p->match, p->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, text, m->length, m->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         p->match, p->context);
    *found = rc >= 0;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(rc, message, sizeof message);
        return hop_fail(err, rc == PCRE2_ERROR_NOMEMORY ? HOP_MEMORY : HOP_INTERNAL,
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
    for (;;) {
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
