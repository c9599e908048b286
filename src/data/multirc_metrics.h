/* MultiRC's official metrics. A question has several answers, any number of them right; a system
 * says of each whether it is. With, for question q, t answers right, p said to be right and b both:
 *
 *   em0  share of questions with every answer judged right
 *   em1  share of questions with at most one answer misjudged
 *   f1m  harmonic mean of mean(b/p) and mean(b/t) over questions; b/p is 1 where p = 0, b/t is 1
 *        where t = 0
 *   f1a  harmonic mean of B/P and B/T, sums over all questions
 *
 * Hugging Face's "f1_m" is another number: the mean over questions of the macro-averaged F1. */
#ifndef HOP_DATA_MULTIRC_METRICS_H
#define HOP_DATA_MULTIRC_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"

struct hop_multirc_scores {
    size_t questions, answers;
    double em0, em1, f1m, f1a; /* in [0, 1]; 0 without questions */
    double accuracy;           /* answers judged right / answers */
};

/* The judgements of one question. */
struct hop_multirc_counts {
    size_t answers, right, predicted, both; /* both: right and predicted */
};

/* Sums so far; zero-initialised is empty. */
struct hop_multirc_tally {
    size_t questions, exact, nearly;
    double precision, recall;
    struct hop_multirc_counts all;
};

void hop_multirc_count(struct hop_multirc_counts *counts, bool right, bool predicted);
void hop_multirc_add(struct hop_multirc_tally *tally, const struct hop_multirc_counts *question);
struct hop_multirc_scores hop_multirc_finish(const struct hop_multirc_tally *tally);

/* The labels of the task in a dataset. */
enum { HOP_MULTIRC_NO, HOP_MULTIRC_YES, HOP_MULTIRC_LABELS };

/* Scores of an evaluation: predicted (dataset->count) holds a label for each example of a dataset
 * that data.task multirc read. Nothing is allocated. */
struct hop_multirc_scores hop_multirc_dataset_scores(const struct hop_dataset *dataset,
                                                     const int32_t *predicted);

#endif
