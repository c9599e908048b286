#include "data/metrics.h"

enum { LABELS_MAX = 4096 };

struct counts {
    size_t right, predicted, true_;
};

static double f1(const struct counts *c)
{
    const size_t both = c->predicted + c->true_;
    return both ? 2.0 * (double)c->right / (double)both : 0.0;
}

struct hop_label_scores hop_label_scores(const int32_t *predicted, const int32_t *answer, size_t n,
                                         size_t labels)
{
    struct hop_label_scores scores = {.examples = n};
    struct counts counts[LABELS_MAX] = {0};
    if (labels > LABELS_MAX)
        labels = LABELS_MAX;
    for (size_t i = 0; i < n; i++) {
        const size_t p = (size_t)predicted[i], a = (size_t)answer[i];
        if (p < labels)
            counts[p].predicted++;
        if (a < labels)
            counts[a].true_++;
        if (p == a && a < labels) {
            counts[a].right++;
            scores.correct++;
        }
    }
    for (size_t label = 0; label < labels; label++)
        scores.macro_f1 += f1(&counts[label]) / (double)labels;
    scores.accuracy = n ? (double)scores.correct / (double)n : 0.0;
    return scores;
}
