/* How long planning takes, how good the plan is proved to be, and what that cost. The clusters of
 * the method's paper with forward figures from measurements: LLaMA-3.2-3B on 6 boards and
 * LLaMA-3.1-8B on 10, sequences of 384, 2 a micro-batch, 8 micro-batches, gigabit Ethernet, an LM
 * head at the label positions only. One JSON line a case.
 *
 * bench_plan [micro-batches] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/string.h"
#include "schedule/price.h"
#include "strategy/outcome.h"
#include "strategy/strategy.h"

enum { REPEATS = 5, MOST_DEVICES = 10, SAMPLES = 2, ADAPTER_BYTES = 16 };

struct board {
    const char *name;
    bool bp;
    double tflops, gigabytes, idle_watts, busy_watts;
};

static const struct board atlas = {"atlas", false, 5.0, 9.5, 8, 18};
static const struct board nano = {"nano", true, 6.0, 6.5, 5, 15};
static const struct board xavier = {"xavier-nx", true, 3.6, 6.5, 5, 15};
static const struct board orin = {"orin-nx", true, 8.0, 14.0, 7, 25};

struct model {
    const char *name;
    int32_t blocks;
    double gflop, state_megabytes, kept_megabytes, boundary_megabytes; /* a block, a sample */
    double adapters, head_megabytes;
    const struct board *boards[MOST_DEVICES];
};

static const struct model models[] = {
    {"llama-3.2-3b",
     28,
     78.2,
     201.3,
     32.2,
     2.359,
     81920,
     788.0,
     {&atlas, &atlas, &nano, &nano, &orin, &orin}},
    {"llama-3.1-8b",
     32,
     168.7,
     436.2,
     50.3,
     3.146,
     106496,
     1050.7,
     {&atlas, &atlas, &atlas, &atlas, &nano, &nano, &xavier, &xavier, &orin, &orin}},
};

static void check(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "bench_plan: %s\n", err->message);
    exit(1);
}

static void fill_device(const struct model *model, int32_t d, struct hop_cost_device *device)
{
    const struct board *const board = model->boards[d];
    struct hop_string name = {0};
    struct hop_error err = {0};
    check(hop_string_printf(&name, &err, "%s%d", board->name, d), &err);
    check(hop_string_copy(&device->name, hop_string_text(&name), &err), &err);
    hop_string_free(&name);
    device->bp = board->bp;
    device->memory = board->gigabytes * 1e9;
    device->idle_watts = board->idle_watts;
    device->busy_watts = board->busy_watts;
    for (int32_t b = 0; b < model->blocks; b++) {
        device->forward[b] = SAMPLES * model->gflop / (board->tflops * 1e3);
        device->probe[b] = device->forward[b];
        device->state_bytes[b] = model->state_megabytes * 1e6 + ADAPTER_BYTES * model->adapters;
        device->activation_bytes[b] = SAMPLES * model->kept_megabytes * 1e6;
    }
    device->state_bytes[0] += model->head_megabytes * 1e6;
    device->state_bytes[model->blocks - 1] += model->head_megabytes * 1e6;
}

static struct hop_cost_table cost_of(const struct model *model)
{
    static const double backward_of_forward = 1.05, bandwidth = 1.25e8, latency = 3e-4;
    struct hop_cost_table cost;
    struct hop_error err = {0};
    int32_t devices = 0;
    while (devices < MOST_DEVICES && model->boards[devices])
        devices++;
    check(hop_cost_create(model->blocks, devices, &cost, &err), &err);
    cost.micro_batch_samples = SAMPLES;
    for (int32_t b = 0; b + 1 < model->blocks; b++)
        cost.boundary_bytes[b] = SAMPLES * model->boundary_megabytes * 1e6;
    for (int32_t d = 0; d < devices; d++) {
        struct hop_cost_device *const device = &cost.devices[d];
        fill_device(model, d, device);
        if (device->bp) {
            device->backward = calloc((size_t)model->blocks, sizeof(double));
            if (!device->backward)
                exit(1);
        }
        for (int32_t b = 0; device->backward && b < model->blocks; b++)
            device->backward[b] = backward_of_forward * device->forward[b];
    }
    for (int32_t i = 0; i < devices * devices; i++) {
        cost.bandwidth[i] = i / devices == i % devices ? INFINITY : bandwidth;
        cost.latency[i] = i / devices == i % devices ? 0 : latency;
    }
    return cost;
}

