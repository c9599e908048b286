#include "io/yaml.h"

#include <stdbool.h>
#include <string.h>

#include <yaml.h>

#include "io/file.h"
#include "io/yaml_scalar.h"

enum { DEPTH_LIMIT = 64 };
static const size_t size_limit = (size_t)16 << 20;

struct reader {
    yaml_parser_t parser;
    const char *text, *where;
};

/* The parser gives no line for bytes it cannot decode, only their offset. */
static size_t problem_line(const struct reader *r)
{
    if (r->parser.error != YAML_READER_ERROR)
        return r->parser.problem_mark.line + 1;
    size_t line = 1;
    for (size_t i = 0; i < r->parser.problem_offset; i++)
        line += r->text[i] == '\n';
    return line;
}

static hop_status next_event(struct reader *r, yaml_event_t *event, struct hop_error *err)
{
    if (yaml_parser_parse(&r->parser, event))
        return HOP_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return hop_fail(err, HOP_MEMORY, "%s: out of memory", r->where);
    return hop_fail(err, HOP_INPUT, "%s:%zu: not valid YAML: %s%s%s", r->where, problem_line(r),
                    r->parser.problem ? r->parser.problem : "cannot be read",
                    r->parser.context ? " " : "", r->parser.context ? r->parser.context : "");
}

static size_t event_line(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static hop_status no_memory(const struct reader *r, struct hop_error *err)
{
    return hop_fail(err, HOP_MEMORY, "%s: out of memory", r->where);
}

static bool has_anchor_or_tag(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return true;
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    default:
        return false;
    }
}

static hop_status scalar_text(const struct reader *r, const yaml_event_t *event, const char **text,
                              size_t *length, struct hop_error *err)
{
    *text = (const char *)event->data.scalar.value;
    *length = event->data.scalar.length;
    if (memchr(*text, '\0', *length))
        return hop_fail(err, HOP_INPUT, "%s:%zu: a NUL character is not allowed", r->where,
                        event_line(event));
    return HOP_OK;
}

static hop_status build_scalar(const struct reader *r, const yaml_event_t *event, json_t **out,
                               struct hop_error *err)
{
    const char *text;
    size_t length;
    HOP_TRY(scalar_text(r, event, &text, &length, err));
    struct hop_yaml_scalar scalar = {.kind = HOP_YAML_STRING};
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        scalar = hop_yaml_resolve(text, length);
    switch (scalar.kind) {
    case HOP_YAML_NULL:
        *out = json_null();
        break;
    case HOP_YAML_TRUE:
    case HOP_YAML_FALSE:
        *out = json_boolean(scalar.kind == HOP_YAML_TRUE);
        break;
    case HOP_YAML_INT:
        *out = json_integer(scalar.integer);
        break;
    case HOP_YAML_REAL:
        *out = json_real(scalar.real);
        break;
    case HOP_YAML_BEYOND:
        return hop_fail(err, HOP_INPUT,
                        "%s:%zu: %.64s is not a finite number of 64 bits; put text in quotes",
                        r->where, event_line(event), text);
    default:
        *out = json_stringn(text, length);
    }
    return *out ? HOP_OK : no_memory(r, err);
}

static hop_status build(struct reader *r, const yaml_event_t *event, int depth, json_t **out,
                        struct hop_error *err);

static hop_status build_next(struct reader *r, int depth, json_t **out, struct hop_error *err)
{
    yaml_event_t value;
    HOP_TRY(next_event(r, &value, err));
    const hop_status status = build(r, &value, depth, out, err);
    yaml_event_delete(&value);
    return status;
}

/* Appends the items up to the end of the list. */
static hop_status fill_list(struct reader *r, int depth, json_t *list, struct hop_error *err)
{
    for (;;) {
        yaml_event_t event;
        json_t *item = NULL;
        HOP_TRY(next_event(r, &event, err));
        const bool end = event.type == YAML_SEQUENCE_END_EVENT;
        hop_status status = end ? HOP_OK : build(r, &event, depth, &item, err);
        yaml_event_delete(&event);
        if (end || status != HOP_OK)
            return status;
        if (json_array_append_new(list, item) != 0)
            return no_memory(r, err);
    }
}

