#include "data/multirc_metrics.h"

void hop_multirc_count(struct hop_multirc_counts *counts, bool right, bool predicted)
{
    counts->answers++;
    counts->right += right;
    counts->predicted += predicted;
    counts->both += right && predicted;
}

static size_t mistakes(const struct hop_multirc_counts *c)
{
    return c->right + c->predicted - 2 * c->both;
}

/* 1 where nothing could go wrong, as the official script has it. */
static double share(size_t part, size_t whole)
{
    return whole ? (double)part / (double)whole : 1.0;
}

static double harmonic_mean(double precision, double recall)
{
    const double sum = precision + recall;
    return sum > 0 ? 2 * recall * precision / sum : 0.0;
}

void hop_multirc_add(struct hop_multirc_tally *tally, const struct hop_multirc_counts *question)
{
    const size_t wrong = mistakes(question);
    tally->questions++;
    tally->exact += wrong == 0;
    tally->nearly += wrong <= 1;
    tally->precision += share(question->both, question->predicted);
    tally->recall += share(question->both, question->right);
    tally->all.answers += question->answers;
    tally->all.right += question->right;
    tally->all.predicted += question->predicted;
    tally->all.both += question->both;
}

struct hop_multirc_scores hop_multirc_finish(const struct hop_multirc_tally *tally)
{
    const struct hop_multirc_counts *const all = &tally->all;
    const double n = (double)tally->questions;
    if (tally->questions == 0 || all->answers == 0)
        return (struct hop_multirc_scores){.questions = tally->questions};
    return (struct hop_multirc_scores){
        .questions = tally->questions,
        .answers = all->answers,
        .em0 = (double)tally->exact / n,
        .em1 = (double)tally->nearly / n,
        .f1m = harmonic_mean(tally->precision / n, tally->recall / n),
        .f1a = harmonic_mean(share(all->both, all->predicted), share(all->both, all->right)),
        .accuracy = (double)(all->answers - mistakes(all)) / (double)all->answers,
    };
}

/* Examples of a question stand together, in the file's order. */
struct hop_multirc_scores hop_multirc_dataset_scores(const struct hop_dataset *dataset,
                                                     const int32_t *predicted)
{
    struct hop_multirc_tally tally = {0};
    for (size_t e = 0; e < dataset->count;) {
        struct hop_multirc_counts question = {0};
        const int32_t group = dataset->examples[e].group;
        for (; e < dataset->count && dataset->examples[e].group == group; e++)
            hop_multirc_count(&question, dataset->examples[e].answer == HOP_MULTIRC_YES,
                              predicted[e] == HOP_MULTIRC_YES);
        hop_multirc_add(&tally, &question);
    }
    return hop_multirc_finish(&tally);
}
