/* The lines of a JSON Lines file as parsed values. Internal to src/data. */
#ifndef HOP_DATA_JSONL_LINES_H
#define HOP_DATA_JSONL_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/error.h"

struct hop_jsonl_line {
    const char *where; /* "file:line" */
    size_t line;       /* from 1 */
    const json_t *row; /* an object */
};

/* Calls `row` for each line that is not blank, until it clears *more or fails. A BOM, CRLF
 * and lone CR are fine. */
hop_status hop_jsonl_read(const char *path,
                          hop_status (*row)(void *context, const struct hop_jsonl_line *line,
                                            bool *more, struct hop_error *err),
                          void *context, struct hop_error *err);

#endif
