#include "report/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

struct hop_table {
    size_t columns;
    char **cells; /* headers first, then row by row */
    size_t count, capacity;
    bool *right;   /* (columns) */
    size_t *width; /* (columns), in characters */
};

/* Characters of UTF-8 text: bytes that do not continue one. */
static size_t text_width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static hop_status add_cell(struct hop_table *table, const char *text, struct hop_error *err)
{
    char *copy;
    HOP_TRY(hop_grow(&table->cells, &table->capacity, table->count + 1, sizeof *table->cells, err));
    HOP_TRY(hop_string_copy(&copy, text, err));
    const size_t column = table->count % table->columns;
    const size_t width = text_width(text);
    if (width > table->width[column])
        table->width[column] = width;
    table->cells[table->count++] = copy;
    return HOP_OK;
}

static hop_status add_headers(struct hop_table *table, const char *const *headers,
                              struct hop_error *err)
{
    HOP_TRY(hop_calloc(&table->right, table->columns, sizeof *table->right, err));
    HOP_TRY(hop_calloc(&table->width, table->columns, sizeof *table->width, err));
    for (size_t c = 0; c < table->columns; c++) {
        table->right[c] = headers[c][0] == '>';
        HOP_TRY(add_cell(table, headers[c] + table->right[c], err));
    }
    return HOP_OK;
}

hop_status hop_table_create(const char *const *headers, struct hop_table **out,
                            struct hop_error *err)
{
    struct hop_table *table;
    size_t columns = 0;
    while (headers[columns])
        columns++;
    if (columns == 0)
        return hop_fail(err, HOP_INTERNAL, "table: no columns");
    HOP_TRY(hop_calloc(&table, 1, sizeof *table, err));
    table->columns = columns;
    const hop_status status = add_headers(table, headers, err);
    if (status == HOP_OK)
        *out = table;
    else
        hop_table_free(table);
    return status;
}

hop_status hop_table_cell(struct hop_table *table, struct hop_error *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = NULL;
    hop_status status = hop_calloc(&text, (size_t)length + 1, 1, err);
    if (status == HOP_OK) {
        vsnprintf(text, (size_t)length + 1, format, again);
        status = add_cell(table, text, err);
    }
    va_end(again);
    free(text);
    return status;
}

static void print_cell(const struct hop_table *table, size_t cell, FILE *to)
{
    const size_t column = cell % table->columns;
    const char *const text = table->cells[cell];
    const int gap = (int)(table->width[column] - text_width(text));
    const bool last = column + 1 == table->columns || cell + 1 == table->count;
    if (table->right[column])
        fprintf(to, "%*s%s", gap, "", text);
    else
        fprintf(to, "%s%*s", text, last ? 0 : gap, "");
    fputs(last ? "\n" : "  ", to);
}

void hop_table_print(const struct hop_table *table, FILE *to)
{
    for (size_t cell = 0; cell < table->count; cell++)
        print_cell(table, cell, to);
}

void hop_table_free(struct hop_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table->right);
    free(table->width);
    free(table);
}
