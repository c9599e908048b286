/* AG News: which of four topics a news item has. CSV rows are class (1 to 4), title, description;
 * JSON Lines are {"text", "label"} with label from 0 and text = title + " " + description. */
#include <string.h>

#include "base/string.h"
#include "data/jsonl_lines.h"
#include "data/tasks.h"
#include "io/csv.h"
#include "io/file.h"

static const char *const topics[] = {"World", "Sports", "Business", "Tech"};
enum { TOPICS = 4 };

static hop_status add_item(struct hop_builder *b, size_t line, const char *text, int64_t topic,
                           struct hop_error *err)
{
    struct hop_string prompt = {0}, completion = {0};
    hop_status status;
    static const char question[] = " Topic:";
    HOP_TRY_DONE(hop_string_printf(&prompt, err, "%s%s", text, question));
    HOP_TRY_DONE(hop_string_printf(&completion, err, "%s%s", b->answer_space, topics[topic]));
    const struct hop_pair pair = {.line = line,
                                  .prompt = prompt.data,
                                  .prompt_length = prompt.length,
                                  .completion = completion.data,
                                  .completion_length = completion.length,
                                  .question_length = sizeof question - 1};
    status = hop_builder_add_pair(b, &pair, err);
done:
    hop_string_free(&prompt);
    hop_string_free(&completion);
    return status;
}

/* Copies of the data set on the web carry a header line. */
static bool is_header(const struct hop_csv_row *row)
{
    return row->line == 1 && strcmp(row->fields[0], "Class Index") == 0;
}

static hop_status add_csv_row(void *context, const struct hop_csv_row *row, struct hop_error *err)
{
    struct hop_builder *const b = context;
    struct hop_string text = {0};
    if (hop_builder_full(b) || is_header(row))
        return HOP_OK;
    const char *const class = row->fields[0];
    if (row->count != 3)
        return hop_fail(err, HOP_INPUT,
                        "%s:%zu: %zu fields, a row is class, title, description; put quotes around "
                        "text with commas",
                        b->path, row->line, row->count);
    if (class[0] < '1' || class[0] > '0' + TOPICS || class[1])
        return hop_fail(err, HOP_INPUT,
                        "%s:%zu: the class \"%.32s\" must be 1 to 4 (World, Sports, Business, "
                        "Sci/Tech)",
                        b->path, row->line, class);
    hop_status status = hop_string_printf(&text, err, "%s %s", row->fields[1], row->fields[2]);
    if (status == HOP_OK)
        status = add_item(b, row->line, text.data, class[0] - '1', err);
    hop_string_free(&text);
    return status;
}

static hop_status add_json_row(void *context, const struct hop_jsonl_line *line, bool *more,
                               struct hop_error *err)
{
    struct hop_builder *const b = context;
    const json_t *const label = json_object_get(line->row, "label");
    const char *const text = json_string_value(json_object_get(line->row, "text"));
    const json_int_t topic = json_integer_value(label);
    if (!text)
        return hop_fail(err, HOP_INPUT, "%s: \"text\" is missing or not a string", line->where);
    if (!json_is_integer(label) || topic < 0 || topic >= TOPICS)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"label\" must be 0 to 3 (World, Sports, Business, Sci/Tech)",
                        line->where);
    HOP_TRY(add_item(b, line->line, text, topic, err));
    *more = !hop_builder_full(b);
    return HOP_OK;
}

/* The first character tells the formats apart: a CSV row begins with a quote or a digit. */
static hop_status is_json(const char *path, bool *out, struct hop_error *err)
{
    struct hop_map map;
    HOP_TRY(hop_map_open(path, &map, err));
    size_t i = map.size >= 3 && memcmp(map.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < map.size && strchr(" \t\r\n", map.data[i]) && map.data[i])
        i++;
    *out = i < map.size && map.data[i] == '{';
    hop_map_close(&map);
    return HOP_OK;
}

hop_status hop_task_ag_news_read(struct hop_builder *builder, struct hop_error *err)
{
    bool json = false;
    if (builder->options->label_count)
        return hop_fail(err, HOP_INPUT,
                        "data.labels has no effect on ag_news, whose labels are known; remove it");
    HOP_TRY(is_json(builder->path, &json, err));
    HOP_TRY(hop_builder_set_labels(builder, topics, TOPICS, err));
    if (json)
        return hop_jsonl_read(builder->path, add_json_row, builder, err);
    return hop_csv_read(builder->path, add_csv_row, builder, err);
}
