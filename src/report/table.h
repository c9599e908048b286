/* Plain text tables: columns as wide as they need, numbers to the right. */
#ifndef HOP_REPORT_TABLE_H
#define HOP_REPORT_TABLE_H

#include <stdio.h>

#include "base/error.h"

struct hop_table;

/* headers: NULL-terminated. A header that starts with '>' right-aligns its column. */
hop_status hop_table_create(const char *const *headers, struct hop_table **out,
                            struct hop_error *err);
/* One row; values as printf would make them, column by column. */
hop_status hop_table_cell(struct hop_table *table, struct hop_error *err, const char *format, ...)
    HOP_PRINTF(3, 4);
void hop_table_print(const struct hop_table *table, FILE *to);
void hop_table_free(struct hop_table *table);

#endif
