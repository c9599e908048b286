/* DAPPLE's planner as its authors released it, which differs from the paper: it minimises the
 * longest block of the pipeline (computation of a stage, or twice the transfer before it), and
 * prices only the result:
 *
 *     T = block (M - 1) + C / (r M) + sum_cuts a2a(o / (r M)) + max_i max(0, AR_i - i block)
 *
 * for r replicas of the whole pipeline, with block the longest one over M. In its search for two
 * stages (`bipartition`) a transfer counts once. The all-reduce of a stage but the last is charged
 * for one layer too many. Networks are those of its program: 25 GB/s inside a machine, 3 GB/s
 * between machines, 1 GB/s where a stage inside one machine receives from others.
 *
 * Where it lets a hash table decide between equally good placements, the order of the policies
 * does. Private to src/strategy and the oracle program.
 */
#ifndef HOP_STRATEGY_DAPPLE_AUTHORS_H
#define HOP_STRATEGY_DAPPLE_AUTHORS_H

#include "strategy/dapple_cards.h"
#include "strategy/dapple_profile.h"

struct hop_dapple_block {
    int32_t lo, hi;  /* layers [lo, hi); of the last stage the authors count one less */
    int32_t width;   /* GPUs of one pipeline */
    hop_cards cards; /* of all pipelines */
};

struct hop_dapple_answer {
    double speedup; /* over one GPU; 0: the batch is too small for this many pipelines */
    int32_t pipelines, count;
    struct hop_dapple_block *stages;
};

struct hop_dapple_question {
    const struct hop_dapple_profile *profile; /* of the global batch */
    const struct hop_card_machines *machines; /* 2 to HOP_CARDS_MOST GPUs */
    int32_t global_batch, micro_batch;
};

double hop_dapple_all_reduce(const struct hop_card_machines *machines, hop_cards cards,
                             double bytes);
double hop_dapple_all_to_all(const struct hop_card_machines *machines, hop_cards from, hop_cards to,
                             double bytes);
/* Of plain data parallelism. */
double hop_dapple_parallel_speedup(const struct hop_dapple_question *question);

/* Pipelines of `width` GPUs, as many as there are. straight: every stage has one GPU of a pipeline.
 * HOP_INFEASIBLE where there are fewer layers than that takes. */
hop_status hop_dapple_pipelines(const struct hop_dapple_question *question, int32_t width,
                                bool straight, struct hop_dapple_answer *out,
                                struct hop_error *err);
/* The best two stages. */
hop_status hop_dapple_bipartition(const struct hop_dapple_question *question,
                                  struct hop_dapple_answer *out, struct hop_error *err);
void hop_dapple_answer_free(struct hop_dapple_answer *answer);

#endif
