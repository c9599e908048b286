#include "io/csv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <csv.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"

/* An unclosed quote would otherwise swallow the rest of a large file. */
static const size_t row_limit = (size_t)4 << 20;

/* libcsv's own step of 128 bytes copies a long field thousands of times. */
enum { FIELD_STEP = 64 << 10 };

typedef hop_status row_function(void *context, const struct hop_csv_row *row,
                                struct hop_error *err);

/* libcsv reports fields one at a time and no positions: fields are collected in `bytes`, and the
 * text is fed line by line so that the line a row starts in is known. */
struct reader {
    const char *path;
    row_function *row;
    void *context;
    struct hop_string bytes;
    size_t *offsets, *lengths;
    const char **fields;
    size_t count, offset_capacity, length_capacity, field_capacity;
    size_t row_line; /* where the row being read starts */
    bool row_ended;  /* since the last line was fed */
    hop_status status;
    struct hop_error *err;
};

static hop_status add_field(struct reader *r, const char *text, size_t length)
{
    struct hop_error *const err = r->err;
    if (memchr(text, '\0', length))
        return hop_fail(err, HOP_INPUT, "%s:%zu: a NUL character is not allowed", r->path,
                        r->row_line);
    if (r->bytes.length + length > row_limit)
        return hop_fail(err, HOP_INPUT,
                        "%s:%zu: the row is longer than %zu bytes; is a quote open?", r->path,
                        r->row_line, row_limit);
    HOP_TRY(hop_grow(&r->offsets, &r->offset_capacity, r->count + 1, sizeof *r->offsets, err));
    HOP_TRY(hop_grow(&r->lengths, &r->length_capacity, r->count + 1, sizeof *r->lengths, err));
    r->offsets[r->count] = r->bytes.length;
    r->lengths[r->count] = length;
    r->count++;
    HOP_TRY(hop_string_append(&r->bytes, text, length, err));
    return hop_string_append(&r->bytes, "", 1, err);
}

static void on_field(void *text, size_t length, void *context)
{
    struct reader *const r = context;
    if (r->status == HOP_OK)
        r->status = add_field(r, length ? text : "", length);
}

static hop_status report_row(struct reader *r)
{
    HOP_TRY(hop_grow(&r->fields, &r->field_capacity, r->count, sizeof *r->fields, r->err));
    for (size_t i = 0; i < r->count; i++)
        r->fields[i] = r->bytes.data + r->offsets[i];
    const struct hop_csv_row row = {
        .fields = r->fields, .lengths = r->lengths, .count = r->count, .line = r->row_line};
    return r->row(r->context, &row, r->err);
}

static void on_row(int terminator, void *context)
{
    struct reader *const r = context;
    (void)terminator;
    if (r->status == HOP_OK)
        r->status = report_row(r);
    r->count = 0;
    r->bytes.length = 0;
    r->row_ended = true;
}

/* Length of the line at text, its LF, CRLF or lone CR included. */
static size_t line_length(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && text[n] != '\n' && text[n] != '\r')
        n++;
    if (n + 1 < length && text[n] == '\r' && text[n + 1] == '\n')
        return n + 2;
    return n < length ? n + 1 : n;
}

static bool blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    return true;
}

static hop_status check_parser(const struct reader *r, struct csv_parser *parser, size_t line)
{
    const int reason = csv_error(parser);
    if (reason == CSV_SUCCESS)
        return HOP_OK;
    if (reason != CSV_EPARSE)
        return hop_fail(r->err, HOP_MEMORY, "%s:%zu: %s", r->path, line, csv_strerror(reason));
    return hop_fail(
        r->err, HOP_INPUT,
        "%s:%zu: broken quoting in the row that starts at line %zu; a quoted field must "
        "be closed, and quotes inside it doubled",
        r->path, line, r->row_line);
}

static hop_status feed_lines(struct reader *r, struct csv_parser *parser, const char *text,
                             size_t length)
{
    size_t line = 1, open_bytes = 0;
    r->row_line = 1;
    for (size_t begin = 0; begin < length; line++) {
        const size_t n = line_length(text + begin, length - begin);
        const bool skipped = open_bytes == 0 && blank(text + begin, n);
        r->row_ended = false;
        const size_t parsed = csv_parse(parser, text + begin, n, on_field, on_row, r);
        HOP_TRY(r->status);
        if (parsed != n)
            return check_parser(r, parser, line);
        open_bytes = r->row_ended || skipped ? 0 : open_bytes + n;
        if (open_bytes == 0)
            r->row_line = line + 1;
        if (open_bytes > row_limit)
            return hop_fail(r->err, HOP_INPUT,
                            "%s:%zu: the row is longer than %zu bytes; is a quote open?", r->path,
                            r->row_line, row_limit);
        begin += n;
    }
    csv_fini(parser, on_field, on_row, r);
    HOP_TRY(r->status);
    return check_parser(r, parser, r->row_line);
}

static hop_status read_text(struct reader *r, const char *text, size_t length)
{
    struct csv_parser parser;
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0)
        return hop_fail(r->err, HOP_MEMORY, "%s: out of memory", r->path);
    csv_set_blk_size(&parser, FIELD_STEP);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    const hop_status status = feed_lines(r, &parser, text, length);
    csv_free(&parser);
    return status;
}

hop_status hop_csv_read(const char *path, row_function *row, void *context, struct hop_error *err)
{
    struct hop_map map;
    struct reader r = {.path = path, .row = row, .context = context, .status = HOP_OK, .err = err};
    HOP_TRY(hop_map_open(path, &map, err));
    const hop_status status = read_text(&r, (const char *)map.data, map.size);
    hop_map_close(&map);
    hop_string_free(&r.bytes);
    free(r.offsets);
    free(r.lengths);
    free(r.fields);
    return status;
}
