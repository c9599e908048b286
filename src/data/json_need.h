/* Values that a data file must hold. Internal to src/data.
 *
 * A missing value or a wrong type is HOP_INPUT: the place, the key and what is needed there. */
#ifndef HOP_DATA_JSON_NEED_H
#define HOP_DATA_JSON_NEED_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/error.h"
#include "base/string.h"

/* What is stored points into object. */
hop_status hop_need_string(const json_t *object, const char *key, const char *where,
                           const char **out, struct hop_error *err);
hop_status hop_need_list(const json_t *object, const char *key, const char *where,
                         const json_t **out, struct hop_error *err);
hop_status hop_need_object(const json_t *object, const char *key, const char *where,
                           const json_t **out, struct hop_error *err);

/* true, false, 1 and 0, with 1.0 and 0.0, are truth values. False when value is none. */
bool hop_read_truth(const json_t *value, bool *out);

/* place->data = the printed text; the string is used again and again. */
hop_status hop_place(struct hop_string *place, struct hop_error *err, const char *format, ...)
    HOP_PRINTF(3, 4);

#endif
