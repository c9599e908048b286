/* JSON Lines: a row is {"prompt", "completion"}, {"messages"}, {"text"} or {"input_ids", "labels"}.
 * Other keys are left alone: data sets carry ids and sources. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/jsonl_lines.h"
#include "data/tasks.h"

static hop_status get_text(const struct hop_jsonl_line *line, const char *key, const char **text,
                           size_t *length, struct hop_error *err)
{
    const json_t *const value = json_object_get(line->row, key);
    if (json_is_array(value))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"%s\" is a list; write a text, or the whole conversation as "
                        "{\"messages\": [...]}",
                        line->where, key);
    if (!json_is_string(value))
        return hop_fail(err, HOP_INPUT, "%s: \"%s\" must be a string", line->where, key);
    *text = json_string_value(value);
    *length = json_string_length(value);
    return HOP_OK;
}

static hop_status add_pair(struct hop_builder *b, const struct hop_jsonl_line *line,
                           struct hop_error *err)
{
    struct hop_pair pair = {.line = line->line};
    HOP_TRY(get_text(line, "prompt", &pair.prompt, &pair.prompt_length, err));
    HOP_TRY(get_text(line, "completion", &pair.completion, &pair.completion_length, err));
    return hop_builder_add_pair(b, &pair, err);
}

static hop_status add_text(struct hop_builder *b, const struct hop_jsonl_line *line,
                           struct hop_error *err)
{
    const char *text = NULL;
    size_t length = 0;
    HOP_TRY(get_text(line, "text", &text, &length, err));
    return hop_builder_add_text(b, line->line, text, length, err);
}

/* Numbers outside int32 become -1, which the builder refuses with its message. */
static hop_status get_ids(const struct hop_jsonl_line *line, const char *key, struct hop_ids *out,
                          struct hop_error *err)
{
    const json_t *const list = json_object_get(line->row, key);
    if (!json_is_array(list))
        return hop_fail(err, HOP_INPUT,
                        "%s: \"%s\" must be a list of integers, as a tokenized row has both "
                        "\"input_ids\" and \"labels\"",
                        line->where, key);
    out->count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        const json_int_t id = json_integer_value(item);
        if (!json_is_integer(item))
            return hop_fail(err, HOP_INPUT, "%s: %s[%zu] is not an integer", line->where, key, i);
        HOP_TRY(hop_ids_append(out, id < INT32_MIN || id > INT32_MAX ? -1 : (int32_t)id, err));
    }
    return HOP_OK;
}

static hop_status add_tokens(struct hop_builder *b, const struct hop_jsonl_line *line,
                             struct hop_error *err)
{
    HOP_TRY(get_ids(line, "input_ids", &b->ids, err));
    HOP_TRY(get_ids(line, "labels", &b->labels, err));
    if (b->ids.count != b->labels.count)
        return hop_fail(err, HOP_INPUT,
                        "%s: %zu input_ids but %zu labels; there must be as many, -100 where no "
                        "loss counts",
                        line->where, b->ids.count, b->labels.count);
    return hop_builder_add_tokens(b, line->line, err);
}

static hop_status get_role(const json_t *message, const char *where, size_t i,
                           enum hop_chat_role *out, struct hop_error *err)
{
    const char *const role = json_string_value(json_object_get(message, "role"));
    if (!role)
        return hop_fail(err, HOP_INPUT,
                        "%s: messages[%zu]: \"role\" must be a string: system, user or assistant",
                        where, i);
    for (int r = 0; r < HOP_CHAT_ROLES; r++)
        if (strcmp(role, hop_chat_role_names[r]) == 0) {
            *out = (enum hop_chat_role)r;
            return HOP_OK;
        }
    const char *const nearest = hop_nearest_name(role, hop_chat_role_names, HOP_CHAT_ROLES);
    return hop_fail(err, HOP_INPUT,
                    "%s: messages[%zu]: unknown role \"%.32s\"; it must be system, user or "
                    "assistant%s%s%s",
                    where, i, role, nearest ? "; did you mean " : "", nearest ? nearest : "",
                    nearest ? "?" : "");
}

static hop_status get_message(const json_t *message, const char *where, size_t i,
                              struct hop_chat_message *out, struct hop_error *err)
{
    const json_t *const content = json_object_get(message, "content");
    if (!json_is_object(message))
        return hop_fail(err, HOP_INPUT,
                        "%s: messages[%zu]: expected {\"role\": ..., \"content\": ...}", where, i);
    HOP_TRY(get_role(message, where, i, &out->role, err));
    if (!json_is_string(content))
        return hop_fail(err, HOP_INPUT,
                        "%s: messages[%zu]: \"content\" %s; write what is said as one string, or "
                        "leave the message out",
                        where, i, content ? "is not a string" : "is missing");
    out->content = json_string_value(content);
    out->length = json_string_length(content);
    return HOP_OK;
}

static hop_status add_messages(struct hop_builder *b, const struct hop_jsonl_line *line,
                               struct hop_error *err)
{
    const json_t *const list = json_object_get(line->row, "messages");
    const size_t count = json_array_size(list);
    struct hop_chat_message *messages = NULL;
    hop_status status;
    if (!json_is_array(list))
        return hop_fail(err, HOP_INPUT,
                        "%s: \"messages\" must be a list of {\"role\", \"content\"}", line->where);
    HOP_TRY_DONE(hop_calloc(&messages, count, sizeof *messages, err));
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(get_message(json_array_get(list, i), line->where, i, &messages[i], err));
    HOP_TRY_DONE(hop_builder_add_chat(b, line->line, messages, count, err));
done:
    free(messages);
    return status;
}

/* The first key that a row has tells its kind: public sets give the first of their messages as a
 * "prompt" too. */
static const struct {
    const char *key;
    hop_status (*add)(struct hop_builder *, const struct hop_jsonl_line *, struct hop_error *);
} kinds[] = {
    {"input_ids", add_tokens}, {"completion", add_pair}, {"messages", add_messages},
    {"prompt", add_pair},      {"text", add_text},
};

static hop_status add_row(void *context, const struct hop_jsonl_line *line, bool *more,
                          struct hop_error *err)
{
    struct hop_builder *const b = context;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_object_get(line->row, kinds[i].key)) {
            HOP_TRY(kinds[i].add(b, line, err));
            *more = !hop_builder_full(b);
            return HOP_OK;
        }
    return hop_fail(
        err, HOP_INPUT,
        "%s: no known key; a row has \"prompt\" and \"completion\", or \"messages\", or "
        "\"text\", or \"input_ids\" and \"labels\"",
        line->where);
}

hop_status hop_task_jsonl_read(struct hop_builder *builder, struct hop_error *err)
{
    const struct hop_dataset_options *const options = builder->options;
    if (options->label_count)
        HOP_TRY(hop_builder_set_labels(builder, options->labels, options->label_count, err));
    return hop_jsonl_read(builder->path, add_row, builder, err);
}
