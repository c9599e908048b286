/* What a data set looks like before anything is trained on it. */
#ifndef HOP_DATA_SURVEY_H
#define HOP_DATA_SURVEY_H

#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"

enum { HOP_SURVEY_BINS = 10 };

/* Rows of lo to hi tokens, both included. */
struct hop_survey_bin {
    int32_t lo, hi;
    size_t rows;
};

struct hop_survey {
    /* Tokens of the kept rows before they were cut. */
    int32_t shortest, median, p95, longest;
    double mean;
    struct hop_survey_bin bins[HOP_SURVEY_BINS];
    size_t bin_count;
    int32_t least_id, largest_id;
    size_t begin_with_bos, begin_with_two, inner_bos; /* rows */
    size_t trained_end;                               /* rows whose last token ends and counts */
    size_t *label_rows; /* (dataset->label_count): rows with that answer */
};

/* The tokens that matter at the ends of a row. */
struct hop_survey_tokens {
    int32_t bos; /* -1: none */
    const int32_t *ends;
    size_t end_count;
};

/* The dataset has at least one row, as every loaded one has. */
hop_status hop_survey_take(const struct hop_dataset *dataset, struct hop_survey_tokens tokens,
                           struct hop_survey *out, struct hop_error *err);
void hop_survey_free(struct hop_survey *survey);

/* How many rows of eval have exactly the tokens of a row of train; *first is the first of them. */
hop_status hop_survey_overlap(const struct hop_dataset *train, const struct hop_dataset *eval,
                              size_t *rows, size_t *first, struct hop_error *err);

#endif
