#include "io/schema.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/units.h"
#include "io/yaml.h"

/* Integers up to here are exact as doubles. */
static const double exact_limit = 0x1p53;

/* The object being bound and how to name it: keys print as prefix + key. */
struct scope {
    const char *where, *prefix;
    struct hop_error *err;
};

static void *member(void *target, const struct hop_field *field)
{
    return (char *)target + field->offset;
}

static void store_pointer(void *target, const struct hop_field *field, const void *value)
{
    memcpy(member(target, field), &value, sizeof value);
}

static void *load_pointer(const void *target, const struct hop_field *field)
{
    void *value;
    memcpy(&value, (const char *)target + field->offset, sizeof value);
    return value;
}

static void store_real(void *target, const struct hop_field *field, double value)
{
    memcpy(member(target, field), &value, sizeof value);
}

static double load_real(const void *target, const struct hop_field *field)
{
    double value;
    memcpy(&value, (const char *)target + field->offset, sizeof value);
    return value;
}

/* `found` as it would be written, short enough for a message. */
static hop_status refuse(const struct scope *s, const struct hop_field *field, const json_t *found,
                         const char *expected)
{
    char *const text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
    hop_fail(s->err, HOP_INPUT, "%s: %s%s must be %s, found %.80s", s->where, s->prefix, field->key,
             expected, text ? text : "?");
    free(text);
    return HOP_INPUT;
}

/* The default is always allowed, so that a resolved file can be read again. */
static hop_status check_range(const struct scope *s, const struct hop_field *field, double value,
                              const json_t *found)
{
    char expected[128];
    const bool unlimited = field->minimum == 0 && field->maximum == 0;
    if (unlimited || value == field->fallback ||
        (value >= field->minimum && value <= field->maximum))
        return HOP_OK;
    if (isinf(field->maximum))
        snprintf(expected, sizeof expected, "at least %.15g", field->minimum);
    else
        snprintf(expected, sizeof expected, "between %.15g and %.15g", field->minimum,
                 field->maximum);
    return refuse(s, field, found, expected);
}

static hop_status bind_int(const struct scope *s, const struct hop_field *field,
                           const json_t *value, void *target)
{
    int64_t number = (int64_t)field->fallback;
    if (value) {
        const double real = json_number_value(value);
        if (json_is_integer(value))
            number = json_integer_value(value);
        else if (json_is_real(value) && real == floor(real) && fabs(real) <= exact_limit)
            number = (int64_t)real;
        else
            return refuse(s, field, value, "an integer");
        HOP_TRY(check_range(s, field, (double)number, value));
    }
    memcpy(member(target, field), &number, sizeof number);
    return HOP_OK;
}

static hop_status bind_real(const struct scope *s, const struct hop_field *field,
                            const json_t *value, void *target)
{
    double number = field->fallback;
    if (value) {
        if (!json_is_number(value))
            return refuse(s, field, value, "a number");
        number = json_number_value(value);
        HOP_TRY(check_range(s, field, number, value));
    }
    store_real(target, field, number);
    return HOP_OK;
}

static enum hop_unit_kind unit_kind(enum hop_field_type type)
{
    return type == HOP_FIELD_BYTES  ? HOP_UNIT_BYTES
           : type == HOP_FIELD_RATE ? HOP_UNIT_RATE
                                    : HOP_UNIT_SECONDS;
}

static hop_status bind_measure(const struct scope *s, const struct hop_field *field,
                               const json_t *value, void *target)
{
    double number = field->fallback;
    if (value) {
        const enum hop_unit_kind kind = unit_kind(field->type);
        bool good = json_is_number(value);
        if (json_is_string(value))
            good = hop_unit_parse(json_string_value(value), kind, &number);
        else
            number = json_number_value(value);
        if (!good || (number < 0 && number != field->fallback))
            return refuse(s, field, value, hop_unit_example(kind));
        HOP_TRY(check_range(s, field, number, value));
    }
    store_real(target, field, number);
    return HOP_OK;
}

static hop_status bind_bool(const struct scope *s, const struct hop_field *field,
                            const json_t *value, void *target)
{
    bool flag = field->fallback != 0;
    if (value) {
        if (!json_is_boolean(value))
            return refuse(s, field, value, "true or false");
        flag = json_is_true(value);
    }
    memcpy(member(target, field), &flag, sizeof flag);
    return HOP_OK;
}

