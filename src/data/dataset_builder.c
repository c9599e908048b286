#include "data/dataset_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

/* Stores the tokens the post-processor puts in front of a text. What it puts behind one is left
 * out: the end of a completion is options->eos. */
static hop_status find_bos(struct hop_tokenizer *tokenizer, struct hop_ids *bos,
                           struct hop_error *err)
{
    struct hop_ids plain = {0}, special = {0};
    hop_status status;
    HOP_TRY_DONE(hop_tokenizer_encode(tokenizer, "a", 1, false, &plain, err));
    HOP_TRY_DONE(hop_tokenizer_encode(tokenizer, "a", 1, true, &special, err));
    size_t front = 0;
    while (front + plain.count <= special.count && plain.count &&
           memcmp(special.data + front, plain.data, plain.count * sizeof *plain.data) != 0)
        front++;
    if (front + plain.count > special.count)
        front = 0;
    for (size_t i = 0; i < front; i++)
        HOP_TRY_DONE(hop_ids_append(bos, special.data[i], err));
done:
    hop_ids_free(&plain);
    hop_ids_free(&special);
    return status;
}

/* Llama 2's tokenizers put a space in front of every text: one of a template's would be a second.
 */
static hop_status find_answer_space(struct hop_tokenizer *tokenizer, const char **space,
                                    struct hop_error *err)
{
    struct hop_ids bare = {0}, spaced = {0};
    hop_status status;
    HOP_TRY_DONE(hop_tokenizer_encode(tokenizer, "a", 1, false, &bare, err));
    HOP_TRY_DONE(hop_tokenizer_encode(tokenizer, " a", 2, false, &spaced, err));
    *space = spaced.count > bare.count ? "" : " ";
done:
    hop_ids_free(&bare);
    hop_ids_free(&spaced);
    return status;
}

hop_status hop_builder_init(struct hop_builder *builder, const char *path,
                            struct hop_tokenizer *tokenizer,
                            const struct hop_dataset_options *options, struct hop_error *err)
{
    *builder = (struct hop_builder){.path = path, .tokenizer = tokenizer, .options = options};
    hop_status status = hop_calloc(&builder->dataset, 1, sizeof *builder->dataset, err);
    if (status == HOP_OK && tokenizer)
        status = find_bos(tokenizer, &builder->bos, err);
    builder->answer_space = " ";
    if (status == HOP_OK && tokenizer)
        status = find_answer_space(tokenizer, &builder->answer_space, err);
    if (status != HOP_OK)
        hop_builder_free(builder);
    return status;
}

void hop_builder_free(struct hop_builder *builder)
{
    hop_dataset_free(builder->dataset);
    hop_ids_free(&builder->bos);
    hop_ids_free(&builder->ids);
    hop_ids_free(&builder->labels);
    hop_string_free(&builder->where);
    hop_label_set_free(&builder->candidates);
    *builder = (struct hop_builder){0};
}

/* Whether answers stand behind a space is seen only in the rows: room is made for either form. */
static hop_status measure_form(struct hop_builder *b, const char *space, const char *name,
                               struct hop_error *err)
{
    struct hop_string form = {0};
    struct hop_ids ids = {0};
    hop_status status = hop_string_printf(&form, err, "%s%s", space, name);
    if (status == HOP_OK)
        status = hop_tokenizer_encode(b->tokenizer, form.data, form.length, false, &ids, err);
    const size_t tokens = ids.count + (b->options->eos >= 0);
    if (status == HOP_OK && tokens > b->longest_answer)
        b->longest_answer = tokens;
    hop_string_free(&form);
    hop_ids_free(&ids);
    return status;
}

hop_status hop_builder_set_labels(struct hop_builder *builder, const char *const *names,
                                  size_t count, struct hop_error *err)
{
    HOP_TRY(hop_label_set_create(names, count, &builder->candidates, err));
    for (size_t i = 0; builder->tokenizer && i < count; i++) {
        HOP_TRY(measure_form(builder, "", builder->candidates.names[i], err));
        HOP_TRY(measure_form(builder, " ", builder->candidates.names[i], err));
    }
    return HOP_OK;
}

bool hop_builder_full(const struct hop_builder *builder)
{
    const size_t limit = builder->options->limit;
    return limit && builder->dataset->rows >= limit;
}

