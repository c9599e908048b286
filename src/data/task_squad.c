/* SQuAD v1.1: answer a question about a paragraph in free words. The prompt is MeZO's; the first
 * right answer is what is trained, all of them are kept for evaluation. */
#include <ctype.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "data/json_need.h"
#include "data/squad_file.h"
#include "data/tasks.h"

/* The strings of a row. */
struct row {
    const char *title, *context, *question;
    size_t question_length; /* without the spaces around it, as MeZO has it */
};

static hop_status find_texts(const struct hop_squad_question *q, struct row *row,
                             struct hop_error *err)
{
    HOP_TRY(hop_need_string(q->article, "title", q->article_place, &row->title, err));
    HOP_TRY(hop_need_string(q->paragraph, "context", q->paragraph_place, &row->context, err));
    HOP_TRY(hop_need_string(q->qa, "question", q->place, &row->question, err));
    while (isspace((unsigned char)*row->question))
        row->question++;
    row->question_length = strlen(row->question);
    while (row->question_length && isspace((unsigned char)row->question[row->question_length - 1]))
        row->question_length--;
    return HOP_OK;
}

/* The text behind `characters` code points, or NULL when there are fewer. */
static const char *skip_characters(const char *text, json_int_t characters)
{
    for (; characters > 0 && *text; characters--)
        do
            text++;
        while (((unsigned char)*text & 0xC0) == 0x80);
    return characters == 0 ? text : NULL;
}

/* Offsets play no part in training; a wrong one shows that the file was damaged on its way. */
static hop_status check_offset(const struct hop_squad_question *q, const struct row *row, size_t i,
                               struct hop_error *err)
{
    const json_t *const start = json_object_get(json_array_get(q->answers, i), "answer_start");
    if (!start)
        return HOP_OK;
    if (!json_is_integer(start) || json_integer_value(start) < 0)
        return hop_fail(err, HOP_INPUT,
                        "%s.answers[%zu]: \"answer_start\" must be an integer from 0", q->place, i);
    const char *const at = skip_characters(row->context, json_integer_value(start));
    if (at && strncmp(at, q->golds[i], strlen(q->golds[i])) == 0)
        return HOP_OK;
    return hop_fail(
        err, HOP_INPUT,
        "%s.answers[%zu]: the context holds \"%.32s\" at character %" JSON_INTEGER_FORMAT
        ", not the answer \"%.32s\"; mend \"answer_start\" (it counts code points) or "
        "leave it out",
        q->place, i, at ? at : "", json_integer_value(start), q->golds[i]);
}

static hop_status check_answers(const struct hop_squad_question *q, const struct row *row,
                                struct hop_error *err)
{
    if (!*q->golds[0])
        return hop_fail(err, HOP_INPUT,
                        "%s.answers[0]: \"text\" is empty: there is nothing to learn", q->place);
    for (size_t i = 0; i < q->gold_count; i++)
        HOP_TRY(check_offset(q, row, i, err));
    return HOP_OK;
}

/* ---- the row ---- */

static hop_status add_pair(struct hop_builder *b, const struct hop_squad_question *q,
                           const struct row *row, struct hop_error *err)
{
    struct hop_string prompt = {0}, completion = {0};
    hop_status status;
    HOP_TRY_DONE(
        hop_string_printf(&prompt, err, "Title: %s\nContext: %s", row->title, row->context));
    const size_t text = prompt.length;
    HOP_TRY_DONE(hop_string_append(&prompt, "\nQuestion: ", strlen("\nQuestion: "), err));
    HOP_TRY_DONE(hop_string_append(&prompt, row->question, row->question_length, err));
    HOP_TRY_DONE(hop_string_append(&prompt, "\nAnswer:", strlen("\nAnswer:"), err));
    HOP_TRY_DONE(hop_string_printf(&completion, err, "%s%s\n", b->answer_space, q->golds[0]));
    const struct hop_pair pair = {.place = q->place,
                                  .prompt = prompt.data,
                                  .prompt_length = prompt.length,
                                  .completion = completion.data,
                                  .completion_length = completion.length,
                                  .question_length = prompt.length - text};
    status = hop_builder_add_pair(b, &pair, err);
done:
    hop_string_free(&prompt);
    hop_string_free(&completion);
    return status;
}

/* ---- what its answers are measured against ---- */

/* An empty reference for the example that comes next: so there is one for each at any time. */
static hop_status reserve_reference(struct hop_builder *b, struct hop_error *err)
{
    struct hop_dataset *const d = b->dataset;
    HOP_TRY(
        hop_grow(&d->references, &b->reference_capacity, d->count + 1, sizeof *d->references, err));
    d->references[d->count] = (struct hop_reference){0};
    return HOP_OK;
}

static hop_status fill_reference(const struct hop_squad_question *q, struct hop_reference *out,
                                 struct hop_error *err)
{
    HOP_TRY(hop_string_copy(&out->id, q->id, err));
    HOP_TRY(hop_calloc(&out->golds, q->gold_count, sizeof *out->golds, err));
    for (; out->count < q->gold_count; out->count++)
        HOP_TRY(hop_string_copy(&out->golds[out->count], q->golds[out->count], err));
    return HOP_OK;
}

static hop_status add_question(void *context, const struct hop_squad_question *q, bool *more,
                               struct hop_error *err)
{
    struct hop_builder *const b = context;
    struct hop_dataset *const d = b->dataset;
    const size_t index = d->count;
    struct row row = {0};
    HOP_TRY(find_texts(q, &row, err));
    HOP_TRY(check_answers(q, &row, err));
    HOP_TRY(reserve_reference(b, err));
    HOP_TRY(add_pair(b, q, &row, err));
    if (d->count > index)
        HOP_TRY(fill_reference(q, &d->references[index], err));
    *more = !hop_builder_full(b);
    return HOP_OK;
}

hop_status hop_task_squad_read(struct hop_builder *builder, struct hop_error *err)
{
    if (builder->options->label_count)
        return hop_fail(err, HOP_INPUT,
                        "data.labels has no effect on squad, whose answers are free; remove it");
    return hop_squad_read(builder->path, add_question, builder, err);
}
