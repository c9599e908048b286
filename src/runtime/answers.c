/* Free answers of the held-out rows: decoded greedily through the pipeline of training, with the
 * key/value caches of its stages.
 *
 * Every micro-batch of a pass has a seat for each of its rows. A row that takes a seat brings its
 * whole prompt, then one token a pass; when its answer is complete the next row takes the seat. So
 * all stages have something to do until the rows run out. */
#include "runtime/coordinator_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"

/* What a token does to an answer. */
enum effect { GOES_ON, ENDS_LINE, HAS_NO_TEXT };

static bool is_eos(const struct hop_model_config *model, int32_t id)
{
    for (int32_t i = 0; i < model->eos_count; i++)
        if (model->eos[i] == id)
            return true;
    return false;
}

/* Numbers that the tokenizer does not know, where a vocabulary is padded, end an answer too. */
static enum effect effect_of(const struct hop_coordinator *c, int32_t id)
{
    struct hop_error unknown;
    struct hop_string text = {0};
    enum effect effect = GOES_ON;
    if (is_eos(&c->model, id) ||
        hop_tokenizer_decode(c->source.tokenizer, &id, 1, true, &text, &unknown) != HOP_OK)
        effect = HAS_NO_TEXT;
    else if (strchr(hop_string_text(&text), '\n'))
        effect = ENDS_LINE;
    hop_string_free(&text);
    return effect;
}

static int32_t seats_of_batch(const struct hop_coordinator *c)
{
    return (int32_t)hop_job_micro_batch_rows(&c->job);
}

static int32_t seats(const struct hop_coordinator *c)
{
    return seats_of_batch(c) * hop_job_answer_batches(&c->job);
}

hop_status hop_answers_create(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_answers *const answers = &c->free_answers;
    const size_t vocabulary = (size_t)c->model.vocabulary;
    const size_t picks =
        (size_t)hop_job_answer_batches(&c->job) * (size_t)c->session.config.limits.sequences;
    answers->limit = hop_job_answer_tokens(&c->job);
    if (!c->eval || answers->limit == 0)
        return HOP_OK;
    HOP_TRY(
        hop_calloc(&answers->ids, c->eval->count * (size_t)answers->limit, sizeof(int32_t), err));
    HOP_TRY(hop_calloc(&answers->count, c->eval->count, sizeof(int32_t), err));
    HOP_TRY(hop_calloc(&answers->seats, (size_t)seats(c), sizeof *answers->seats, err));
    HOP_TRY(hop_calloc(&answers->picked, picks, sizeof(int32_t), err));
    HOP_TRY(hop_calloc(&answers->received, picks, sizeof(int32_t), err));
    HOP_TRY(hop_calloc(&answers->effects, vocabulary, sizeof *answers->effects, err));
    for (int32_t id = 0; id < c->model.vocabulary; id++)
        answers->effects[id] = (unsigned char)effect_of(c, id);
    return HOP_OK;
}

void hop_answers_free(struct hop_answers *answers)
{
    free(answers->ids);
    free(answers->count);
    free(answers->seats);
    free(answers->picked);
    free(answers->received);
    free(answers->effects);
}

/* Decoding */

/* Appends the next tokens of row `row` to batch m: its prompt, or the token picked last. */
static void add_sequence(struct hop_coordinator *c, int32_t m, int32_t seat, size_t row)
{
    const struct hop_answers *const answers = &c->free_answers;
    const struct hop_example *const example = &c->eval->examples[row];
    const int32_t known = answers->count[row];
    const int32_t *const ids =
        known ? answers->ids + row * (size_t)answers->limit + known - 1 : example->ids;
    const int32_t n = known ? 1 : example->prompt_length;
    struct hop_batch *const batch = &c->session.batches[m];
    const size_t at = (size_t)m * (size_t)c->session.config.limits.sequences;
    c->session.past[at + (size_t)batch->sequences] = known ? example->prompt_length + known - 1 : 0;
    c->session.place[at + (size_t)batch->sequences] = seat;
    memcpy(batch->ids + batch->tokens, ids, (size_t)n * sizeof *ids);
    batch->tokens += n;
    batch->offset[++batch->sequences] = batch->tokens;
}

