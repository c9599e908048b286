/* Seconds of one question to the greedy scheduler, of its lists and of a simulation, on a chain of
 * stages with one device each. One JSON line a size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schedule/greedy.h"
#include "schedule/price.h"
#include "sim/simulate.h"

enum { REPEATS_MIN = 5, BLOCKS_A_STAGE = 3 };
static const double seconds = 0.5; /* a figure */

struct size {
    int32_t bp_free, stages, micro_batches, probes;
};

static const struct size sizes[] = {
    {1, 4, 4, 1}, {2, 6, 8, 3}, {4, 10, 8, 3}, {4, 10, 8, 12}, {8, 32, 32, 4},
};

struct bench {
    const struct size *size;
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_greedy *greedy;
    struct hop_error err;
};

static void check(const struct bench *b, hop_status status)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "bench_sim: %s\n", b->err.message);
    exit(1);
}

/* Best time of a statement. */
#define BEST(best, call)                                                                           \
    do {                                                                                           \
        best = 1e30;                                                                               \
        const double best_begin = hop_clock_now();                                                 \
        for (int run = 0; run < REPEATS_MIN || hop_clock_now() - best_begin < seconds; run++) {    \
            const double best_start = hop_clock_now();                                             \
            call;                                                                                  \
            const double best_took = hop_clock_now() - best_start;                                 \
            best = best_took < best ? best_took : best;                                            \
        }                                                                                          \
    } while (0)

/* Speeds differ from device to device, and messages take about as long as a block. */
static void fill_cost(struct bench *b)
{
    struct hop_cost_table *const cost = &b->cost;
    for (int32_t d = 0; d < cost->device_count; d++) {
        struct hop_cost_device *const device = &cost->devices[d];
        check(b, hop_calloc(&device->backward, (size_t)cost->blocks, sizeof(double), &b->err));
        for (int32_t i = 0; i < cost->blocks; i++) {
            device->forward[i] = device->probe[i] = 0.01 * (1 + 0.1 * (d % 7));
            device->backward[i] = 1.1 * device->forward[i];
            device->step[i] = 1e-4;
        }
    }
    for (int32_t i = 0; i + 1 < cost->blocks; i++)
        cost->boundary_bytes[i] = 1e6;
    for (int32_t i = 0; i < cost->device_count * cost->device_count; i++) {
        cost->bandwidth[i] = 1.1e8;
        cost->latency[i] = 3e-4;
    }
}

static void create(struct bench *b)
{
    const int32_t stages = b->size->stages;
    b->plan = (struct hop_plan){.blocks = stages * BLOCKS_A_STAGE,
                                .devices = stages,
                                .micro_batches = b->size->micro_batches,
                                .probes = b->size->probes,
                                .probe_batch = 1,
                                .part_count = stages};
    check(b, hop_calloc(&b->plan.parts, (size_t)stages, sizeof *b->plan.parts, &b->err));
    for (int32_t i = 0; i < stages; i++)
        b->plan.parts[i] = (struct hop_part){
            .device = i,
            .stage = i,
            .lo = i * BLOCKS_A_STAGE,
            .hi = (i + 1) * BLOCKS_A_STAGE,
            .sample_hi = 1,
            .tensor_hi = 1,
            .micro_hi = 1,
            .gradient = i < b->size->bp_free ? HOP_GRADIENT_ZEROTH_ORDER : HOP_GRADIENT_BACKPROP};
    check(b, hop_cost_create(b->plan.blocks, stages, &b->cost, &b->err));
    fill_cost(b);
    check(b, hop_plan_price(&b->plan, &b->cost, 1, &b->err));
    check(b, hop_greedy_create(&b->cost, stages, b->size->micro_batches, b->size->probes, 0, 1,
                               &b->greedy, &b->err));
}

static void release(struct bench *b)
{
    hop_greedy_free(b->greedy);
    hop_cost_free(&b->cost);
    hop_plan_free(&b->plan);
}

static void make_lists(struct bench *b)
{
    struct hop_schedule schedule;
    check(b, hop_schedule_greedy(&b->plan, &b->cost, b->plan.micro_batches, b->plan.probes,
                                 &schedule, &b->err));
    hop_schedule_free(&schedule);
}

static double simulate(struct bench *b, const struct hop_schedule *schedule)
{
    struct hop_simulation simulation;
    check(b, hop_simulate(&b->plan, schedule, &b->cost, NULL, &simulation, &b->err));
    const double makespan = simulation.makespan;
    hop_simulation_free(&simulation);
    return makespan;
}

static int32_t count_tasks(const struct hop_schedule *schedule)
{
    int32_t tasks = 0;
    for (int32_t d = 0; d < schedule->devices; d++)
        tasks += schedule->lists[d].count;
    return tasks;
}

static void measure(struct bench *b)
{
    struct hop_schedule schedule;
    double question, early, lists, simulation, makespan = 0;
    check(b, hop_schedule_greedy(&b->plan, &b->cost, b->plan.micro_batches, b->plan.probes,
                                 &schedule, &b->err));
    const int32_t tasks = count_tasks(&schedule);
    BEST(question, makespan = hop_greedy_makespan(b->greedy, &b->plan, INFINITY));
    BEST(early, hop_greedy_makespan(b->greedy, &b->plan, 0.9 * makespan));
    BEST(lists, make_lists(b));
    BEST(simulation, makespan = simulate(b, &schedule));
    printf("{\"bench\":\"sim\",\"devices\":%d,\"micro_batches\":%d,\"probes\":%d,\"tasks\":%d,"
           "\"makespan_s\":%.6f,\"greedy_us\":%.2f,\"greedy_ns_per_task\":%.1f,"
           "\"greedy_limit_us\":%.2f,\"lists_us\":%.2f,\"simulate_us\":%.2f,"
           "\"simulate_tasks_per_s\":%.0f}\n",
           b->plan.devices, b->plan.micro_batches, b->plan.probes, tasks, makespan, 1e6 * question,
           1e9 * question / tasks, 1e6 * early, 1e6 * lists, 1e6 * simulation, tasks / simulation);
    fflush(stdout);
    hop_schedule_free(&schedule);
}

int main(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bench b = {.size = &sizes[i]};
        create(&b);
        measure(&b);
        release(&b);
    }
    return 0;
}
