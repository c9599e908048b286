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
                                           const struct hop_dapple_stage *stage, double share)
{
    const int32_t replicas = hop_cards_count(stage->cards);
    const struct hop_dapple_link *const link =
        hop_cards_cross(&problem->machines, stage->cards) ? &problem->between : &problem->inside;
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
        const double share = hop_dapple_share(problem, hop_cards_count(stages[i].cards));
        steps[2 * i] = stage_step(problem, &stages[i], share);
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

/* Ways kept to a pair of layers and devices. The paper keeps one: of 106 random pipelines of up to
 * 7 devices without replicas that missed the best plan 15 times, by up to 28 %; with 8 it is 2 and
 * 7 %. */
enum { WAYS = 8 };

/* Stages of layers [0, j) on the occupied devices. */
struct node {
    hop_cards occupied, cards; /* of all; of the last stage */
    int32_t before;            /* layers of the stages before that */
    size_t parent;             /* those stages, among the nodes of `before` */
    double seconds; /* with the rest as one stage, whether or not it fits, that splits evenly even
                       where a micro-batch has no rows for it */
};

struct nodes {
    struct node *items; /* ascending by `occupied`, then seconds; WAYS of each at most */
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

/* Behind the nodes of lower cards, and behind those of the same that are not slower. */
static size_t place_of(const struct nodes *nodes, const struct node *node)
{
    size_t low = 0, high = nodes->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct node *const other = &nodes->items[middle];
        if (other->occupied < node->occupied ||
            (other->occupied == node->occupied && other->seconds <= node->seconds))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_way(const struct nodes *nodes, size_t at, hop_cards occupied)
{
    return at < nodes->count && nodes->items[at].occupied == occupied;
}

/* Ways to the same cards from the first one on. */
static size_t count_ways(const struct nodes *nodes, size_t at, hop_cards occupied, size_t *first)
{
    size_t end = at;
    while (is_way(nodes, end, occupied))
        end++;
    while (at > 0 && is_way(nodes, at - 1, occupied))
        at--;
    *first = at;
    return end - at;
}

/* Are there WAYS that are not slower? */
static bool is_late(const struct nodes *nodes, const struct node *node)
{
    size_t first;
    const size_t at = place_of(nodes, node);
    return count_ways(nodes, at, node->occupied, &first) == WAYS && at == first + WAYS;
}

static hop_status keep_node(struct nodes *nodes, const struct node *node, struct hop_error *err)
{
    size_t first;
    const size_t at = place_of(nodes, node);
    const size_t ways = count_ways(nodes, at, node->occupied, &first);
    size_t end = first + WAYS - 1;
    if (ways < WAYS) {
        HOP_TRY(
            hop_grow(&nodes->items, &nodes->capacity, nodes->count + 1, sizeof *nodes->items, err));
        end = nodes->count++;
    }
    for (size_t i = end; i > at; i--)
        nodes->items[i] = nodes->items[i - 1];
    nodes->items[at] = *node;
    return HOP_OK;
}

static const struct node *parent_of(const struct search *search, const struct node *node)
{
    return &search->table[node->before].items[node->parent];
}

/* Writes the stages of a node of [0, j) and the rest as the last one; returns their number. */
static int32_t list_stages(const struct search *search, const struct node *node, int32_t j,
                           struct hop_dapple_stage *stages)
{
    int32_t count = 1;
    const struct node *at = node;
    for (; at->cards; at = parent_of(search, at))
        count++;
    stages[count - 1] =
        (struct hop_dapple_stage){j, search->problem->layers, search->all & ~node->occupied};
    at = node;
    for (int32_t i = count - 2; i >= 0; i--) {
        stages[i] = (struct hop_dapple_stage){at->before, stages[i + 1].lo, at->cards};
        at = parent_of(search, at);
    }
    return count;
}

/* Stage i of `count`. */
static bool stage_fits(const struct hop_dapple_problem *problem,
                       const struct hop_dapple_stage *stages, int32_t i, int32_t count)
{
    const struct hop_dapple_stage *const stage = &stages[i];
    const int32_t warm_up = count - i < problem->micro_batches ? count - i : problem->micro_batches;
    return hop_cards_count(stage->cards) <= problem->rows &&
           (!problem->fits || problem->fits(problem->context, stage->lo, stage->hi, stage->cards,
                                            problem->one_kept ? 1 : warm_up));
}

/* A plan with more stages behind them needs no less memory, so that what does not fit now never
 * will. */
static bool stages_fit(const struct hop_dapple_problem *problem,
                       const struct hop_dapple_stage *stages, int32_t count)
{
    for (int32_t i = 0; i + 1 < count; i++)
        if (!stage_fits(problem, stages, i, count))
            return false;
    return true;
}

/* Times the node and keeps it if it fits, and its plan where the rest fits too. */
static hop_status add_node(struct search *search, struct node node, int32_t j,
                           struct hop_error *err)
{
    const struct hop_dapple_problem *const problem = search->problem;
    const int32_t count = list_stages(search, &node, j, search->stages);
    const struct hop_dapple_stage *const rest = &search->stages[count - 1];
    struct node plan = node;
    hop_dapple_steps(problem, search->stages, count, search->steps);
    plan.seconds = hop_pivot_seconds(search->steps, 2 * count - 1, problem->micro_batches);
    search->steps[2 * count - 2] = stage_step(problem, rest, 1.0 / hop_cards_count(rest->cards));
    node.seconds = hop_pivot_seconds(search->steps, 2 * count - 1, problem->micro_batches);
    const bool better = search->best_cut < 0 || plan.seconds < search->best.seconds;
    const bool late = is_late(&search->table[j], &node);
    if ((late && !better) || !stages_fit(problem, search->stages, count))
        return HOP_OK;
    if (better && stage_fits(problem, search->stages, count - 1, count)) {
        search->best = plan;
        search->best_cut = j;
    }
    return late ? HOP_OK : keep_node(&search->table[j], &node, err);
}

/* All ways to cut the rest of a node of [0, j). */
static hop_status extend(struct search *search, int32_t j, size_t parent, struct hop_error *err)
{
    const struct node *const node = &search->table[j].items[parent];
    const struct hop_dapple_problem *const problem = search->problem;
    const int32_t left = hop_cards_count(search->all & ~node->occupied);
    for (int32_t width = 1; width < left && width <= problem->rows; width++) {
        hop_cards found[HOP_CARD_POLICIES];
        const int32_t count = hop_cards_next(&problem->machines, node->occupied, width, found);
        for (int32_t f = 0; f < count; f++)
            for (int32_t next = j + 1; next < problem->layers; next++) {
                const struct node longer = {.occupied = node->occupied | found[f],
                                            .cards = found[f],
                                            .before = j,
                                            .parent = parent};
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
        for (size_t i = 0; i < search.table[j].count; i++)
            HOP_TRY_DONE(extend(&search, j, i, err));
    *count = search.best_cut < 0 ? 0 : list_stages(&search, &search.best, search.best_cut, stages);
    *seconds = search.best_cut < 0 ? INFINITY : search.best.seconds;
done:
    free_search(&search);
    return status;
}