/* `event` is the key. */
static hop_status add_member(struct reader *r, const yaml_event_t *event, int depth, json_t *map,
                             struct hop_error *err)
{
    const char *key;
    size_t length;
    json_t *value = NULL;
    if (event->type != YAML_SCALAR_EVENT || has_anchor_or_tag(event))
        return hop_fail(err, HOP_INPUT, "%s:%zu: a key must be plain text", r->where,
                        event_line(event));
    HOP_TRY(scalar_text(r, event, &key, &length, err));
    if (json_object_get(map, key))
        return hop_fail(err, HOP_INPUT, "%s:%zu: the key \"%.64s\" is given twice", r->where,
                        event_line(event), key);
    HOP_TRY(build_next(r, depth, &value, err));
    return json_object_set_new(map, key, value) == 0 ? HOP_OK : no_memory(r, err);
}

static hop_status fill_map(struct reader *r, int depth, json_t *map, struct hop_error *err)
{
    for (;;) {
        yaml_event_t event;
        HOP_TRY(next_event(r, &event, err));
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        const hop_status status = end ? HOP_OK : add_member(r, &event, depth, map, err);
        yaml_event_delete(&event);
        if (end || status != HOP_OK)
            return status;
    }
}

static hop_status build(struct reader *r, const yaml_event_t *event, int depth, json_t **out,
                        struct hop_error *err)
{
    if (has_anchor_or_tag(event))
        return hop_fail(err, HOP_INPUT,
                        "%s:%zu: anchors, aliases and tags are not supported; write the value out",
                        r->where, event_line(event));
    if (depth > DEPTH_LIMIT)
        return hop_fail(err, HOP_INPUT, "%s:%zu: nested deeper than %d levels", r->where,
                        event_line(event), DEPTH_LIMIT);
    if (event->type == YAML_SCALAR_EVENT)
        return build_scalar(r, event, out, err);
    const bool is_list = event->type == YAML_SEQUENCE_START_EVENT;
    json_t *const value = is_list ? json_array() : json_object();
    if (!value)
        return no_memory(r, err);
    const hop_status status =
        is_list ? fill_list(r, depth + 1, value, err) : fill_map(r, depth + 1, value, err);
    if (status != HOP_OK)
        json_decref(value);
    else
        *out = value;
    return status;
}

/* Reads events up to the first that is neither a stream nor a document start. */
static hop_status skip_starts(struct reader *r, yaml_event_t *event, struct hop_error *err)
{
    for (;;) {
        HOP_TRY(next_event(r, event, err));
        if (event->type != YAML_STREAM_START_EVENT && event->type != YAML_DOCUMENT_START_EVENT)
            return HOP_OK;
        yaml_event_delete(event);
    }
}

/* After the first document only the end of the stream may come. */
static hop_status expect_end(struct reader *r, struct hop_error *err)
{
    yaml_event_t event;
    HOP_TRY(next_event(r, &event, err));
    yaml_event_delete(&event);
    HOP_TRY(next_event(r, &event, err));
    hop_status status = HOP_OK;
    if (event.type != YAML_STREAM_END_EVENT)
        status = hop_fail(err, HOP_INPUT, "%s:%zu: a second document follows, one is allowed",
                          r->where, event_line(&event));
    yaml_event_delete(&event);
    return status;
}

static hop_status read_document(struct reader *r, json_t **out, struct hop_error *err)
{
    yaml_event_t event;
    json_t *value = NULL;
    HOP_TRY(skip_starts(r, &event, err));
    const bool empty = event.type == YAML_STREAM_END_EVENT;
    hop_status status = HOP_OK;
    if (empty)
        value = json_null();
    else
        status = build(r, &event, 0, &value, err);
    yaml_event_delete(&event);
    if (status == HOP_OK && !empty)
        status = expect_end(r, err);
    if (status == HOP_OK)
        *out = value;
    else
        json_decref(value);
    return status;
}

hop_status hop_yaml_parse(const char *text, size_t length, const char *where, json_t **out,
                          struct hop_error *err)
{
    struct reader r = {.text = text, .where = where};
    if (length > size_limit)
        return hop_fail(err, HOP_INPUT, "%s: %zu bytes, YAML text may have %zu at most", where,
                        length, size_limit);
    if (!yaml_parser_initialize(&r.parser))
        return no_memory(&r, err);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    const hop_status status = read_document(&r, out, err);
    yaml_parser_delete(&r.parser);
    return status;
}

hop_status hop_yaml_load(const char *path, json_t **out, struct hop_error *err)
{
    struct hop_map map;
    HOP_TRY(hop_map_open(path, &map, err));
    const hop_status status = hop_yaml_parse((const char *)map.data, map.size, path, out, err);
    hop_map_close(&map);
    return status;
}
