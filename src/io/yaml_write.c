#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "io/yaml.h"
#include "io/yaml_scalar.h"

struct writer {
    yaml_emitter_t emitter;
    struct hop_string *out;
    hop_status status;
    struct hop_error *err;
};

static int collect(void *context, unsigned char *bytes, size_t n)
{
    struct writer *const w = context;
    w->status = hop_string_append(w->out, (const char *)bytes, n, w->err);
    return w->status == HOP_OK;
}

/* `made` is the result of the call that filled `event`. */
static hop_status emit(struct writer *w, int made, yaml_event_t *event)
{
    if (made && yaml_emitter_emit(&w->emitter, event))
        return HOP_OK;
    if (w->status != HOP_OK)
        return w->status;
    return hop_fail(w->err, HOP_INTERNAL, "the value cannot be written as YAML: %s",
                    w->emitter.problem ? w->emitter.problem : "out of memory");
}

static hop_status emit_text(struct writer *w, const char *text, size_t length,
                            yaml_scalar_style_t style)
{
    yaml_event_t event;
    const int made = yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
                                                  (int)length, 1, 1, style);
    return emit(w, made, &event);
}

/* Plain where that reads back as the same string; the emitter quotes what YAML's syntax forbids. */
static hop_status emit_string(struct writer *w, const char *text, size_t length)
{
    yaml_scalar_style_t style = YAML_PLAIN_SCALAR_STYLE;
    if (strpbrk(text, "\n\r\t") || strlen(text) != length)
        style = YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    else if (hop_yaml_resolve(text, length).kind != HOP_YAML_STRING)
        style = YAML_SINGLE_QUOTED_SCALAR_STYLE;
    return emit_text(w, text, length, style);
}

/* The shortest digits that read back as the same double, and never look like an integer. */
static hop_status emit_real(struct writer *w, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    return emit_text(w, text, strlen(text), YAML_PLAIN_SCALAR_STYLE);
}

static hop_status emit_scalar(struct writer *w, const json_t *value)
{
    char text[32];
    switch (json_typeof(value)) {
    case JSON_STRING:
        return emit_string(w, json_string_value(value), json_string_length(value));
    case JSON_REAL:
        return emit_real(w, json_real_value(value));
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_NULL:
        strcpy(text, "null");
        break;
    default:
        strcpy(text, json_is_true(value) ? "true" : "false");
    }
    return emit_text(w, text, strlen(text), YAML_PLAIN_SCALAR_STYLE);
}

static hop_status emit_value(struct writer *w, json_t *value);

static bool all_scalars(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        if (json_is_object(item) || json_is_array(item))
            return false;
    }
    return true;
}

static hop_status emit_list(struct writer *w, json_t *list)
{
    yaml_event_t event;
    const yaml_sequence_style_t style =
        all_scalars(list) ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE;
    int made = yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, style);
    HOP_TRY(emit(w, made, &event));
    for (size_t i = 0; i < json_array_size(list); i++)
        HOP_TRY(emit_value(w, json_array_get(list, i)));
    made = yaml_sequence_end_event_initialize(&event);
    return emit(w, made, &event);
}

static hop_status emit_map(struct writer *w, json_t *map)
{
    yaml_event_t event;
    const char *key;
    json_t *value;
    int made = yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE);
    HOP_TRY(emit(w, made, &event));
    json_object_foreach(map, key, value)
    {
        HOP_TRY(emit_string(w, key, strlen(key)));
        HOP_TRY(emit_value(w, value));
    }
    made = yaml_mapping_end_event_initialize(&event);
    return emit(w, made, &event);
}

static hop_status emit_value(struct writer *w, json_t *value)
{
    if (json_is_object(value))
        return emit_map(w, value);
    if (json_is_array(value))
        return emit_list(w, value);
    return emit_scalar(w, value);
}

static hop_status emit_document(struct writer *w, json_t *value)
{
    yaml_event_t event;
    int made = yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING);
    HOP_TRY(emit(w, made, &event));
    made = yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1);
    HOP_TRY(emit(w, made, &event));
    HOP_TRY(emit_value(w, value));
    made = yaml_document_end_event_initialize(&event, 1);
    HOP_TRY(emit(w, made, &event));
    made = yaml_stream_end_event_initialize(&event);
    return emit(w, made, &event);
}

hop_status hop_yaml_write(const json_t *value, struct hop_string *out, struct hop_error *err)
{
    struct writer w = {.out = out, .status = HOP_OK, .err = err};
    if (!yaml_emitter_initialize(&w.emitter))
        return hop_fail(err, HOP_MEMORY, "out of memory for YAML text");
    yaml_emitter_set_output(&w.emitter, collect, &w);
    yaml_emitter_set_unicode(&w.emitter, 1);
    yaml_emitter_set_width(&w.emitter, -1);
    const hop_status status = emit_document(&w, (json_t *)value);
    yaml_emitter_delete(&w.emitter);
    return status;
}
