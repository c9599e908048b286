#include "strategy/asteroid_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"
#include "strategy/asteroid_latency.h"
#include "strategy/asteroid_samples.h"

/* The best pipeline of the last blocks and devices in a number of stages: its first stage, and how
 * many blocks and devices the others have. */
struct node {
    double seconds; /* INFINITY: there is none */
    int32_t next_blocks, next_devices;
    struct hop_pipeline_step stage, transfer; /* the transfer to the next stage, if there is one */
};

struct hop_asteroid_search {
    const struct hop_asteroid_problem *problem;
    int32_t blocks, devices, stages;
    /* (devices, blocks + 1) sums over the first so many blocks. */
    double *forward, *backward, *state, *activation;
    double *storage;
    struct node *nodes; /* (stages + 1, blocks + 1, devices + 1) */
    int32_t *samples;   /* (nodes, devices) of the first stage's devices */
    /* Scratch. */
    struct hop_asteroid_worker *workers;
    int32_t *members;
    struct hop_pipeline_step *steps;
};

/* A stage before others, as it is tried. */
struct trial {
    int32_t lo, hi, first, count, from; /* `from` stages from it on */
};

int32_t hop_asteroid_kept(int32_t from, int32_t micro_batches)
{
    const int32_t most = 2 * from - 1;
    return most < micro_batches ? most : micro_batches;
}

static size_t index_of(const struct hop_asteroid_search *search, int32_t stages, int32_t blocks,
                       int32_t devices)
{
    return ((size_t)stages * ((size_t)search->blocks + 1) + (size_t)blocks) *
               ((size_t)search->devices + 1) +
           (size_t)devices;
}

static double sum(const struct hop_asteroid_search *search, const double *running, int32_t device,
                  int32_t lo, int32_t hi)
{
    const double *const row = running + (size_t)device * ((size_t)search->blocks + 1);
    return row[hi] - row[lo];
}

/* How many samples of a micro-batch fit the memory of a device of the stage. */
static int32_t most_samples(const struct hop_asteroid_search *search, const struct trial *trial,
                            int32_t device)
{
    const struct hop_asteroid_problem *const problem = search->problem;
    const struct hop_cost_device *const figures = &problem->cost->devices[problem->devices[device]];
    const bool whole = trial->lo == 0 && trial->hi == search->blocks;
    const double held = figures->fixed_bytes +
                        sum(search, search->state, device, trial->lo, trial->hi) -
                        (whole ? problem->cost->tied_bytes : 0);
    const double sample = sum(search, search->activation, device, trial->lo, trial->hi) *
                          hop_asteroid_kept(trial->from, problem->micro_batches) / problem->rows;
    int32_t most = problem->rows;
    while (most > 0 && held + most * sample > figures->memory)
        most--;
    return most;
}

static bool allocate(struct hop_asteroid_search *search, const struct trial *trial)
{
    const int32_t rows = search->problem->rows;
    for (int32_t i = 0; i < trial->count; i++) {
        const int32_t d = trial->first + i;
        const double seconds = sum(search, search->forward, d, trial->lo, trial->hi) +
                               sum(search, search->backward, d, trial->lo, trial->hi);
        search->workers[i] = (struct hop_asteroid_worker){.seconds = fmax(seconds / rows, 1e-300),
                                                          .most = most_samples(search, trial, d)};
    }
    return hop_asteroid_allocate(search->workers, trial->count, rows,
                                 search->problem->idle == HOP_ASTEROID_IDLE_NEVER);
}

static bool takes_part(const struct hop_asteroid_search *search, int32_t samples)
{
    return samples > 0 || search->problem->idle == HOP_ASTEROID_IDLE_COUNTED;
}

static double reduce_seconds(const struct hop_asteroid_search *search, const struct trial *trial)
{
    const struct hop_asteroid_problem *const problem = search->problem;
    double bytes = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < trial->count; i++)
        if (takes_part(search, search->workers[i].samples))
            search->members[count++] = problem->devices[trial->first + i];
    if (count < 2)
        return 0;
    for (int32_t b = trial->lo; b < trial->hi; b++)
        bytes += problem->cost->gradient_bytes[b];
    return hop_price_all_reduce(problem->cost, search->members, count, bytes);
}

