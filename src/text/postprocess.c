/* Post-processors: TemplateProcessing for a single text. ByteLevel only trims offsets, which nobody
 * asks for here. Of a Sequence, a later template wraps what the earlier ones made. */
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

struct reader {
    const struct hop_vocabulary *vocabulary;
    struct hop_template *out;
};

static hop_status insert_ids(struct hop_ids *ids, size_t at, const struct hop_ids *more,
                             struct hop_error *err)
{
    if (!more->count)
        return HOP_OK;
    HOP_TRY(hop_grow(&ids->data, &ids->capacity, ids->count + more->count, sizeof *ids->data, err));
    memmove(ids->data + at + more->count, ids->data + at, (ids->count - at) * sizeof *ids->data);
    memcpy(ids->data + at, more->data, more->count * sizeof *ids->data);
    ids->count += more->count;
    return HOP_OK;
}

/* The ids that the component's special_tokens gives to a name. */
static hop_status add_special(const struct hop_component *c, const char *name,
                              const struct hop_vocabulary *vocabulary, struct hop_ids *out,
                              struct hop_error *err)
{
    const json_t *const entry = json_object_get(json_object_get(c->json, "special_tokens"), name);
    const json_t *const ids = json_object_get(entry, "ids");
    if (!json_is_array(ids))
        return hop_fail(err, HOP_INPUT, "%s: %s: special_tokens has no ids for \"%.100s\"", c->path,
                        c->section, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *const json = json_array_get(ids, i);
        const json_int_t id = json_is_integer(json) ? json_integer_value(json) : -1;
        if (id < 0 || id > INT32_MAX || !hop_vocabulary_token(vocabulary, (int32_t)id))
            return hop_fail(
                err, HOP_INPUT,
                "%s: %s: special token \"%.100s\" has an id that is not in the vocabulary", c->path,
                c->section, name);
        HOP_TRY(hop_ids_append(out, (int32_t)id, err));
    }
    return HOP_OK;
}

static hop_status read_items(const struct hop_component *c, const struct hop_vocabulary *vocabulary,
                             struct hop_ids *before, struct hop_ids *after, struct hop_error *err)
{
    static const char expected[] =
        "a list of {\"SpecialToken\": ...} with one {\"Sequence\": {\"id\": \"A\"}}";
    const json_t *const list = json_object_get(c->json, "single");
    bool text = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        const json_t *const special = json_object_get(item, "SpecialToken");
        const json_t *const sequence = json_object_get(item, "Sequence");
        const char *const id =
            json_string_value(json_object_get(special ? special : sequence, "id"));
        if (special && id) {
            HOP_TRY(add_special(c, id, vocabulary, text ? after : before, err));
            continue;
        }
        if (!id || strcmp(id, "A") || text)
            return hop_component_bad(c, "single", expected, err);
        text = true;
    }
    return text ? HOP_OK : hop_component_bad(c, "single", expected, err);
}

static hop_status read_component(const struct hop_component *c, void *context,
                                 struct hop_error *err)
{
    const struct reader *const reader = context;
    struct hop_template *const out = reader->out;
    struct hop_ids before = {0}, after = {0};
    hop_status status;
    if (!strcmp(c->type, "ByteLevel"))
        return HOP_OK;
    if (strcmp(c->type, "TemplateProcessing"))
        return hop_component_unsupported(c, err);
    HOP_TRY_DONE(read_items(c, reader->vocabulary, &before, &after, err));
    HOP_TRY_DONE(insert_ids(&out->before, 0, &before, err));
    HOP_TRY_DONE(insert_ids(&out->after, out->after.count, &after, err));
done:
    hop_ids_free(&before);
    hop_ids_free(&after);
    return status;
}

hop_status hop_template_read(json_t *root, const char *path,
                             const struct hop_vocabulary *vocabulary, struct hop_template *out,
                             struct hop_error *err)
{
    struct reader reader = {.vocabulary = vocabulary, .out = out};
    return hop_component_walk(root, path, "post_processor", "processors", read_component, &reader,
                              err);
}

void hop_template_free(struct hop_template *post)
{
    hop_ids_free(&post->before);
    hop_ids_free(&post->after);
}
