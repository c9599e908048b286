/* Evaluation micro-batches: the loss of every example and, for label tasks, a score for every
 * candidate.
 *
 * When the first tokens of the candidates differ, all are scored at the last prompt token of the
 * example's one sequence, which costs nothing extra; otherwise every candidate gets a sequence of
 * its own and its score is the sum of its tokens' log-probabilities. */
#ifndef HOP_DATA_SCORING_H
#define HOP_DATA_SCORING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/batch.h"
#include "data/dataset.h"

/* Do the candidates' first tokens tell them apart? True without candidates. */
bool hop_scoring_by_first_token(const struct hop_dataset *dataset);
/* Limits that hold for every micro-batch of `rows` examples. */
struct hop_batch_limits hop_scoring_limits(const struct hop_dataset *dataset, size_t rows);
/* Packs examples first .. first+n into batch. */
void hop_scoring_pack(const struct hop_dataset *dataset, size_t first, size_t n,
                      struct hop_batch *batch);

struct hop_scores {
    double nll; /* sum over label tokens so far */
    int64_t label_tokens;
    int32_t *predicted; /* (dataset->count), caller's; may be NULL without candidates */
};

/* Adds what logprob (batch->labels, as packed by hop_scoring_pack with the same first, n) says. */
void hop_scoring_take(const struct hop_dataset *dataset, size_t first, size_t n,
                      const float *logprob, struct hop_scores *scores);

#endif
