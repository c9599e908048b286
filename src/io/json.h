/* JSON through jansson: whole files with limits on size and depth, and getters that name the file
 * and the key when a value is missing or of the wrong type. */
#ifndef HOP_IO_JSON_H
#define HOP_IO_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "base/string.h"

/* Duplicate keys, depth beyond jansson's limit, NUL bytes and files over 256 MiB are errors. A
 * UTF-8 BOM is skipped; an integer beyond int64 (tokenizer_config.json holds one) becomes a real.
 * Caller json_decref()s *out. */
hop_status hop_json_load(const char *path, json_t **out, struct hop_error *err);
/* `where` names the text in messages, e.g. "data.jsonl:17". */
hop_status hop_json_parse(const char *text, size_t length, const char *where, json_t **out,
                          struct hop_error *err);
/* Appends the text of a value: indented by `indent`, reals with as few digits as bring them back.
 */
hop_status hop_json_text(const json_t *value, size_t indent, struct hop_string *out,
                         struct hop_error *err);
/* That text, indented by 2, written to path + ".tmp" and renamed, so that a reader never sees half
 * a file. */
hop_status hop_json_save(const char *path, const json_t *value, struct hop_error *err);

/* JSON knows neither INFINITY nor NAN: both are null. NULL: out of memory. */
json_t *hop_json_real(double value);

/* Getters: a missing key (or null) stores the default and is fine; a wrong type is HOP_INPUT. */
hop_status hop_json_get_int(const json_t *object, const char *key, const char *where,
                            int64_t fallback, int64_t *out, struct hop_error *err);
hop_status hop_json_get_real(const json_t *object, const char *key, const char *where,
                             double fallback, double *out, struct hop_error *err);
hop_status hop_json_get_bool(const json_t *object, const char *key, const char *where,
                             bool fallback, bool *out, struct hop_error *err);
/* *out points into object. */
hop_status hop_json_get_string(const json_t *object, const char *key, const char *where,
                               const char *fallback, const char **out, struct hop_error *err);

#endif