/* Devices in pipeline order, and how many blocks each holds. */
static void print_counts(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    printf("\"stages\":[");
    for (int32_t p = 0; p < plan->part_count; p++)
        printf("%s[\"%s\",%d]", p ? "," : "", cost->devices[plan->parts[p].device].name,
               plan->parts[p].hi - plan->parts[p].lo);
    printf("]");
}

static struct hop_line_effort effort_of(const struct hop_plan_request *request, int32_t probes)
{
    struct hop_pipeline pipeline;
    struct hop_outcome outcome;
    struct hop_error err = {0};
    check(hop_pipeline_create(request, probes, HOP_GRADIENT_ZEROTH_ORDER, &pipeline, &err), &err);
    check(hop_outcome_create(&pipeline, &outcome, &err), &err);
    check(hop_outcome_find(&pipeline, &outcome, &err), &err);
    const struct hop_line_effort spent = outcome.spent;
    hop_outcome_free(&outcome);
    hop_pipeline_free(&pipeline);
    return spent;
}

/* On a machine others use this says more than the wall clock; a planner is one thread. */
static double processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void bench(const struct model *model, const struct hop_plan_request *request)
{
    static const char *const uses[] = {"default", "auto", "all"};
    const struct hop_strategy *strategy;
    struct hop_plan plan = {0};
    struct hop_error err = {0};
    double best = INFINITY;
    check(hop_strategy_find("hybridop", &strategy, &err), &err);
    for (int run = 0; run < REPEATS; run++) {
        hop_plan_free(&plan);
        const double start = processor_seconds();
        check(strategy->plan(request, &plan, &err), &err);
        best = fmin(best, processor_seconds() - start);
    }
    const struct hop_line_effort spent = effort_of(request, plan.probes);
    printf("{\"bench\":\"plan\",\"model\":\"%s\",\"blocks\":%d,\"devices\":%d,\"micro_batches\":%d,"
           "\"probes\":%d,\"asked\":%d,\"objective\":\"%s\",\"use\":\"%s\",\"processor_ms\":%.3f,"
           "\"formula_seconds\":%.6f,\"simulated_seconds\":%.6f,",
           model->name, model->blocks, request->cost->device_count, request->micro_batches,
           plan.probes, request->probes, hop_objective_names[request->objective],
           uses[request->devices], best * 1e3, plan.formula_seconds, plan.simulated_seconds);
    if (request->objective == HOP_OBJECTIVE_SIMULATED)
        printf("\"bound_gap\":%.6f,\"simulations\":%lld,\"starts\":%lld,",
               plan.simulated_seconds / plan.bound_seconds - 1, (long long)spent.simulations,
               (long long)spent.starts);
    print_counts(&plan, request->cost);
    printf("}\n");
    fflush(stdout);
    hop_plan_free(&plan);
}

int main(int argc, char **argv)
{
    static const int32_t probes[] = {1, 3, 12, HOP_PROBES_AUTO};
    static const enum hop_device_use uses[] = {HOP_DEVICES_AUTO, HOP_DEVICES_ALL};
    const int32_t micro_batches = argc > 1 ? atoi(argv[1]) : 8;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct hop_cost_table cost = cost_of(&models[m]);
        for (int objective = 0; objective < HOP_OBJECTIVES; objective++)
            for (size_t u = 0; u < sizeof uses / sizeof *uses; u++)
                for (size_t q = 0; q < sizeof probes / sizeof *probes; q++) {
                    const struct hop_plan_request request = {.cost = &cost,
                                                             .micro_batches = micro_batches,
                                                             .probes = probes[q],
                                                             .probe_batch = 1,
                                                             .devices = uses[u],
                                                             .objective =
                                                                 (enum hop_objective)objective};
                    bench(&models[m], &request);
                }
        hop_cost_free(&cost);
    }
    return 0;
}
