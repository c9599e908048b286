#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/module_pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

/* Names have under a hundred characters: an expression that needs more is broken or hostile. */
enum { STEP_LIMIT = 1 << 18 };

struct hop_module_pattern {
    char *text, *where;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

static hop_status compile(struct hop_module_pattern *pattern, struct hop_error *err)
{
    int reason;
    PCRE2_SIZE at;
    pattern->code =
        pcre2_compile((PCRE2_SPTR)pattern->text, PCRE2_ZERO_TERMINATED,
                      PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &reason, &at, NULL);
    if (pattern->code)
        return HOP_OK;
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(reason, message, sizeof message);
    return hop_fail(err, HOP_INPUT, "%s: \"%s\" is not a regular expression: %s at character %zu",
                    pattern->where, pattern->text, (const char *)message, (size_t)at);
}

static hop_status fill(struct hop_module_pattern *pattern, const char *text, const char *where,
                       struct hop_error *err)
{
    HOP_TRY(hop_string_copy(&pattern->text, text, err));
    HOP_TRY(hop_string_copy(&pattern->where, where, err));
    HOP_TRY(compile(pattern, err));
    pattern->match = pcre2_match_data_create(1, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->match || !pattern->context)
        return hop_fail(err, HOP_MEMORY, "%s: out of memory for \"%s\"", where, text);
    pcre2_set_match_limit(pattern->context, STEP_LIMIT);
    return HOP_OK;
}

hop_status hop_module_pattern_create(const char *text, const char *where,
                                     struct hop_module_pattern **out, struct hop_error *err)
{
    struct hop_module_pattern *pattern;
    HOP_TRY(hop_calloc(&pattern, 1, sizeof *pattern, err));
    const hop_status status = fill(pattern, text, where, err);
    if (status != HOP_OK) {
        hop_module_pattern_free(pattern);
        return status;
    }
    *out = pattern;
    return HOP_OK;
}

void hop_module_pattern_free(struct hop_module_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_match_context_free(pattern->context);
    pcre2_match_data_free(pattern->match);
    pcre2_code_free(pattern->code);
    free(pattern->text);
    free(pattern->where);
    free(pattern);
}

hop_status hop_module_pattern_match(const struct hop_module_pattern *pattern, const char *name,
                                    bool *out, struct hop_error *err)
{
    const int found = pcre2_match(pattern->code, (PCRE2_SPTR)name, strlen(name), 0, 0,
                                  pattern->match, pattern->context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"%s\" takes too long to match %s; write a simpler expression",
                        pattern->where, pattern->text, name);
    *out = found >= 0;
    return HOP_OK;
}
