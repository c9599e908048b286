/* The text side of a model folder: tokenizer and chat template. */
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "io/file.h"
#include "io/json.h"
#include "text/tokenizer.h"

static bool has_type(const json_t *component, const char *type)
{
    const char *const own = json_string_value(json_object_get(component, "type"));
    const json_t *const inner = json_object_get(component, "pretokenizers");
    if (own && strcmp(own, type) == 0)
        return true;
    for (size_t i = 0; i < json_array_size(inner); i++)
        if (has_type(json_array_get(inner, i), type))
            return true;
    return false;
}

static const char *kind_of(const json_t *tokenizer)
{
    const json_t *const model = json_object_get(tokenizer, "model");
    const char *const type = json_string_value(json_object_get(model, "type"));
    if (has_type(json_object_get(tokenizer, "pre_tokenizer"), "ByteLevel"))
        return "byte-level BPE";
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return "SentencePiece BPE";
    return type ? type : "unknown";
}

/* The vocabulary, or why the tokenizer cannot be used. */
static hop_status try_tokenizer(const char *directory, json_t *out, struct hop_error *err)
{
    struct hop_tokenizer *tokenizer = NULL;
    struct hop_error problem = {0};
    const hop_status status = hop_tokenizer_load(directory, &tokenizer, &problem);
    if (status == HOP_MEMORY) {
        *err = problem;
        return status;
    }
    if (status != HOP_OK)
        return hop_inspect_put(out, "problem", json_string(problem.message), err);
    const int32_t vocabulary = hop_tokenizer_vocabulary(tokenizer);
    hop_tokenizer_free(tokenizer);
    return hop_inspect_put(out, "vocabulary", json_integer(vocabulary), err);
}

hop_status hop_inspect_tokenizer(const char *directory, json_t **out, struct hop_error *err)
{
    json_t *file = NULL, *found = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_inspect_load(directory, "tokenizer.json", &file, err));
    if (file) {
        found = json_pack("{s:s}", "kind", kind_of(file));
        if (!found)
            status = hop_fail(err, HOP_MEMORY, "out of memory for what tokenizer.json holds");
        else
            status = try_tokenizer(directory, found, err);
        if (status != HOP_OK)
            goto done;
    }
    *out = found ? found : json_null();
    found = NULL;
done:
    json_decref(found);
    json_decref(file);
    return status;
}

static const char *family_of(const char *text, size_t length)
{
    static const struct {
        const char *mark, *family;
    } marks[] = {
        {"<|start_header_id|>", "Llama-3"}, {"<|im_start|>", "ChatML"}, {"[INST]", "Llama-2"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (length && memmem(text, length, marks[i].mark, strlen(marks[i].mark)))
            return marks[i].family;
    return "other";
}

static json_t *template_json(const char *file, const char *text, size_t length)
{
    return json_pack("{s:s, s:s}", "file", file, "family", family_of(text, length));
}

/* A text, or a list of named ones of which "default" counts. */
static const char *template_of(const json_t *value)
{
    size_t i;
    const json_t *entry;
    if (json_is_string(value))
        return json_string_value(value);
    json_array_foreach(value, i, entry)
    {
        const char *const name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(json_object_get(json_array_get(value, 0), "template"));
}

static hop_status template_file(const char *directory, const char *name, json_t **out,
                                struct hop_error *err)
{
    struct hop_map map;
    char *path;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    const hop_status status = hop_map_open(path, &map, err);
    free(path);
    if (status != HOP_OK)
        return status;
    *out = template_json(name, (const char *)map.data, map.size);
    hop_map_close(&map);
    return HOP_OK;
}

static hop_status template_key(const char *directory, const char *name, json_t **out,
                               struct hop_error *err)
{
    json_t *config = NULL;
    HOP_TRY(hop_inspect_load(directory, name, &config, err));
    const char *const text = template_of(json_object_get(config, "chat_template"));
    *out = text ? template_json(name, text, strlen(text)) : json_null();
    json_decref(config);
    return HOP_OK;
}

/* The file of its own is the newer place and wins, as it does in transformers. */
hop_status hop_inspect_chat_template(const char *directory, json_t **out, struct hop_error *err)
{
    bool own;
    HOP_TRY(hop_inspect_has(directory, "chat_template.jinja", &own, err));
    return own ? template_file(directory, "chat_template.jinja", out, err)
               : template_key(directory, "tokenizer_config.json", out, err);
}