static struct hop_pipeline_step stage_step(const struct hop_asteroid_search *search,
                                           const struct trial *trial)
{
    struct hop_pipeline_step step = {.reduce = reduce_seconds(search, trial)};
    for (int32_t i = 0; i < trial->count; i++) {
        const double share = (double)search->workers[i].samples / search->problem->rows;
        const int32_t d = trial->first + i;
        step.forward =
            fmax(step.forward, share * sum(search, search->forward, d, trial->lo, trial->hi));
        step.backward =
            fmax(step.backward, share * sum(search, search->backward, d, trial->lo, trial->hi));
    }
    return step;
}

/* The whole tensor over the slowest link from the workers to those of the stage behind. */
static struct hop_pipeline_step transfer_step(const struct hop_asteroid_search *search,
                                              const struct trial *trial, size_t next,
                                              int32_t next_devices)
{
    const struct hop_asteroid_problem *const problem = search->problem;
    const int32_t *const samples = &search->samples[next * (size_t)search->devices];
    const int32_t to = search->devices - next_devices;
    const int32_t to_count = next_devices - search->nodes[next].next_devices;
    const double bytes = problem->cost->boundary_bytes[trial->hi - 1];
    struct hop_pipeline_step step = {0};
    for (int32_t i = 0; i < trial->count; i++)
        for (int32_t j = 0; j < to_count; j++) {
            if (!takes_part(search, search->workers[i].samples) || !takes_part(search, samples[j]))
                continue;
            const int32_t a = problem->devices[trial->first + i], b = problem->devices[to + j];
            step.forward = fmax(step.forward, hop_cost_link(problem->cost, a, b, bytes));
            step.backward = fmax(step.backward, hop_cost_link(problem->cost, b, a, bytes));
        }
    return step;
}

/* Writes the steps of a node; returns their number. */
static int32_t list_steps(const struct hop_asteroid_search *search, int32_t stages, int32_t blocks,
                          int32_t devices, struct hop_pipeline_step *steps)
{
    int32_t count = 0;
    for (; stages > 0; stages--) {
        const struct node *const node = &search->nodes[index_of(search, stages, blocks, devices)];
        steps[count++] = node->stage;
        if (stages > 1)
            steps[count++] = node->transfer;
        blocks = node->next_blocks;
        devices = node->next_devices;
    }
    return count;
}

/* Puts a stage of the trial before the last so many blocks and devices (0: it is the only one). */
static void try_stage(struct hop_asteroid_search *search, const struct trial *trial,
                      int32_t next_blocks, int32_t next_devices)
{
    const int32_t stages = trial->from;
    const size_t at =
        index_of(search, stages, search->blocks - trial->lo, search->devices - trial->first);
    const size_t next = index_of(search, stages - 1, next_blocks, next_devices);
    if ((stages > 1 && !isfinite(search->nodes[next].seconds)) || !allocate(search, trial))
        return;
    struct node node = {.next_blocks = next_blocks, .next_devices = next_devices};
    node.stage = search->steps[0] = stage_step(search, trial);
    int32_t count = 1;
    if (stages > 1) {
        node.transfer = search->steps[1] = transfer_step(search, trial, next, next_devices);
        count = 2 + list_steps(search, stages - 1, next_blocks, next_devices, search->steps + 2);
    }
    node.seconds = hop_asteroid_latency(search->steps, count, search->problem->micro_batches);
    if (node.seconds >= search->nodes[at].seconds)
        return;
    search->nodes[at] = node;
    for (int32_t i = 0; i < trial->count; i++)
        search->samples[at * (size_t)search->devices + (size_t)i] = search->workers[i].samples;
}

static void fill_node(struct hop_asteroid_search *search, int32_t stages, int32_t blocks,
                      int32_t devices)
{
    struct trial trial = {
        .lo = search->blocks - blocks, .first = search->devices - devices, .from = stages};
    if (stages == 1) {
        trial.hi = search->blocks;
        trial.count = devices;
        try_stage(search, &trial, 0, 0);
        return;
    }
    for (int32_t next_blocks = stages - 1; next_blocks < blocks; next_blocks++)
        for (int32_t next_devices = stages - 1; next_devices < devices; next_devices++) {
            trial.hi = search->blocks - next_blocks;
            trial.count = devices - next_devices;
            try_stage(search, &trial, next_blocks, next_devices);
        }
}

