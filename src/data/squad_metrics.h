/* SQuAD v1.1's official metrics. Of an answer and the golds of its question, in normal form
 * (squad_normalize.h):
 *
 *   exact  it equals some gold
 *   f1     the largest over golds of 2PR/(P+R), where s tokens are shared, counting each as often
 *          as both have it, P = s/tokens of the answer, R = s/tokens of the gold; 0 where s = 0,
 *          even if both are empty
 *
 * A file or a dataset scores the mean over its questions, in percent; no answer scores 0. */
#ifndef HOP_DATA_SQUAD_METRICS_H
#define HOP_DATA_SQUAD_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include "data/dataset.h"

struct hop_squad_score {
    bool exact;
    double f1; /* in [0, 1] */
};

/* golds (count): without one nothing is right. */
hop_status hop_squad_score(const char *answer, const char *const *golds, size_t count,
                           struct hop_squad_score *out, struct hop_error *err);

/* Sums so far; zero-initialised is empty. */
struct hop_squad_tally {
    size_t questions, missing, exact;
    double f1;
};

struct hop_squad_scores {
    size_t questions, missing;
    double exact_match, f1; /* percent; 0 without questions */
};

/* answer: NULL when there is none. */
hop_status hop_squad_add(struct hop_squad_tally *tally, const char *answer,
                         const char *const *golds, size_t count, struct hop_error *err);
struct hop_squad_scores hop_squad_finish(const struct hop_squad_tally *tally);

/* Scores of an evaluation: answers (dataset->count) holds a text, or NULL, for each example of a
 * dataset that data.task squad read. An answer ends where the model ends its line. */
hop_status hop_squad_dataset_scores(const struct hop_dataset *dataset, const char *const *answers,
                                    struct hop_squad_scores *out, struct hop_error *err);

#endif
