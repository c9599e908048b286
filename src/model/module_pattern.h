/* Regular expressions over names of modules, in the spelling Python's `re` and PCRE2 share. */
#ifndef HOP_MODEL_MODULE_PATTERN_H
#define HOP_MODEL_MODULE_PATTERN_H

#include <stdbool.h>

#include "base/error.h"

struct hop_module_pattern;

/* HOP_INPUT with `where` and the place in the text when it is no regular expression. */
hop_status hop_module_pattern_create(const char *text, const char *where,
                                     struct hop_module_pattern **out, struct hop_error *err);
void hop_module_pattern_free(struct hop_module_pattern *pattern);

/* Does the whole name match, as in re.fullmatch()? HOP_UNSUPPORTED when that takes too many steps
 * to find out. */
hop_status hop_module_pattern_match(const struct hop_module_pattern *pattern, const char *name,
                                    bool *out, struct hop_error *err);

#endif
