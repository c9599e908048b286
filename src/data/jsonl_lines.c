#include "data/jsonl_lines.h"

#include <string.h>

#include "base/string.h"
#include "io/file.h"
#include "io/json.h"

typedef hop_status line_function(void *context, const struct hop_jsonl_line *line, bool *more,
                                 struct hop_error *err);

struct reader {
    const char *path;
    line_function *row;
    void *context;
    struct hop_string where;
    bool more;
};

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

static hop_status read_line(struct reader *r, size_t line, const char *text, size_t length,
                            struct hop_error *err)
{
    json_t *value;
    if (is_blank(text, length))
        return HOP_OK;
    r->where.length = 0;
    HOP_TRY(hop_string_printf(&r->where, err, "%s:%zu", r->path, line));
    HOP_TRY(hop_json_parse(text, length, r->where.data, &value, err));
    const struct hop_jsonl_line found = {.where = r->where.data, .line = line, .row = value};
    hop_status status;
    if (json_is_object(value))
        status = r->row(r->context, &found, &r->more, err);
    else
        status = hop_fail(err, HOP_INPUT, "%s: the line must be one JSON object {…}", found.where);
    json_decref(value);
    return status;
}

static size_t find_newline(const char *text, size_t length, size_t begin)
{
    const char *const found = memchr(text + begin, '\n', length - begin);
    return found ? (size_t)(found - text) : length;
}

/* Lines end at \n, \r or both, as Python's readers take them. */
static size_t line_end(const char *text, size_t begin, size_t newline)
{
    const char *const lone = memchr(text + begin, '\r', newline - begin);
    return lone && lone + 1 != text + newline ? (size_t)(lone - text) : newline;
}

/* The next \n is remembered: a file of lone \r would else be searched to its end for every line. */
static hop_status read_lines(struct reader *r, const char *text, size_t length,
                             struct hop_error *err)
{
    size_t begin = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (begin == length)
        return HOP_OK;
    size_t newline = find_newline(text, length, begin);
    for (size_t line = 1; begin < length && r->more; line++) {
        if (newline < begin)
            newline = find_newline(text, length, begin);
        const size_t end = line_end(text, begin, newline);
        HOP_TRY(read_line(r, line, text + begin, end - begin, err));
        begin = end + 1;
    }
    return HOP_OK;
}

hop_status hop_jsonl_read(const char *path, line_function *row, void *context,
                          struct hop_error *err)
{
    struct reader r = {.path = path, .row = row, .context = context, .more = true};
    struct hop_map map;
    HOP_TRY(hop_map_open(path, &map, err));
    const hop_status status = read_lines(&r, (const char *)map.data, map.size, err);
    hop_map_close(&map);
    hop_string_free(&r.where);
    return status;
}
