/* Walks the components of tokenizer.json: objects with a "type", possibly nested in Sequences. */
#include <string.h>

#include "text/tokenizer_internal.h"

hop_status hop_component_unsupported(const struct hop_component *c, struct hop_error *err)
{
    return hop_fail(err, HOP_UNSUPPORTED,
                    "%s: %s of type \"%s\" is not supported; use a model with a byte-level or "
                    "SentencePiece-style BPE tokenizer",
                    c->path, c->section, c->type);
}

hop_status hop_component_bad(const struct hop_component *c, const char *key, const char *expected,
                             struct hop_error *err)
{
    return hop_fail(err, HOP_INPUT, "%s: %s of type \"%s\": \"%s\" must be %s", c->path, c->section,
                    c->type, key, expected);
}

hop_status hop_component_text(const struct hop_component *c, const char *key, const char **out,
                              struct hop_error *err)
{
    const char *const text = json_string_value(json_object_get(c->json, key));
    if (!text)
        return hop_component_bad(c, key, "a string", err);
    *out = text;
    return HOP_OK;
}

/* Recursion is bounded by the JSON reader's limit on depth. */
static hop_status walk(struct hop_component c, const char *list_key, hop_component_reader read,
                       void *context, struct hop_error *err)
{
    c.type = json_string_value(json_object_get(c.json, "type"));
    if (!c.type)
        return hop_fail(err, HOP_INPUT, "%s: %s must be an object with a \"type\"", c.path,
                        c.section);
    if (strcmp(c.type, "Sequence"))
        return read(&c, context, err);
    json_t *const list = json_object_get(c.json, list_key);
    if (!json_is_array(list))
        return hop_component_bad(&c, list_key, "a list", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct hop_component member = c;
        member.json = json_array_get(list, i);
        HOP_TRY(walk(member, list_key, read, context, err));
    }
    return HOP_OK;
}

hop_status hop_component_walk(json_t *root, const char *path, const char *section,
                              const char *list_key, hop_component_reader read, void *context,
                              struct hop_error *err)
{
    json_t *const json = json_object_get(root, section);
    if (!json || json_is_null(json))
        return HOP_OK;
    const struct hop_component c = {.json = json, .section = section, .path = path};
    return walk(c, list_key, read, context, err);
}
