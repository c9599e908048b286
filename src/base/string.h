/* A growable byte string, and the nearest-name search behind "did you mean". */
#ifndef HOP_BASE_STRING_H
#define HOP_BASE_STRING_H

#include <stddef.h>

#include "base/error.h"

/* Zero-initialised is empty and valid. data is NUL-terminated whenever it is not NULL. */
struct hop_string {
    char *data;
    size_t length, capacity;
};

hop_status hop_string_append(struct hop_string *s, const char *bytes, size_t n,
                             struct hop_error *err);
hop_status hop_string_printf(struct hop_string *s, struct hop_error *err, const char *format, ...)
    HOP_PRINTF(3, 4);
/* "" for an empty string, never NULL. */
const char *hop_string_text(const struct hop_string *s);
void hop_string_free(struct hop_string *s);

/* *out = malloc'ed copy of text. */
hop_status hop_string_copy(char **out, const char *text, struct hop_error *err);

/* The candidate with the smallest edit distance to name, or NULL when none is close enough to be a
 * plausible misspelling. */
const char *hop_nearest_name(const char *name, const char *const *candidates, size_t count);

#endif