static hop_status bind_string(const struct scope *s, const struct hop_field *field,
                              const json_t *value, void *target)
{
    const char *const text = value ? json_string_value(value) : field->fallback_text;
    char *copy = NULL;
    if (value && !text)
        return refuse(s, field, value, "text (in quotes where it looks like something else)");
    if (text)
        HOP_TRY(hop_string_copy(&copy, text, s->err));
    store_pointer(target, field, copy);
    return HOP_OK;
}

static int choice_index(const char *const *choices, const char *text)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0)
            return i;
    return -1;
}

static size_t choice_count(const char *const *choices)
{
    size_t n = 0;
    while (choices[n])
        n++;
    return n;
}

static hop_status refuse_choice(const struct scope *s, const struct hop_field *field,
                                const json_t *value)
{
    struct hop_string expected = {0};
    const char *const text = json_string_value(value);
    const size_t count = choice_count(field->choices);
    const char *const near = text ? hop_nearest_name(text, field->choices, count) : NULL;
    hop_status status = HOP_OK;
    for (size_t i = 0; i < count && status == HOP_OK; i++)
        status = hop_string_printf(&expected, s->err, "%s%s", i == 0 ? "one of " : ", ",
                                   field->choices[i]);
    if (status == HOP_OK && near)
        status = hop_string_printf(&expected, s->err, " (did you mean %s?)", near);
    if (status == HOP_OK)
        status = refuse(s, field, value, hop_string_text(&expected));
    hop_string_free(&expected);
    return status;
}

static hop_status bind_choice(const struct scope *s, const struct hop_field *field,
                              const json_t *value, void *target)
{
    int index = (int)field->fallback;
    if (value) {
        const char *const text = json_string_value(value);
        index = text ? choice_index(field->choices, text) : -1;
        if (index < 0)
            return refuse_choice(s, field, value);
    } else if (field->fallback_text) {
        index = choice_index(field->choices, field->fallback_text);
    }
    memcpy(member(target, field), &index, sizeof index);
    return HOP_OK;
}

/* Lists are short: room for one more each time. */
hop_status hop_string_list_add(struct hop_string_list *list, const char *text,
                               struct hop_error *err)
{
    size_t capacity = list->count;
    HOP_TRY(hop_grow(&list->items, &capacity, list->count + 1, sizeof *list->items, err));
    HOP_TRY(hop_string_copy(&list->items[list->count], text, err));
    list->count++;
    return HOP_OK;
}

hop_status hop_string_list_add_all(struct hop_string_list *list, const struct hop_string_list *from,
                                   struct hop_error *err)
{
    for (size_t i = 0; i < from->count; i++)
        HOP_TRY(hop_string_list_add(list, from->items[i], err));
    return HOP_OK;
}

void hop_string_list_free(struct hop_string_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct hop_string_list){0};
}

/* A new json list of the comma-separated parts of text. */
static json_t *split_commas(const char *text)
{
    json_t *const parts = json_array();
    while (text && *text) {
        const size_t n = strcspn(text, ",");
        json_array_append_new(parts, json_stringn(text, n));
        text += n + (text[n] == ',');
    }
    return parts;
}

static hop_status copy_list(const struct scope *s, const struct hop_field *field,
                            const json_t *found, const json_t *items, struct hop_string_list *list)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const char *const text = json_string_value(json_array_get(items, i));
        if (!text)
            return refuse(s, field, found, "a list of texts");
        HOP_TRY(hop_string_list_add(list, text, s->err));
    }
    return HOP_OK;
}

static hop_status bind_strings(const struct scope *s, const struct hop_field *field, json_t *value,
                               void *target)
{
    struct hop_string_list list = {0};
    if (value && !json_is_array(value) && !json_is_string(value))
        return refuse(s, field, value, "a list of texts");
    json_t *const items = !value                 ? split_commas(field->fallback_text)
                          : json_is_array(value) ? json_incref(value)
                                                 : json_pack("[O]", value);
    hop_status status = items ? copy_list(s, field, value, items, &list)
                              : hop_fail(s->err, HOP_MEMORY, "out of memory for a list");
    json_decref(items);
    if (status == HOP_OK)
        memcpy(member(target, field), &list, sizeof list);
    else
        hop_string_list_free(&list);
    return status;
}