static void fill_sums(struct hop_asteroid_search *search)
{
    const struct hop_asteroid_problem *const problem = search->problem;
    for (int32_t d = 0; d < search->devices; d++) {
        const struct hop_cost_device *const device = &problem->cost->devices[problem->devices[d]];
        const size_t row = (size_t)d * ((size_t)search->blocks + 1);
        for (int32_t b = 0; b < search->blocks; b++) {
            const size_t at = row + (size_t)b;
            search->forward[at + 1] = search->forward[at] + device->forward[b];
            search->backward[at + 1] = search->backward[at] + device->backward[b];
            search->state[at + 1] = search->state[at] + device->state_bytes[b];
            search->activation[at + 1] = search->activation[at] + device->activation_bytes[b];
        }
    }
}

static hop_status create_search(struct hop_asteroid_search *search, struct hop_error *err)
{
    const size_t row = (size_t)search->devices * ((size_t)search->blocks + 1);
    const size_t nodes = index_of(search, search->stages + 1, 0, 0);
    HOP_TRY(hop_calloc(&search->storage, 4 * row, sizeof *search->storage, err));
    HOP_TRY(hop_calloc(&search->nodes, nodes, sizeof *search->nodes, err));
    HOP_TRY(hop_calloc(&search->samples, nodes * (size_t)search->devices, sizeof *search->samples,
                       err));
    HOP_TRY(hop_calloc(&search->workers, (size_t)search->devices, sizeof *search->workers, err));
    HOP_TRY(hop_calloc(&search->members, (size_t)search->devices, sizeof *search->members, err));
    HOP_TRY(hop_calloc(&search->steps, 2 * (size_t)search->stages, sizeof *search->steps, err));
    search->forward = search->storage;
    search->backward = search->storage + row;
    search->state = search->storage + 2 * row;
    search->activation = search->storage + 3 * row;
    for (size_t i = 0; i < nodes; i++)
        search->nodes[i].seconds = INFINITY;
    return HOP_OK;
}

void hop_asteroid_search_free(struct hop_asteroid_search *search)
{
    if (!search)
        return;
    free(search->storage);
    free(search->nodes);
    free(search->samples);
    free(search->workers);
    free(search->members);
    free(search->steps);
    free(search);
}

hop_status hop_asteroid_search(const struct hop_asteroid_problem *problem,
                               struct hop_asteroid_search **out, struct hop_error *err)
{
    struct hop_asteroid_search *search;
    const int32_t blocks = problem->cost->blocks, devices = problem->count;
    HOP_TRY(hop_calloc(&search, 1, sizeof *search, err));
    search->problem = problem;
    search->blocks = blocks;
    search->devices = devices;
    search->stages = devices < blocks ? devices : blocks;
    const hop_status status = create_search(search, err);
    if (status != HOP_OK) {
        hop_asteroid_search_free(search);
        return status;
    }
    fill_sums(search);
    for (int32_t stages = 1; stages <= search->stages; stages++)
        for (int32_t b = stages; b <= blocks; b++)
            for (int32_t d = stages; d <= devices; d++)
                fill_node(search, stages, b, d);
    *out = search;
    return HOP_OK;
}

int32_t hop_asteroid_most_stages(const struct hop_asteroid_search *search)
{
    return search->stages;
}

double hop_asteroid_seconds(const struct hop_asteroid_search *search, int32_t stages)
{
    return search->nodes[index_of(search, stages, search->blocks, search->devices)].seconds;
}

void hop_asteroid_stages(const struct hop_asteroid_search *search, int32_t count,
                         struct hop_asteroid_stage *stages)
{
    int32_t blocks = search->blocks, devices = search->devices;
    for (int32_t i = 0; i < count; i++) {
        const size_t at = index_of(search, count - i, blocks, devices);
        const struct node *const node = &search->nodes[at];
        stages[i] =
            (struct hop_asteroid_stage){.lo = search->blocks - blocks,
                                        .hi = search->blocks - node->next_blocks,
                                        .first = search->devices - devices,
                                        .count = devices - node->next_devices,
                                        .samples = &search->samples[at * (size_t)search->devices]};
        blocks = node->next_blocks;
        devices = node->next_devices;
    }
}
