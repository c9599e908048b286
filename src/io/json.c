#include "io/json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/string.h"
#include "io/file.h"

static const size_t file_limit = (size_t)256 << 20;
enum { INT64_SAFE_DIGITS = 18 };

static const size_t parse_flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;

/* The end of the string that starts at text[begin] == '"'. */
static size_t skip_string(const char *text, size_t length, size_t begin)
{
    size_t i = begin + 1;
    while (i < length && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i < length ? i + 1 : length;
}

static bool is_number_char(char c)
{
    return isdigit((unsigned char)c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-';
}

/* Copies text with "e0" behind each integer that may not fit in 64 bits, which makes it a real. */
static hop_status widen_integers(const char *text, size_t length, struct hop_string *out,
                                 struct hop_error *err)
{
    for (size_t i = 0; i < length;) {
        size_t end = i + 1;
        bool wide = false;
        if (text[i] == '"') {
            end = skip_string(text, length, i);
        } else if (isdigit((unsigned char)text[i])) {
            wide = true;
            for (end = i; end < length && is_number_char(text[end]); end++)
                wide = wide && isdigit((unsigned char)text[end]);
            wide = wide && end - i > INT64_SAFE_DIGITS;
        }
        HOP_TRY(hop_string_append(out, text + i, end - i, err));
        if (wide)
            HOP_TRY(hop_string_append(out, "e0", 2, err));
        i = end;
    }
    return HOP_OK;
}

static hop_status parse(const char *text, size_t length, json_t **out, json_error_t *reason,
                        struct hop_error *err)
{
    *out = json_loadb(text, length, parse_flags, reason);
    if (*out || json_error_code(reason) != json_error_numeric_overflow)
        return HOP_OK;
    struct hop_string widened = {0};
    const hop_status status = widen_integers(text, length, &widened, err);
    json_error_t second;
    if (status == HOP_OK)
        *out = json_loadb(hop_string_text(&widened), widened.length, parse_flags, &second);
    hop_string_free(&widened);
    return status;
}

static void skip_bom(const char **text, size_t *length)
{
    if (*length >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0) {
        *text += 3;
        *length -= 3;
    }
}

hop_status hop_json_parse(const char *text, size_t length, const char *where, json_t **out,
                          struct hop_error *err)
{
    json_error_t reason;
    json_t *value;
    HOP_TRY(parse(text, length, &value, &reason, err));
    if (!value)
        return hop_fail(err, HOP_INPUT, "%s: not valid JSON: %s (line %d, column %d of the text)",
                        where, reason.text, reason.line, reason.column);
    *out = value;
    return HOP_OK;
}

static hop_status load_map(const char *path, const struct hop_map *map, json_t **out,
                           struct hop_error *err)
{
    const char *text = (const char *)map->data;
    size_t length = map->size;
    json_error_t reason;
    json_t *value;
    if (length > file_limit)
        return hop_fail(err, HOP_INPUT, "%s: %zu bytes, a JSON file may have %zu at most", path,
                        length, file_limit);
    skip_bom(&text, &length);
    if (length == 0)
        return hop_fail(err, HOP_INPUT, "%s: the file is empty, JSON is needed; copy it again",
                        path);
    HOP_TRY(parse(text, length, &value, &reason, err));
    if (!value)
        return hop_fail(err, HOP_INPUT, "%s:%d:%d: not valid JSON: %s", path, reason.line,
                        reason.column, reason.text);
    *out = value;
    return HOP_OK;
}

hop_status hop_json_load(const char *path, json_t **out, struct hop_error *err)
{
    struct hop_map map;
    HOP_TRY(hop_map_open(path, &map, err));
    const hop_status status = load_map(path, &map, out, err);
    hop_map_close(&map);
    return status;
}

hop_status hop_json_save(const char *path, const json_t *value, struct hop_error *err)
{
    struct hop_string text = {0};
    hop_status status = hop_json_text(value, 2, &text, err);
    if (status != HOP_OK) {
        hop_wrap(err, "%s", path);
        goto done;
    }
    HOP_TRY_DONE(hop_string_append(&text, "\n", 1, err));
    HOP_TRY_DONE(hop_file_write(path, text.data, text.length, err));
done:
    hop_string_free(&text);
    return status;
}

static const char *type_text(const json_t *value)
{
    static const char *const names[] = {"an object", "a list",    "a string",  "an integer",
                                        "a number",  "a boolean", "a boolean", "null"};
    return names[json_typeof(value)];
}

/* Stores the member, or NULL when it is absent or null. */
static hop_status member(const json_t *object, const char *key, const char *where,
                         const json_t **out, struct hop_error *err)
{
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: an object with the key \"%s\" is needed, found %s",
                        where, key, object ? type_text(object) : "nothing");
    const json_t *const value = json_object_get(object, key);
    *out = json_is_null(value) ? NULL : value;
    return HOP_OK;
}

static hop_status wrong_type(const json_t *value, const char *key, const char *where,
                             const char *expected, struct hop_error *err)
{
    return hop_fail(err, HOP_INPUT, "%s: \"%s\" must be %s, found %s", where, key, expected,
                    type_text(value));
}

hop_status hop_json_get_int(const json_t *object, const char *key, const char *where,
                            int64_t fallback, int64_t *out, struct hop_error *err)
{
    const json_t *value;
    HOP_TRY(member(object, key, where, &value, err));
    if (value && !json_is_integer(value))
        return wrong_type(value, key, where, "an integer", err);
    *out = value ? json_integer_value(value) : fallback;
    return HOP_OK;
}

hop_status hop_json_get_real(const json_t *object, const char *key, const char *where,
                             double fallback, double *out, struct hop_error *err)
{
    const json_t *value;
    HOP_TRY(member(object, key, where, &value, err));
    if (value && !json_is_number(value))
        return wrong_type(value, key, where, "a number", err);
    *out = value ? json_number_value(value) : fallback;
    return HOP_OK;
}

hop_status hop_json_get_bool(const json_t *object, const char *key, const char *where,
                             bool fallback, bool *out, struct hop_error *err)
{
    const json_t *value;
    HOP_TRY(member(object, key, where, &value, err));
    if (value && !json_is_boolean(value))
        return wrong_type(value, key, where, "true or false", err);
    *out = value ? json_is_true(value) : fallback;
    return HOP_OK;
}

hop_status hop_json_get_string(const json_t *object, const char *key, const char *where,
                               const char *fallback, const char **out, struct hop_error *err)
{
    const json_t *value;
    HOP_TRY(member(object, key, where, &value, err));
    if (value && !json_is_string(value))
        return wrong_type(value, key, where, "a string", err);
    *out = value ? json_string_value(value) : fallback;
    return HOP_OK;
}

json_t *hop_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
