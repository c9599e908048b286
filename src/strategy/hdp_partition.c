#include "strategy/hdp_partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* States are sets of devices that stand already: all of them, or (in one order only) the first so
 * many. */
struct solver {
    const struct hop_cost_table *cost;
    const int32_t *devices;
    int32_t count, micro_batches, row; /* row: blocks + 1 */
    double *running;                   /* (count, row) seconds of the first so many blocks */
    double *state_bytes, *kept_bytes;  /* the same for bytes: held, and kept of a micro-batch */
    double *best;                      /* (states, row) slowest stage, so many blocks dealt */
    int32_t *last, *from;              /* the last device (of the group), its first block */
};

static void free_solver(struct solver *solver)
{
    free(solver->running);
    free(solver->state_bytes);
    free(solver->kept_bytes);
    free(solver->best);
    free(solver->last);
    free(solver->from);
}

static void sum_device(struct solver *solver, int32_t i)
{
    const struct hop_cost_device *const device = &solver->cost->devices[solver->devices[i]];
    const int32_t at = i * solver->row;
    for (int32_t b = 0; b < solver->cost->blocks; b++) {
        solver->running[at + b + 1] =
            solver->running[at + b] + device->forward[b] + device->backward[b];
        solver->state_bytes[at + b + 1] = solver->state_bytes[at + b] + device->state_bytes[b];
        solver->kept_bytes[at + b + 1] = solver->kept_bytes[at + b] + device->activation_bytes[b];
    }
}

static hop_status create_solver(struct solver *solver, size_t states, struct hop_error *err)
{
    const size_t cells = (size_t)solver->count * (size_t)solver->row;
    const size_t table = states * (size_t)solver->row;
    HOP_TRY(hop_calloc(&solver->running, cells, sizeof(double), err));
    HOP_TRY(hop_calloc(&solver->state_bytes, cells, sizeof(double), err));
    HOP_TRY(hop_calloc(&solver->kept_bytes, cells, sizeof(double), err));
    HOP_TRY(hop_calloc(&solver->best, table, sizeof(double), err));
    HOP_TRY(hop_calloc(&solver->last, table, sizeof *solver->last, err));
    HOP_TRY(hop_calloc(&solver->from, table, sizeof *solver->from, err));
    for (size_t c = 0; c < table; c++)
        solver->best[c] = INFINITY;
    for (int32_t i = 0; i < solver->count; i++)
        sum_device(solver, i);
    return HOP_OK;
}

static bool fits(const struct solver *solver, int32_t i, int32_t lo, int32_t hi, int32_t stage)
{
    const struct hop_cost_device *const device = &solver->cost->devices[solver->devices[i]];
    const int32_t at = i * solver->row, behind = solver->count - stage;
    const int32_t kept = behind < solver->micro_batches ? behind : solver->micro_batches;
    double bytes = device->fixed_bytes + solver->state_bytes[at + hi] -
                   solver->state_bytes[at + lo] +
                   kept * (solver->kept_bytes[at + hi] - solver->kept_bytes[at + lo]);
    if (hi - lo == solver->cost->blocks)
        bytes -= solver->cost->tied_bytes;
    return bytes <= device->memory;
}

/* Device i takes blocks [lo, hi) as the stage behind those of state `before`. */
static void try_stage(struct solver *solver, int32_t before, int32_t after, int32_t stage,
                      int32_t i, int32_t lo, int32_t hi)
{
    const int32_t at = i * solver->row, to = after * solver->row + hi;
    const double seconds = fmax(solver->best[before * solver->row + lo],
                                solver->running[at + hi] - solver->running[at + lo]);
    if (seconds >= solver->best[to] || !fits(solver, i, lo, hi, stage))
        return;
    solver->best[to] = seconds;
    solver->last[to] = i;
    solver->from[to] = lo;
}

static void add_device(struct solver *solver, int32_t before, int32_t after, int32_t stage,
                       int32_t i)
{
    for (int32_t lo = 0; lo < solver->cost->blocks; lo++)
        for (int32_t hi = lo + 1; hi <= solver->cost->blocks; hi++)
            try_stage(solver, before, after, stage, i, lo, hi);
}

static int32_t size_of(uint32_t set)
{
    int32_t size = 0;
    for (; set; set &= set - 1)
        size++;
    return size;
}

static void solve_sets(struct solver *solver)
{
    solver->best[0] = 0;
    for (int32_t set = 0; set < 1 << solver->count; set++)
        for (int32_t i = 0; i < solver->count; i++)
            if (!(set >> i & 1))
                add_device(solver, set, set | 1 << i, size_of((uint32_t)set), i);
}

static void solve_row(struct solver *solver)
{
    solver->best[0] = 0;
    for (int32_t i = 0; i < solver->count; i++)
        add_device(solver, i, i + 1, i, i);
}

static void trace(const struct solver *solver, bool sets, struct hop_hdp_stage *stages)
{
    int32_t state = sets ? (1 << solver->count) - 1 : solver->count;
    int32_t hi = solver->cost->blocks;
    for (int32_t stage = solver->count - 1; stage >= 0; stage--) {
        const int32_t cell = state * solver->row + hi, i = solver->last[cell];
        stages[stage] = (struct hop_hdp_stage){solver->devices[i], solver->from[cell], hi};
        hi = solver->from[cell];
        state = sets ? state & ~(1 << i) : state - 1;
    }
}

static hop_status solve(struct solver *solver, bool sets, struct hop_hdp_stage *stages,
                        double *seconds, struct hop_error *err)
{
    const int32_t states = sets ? 1 << solver->count : solver->count + 1;
    HOP_TRY(create_solver(solver, (size_t)states, err));
    if (sets)
        solve_sets(solver);
    else
        solve_row(solver);
    *seconds = solver->best[(states - 1) * solver->row + solver->cost->blocks];
    if (!isinf(*seconds))
        trace(solver, sets, stages);
    return HOP_OK;
}

/* Insertion keeps the cost table's order among equal ones. */
static void sort_by_memory(const struct hop_cost_table *cost, int32_t *devices, int32_t count)
{
    for (int32_t i = 1; i < count; i++) {
        const int32_t device = devices[i];
        int32_t at = i;
        for (; at > 0 && cost->devices[devices[at - 1]].memory < cost->devices[device].memory; at--)
            devices[at] = devices[at - 1];
        devices[at] = device;
    }
}

hop_status hop_hdp_partition(const struct hop_cost_table *cost, const int32_t *devices,
                             int32_t count, int32_t micro_batches, struct hop_hdp_stage *stages,
                             double *seconds, struct hop_error *err)
{
    int32_t *order;
    struct solver solver = {
        .cost = cost, .count = count, .micro_batches = micro_batches, .row = cost->blocks + 1};
    const bool sets = count <= HOP_HDP_EXACT;
    HOP_TRY(hop_calloc(&order, (size_t)count, sizeof *order, err));
    memcpy(order, devices, (size_t)count * sizeof *order);
    if (!sets)
        sort_by_memory(cost, order, count);
    solver.devices = order;
    const hop_status status = solve(&solver, sets, stages, seconds, err);
    free_solver(&solver);
    free(order);
    return status;
}