static hop_status bind_fields(const struct scope *s, const struct hop_field *fields,
                              const json_t *object, void *target);

static hop_status bind_section(const struct scope *s, const struct hop_field *field,
                               const json_t *value, void *target)
{
    char prefix[256];
    snprintf(prefix, sizeof prefix, "%s%s.", s->prefix, field->key);
    const struct scope inner = {.where = s->where, .prefix = prefix, .err = s->err};
    if (value && !json_is_object(value))
        return refuse(s, field, value, "a section with keys of its own");
    return bind_fields(&inner, field->fields, value, target);
}

static hop_status bind_field(const struct scope *s, const struct hop_field *field, json_t *value,
                             void *target)
{
    switch (field->type) {
    case HOP_FIELD_INT:
        return bind_int(s, field, value, target);
    case HOP_FIELD_REAL:
        return bind_real(s, field, value, target);
    case HOP_FIELD_BOOL:
        return bind_bool(s, field, value, target);
    case HOP_FIELD_STRING:
        return bind_string(s, field, value, target);
    case HOP_FIELD_CHOICE:
        return bind_choice(s, field, value, target);
    case HOP_FIELD_STRINGS:
        return bind_strings(s, field, value, target);
    case HOP_FIELD_BYTES:
    case HOP_FIELD_RATE:
    case HOP_FIELD_SECONDS:
        return bind_measure(s, field, value, target);
    case HOP_FIELD_SECTION:
        return bind_section(s, field, value, target);
    case HOP_FIELD_ANY:
        store_pointer(target, field, json_incref(value));
        return HOP_OK;
    }
    return hop_fail(s->err, HOP_INTERNAL, "%s%s: unknown field type", s->prefix, field->key);
}

enum { NAMES_MAX = 64 };

static hop_status unknown_key(const struct scope *s, const struct hop_field *fields,
                              const char *key)
{
    const char *names[NAMES_MAX] = {NULL};
    size_t count = 0;
    for (; fields[count].key && count < NAMES_MAX; count++)
        names[count] = fields[count].key;
    const char *const near = hop_nearest_name(key, names, count);
    if (near)
        return hop_fail(s->err, HOP_INPUT, "%s: unknown key %s%.64s; did you mean %s%s?", s->where,
                        s->prefix, key, s->prefix, near);
    struct hop_string known = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < count && status == HOP_OK; i++)
        status = hop_string_printf(&known, s->err, "%s%s", i ? ", " : "", names[i]);
    if (status == HOP_OK)
        status = hop_fail(s->err, HOP_INPUT, "%s: unknown key %s%.64s; known here: %s", s->where,
                          s->prefix, key, hop_string_text(&known));
    hop_string_free(&known);
    return status;
}

static hop_status check_keys(const struct scope *s, const struct hop_field *fields,
                             const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const struct hop_field *field = fields;
        while (field->key && strcmp(field->key, key) != 0)
            field++;
        if (!field->key)
            return unknown_key(s, fields, key);
    }
    return HOP_OK;
}

/* A NULL object binds the defaults. */
static hop_status bind_fields(const struct scope *s, const struct hop_field *fields,
                              const json_t *object, void *target)
{
    HOP_TRY(check_keys(s, fields, object));
    for (const struct hop_field *field = fields; field->key; field++) {
        json_t *const value = json_object_get(object, field->key);
        HOP_TRY(bind_field(s, field, json_is_null(value) ? NULL : value, target));
    }
    return HOP_OK;
}

/* Sets every pointer to NULL, so that a failed bind can be released. */
static void clear(const struct hop_field *fields, void *target)
{
    for (const struct hop_field *field = fields; field->key; field++) {
        if (field->type == HOP_FIELD_SECTION)
            clear(field->fields, target);
        else if (field->type == HOP_FIELD_STRING || field->type == HOP_FIELD_ANY)
            store_pointer(target, field, NULL);
        else if (field->type == HOP_FIELD_STRINGS)
            memset(member(target, field), 0, sizeof(struct hop_string_list));
    }
}

hop_status hop_schema_bind(const struct hop_field *fields, const json_t *object, const char *where,
                           void *target, struct hop_error *err)
{
    const struct scope s = {.where = where, .prefix = "", .err = err};
    clear(fields, target);
    if (object && !json_is_object(object) && !json_is_null(object))
        return hop_fail(err, HOP_INPUT, "%s: keys and values are needed at the top", where);
    const hop_status status =
        bind_fields(&s, fields, json_is_object(object) ? object : NULL, target);
    if (status != HOP_OK)
        hop_schema_release(fields, target);
    return status;
}