/* Do parts share the sequences of a micro-batch? Then each must keep its place in it, where the
 * part has its cache. */
static bool is_shared(const struct hop_coordinator *c)
{
    for (int32_t p = 0; p < c->plan.part_count; p++)
        if (c->plan.parts[p].sample_lo > 0 || c->plan.parts[p].sample_hi < 1)
            return true;
    return false;
}

/* One token in an empty seat; what follows it is not wanted. */
static void add_filler(struct hop_coordinator *c, int32_t m, int32_t seat)
{
    struct hop_batch *const batch = &c->session.batches[m];
    const size_t at = (size_t)m * (size_t)c->session.config.limits.sequences;
    c->session.past[at + (size_t)batch->sequences] = 0;
    c->session.place[at + (size_t)batch->sequences] = seat;
    batch->ids[batch->tokens++] = c->eval->examples[0].ids[0];
    batch->offset[++batch->sequences] = batch->tokens;
}

static void pack_batch(struct hop_coordinator *c, int32_t m)
{
    struct hop_answers *const answers = &c->free_answers;
    struct hop_batch *const batch = &c->session.batches[m];
    batch->sequences = batch->tokens = batch->labels = 0;
    batch->offset[0] = 0;
    batch->label_total = 0;
    batch->micro_batch = m;
    for (int32_t s = 0; s < seats_of_batch(c); s++) {
        const int32_t seat = m * seats_of_batch(c) + s;
        if (answers->seats[seat] < 0 && answers->next < c->eval->count)
            answers->seats[seat] = (int64_t)answers->next++;
        if (answers->seats[seat] >= 0)
            add_sequence(c, m, seat, (size_t)answers->seats[seat]);
        else if (is_shared(c))
            add_filler(c, m, seat);
    }
}

static bool is_taken(const struct hop_coordinator *c, int32_t m)
{
    for (int32_t s = 0; s < seats_of_batch(c); s++)
        if (c->free_answers.seats[m * seats_of_batch(c) + s] >= 0)
            return true;
    return false;
}

/* False when every answer is complete. */
static bool pack(struct hop_coordinator *c)
{
    bool any = false;
    for (int32_t m = 0; m < hop_job_answer_batches(&c->job); m++) {
        pack_batch(c, m);
        any = any || is_taken(c, m);
    }
    return any;
}

static hop_status run(struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_command_message message = {.kind = HOP_COMMAND_DECODE,
                                                .schedule = c->schedules.decode,
                                                .batches = hop_job_answer_batches(&c->job)};
    struct hop_pass pass = {0};
    HOP_TRY(hop_coordinator_command(c, &message, err));
    if (c->session.executor)
        HOP_TRY(hop_coordinator_own_pass(c, &message, &pass, err));
    HOP_TRY(hop_coordinator_gather_picks(c, message.batches, pass.picked, err));
    return hop_coordinator_await_sends(c, err);
}

/* The token goes to the answer of the row in this seat, which may be complete then. */
static void take_token(struct hop_answers *answers, int64_t *seat, int32_t id)
{
    const size_t row = (size_t)*seat;
    const enum effect effect = (enum effect)answers->effects[id];
    if (effect != HAS_NO_TEXT)
        answers->ids[row * (size_t)answers->limit + (size_t)answers->count[row]++] = id;
    if (effect != GOES_ON || answers->count[row] == answers->limit)
        *seat = -1;
}

static hop_status take(struct hop_coordinator *c, const int32_t *picked, struct hop_error *err)
{
    const size_t stride = (size_t)c->session.config.limits.sequences;
    for (int32_t m = 0; m < hop_job_answer_batches(&c->job); m++)
        for (int32_t s = 0; s < c->session.batches[m].sequences; s++) {
            const size_t at = (size_t)m * stride + (size_t)s;
            if (picked[at] < 0 || picked[at] >= c->model.vocabulary)
                return hop_fail(err, HOP_PEER, "token %d of an answer is beyond the vocabulary",
                                picked[at]);
            int64_t *const seat = &c->free_answers.seats[c->session.place[at]];
            if (*seat >= 0)
                take_token(&c->free_answers, seat, picked[at]);
        }
    return HOP_OK;
}

