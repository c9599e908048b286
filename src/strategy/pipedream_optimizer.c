#include "strategy/pipedream_optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* The best that ends with a state, on so many devices. */
struct cell {
    double seconds;
    int32_t split; /* last state of the stages before the last stage; -1: there are none */
    int32_t replicas;
};

struct solver {
    const struct hop_pipedream_model *model;
    int32_t devices;
    double bandwidth;
    bool straight;
    struct cell *cells; /* (states, devices): cell [j][m - 1] */
};

static struct cell *cell_at(const struct solver *solver, int32_t state, int32_t devices)
{
    return &solver->cells[(size_t)state * (size_t)solver->devices + (size_t)devices - 1];
}

/* Of the layers that are done by `to` but not by `from`; from -1: none was. */
static double between(const double *running, int32_t from, int32_t to)
{
    return from < 0 ? running[to] : running[to] - running[from];
}

static double stage_seconds(const struct hop_pipedream_model *model, double bandwidth, int32_t from,
                            int32_t to, int32_t replicas)
{
    const double exchange = 4.0 * (replicas - 1) * between(model->gradient, from, to);
    return (between(model->seconds, from, to) + exchange / (bandwidth * replicas)) / replicas;
}

double hop_pipedream_replicated(const struct hop_pipedream_model *model, int32_t devices,
                                double bandwidth)
{
    return stage_seconds(model, bandwidth, -1, model->states - 1, devices);
}

static bool may_replicate(const struct solver *solver, int32_t replicas)
{
    const int32_t most = solver->straight ? 1 : solver->model->most_replicas;
    return !most || replicas <= most;
}

/* A stage that ends with the `devices`-th device. */
static bool fits(const struct solver *solver, int32_t from, int32_t to, int32_t devices,
                 int32_t replicas)
{
    const struct hop_pipedream_model *const model = solver->model;
    const int32_t stages = solver->devices - devices + 1;
    if (!model->held)
        return true;
    const int32_t kept = stages < model->most_kept ? stages : model->most_kept;
    return between(model->held, from, to) + kept * between(model->kept, from, to) / replicas <=
           model->memory;
}

static double transfer_seconds(const struct solver *solver, int32_t state, int32_t replicas)
{
    return 2 * solver->model->output[state] / (solver->bandwidth * replicas);
}

static bool may_precede(const struct hop_pipedream_model *model, int32_t k, int32_t j)
{
    return model->before ? model->before[(size_t)k * (size_t)model->states + (size_t)j] : k < j;
}

/* Stages up to `split` on the other devices, then one of `replicas` that ends with `state`. */
static double split_seconds(const struct solver *solver, int32_t split, int32_t state,
                            int32_t devices, int32_t replicas)
{
    double seconds = cell_at(solver, split, devices - replicas)->seconds;
    seconds =
        fmax(seconds, stage_seconds(solver->model, solver->bandwidth, split, state, replicas));
    seconds = fmax(seconds, transfer_seconds(solver, split, replicas));
    if (state + 1 < solver->model->states)
        seconds = fmax(seconds, transfer_seconds(solver, state, replicas));
    return seconds;
}

static struct cell one_stage(const struct solver *solver, int32_t state, int32_t devices)
{
    if (!may_replicate(solver, devices) || !fits(solver, -1, state, devices, devices))
        return (struct cell){INFINITY, -1, 0};
    return (struct cell){stage_seconds(solver->model, solver->bandwidth, -1, state, devices), -1,
                         devices};
}

static void solve_cell(struct solver *solver, int32_t state, int32_t devices)
{
    struct cell best = one_stage(solver, state, devices);
    for (int32_t k = 0; k < solver->model->states; k++) {
        if (!may_precede(solver->model, k, state))
            continue;
        for (int32_t replicas = 1; replicas < devices && may_replicate(solver, replicas);
             replicas++) {
            const double seconds = split_seconds(solver, k, state, devices, replicas);
            if (seconds < best.seconds && fits(solver, k, state, devices, replicas))
                best = (struct cell){seconds, k, replicas};
        }
    }
    *cell_at(solver, state, devices) = best;
}

/* Follows the splits from the last stage; returns how many stages there are. */
static int32_t trace(const struct solver *solver, struct hop_pipedream_stage *stages)
{
    int32_t count = 0, devices = solver->devices;
    for (int32_t state = solver->model->states - 1; state >= 0;) {
        const struct cell *const cell = cell_at(solver, state, devices);
        stages[count++] = (struct hop_pipedream_stage){cell->split + 1, state + 1, cell->replicas};
        state = cell->split;
        devices -= cell->replicas;
    }
    for (int32_t i = 0; i < count / 2; i++) {
        const struct hop_pipedream_stage first = stages[i];
        stages[i] = stages[count - 1 - i];
        stages[count - 1 - i] = first;
    }
    return count;
}

hop_status hop_pipedream_optimize(const struct hop_pipedream_model *model, int32_t devices,
                                  double bandwidth, bool straight,
                                  struct hop_pipedream_stage *stages, int32_t *count,
                                  double *seconds, struct hop_error *err)
{
    struct solver solver = {
        .model = model, .devices = devices, .bandwidth = bandwidth, .straight = straight};
    HOP_TRY(hop_calloc(&solver.cells, (size_t)model->states * (size_t)devices, sizeof *solver.cells,
                       err));
    for (int32_t m = 1; m <= devices; m++)
        for (int32_t j = 0; j < model->states; j++)
            solve_cell(&solver, j, m);
    const double best = cell_at(&solver, model->states - 1, devices)->seconds;
    *count = isinf(best) ? 0 : trace(&solver, stages);
    *seconds = best;
    free(solver.cells);
    return HOP_OK;
}
