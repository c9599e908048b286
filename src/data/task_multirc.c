/* MultiRC: is this answer to that question about a passage right? Every answer of a question is a
 * row, answered Yes or No; the prompt is MeZO's. */
#include <string.h>

#include "base/string.h"
#include "data/multirc_file.h"
#include "data/multirc_metrics.h"
#include "data/tasks.h"

static const char *const labels[] = {[HOP_MULTIRC_NO] = "No", [HOP_MULTIRC_YES] = "Yes"};

static hop_status add_answer(struct hop_builder *b, const struct hop_multirc_question *q,
                             const struct hop_multirc_answer *answer, struct hop_error *err)
{
    struct hop_string prompt = {0};
    const char *const label = labels[answer->right ? HOP_MULTIRC_YES : HOP_MULTIRC_NO];
    const size_t passage = strlen(q->passage);
    hop_status status;
    HOP_TRY_DONE(hop_string_append(&prompt, q->passage, passage, err));
    HOP_TRY_DONE(hop_string_printf(&prompt, err,
                                   "\nQuestion: %s\nI found this answer \"%s\". Is that correct? "
                                   "Yes or No?\n",
                                   q->question, answer->text));
    const struct hop_pair pair = {.place = q->place,
                                  .prompt = prompt.data,
                                  .prompt_length = prompt.length,
                                  .completion = label,
                                  .completion_length = strlen(label),
                                  .question_length = prompt.length - passage};
    status = hop_builder_add_pair(b, &pair, err);
done:
    hop_string_free(&prompt);
    return status;
}

/* A question cut in two by the limit would be scored on half of its answers. The first question is
 * cut all the same: a file read to a few rows still has rows. */
static bool fits(const struct hop_builder *b, const struct hop_multirc_question *q)
{
    const size_t limit = b->options->limit, rows = b->dataset->rows;
    return limit == 0 || rows == 0 || rows + q->answer_count <= limit;
}

static hop_status add_question(void *context, const struct hop_multirc_question *q, bool *more,
                               struct hop_error *err)
{
    struct hop_builder *const b = context;
    struct hop_dataset *const d = b->dataset;
    const size_t first = d->count;
    *more = fits(b, q);
    for (size_t i = 0; *more && i < q->answer_count && !hop_builder_full(b); i++)
        HOP_TRY(add_answer(b, q, &q->answers[i], err));
    for (size_t e = first; e < d->count; e++)
        d->examples[e].group = (int32_t)d->group_count;
    d->group_count += d->count > first;
    *more = *more && !hop_builder_full(b);
    return HOP_OK;
}

hop_status hop_task_multirc_read(struct hop_builder *builder, struct hop_error *err)
{
    if (builder->options->label_count)
        return hop_fail(err, HOP_INPUT,
                        "data.labels has no effect on multirc, whose labels are Yes and No; remove "
                        "it");
    HOP_TRY(hop_builder_set_labels(builder, labels, HOP_MULTIRC_LABELS, err));
    HOP_TRY(hop_multirc_read(builder->path, add_question, builder, err));
    if (builder->dataset->rows == 0)
        return hop_fail(err, HOP_INPUT, "%s: the file has no question", builder->path);
    return HOP_OK;
}
