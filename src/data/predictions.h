/* Scores files of predictions against data files, as the official scripts of the tasks do. */
#ifndef HOP_DATA_PREDICTIONS_H
#define HOP_DATA_PREDICTIONS_H

#include "data/multirc_metrics.h"
#include "data/squad_metrics.h"

/* How far the two files fit together. */
struct hop_prediction_counts {
    size_t questions; /* in the data */
    size_t missing;   /* questions without a prediction */
    size_t unknown;   /* predictions without a question */
};

/* data: SQuAD v1.1; predictions: {"id": "answer", ...}. A missing prediction scores 0. */
hop_status hop_squad_score_files(const char *data, const char *predictions,
                                 struct hop_squad_scores *out, struct hop_prediction_counts *counts,
                                 struct hop_error *err);

/* data: either form of MultiRC; predictions: [{"pid", "qid", "scores": [0 or 1 an answer]}, ...].
 * pid is the passage's "id" (SuperGLUE: "idx"), qid the question's position in the passage, from 0;
 * for SuperGLUE it may be the question's "idx" instead, whichever fits more of the predictions.
 * Questions without a prediction are left out of every metric, as the official script does; no
 * prediction at all is HOP_INPUT. */
hop_status hop_multirc_score_files(const char *data, const char *predictions,
                                   struct hop_multirc_scores *out,
                                   struct hop_prediction_counts *counts, struct hop_error *err);

#endif
