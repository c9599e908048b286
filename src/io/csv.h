/* CSV rows through libcsv: RFC 4180 quoting with newlines inside quotes, LF or CRLF, optional UTF-8
 * BOM. */
#ifndef HOP_IO_CSV_H
#define HOP_IO_CSV_H

#include <stddef.h>

#include "base/error.h"

struct hop_csv_row {
    const char *const *fields; /* NUL-terminated, owned by the reader, valid during the callback */
    const size_t *lengths;
    size_t count;
    size_t line; /* of the file where the row starts, from 1 */
};

/* Calls `row` for each row that is not blank; stops at the first status that is not HOP_OK. Broken
 * quoting is HOP_INPUT with file:line. */
hop_status hop_csv_read(const char *path,
                        hop_status (*row)(void *context, const struct hop_csv_row *row,
                                          struct hop_error *err),
                        void *context, struct hop_error *err);

#endif
