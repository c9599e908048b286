#include "data/json_need.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static hop_status need(const json_t *object, const char *key, const char *where, json_type type,
                       const char *name, const json_t **out, struct hop_error *err)
{
    const json_t *const value = json_object_get(object, key);
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: must be an object with \"%s\"", where, key);
    if (!value)
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" is missing; it must be %s", where, key, name);
    if (json_typeof(value) != type)
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" must be %s", where, key, name);
    *out = value;
    return HOP_OK;
}

hop_status hop_need_string(const json_t *object, const char *key, const char *where,
                           const char **out, struct hop_error *err)
{
    const json_t *value = NULL;
    HOP_TRY(need(object, key, where, JSON_STRING, "a string", &value, err));
    *out = json_string_value(value);
    return HOP_OK;
}

hop_status hop_need_list(const json_t *object, const char *key, const char *where,
                         const json_t **out, struct hop_error *err)
{
    return need(object, key, where, JSON_ARRAY, "a list", out, err);
}

hop_status hop_need_object(const json_t *object, const char *key, const char *where,
                           const json_t **out, struct hop_error *err)
{
    return need(object, key, where, JSON_OBJECT, "an object", out, err);
}

bool hop_read_truth(const json_t *value, bool *out)
{
    const double number = json_number_value(value);
    if (!json_is_boolean(value) && !json_is_number(value))
        return false;
    if (json_is_number(value) && number != 0 && number != 1)
        return false;
    *out = json_is_true(value) || number == 1;
    return true;
}

hop_status hop_place(struct hop_string *place, struct hop_error *err, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    place->length = 0;
    return hop_string_append(place, text, strlen(text), err);
}
