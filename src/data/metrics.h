/* Task metrics. */
#ifndef HOP_DATA_METRICS_H
#define HOP_DATA_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct hop_label_scores {
    size_t examples, correct;
    double accuracy; /* correct / examples */
    double
        macro_f1; /* mean over labels of F1; a label with neither predictions nor truths counts 0 */
};

/* predicted[i], answer[i] in [0, labels). labels <= 4096. */
struct hop_label_scores hop_label_scores(const int32_t *predicted, const int32_t *answer, size_t n,
                                         size_t labels);

#endif
