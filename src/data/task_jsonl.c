/* JSON Lines: a row is {"prompt", "completion"}, {"text"} or {"input_ids", "labels"}. Other keys
 * are left alone: data sets carry ids and sources. */
#include <string.h>

#include "data/jsonl_lines.h"
#include "data/tasks.h"

static hop_status get_text(const struct hop_jsonl_line *line, const char *key, const char **text,
                           size_t *length, struct hop_error *err)
{
    const json_t *const value = json_object_get(line->row, key);
    if (json_is_array(value))
        return hop_fail(err, HOP_UNSUPPORTED,
                        "%s: \"%s\" is a list of messages, which needs a chat template; write it "
                        "as one string",
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

static hop_status refuse_messages(struct hop_builder *b, const struct hop_jsonl_line *line,
                                  struct hop_error *err)
{
    (void)b;
    return hop_fail(err, HOP_UNSUPPORTED,
                    "%s: \"messages\" needs a chat template, which is not supported; write the row "
                    "as {\"prompt\", \"completion\"} with the template applied",
                    line->where);
}

static const struct {
    const char *key;
    hop_status (*add)(struct hop_builder *, const struct hop_jsonl_line *, struct hop_error *);
} kinds[] = {
    {"input_ids", add_tokens}, {"completion", add_pair},      {"prompt", add_pair},
    {"text", add_text},        {"messages", refuse_messages},
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
    return hop_fail(err, HOP_INPUT,
                    "%s: no known key; a row has \"prompt\" and \"completion\", or \"text\", or "
                    "\"input_ids\" and \"labels\"",
                    line->where);
}

hop_status hop_task_jsonl_read(struct hop_builder *builder, struct hop_error *err)
{
    const struct hop_dataset_options *const options = builder->options;
    if (options->label_count)
        HOP_TRY(hop_builder_set_labels(builder, options->labels, options->label_count, err));
    return hop_jsonl_read(builder->path, add_row, builder, err);
}
