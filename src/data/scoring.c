#include "data/scoring.h"

#include <math.h>

bool hop_scoring_by_first_token(const struct hop_dataset *dataset)
{
    for (size_t a = 0; a < dataset->label_count; a++)
        for (size_t b = 0; b < a; b++)
            if (dataset->label_ids[a].data[0] == dataset->label_ids[b].data[0])
                return false;
    return true;
}

/* Sequences of candidates behind the example's own. */
static size_t extra_sequences(const struct hop_dataset *dataset)
{
    return hop_scoring_by_first_token(dataset) ? 0 : dataset->label_count;
}

static int32_t longest_candidate(const struct hop_dataset *dataset)
{
    size_t longest = 0;
    for (size_t c = 0; c < dataset->label_count; c++)
        if (dataset->label_ids[c].count > longest)
            longest = dataset->label_ids[c].count;
    return (int32_t)longest;
}

struct hop_batch_limits hop_scoring_limits(const struct hop_dataset *dataset, size_t rows)
{
    const int32_t extra = (int32_t)extra_sequences(dataset), n = (int32_t)rows;
    const int32_t candidate = longest_candidate(dataset);
    const int32_t first_tokens = extra ? 0 : (int32_t)dataset->label_count;
    return (struct hop_batch_limits){
        .sequences = n * (1 + extra),
        .tokens = n * (dataset->longest + extra * (dataset->longest + candidate)),
        .labels = n * (dataset->longest + first_tokens + extra * candidate)};
}

static void open_sequence(struct hop_batch *batch, const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        batch->ids[batch->tokens] = ids[i];
        batch->position[batch->tokens] = i;
        batch->tokens++;
    }
    batch->sequences++;
    batch->offset[batch->sequences] = batch->tokens;
}

static void add_label(struct hop_batch *batch, int32_t row, int32_t id)
{
    batch->label_row[batch->labels] = row;
    batch->label_id[batch->labels] = id;
    batch->labels++;
}

static void pack_example(const struct hop_dataset *dataset, const struct hop_example *example,
                         bool first_tokens, struct hop_batch *batch)
{
    const int32_t start = batch->tokens;
    open_sequence(batch, example->ids, example->length);
    for (int32_t j = 0; j + 1 < example->length; j++) {
        if (example->labels[j + 1] != HOP_LABEL_IGNORED)
            add_label(batch, start + j, example->labels[j + 1]);
        if (first_tokens && j + 1 == example->prompt_length)
            for (size_t c = 0; c < dataset->label_count; c++)
                add_label(batch, start + j, dataset->label_ids[c].data[0]);
    }
}

static void pack_candidate(const struct hop_example *example, const struct hop_ids *candidate,
                           struct hop_batch *batch)
{
    const int32_t start = batch->tokens, prompt = example->prompt_length;
    open_sequence(batch, example->ids, prompt);
    for (size_t i = 0; i < candidate->count; i++) {
        add_label(batch, start + prompt + (int32_t)i - 1, candidate->data[i]);
        batch->ids[batch->tokens] = candidate->data[i];
        batch->position[batch->tokens] = prompt + (int32_t)i;
        batch->tokens++;
    }
    batch->offset[batch->sequences] = batch->tokens;
}

void hop_scoring_pack(const struct hop_dataset *dataset, size_t first, size_t n,
                      struct hop_batch *batch)
{
    const size_t extra = extra_sequences(dataset);
    batch->sequences = batch->tokens = batch->labels = 0;
    batch->offset[0] = 0;
    batch->label_total = 0;
    batch->micro_batch = 0;
    for (size_t e = first; e < first + n; e++) {
        pack_example(dataset, &dataset->examples[e], extra == 0, batch);
        for (size_t c = 0; c < extra; c++)
            pack_candidate(&dataset->examples[e], &dataset->label_ids[c], batch);
    }
}

/* Walks the log-probabilities in the order they were packed. */
struct walk {
    const float *next;
    double best;
    int32_t predicted;
};

static void consider(struct walk *walk, int32_t candidate, double score)
{
    if (candidate == 0 || score > walk->best) {
        walk->best = score;
        walk->predicted = candidate;
    }
}

static void take_example(const struct hop_dataset *dataset, const struct hop_example *example,
                         bool first_tokens, struct walk *walk, struct hop_scores *scores)
{
    for (int32_t j = 0; j + 1 < example->length; j++) {
        if (example->labels[j + 1] != HOP_LABEL_IGNORED) {
            scores->nll -= (double)*walk->next++;
            scores->label_tokens++;
        }
        if (first_tokens && j + 1 == example->prompt_length)
            for (size_t c = 0; c < dataset->label_count; c++)
                consider(walk, (int32_t)c, (double)*walk->next++);
    }
}

static void take_candidate(const struct hop_ids *candidate, int32_t index, struct walk *walk)
{
    double score = 0;
    for (size_t i = 0; i < candidate->count; i++)
        score += (double)*walk->next++;
    consider(walk, index, score);
}

void hop_scoring_take(const struct hop_dataset *dataset, size_t first, size_t n,
                      const float *logprob, struct hop_scores *scores)
{
    const size_t extra = extra_sequences(dataset);
    struct walk walk = {.next = logprob};
    for (size_t e = first; e < first + n; e++) {
        walk.predicted = -1;
        take_example(dataset, &dataset->examples[e], extra == 0, &walk, scores);
        for (size_t c = 0; c < extra; c++)
            take_candidate(&dataset->label_ids[c], (int32_t)c, &walk);
        if (scores->predicted)
            scores->predicted[e] = walk.predicted;
    }
}