static bool starts_with_bos(const struct hop_builder *b)
{
    const size_t n = b->bos.count;
    return n && b->ids.count >= n && memcmp(b->ids.data, b->bos.data, n * sizeof *b->ids.data) == 0;
}

/* Says where the row that begins now is, for messages. */
static hop_status name_row(struct hop_builder *b, size_t line, const char *place,
                           struct hop_error *err)
{
    b->where.length = 0;
    if (place)
        return hop_string_printf(&b->where, err, "%s", place);
    return hop_string_printf(&b->where, err, "%s:%zu", b->path, line);
}

/* Appends the tokens of text to the row. */
static hop_status encode(struct hop_builder *b, const char *text, size_t length,
                         struct hop_error *err)
{
    if (!b->tokenizer)
        return hop_fail(err, HOP_INPUT,
                        "%s: the row is text, but the model has no tokenizer; put its "
                        "tokenizer.json into the model folder",
                        b->where.data);
    if (hop_tokenizer_encode(b->tokenizer, text, length, false, &b->ids, err) != HOP_OK)
        return hop_wrap(err, "%s", b->where.data);
    return HOP_OK;
}

/* Begins the row with text. A text that spells BOS itself does not get a second one. */
static hop_status encode_first(struct hop_builder *b, const char *text, size_t length,
                               struct hop_error *err)
{
    b->ids.count = 0;
    HOP_TRY(encode(b, text, length, err));
    if (starts_with_bos(b) || b->bos.count == 0)
        return HOP_OK;
    const size_t n = b->bos.count, old = b->ids.count;
    for (size_t i = 0; i < n; i++)
        HOP_TRY(hop_ids_append(&b->ids, 0, err));
    memmove(b->ids.data + n, b->ids.data, old * sizeof *b->ids.data);
    memcpy(b->ids.data, b->bos.data, n * sizeof *b->ids.data);
    return HOP_OK;
}

/* Ends the part of the row that starts at `begin` with one EOS. */
static hop_status append_eos(struct hop_builder *b, size_t begin, struct hop_error *err)
{
    const int32_t eos = b->options->eos;
    const size_t n = b->ids.count;
    if (eos < 0 || (n > begin && b->ids.data[n - 1] == eos))
        return HOP_OK;
    return hop_ids_append(&b->ids, eos, err);
}

/* Labels the tokens from `begin` on. */
static hop_status mask_before(struct hop_builder *b, size_t begin, struct hop_error *err)
{
    b->labels.count = 0;
    for (size_t i = 0; i < b->ids.count; i++)
        HOP_TRY(hop_ids_append(&b->labels, i < begin ? HOP_LABEL_IGNORED : b->ids.data[i], err));
    return HOP_OK;
}

static hop_status check_tokens(const struct hop_builder *b, struct hop_error *err)
{
    const int32_t vocabulary = b->options->vocabulary > 0 ? b->options->vocabulary : INT32_MAX;
    if (b->ids.count > INT32_MAX / 2)
        return hop_fail(err, HOP_INPUT, "%s: the row has %zu tokens, too many", b->where.data,
                        b->ids.count);
    for (size_t i = 0; i < b->ids.count; i++) {
        const int32_t id = b->ids.data[i], label = b->labels.data[i];
        if (id < 0 || id >= vocabulary)
            return hop_fail(err, HOP_INPUT,
                            "%s: token %zu has id %d, the model's vocabulary has %d; is it the "
                            "tokenizer of this model?",
                            b->where.data, i, id, vocabulary);
        if (label != HOP_LABEL_IGNORED && (label < 0 || label >= vocabulary))
            return hop_fail(err, HOP_INPUT,
                            "%s: label %zu is %d; it must be a token id below %d or %d",
                            b->where.data, i, label, vocabulary, HOP_LABEL_IGNORED);
    }
    return HOP_OK;
}

/* How many tokens in front survive every cut. Without a tokenizer the first one is taken for BOS.
 */
static size_t kept_front(const struct hop_builder *b)
{
    if (b->tokenizer)
        return starts_with_bos(b) ? b->bos.count : 0;
    return 1;
}

static void remove_range(struct hop_ids *ids, size_t begin, size_t n)
{
    memmove(ids->data + begin, ids->data + begin + n, (ids->count - begin - n) * sizeof *ids->data);
    ids->count -= n;
}

/* Tokens the prompt is too long by. In a label task it leaves room for the longest answer, not for
 * the row's own: else the length of a cut prompt would give the answer away. */