static hop_status decode(struct hop_coordinator *c, struct hop_error *err)
{
    struct hop_answers *const answers = &c->free_answers;
    answers->next = 0;
    memset(answers->count, 0, c->eval->count * sizeof *answers->count);
    for (int32_t seat = 0; seat < seats(c); seat++)
        answers->seats[seat] = -1;
    while (pack(c)) {
        HOP_TRY(run(c, err));
        HOP_TRY(take(c, answers->picked, err));
    }
    return HOP_OK;
}

/* Texts */

/* What the answer adds to the text of the prompt, as far as its line goes. `ids` is for use here.
 */
static hop_status text_of(const struct hop_coordinator *c, size_t row, struct hop_ids *ids,
                          char **out, struct hop_error *err)
{
    const struct hop_answers *const answers = &c->free_answers;
    const struct hop_example *const example = &c->eval->examples[row];
    struct hop_string prompt = {0}, whole = {0};
    hop_status status = HOP_OK;
    ids->count = 0;
    for (int32_t i = 0; i < example->prompt_length; i++)
        HOP_TRY_DONE(hop_ids_append(ids, example->ids[i], err));
    HOP_TRY_DONE(
        hop_tokenizer_decode(c->source.tokenizer, ids->data, ids->count, true, &prompt, err));
    for (int32_t i = 0; i < answers->count[row]; i++)
        HOP_TRY_DONE(
            hop_ids_append(ids, answers->ids[row * (size_t)answers->limit + (size_t)i], err));
    HOP_TRY_DONE(
        hop_tokenizer_decode(c->source.tokenizer, ids->data, ids->count, true, &whole, err));
    const size_t begin = prompt.length < whole.length ? prompt.length : whole.length;
    HOP_TRY_DONE(hop_string_copy(out, hop_string_text(&whole) + begin, err));
    (*out)[strcspn(*out, "\n")] = '\0';
done:
    hop_string_free(&prompt);
    hop_string_free(&whole);
    return status;
}

static hop_status make_texts(const struct hop_coordinator *c, char **texts, struct hop_error *err)
{
    struct hop_ids ids = {0};
    hop_status status = HOP_OK;
    for (size_t row = 0; row < c->eval->count && status == HOP_OK; row++)
        status = text_of(c, row, &ids, &texts[row], err);
    hop_ids_free(&ids);
    return status;
}

static hop_status save(const struct hop_coordinator *c, char *const *texts, struct hop_error *err)
{
    char *path = NULL;
    hop_status status = HOP_OK;
    json_t *const object = json_object();
    for (size_t row = 0; row < c->eval->count; row++)
        if (json_object_set_new(object, c->eval->references[row].id, json_string(texts[row])) != 0)
            HOP_TRY_DONE(hop_fail(err, HOP_MEMORY, "out of memory while saving the answers"));
    HOP_TRY_DONE(hop_coordinator_path(c, HOP_PREDICTIONS_FILE, &path, err));
    HOP_TRY_DONE(hop_json_save(path, object, err));
done:
    json_decref(object);
    free(path);
    return status;
}

hop_status hop_answers_score(struct hop_coordinator *c, struct hop_squad_scores *out,
                             struct hop_error *err)
{
    char **texts = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&texts, c->eval->count, sizeof *texts, err));
    HOP_TRY_DONE(decode(c, err));
    HOP_TRY_DONE(make_texts(c, texts, err));
    HOP_TRY_DONE(hop_squad_dataset_scores(c->eval, (const char *const *)texts, out, err));
    HOP_TRY_DONE(save(c, texts, err));
done:
    for (size_t row = 0; texts && row < c->eval->count; row++)
        free(texts[row]);
    free(texts);
    return status;
}
