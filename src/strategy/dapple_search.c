#include "strategy/dapple_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

double hop_dapple_share(const struct hop_dapple_problem *problem, int32_t replicas)
{
    const int32_t rows = problem->rows;
    return (double)((rows + replicas - 1) / replicas) / rows;
}

static struct hop_pipeline_step stage_step(const struct hop_dapple_problem *problem,
                                           const struct hop_dapple_stage *stage)
{
    const int32_t replicas = hop_cards_count(stage->cards);
    const struct hop_dapple_link *const link =
        hop_cards_cross(&problem->machines, stage->cards) ? &problem->between : &problem->inside;
    const double share = hop_dapple_share(problem, replicas);
    const double bytes = problem->gradients[stage->hi] - problem->gradients[stage->lo];
    return (struct hop_pipeline_step){
        .forward = share * (problem->forward[stage->hi] - problem->forward[stage->lo]),
        .backward = share * (problem->backward[stage->hi] - problem->backward[stage->lo]),
        .reduce = 2 * (replicas - 1) * (link->latency + link->seconds_per_byte * bytes / replicas)};
}

/* Replicas exchange the rows that they share: over a link of their own the finer split is a
 * message, over a network card the coarser one passes. */
static struct hop_pipeline_step transfer_step(const struct hop_dapple_problem *problem,
                                              const struct hop_dapple_stage *from,
                                              const struct hop_dapple_stage *to)
{
    const int32_t a = hop_cards_count(from->cards), b = hop_cards_count(to->cards);
    const int32_t replicas = (a < b) == problem->shared_nic ? a : b;
    const struct hop_dapple_link *const link =
        hop_cards_cross(&problem->machines, from->cards | to->cards) ? &problem->between
                                                                     : &problem->inside;
    const double bytes = hop_dapple_share(problem, replicas) * problem->boundary[from->hi - 1];
    const double seconds = link->latency + link->seconds_per_byte * bytes;
    return (struct hop_pipeline_step){seconds, seconds, 0};
}

void hop_dapple_steps(const struct hop_dapple_problem *problem,
                      const struct hop_dapple_stage *stages, int32_t count,
                      struct hop_pipeline_step *steps)
{
    for (int32_t i = 0; i < count; i++) {
        steps[2 * i] = stage_step(problem, &stages[i]);
        if (i + 1 < count)
            steps[2 * i + 1] = transfer_step(problem, &stages[i], &stages[i + 1]);
    }
}

double hop_dapple_acr(const struct hop_pipeline_step *steps, int32_t count)
{
    const int32_t stages = (count + 1) / 2;
    double compute = 0, transfer = 0;
    for (int32_t i = 0; i < count; i++)
        *(i % 2 ? &transfer : &compute) += steps[i].forward + steps[i].backward;
    return stages < 2 ? 0 : transfer / (stages - 1) / (compute / stages);
}

/* The best stages of layers [0, j) on the occupied devices. */
struct node {
    hop_cards occupied, cards; /* of all; of the last stage */
    int32_t before;            /* layers of the stages before that */
    double seconds;            /* with the rest as one stage, whether or not it fits */
};

struct nodes {
    struct node *items; /* ascending by `occupied` */
    size_t count, capacity;
};

struct search {
    const struct hop_dapple_problem *problem;
    hop_cards all;
    struct nodes *table; /* (layers): by j */
    struct hop_dapple_stage *stages;
    struct hop_pipeline_step *steps;
    /* The best plan so far. */
    struct node best;
    int32_t best_cut; /* layers in front of its last stage; -1: there is none */
};

static void free_search(struct search *search)
{
    for (int32_t j = 0; search->table && j < search->problem->layers; j++)
        free(search->table[j].items);
    free(search->table);
    free(search->stages);
    free(search->steps);
}

static hop_status create_search(const struct hop_dapple_problem *problem, struct search *search,
                                struct hop_error *err)
{
    const int32_t devices = hop_cards_total(&problem->machines);
    const size_t most = (size_t)(devices < problem->layers ? devices : problem->layers);
    HOP_TRY(hop_calloc(&search->table, (size_t)problem->layers, sizeof *search->table, err));
    HOP_TRY(hop_calloc(&search->stages, most, sizeof *search->stages, err));
    return hop_calloc(&search->steps, 2 * most, sizeof *search->steps, err);
}