static size_t prompt_excess(const struct hop_builder *b, size_t prompt)
{
    const size_t limit = (size_t)b->options->max_length, answer = b->ids.count - prompt;
    const size_t room = answer > b->longest_answer ? answer : b->longest_answer;
    return prompt + room > limit ? prompt + room - limit : 0;
}

/* How many tokens in front of `end` hold the last `bytes` bytes of the prompt. Beyond max_length
 * the count does not matter: the row cannot keep them. */
static hop_status count_question(const struct hop_builder *b, size_t end, size_t bytes,
                                 size_t *tokens, struct hop_error *err)
{
    hop_status status = HOP_OK;
    struct hop_string text = {0};
    const size_t limit = (size_t)b->options->max_length, most = end < limit ? end : limit;
    *tokens = 0;
    while (status == HOP_OK && text.length < bytes && *tokens < most) {
        ++*tokens;
        text.length = 0;
        status = hop_tokenizer_decode(b->tokenizer, b->ids.data + end - *tokens, *tokens, false,
                                      &text, err);
    }
    hop_string_free(&text);
    return status;
}

/* Takes `over` tokens out of the prompt, which ends at `end`: behind BOS, or, where a question of
 * that many bytes closes the prompt, right in front of it, so that a text loses its end and not its
 * head. */
static hop_status cut_prompt(struct hop_builder *b, size_t end, size_t over, size_t question,
                             struct hop_error *err)
{
    const size_t front = kept_front(b);
    size_t kept = 0;
    if (question)
        HOP_TRY(count_question(b, end, question, &kept, err));
    if (end <= front + kept)
        return HOP_OK;
    const size_t room = end - front - kept, dropped = over < room ? over : room;
    const size_t begin = kept ? end - kept - dropped : front;
    remove_range(&b->ids, begin, dropped);
    remove_range(&b->labels, begin, dropped);
    return HOP_OK;
}

/* Shortens the row to max_length: first the masked prompt, then the end. */
static hop_status cut(struct hop_builder *b, size_t question, bool *was_cut, struct hop_error *err)
{
    const size_t limit = (size_t)b->options->max_length;
    size_t masked = 0;
    *was_cut = false;
    if (b->options->max_length <= 0)
        return HOP_OK;
    while (masked < b->labels.count && b->labels.data[masked] == HOP_LABEL_IGNORED)
        masked++;
    const size_t over = prompt_excess(b, masked);
    if (over == 0)
        return HOP_OK;
    *was_cut = true;
    HOP_TRY(cut_prompt(b, masked, over, question, err));
    if (b->ids.count > limit)
        b->ids.count = b->labels.count = limit;
    return HOP_OK;
}

/* Labels that count, and where the first of them is. */
static size_t count_labels(const struct hop_ids *labels, size_t *first)
{
    size_t n = 0;
    *first = labels->count;
    for (size_t i = labels->count; i-- > 1;)
        if (labels->data[i] != HOP_LABEL_IGNORED) {
            *first = i;
            n++;
        }
    return n;
}

static hop_status store(struct hop_builder *b, size_t first, size_t labelled, int32_t answer,
                        struct hop_error *err)
{
    struct hop_dataset *const d = b->dataset;
    const size_t n = b->ids.count;
    int32_t *block;
    HOP_TRY(hop_grow(&d->examples, &b->capacity, d->count + 1, sizeof *d->examples, err));
    HOP_TRY(hop_calloc(&block, 2 * n, sizeof *block, err));
    memcpy(block, b->ids.data, n * sizeof *block);
    memcpy(block + n, b->labels.data, n * sizeof *block);
    d->examples[d->count++] = (struct hop_example){.ids = block,
                                                   .labels = block + n,
                                                   .length = (int32_t)n,
                                                   .prompt_length = (int32_t)first,
                                                   .answer = answer,
                                                   .group = -1};
    d->tokens += (int64_t)n;
    d->label_tokens += (int64_t)labelled;
    if ((int32_t)n > d->longest)
        d->longest = (int32_t)n;
    return HOP_OK;
}

static hop_status keep_row(struct hop_builder *b, size_t question, int32_t answer,
                           struct hop_error *err)
{
    size_t first;
    bool was_cut;
    b->dataset->rows++;
    HOP_TRY(check_tokens(b, err));
    HOP_TRY(cut(b, question, &was_cut, err));
    const size_t labelled = count_labels(&b->labels, &first);
    if (labelled == 0) {
        b->dataset->unlabeled++;
        return HOP_OK;
    }
    HOP_TRY(store(b, first, labelled, answer, err));
    b->dataset->truncated += was_cut;
    return HOP_OK;
}

