/* Finds the model's chat template and tells its family by the tokens it names. */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "text/chat_internal.h"

#define REMEDY "set data.chat_template to llama-2, llama-3 or chatml"

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static bool strips_content(const char *text)
{
    return has(text, "trim") || has(text, "strip(");
}

static bool is_llama2(const char *text)
{
    return has(text, "[INST]") && has(text, "<<SYS>>") && has(text, "bos_token") &&
           strips_content(text);
}

static bool is_llama3(const char *text)
{
    return has(text, "<|start_header_id|>") && has(text, "<|end_header_id|>") &&
           has(text, "<|eot_id|>") && strips_content(text);
}

static bool is_chatml(const char *text)
{
    return has(text, "<|im_start|>") && has(text, "<|im_end|>") && !strips_content(text);
}

/* HOP_CHAT_AUTO when it is none of the three, or more than one. */
static enum hop_chat_family recognise(const char *text)
{
    const bool llama2 = is_llama2(text), llama3 = is_llama3(text), chatml = is_chatml(text);
    if (llama2 + llama3 + chatml != 1)
        return HOP_CHAT_AUTO;
    return llama2 ? HOP_CHAT_LLAMA2 : llama3 ? HOP_CHAT_LLAMA3 : HOP_CHAT_CHATML;
}

/* Appends a Jinja string's text, where a line break may be spelled \n. */
static hop_status append_literal(struct hop_string *out, const char *text, size_t n,
                                 struct hop_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const bool line_break = text[i] == '\\' && i + 1 < n && text[i + 1] == 'n';
        HOP_TRY(hop_string_append(out, line_break ? "\n" : text + i, 1, err));
        i += line_break;
    }
    return HOP_OK;
}

/* ChatML templates with a system message of their own spell it between the two tokens; where an
 * expression stands there, it is that of the conversation. */
static hop_status find_default_system(const char *text, struct hop_string *out,
                                      struct hop_error *err)
{
    static const char opening[] = "<|im_start|>system", ending[] = "<|im_end|>";
    for (const char *at = strstr(text, opening); at; at = strstr(at, opening)) {
        at += sizeof opening - 1;
        const size_t gap = at[0] == '\n' ? 1 : at[0] == '\\' && at[1] == 'n' ? 2 : 0;
        const char *const end = strstr(at, ending);
        if (gap == 0 || !end)
            continue;
        const char *const begin = at + gap;
        const size_t n = (size_t)(end - begin);
        if (n > 0 && strcspn(begin, "'\"{}") >= n)
            return append_literal(out, begin, n, err);
    }
    return HOP_OK;
}

static hop_status describe(const char *text, const char *path, struct hop_chat_template *out,
                           struct hop_error *err)
{
    out->family = recognise(text);
    if (out->family == HOP_CHAT_AUTO)
        return hop_fail(err, HOP_INPUT,
                        "%s: the chat template is none of Llama 2's, Llama 3's and plain ChatML; "
                        "if the model knows one of these, " REMEDY,
                        path);
    out->starts_with_bos = has(text, "bos_token") || has(text, "<|begin_of_text|>");
    out->dated = out->family == HOP_CHAT_LLAMA3 && has(text, "Cutting Knowledge Date");
    if (out->family == HOP_CHAT_CHATML)
        return find_default_system(text, &out->default_system, err);
    return HOP_OK;
}

/* The template of a list of named ones that a conversation without tools gets. */
static const char *named_default(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        const char *const name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(item, "template"));
    }
    return NULL;
}

static hop_status describe_config(const json_t *config, const char *path,
                                  struct hop_chat_template *out, struct hop_error *err)
{
    const json_t *const value = json_object_get(config, "chat_template");
    if (!value || json_is_null(value))
        return hop_fail(err, HOP_INPUT, "%s: the model has no chat template; " REMEDY, path);
    const char *const text = json_is_array(value) ? named_default(value) : json_string_value(value);
    if (!text)
        return hop_fail(err, HOP_INPUT,
                        "%s: chat_template: expected a text, or a list with one named \"default\"; "
                        "mend it or " REMEDY,
                        path);
    return describe(text, path, out, err);
}

/* A special token is written as its content or as an object that holds it. */
static hop_status read_token(const json_t *config, const char *key, struct hop_string *out,
                             struct hop_error *err)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return HOP_OK;
    return hop_string_append(out, json_string_value(value), json_string_length(value), err);
}

static hop_status describe_file(const char *path, struct hop_chat_template *out,
                                struct hop_error *err)
{
    struct hop_map map;
    struct hop_string text = {0};
    HOP_TRY(hop_map_open(path, &map, err));
    hop_status status = hop_string_append(&text, (const char *)map.data, map.size, err);
    hop_map_close(&map);
    if (status == HOP_OK)
        status = describe(hop_string_text(&text), path, out, err);
    hop_string_free(&text);
    return status;
}

/* In a model's own files the template of its own stands before tokenizer_config.json's. */
static hop_status find_template(const char *jinja, const json_t *config, const char *config_path,
                                struct hop_chat_template *out, struct hop_error *err)
{
    if (hop_file_exists(jinja))
        return describe_file(jinja, out, err);
    return describe_config(config, config_path, out, err);
}

static hop_status read_files(const char *jinja, const char *config_path,
                             enum hop_chat_family family, struct hop_chat_template *out,
                             struct hop_error *err)
{
    json_t *config = NULL;
    hop_status status = HOP_OK;
    if (hop_file_exists(config_path))
        HOP_TRY_DONE(hop_json_load(config_path, &config, err));
    HOP_TRY_DONE(read_token(config, "bos_token", &out->bos, err));
    HOP_TRY_DONE(read_token(config, "eos_token", &out->eos, err));
    out->family = family;
    out->starts_with_bos = family == HOP_CHAT_LLAMA2 || family == HOP_CHAT_LLAMA3;
    if (family == HOP_CHAT_AUTO)
        HOP_TRY_DONE(find_template(jinja, config, config_path, out, err));
done:
    json_decref(config);
    return status;
}

hop_status hop_chat_template_read(const char *directory, enum hop_chat_family family,
                                  struct hop_chat_template *out, struct hop_error *err)
{
    struct hop_chat_template found = {0};
    char *jinja = NULL, *config = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "chat_template.jinja", &jinja, err));
    HOP_TRY_DONE(hop_path_join(directory, "tokenizer_config.json", &config, err));
    HOP_TRY_DONE(read_files(jinja, config, family, &found, err));
    *out = found;
    found = (struct hop_chat_template){0};
done:
    hop_chat_template_free(&found);
    free(jinja);
    free(config);
    return status;
}

void hop_chat_template_free(struct hop_chat_template *from)
{
    if (!from)
        return;
    hop_string_free(&from->default_system);
    hop_string_free(&from->bos);
    hop_string_free(&from->eos);
}