/* The first node that is not below. */
static size_t find_node(const struct nodes *nodes, hop_cards occupied)
{
    size_t low = 0, high = nodes->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (nodes->items[middle].occupied < occupied)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static hop_status offer_node(struct nodes *nodes, const struct node *node, struct hop_error *err)
{
    const size_t at = find_node(nodes, node->occupied);
    if (at < nodes->count && nodes->items[at].occupied == node->occupied) {
        if (node->seconds < nodes->items[at].seconds)
            nodes->items[at] = *node;
        return HOP_OK;
    }
    HOP_TRY(hop_grow(&nodes->items, &nodes->capacity, nodes->count + 1, sizeof *nodes->items, err));
    for (size_t i = nodes->count++; i > at; i--)
        nodes->items[i] = nodes->items[i - 1];
    nodes->items[at] = *node;
    return HOP_OK;
}

/* Writes the stages of a node of [0, j) and the rest as the last one; returns their number. */
static int32_t list_stages(const struct search *search, const struct node *node, int32_t j,
                           struct hop_dapple_stage *stages)
{
    int32_t count = 1;
    struct node at = *node;
    for (int32_t cut = j; cut > 0; count++) {
        const struct nodes *const nodes = &search->table[at.before];
        cut = at.before;
        at = nodes->items[find_node(nodes, at.occupied & ~at.cards)];
    }
    at = *node;
    stages[count - 1] =
        (struct hop_dapple_stage){j, search->problem->layers, search->all & ~node->occupied};
    for (int32_t i = count - 2; i >= 0; i--) {
        const struct nodes *const nodes = &search->table[at.before];
        stages[i] = (struct hop_dapple_stage){at.before, stages[i + 1].lo, at.cards};
        at = nodes->items[find_node(nodes, at.occupied & ~at.cards)];
    }
    return count;
}

static bool allowed(const struct hop_dapple_problem *problem, int32_t lo, int32_t hi,
                    hop_cards cards)
{
    return hop_cards_count(cards) <= problem->rows &&
           (!problem->fits || problem->fits(problem->context, lo, hi, cards));
}

/* Times the node and keeps it, and its plan where the rest fits too. */
static hop_status add_node(struct search *search, struct node node, int32_t j,
                           struct hop_error *err)
{
    const struct hop_dapple_problem *const problem = search->problem;
    const int32_t count = list_stages(search, &node, j, search->stages);
    hop_dapple_steps(problem, search->stages, count, search->steps);
    node.seconds = hop_pivot_seconds(search->steps, 2 * count - 1, problem->micro_batches);
    if ((search->best_cut < 0 || node.seconds < search->best.seconds) &&
        allowed(problem, j, problem->layers, search->all & ~node.occupied)) {
        search->best = node;
        search->best_cut = j;
    }
    return offer_node(&search->table[j], &node, err);
}

/* All ways to cut the rest of a node of [0, j). */
static hop_status extend(struct search *search, const struct node *node, int32_t j,
                         struct hop_error *err)
{
    const struct hop_dapple_problem *const problem = search->problem;
    const int32_t left = hop_cards_count(search->all & ~node->occupied);
    for (int32_t width = 1; width < left && width <= problem->rows; width++) {
        hop_cards found[HOP_CARD_POLICIES];
        const int32_t count = hop_cards_next(&problem->machines, node->occupied, width, found);
        for (int32_t f = 0; f < count; f++)
            for (int32_t next = j + 1;
                 next < problem->layers && allowed(problem, j, next, found[f]); next++) {
                const struct node longer = {
                    .occupied = node->occupied | found[f], .cards = found[f], .before = j};
                HOP_TRY(add_node(search, longer, next, err));
            }
    }
    return HOP_OK;
}

hop_status hop_dapple_search(const struct hop_dapple_problem *problem,
                             struct hop_dapple_stage *stages, int32_t *count, double *seconds,
                             struct hop_error *err)
{
    struct search search = {.problem = problem,
                            .all = hop_cards_first(hop_cards_total(&problem->machines)),
                            .best_cut = -1};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(create_search(problem, &search, err));
    HOP_TRY_DONE(add_node(&search, (struct node){0}, 0, err));
    for (int32_t j = 0; j < problem->layers; j++)
        for (size_t i = 0; i < search.table[j].count; i++) {
            const struct node node = search.table[j].items[i];
            HOP_TRY_DONE(extend(&search, &node, j, err));
        }
    *count = search.best_cut < 0 ? 0 : list_stages(&search, &search.best, search.best_cut, stages);
    *seconds = search.best_cut < 0 ? INFINITY : search.best.seconds;
done:
    free_search(&search);
    return status;
}