static hop_status match_answer(struct hop_builder *b, const struct hop_pair *pair, int32_t *answer,
                               struct hop_error *err)
{
    *answer = -1;
    if (b->candidates.count == 0)
        return HOP_OK;
    HOP_TRY(hop_label_set_match(&b->candidates, pair->completion, pair->completion_length, answer,
                                err));
    if (*answer < 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: the completion \"%.64s\" is none of the %zu labels (\"%.64s\", …); "
                        "add it to data.labels or mend the row",
                        b->where.data, pair->completion, b->candidates.count,
                        b->candidates.names[0]);
    return HOP_OK;
}

hop_status hop_builder_add_pair(struct hop_builder *builder, const struct hop_pair *pair,
                                struct hop_error *err)
{
    int32_t answer;
    HOP_TRY(name_row(builder, pair->line, pair->place, err));
    HOP_TRY(match_answer(builder, pair, &answer, err));
    HOP_TRY(encode_first(builder, pair->prompt, pair->prompt_length, err));
    const size_t begin = builder->ids.count;
    HOP_TRY(encode(builder, pair->completion, pair->completion_length, err));
    HOP_TRY(append_eos(builder, begin, err));
    HOP_TRY(mask_before(builder, begin, err));
    return keep_row(builder, pair->question_length, answer, err);
}

static hop_status refuse_unlabelled_kind(const struct hop_builder *b, struct hop_error *err)
{
    if (b->candidates.count == 0)
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "%s: with data.labels every row needs \"prompt\" and \"completion\"",
                    b->where.data);
}

hop_status hop_builder_add_text(struct hop_builder *builder, size_t line, const char *text,
                                size_t length, struct hop_error *err)
{
    HOP_TRY(name_row(builder, line, NULL, err));
    HOP_TRY(refuse_unlabelled_kind(builder, err));
    HOP_TRY(encode_first(builder, text, length, err));
    HOP_TRY(append_eos(builder, 0, err));
    HOP_TRY(mask_before(builder, 0, err));
    return keep_row(builder, 0, -1, err);
}

hop_status hop_builder_add_tokens(struct hop_builder *builder, size_t line, struct hop_error *err)
{
    HOP_TRY(name_row(builder, line, NULL, err));
    HOP_TRY(refuse_unlabelled_kind(builder, err));
    return keep_row(builder, 0, -1, err);
}

/* Candidates become tokens just as completions do. */
static hop_status encode_candidates(struct hop_builder *b, struct hop_error *err)
{
    struct hop_dataset *const d = b->dataset;
    const size_t count = b->candidates.count;
    if (count == 0)
        return HOP_OK;
    HOP_TRY(hop_label_set_complete(&b->candidates, err));
    HOP_TRY(hop_calloc(&d->label_ids, count, sizeof *d->label_ids, err));
    HOP_TRY(hop_calloc(&d->label_names, count, sizeof *d->label_names, err));
    d->label_count = count;
    for (size_t i = 0; i < count; i++) {
        const char *const form = b->candidates.forms[i];
        HOP_TRY(hop_string_copy(&d->label_names[i], b->candidates.names[i], err));
        HOP_TRY(
            hop_tokenizer_encode(b->tokenizer, form, strlen(form), false, &d->label_ids[i], err));
        if (d->label_ids[i].count == 0)
            return hop_fail(err, HOP_INPUT, "%s: the label \"%.64s\" has no token", b->path, form);
    }
    return HOP_OK;
}

hop_status hop_builder_finish(struct hop_builder *builder, struct hop_dataset **out,
                              struct hop_error *err)
{
    const struct hop_dataset *const d = builder->dataset;
    if (d->count == 0 && d->unlabeled)
        return hop_fail(err, HOP_INPUT,
                        "%s: none of the %zu rows has a label token left within max_length %d; "
                        "raise data.max_length or label some tokens",
                        builder->path, d->rows, builder->options->max_length);
    if (d->count == 0)
        return hop_fail(err, HOP_INPUT, "%s: the file has no rows; one a line is needed",
                        builder->path);
    HOP_TRY(encode_candidates(builder, err));
    *out = builder->dataset;
    builder->dataset = NULL;
    return HOP_OK;
}