void hop_schema_release(const struct hop_field *fields, void *target)
{
    for (const struct hop_field *field = fields; target && field->key; field++) {
        if (field->type == HOP_FIELD_SECTION) {
            hop_schema_release(field->fields, target);
        } else if (field->type == HOP_FIELD_STRING) {
            free(load_pointer(target, field));
            store_pointer(target, field, NULL);
        } else if (field->type == HOP_FIELD_ANY) {
            json_decref(load_pointer(target, field));
            store_pointer(target, field, NULL);
        } else if (field->type == HOP_FIELD_STRINGS) {
            hop_string_list_free(member(target, field));
        }
    }
}

/* Infinity and NaN stand for "not given" in defaults and have no JSON form. */
static json_t *dump_real(double value, bool integral)
{
    if (!isfinite(value))
        return json_null();
    if (integral && value == floor(value) && fabs(value) <= exact_limit)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *dump_list(const void *target, const struct hop_field *field)
{
    struct hop_string_list list;
    memcpy(&list, (const char *)target + field->offset, sizeof list);
    json_t *const out = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(out, json_string(list.items[i]));
    return out;
}

static json_t *dump_field(const void *target, const struct hop_field *field)
{
    const char *const at = (const char *)target + field->offset;
    int64_t integer;
    int index;
    bool flag;
    switch (field->type) {
    case HOP_FIELD_INT:
        memcpy(&integer, at, sizeof integer);
        return json_integer(integer);
    case HOP_FIELD_BOOL:
        memcpy(&flag, at, sizeof flag);
        return json_boolean(flag);
    case HOP_FIELD_CHOICE:
        memcpy(&index, at, sizeof index);
        return index < 0 ? json_null() : json_string(field->choices[index]);
    case HOP_FIELD_STRING:
        return load_pointer(target, field) ? json_string(load_pointer(target, field)) : json_null();
    case HOP_FIELD_STRINGS:
        return dump_list(target, field);
    case HOP_FIELD_SECTION:
        return hop_schema_dump(field->fields, target);
    case HOP_FIELD_ANY:
        return load_pointer(target, field) ? json_incref(load_pointer(target, field)) : json_null();
    default:
        return dump_real(load_real(target, field), field->type != HOP_FIELD_REAL);
    }
}

json_t *hop_schema_dump(const struct hop_field *fields, const void *target)
{
    json_t *const out = json_object();
    for (const struct hop_field *field = fields; out && field->key; field++)
        if (json_object_set_new(out, field->key, dump_field(target, field)) != 0) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* Walks to the object that holds the last part of path, creating sections; *last = that part. */
static hop_status find_parent(json_t *object, const char *path, json_t **parent, const char **last,
                              struct hop_error *err)
{
    const char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        const size_t n = (size_t)(dot - path);
        json_t *inner = json_object_getn(object, path, n);
        if (!inner || json_is_null(inner)) {
            inner = n ? json_object() : NULL;
            if (!inner || json_object_setn_new(object, path, n, inner) != 0)
                return hop_fail(err, HOP_INPUT, "\"%s\" is not a key; write section.key", path);
        }
        if (!json_is_object(inner))
            return hop_fail(err, HOP_INPUT, "%.*s has a value already and no keys to set in it",
                            (int)n, path);
        object = inner;
    }
    if (!*path)
        return hop_fail(err, HOP_INPUT, "a key is missing; write section.key=value");
    *parent = object;
    *last = path;
    return HOP_OK;
}

hop_status hop_schema_set(json_t *object, const char *path, const char *text, struct hop_error *err)
{
    json_t *value = NULL, *parent = NULL;
    const char *key = NULL;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s cannot be set: there are no keys", path);
    HOP_TRY(hop_yaml_parse(text, strlen(text), path, &value, err));
    hop_status status = find_parent(object, path, &parent, &key, err);
    if (status != HOP_OK)
        json_decref(value);
    else if (json_object_set_new(parent, key, value) != 0)
        status = hop_fail(err, HOP_INPUT, "%s cannot be set: is it UTF-8?", path);
    return status;
}
