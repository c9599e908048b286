/* How far the published iteration time T_head and the lower bound T_lb are from the simulated time:
 * random pipelines of 1 to 4 BP-free and 1 to 6 BP-capable devices, M 2 to 16, Q 0 to 20, backward
 * twice the forward, transfers free, probes one by one, at most 2(G - i) - 1 micro-batches kept.
 * One JSON line a regime, with median and 5th and 95th percentile of formula / simulated.
 *
 * bench_formula [settings [seed]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "schedule/bound.h"
#include "schedule/greedy.h"
#include "schedule/price.h"

enum { BP_FREE_MOST = 4, BP_MOST = 6, STAGES_MOST = BP_FREE_MOST + BP_MOST, DRAWS = 32 };
static const double beta = 2;
/* Few probes are the interesting case, so they come as often as many. */
static const int32_t numbers_of_probes[] = {0, 1, 2, 3, 4, 8, 12, 20};
enum { PROBES_KINDS = sizeof numbers_of_probes / sizeof *numbers_of_probes };

struct setting {
    int32_t bp_free, stages, micro_batches, probes;
    bool equal; /* BP-capable stages */
    double forward[STAGES_MOST];
};

enum regime {
    NO_PROBES,
    ONE_DEVICE,
    EQUAL,
    FIRST_SLOWEST,
    FIRST_FASTER,
    BP_FREE_BOUND,
    OTHER,
    REGIMES
};

static const char *const regime_names[] = {
    "Q = 0, equal BP-capable stages, t_N <= 3 t_G",
    "Q > 0, one BP-capable device, bound by it",
    "Q > 0, equal BP-capable stages, bound by them",
    "Q > 0, first BP-capable stage slowest, bound by them",
    "Q > 0, first BP-capable stage below 0.7 of the slowest, bound by them",
    "Q > 0, bound by BP-free devices",
    "others",
};

struct ratios {
    double *head, *lower;
    int32_t count;
};

struct bench {
    struct ratios regimes[REGIMES], all;
    struct hop_error err;
};

static void check(const struct bench *b, hop_status status)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "bench_formula: %s\n", b->err.message);
    exit(1);
}

static int32_t between(float uniform, int32_t lo, int32_t hi)
{
    return lo + (int32_t)((double)uniform * (hi - lo + 1));
}

static struct setting draw(uint64_t seed, uint32_t number)
{
    float u[DRAWS];
    const struct hop_random_key key = {
        .seed = seed, .domain = HOP_RANDOM_SAMPLE, .parameter = number};
    hop_random_uniform(&key, 0, DRAWS, u);
    struct setting s = {.bp_free = between(u[0], 1, BP_FREE_MOST),
                        .micro_batches = between(u[1], 2, 16),
                        .probes = numbers_of_probes[between(u[2], 0, PROBES_KINDS - 1)],
                        .equal = u[4] < 0.5F};
    s.stages = s.bp_free + between(u[3], 1, BP_MOST);
    /* BP-free stages from much faster to slower than the others, since they make 1 + Q passes. */
    const double speed = exp2(-4 + 6 * (double)u[5]);
    for (int32_t i = 0; i < s.stages; i++) {
        const double uneven = 0.5 + 1.5 * (double)u[8 + i];
        s.forward[i] = i < s.bp_free ? speed * uneven : s.equal ? 1 : uneven;
    }
    return s;
}

static double slowest(const struct setting *s, int32_t from, int32_t to)
{
    double most = 0;
    for (int32_t i = from; i < to; i++)
        most = fmax(most, s->forward[i]);
    return most;
}

/* Is the time that the BP-free stages need alone the lower bound? */
static bool is_bp_free_bound(const struct setting *s, double lower)
{
    double fill = 0;
    for (int32_t i = 0; i < s->stages; i++)
        fill += s->forward[i];
    const double passes = (1.0 + s->probes) * s->micro_batches;
    return fill + (passes - 1) * slowest(s, 0, s->bp_free) >= lower * (1 - 1e-9);
}

static enum regime regime_of(const struct setting *s, double lower)
{
    const double first = s->forward[s->bp_free], most = slowest(s, s->bp_free, s->stages);
    if (!s->probes)
        return s->equal && slowest(s, 0, s->bp_free) <= 3 * most ? NO_PROBES : OTHER;
    if (is_bp_free_bound(s, lower))
        return BP_FREE_BOUND;
    if (s->stages == s->bp_free + 1)
        return ONE_DEVICE;
    if (s->equal)
        return EQUAL;
    if (first == most)
        return FIRST_SLOWEST;
    return first < 0.7 * most ? FIRST_FASTER : OTHER;
}

static void make_plan(struct bench *b, const struct setting *s, struct hop_plan *plan,
                      struct hop_cost_table *cost)
{
    *plan = (struct hop_plan){.blocks = s->stages,
                              .devices = s->stages,
                              .micro_batches = s->micro_batches,
                              .probes = s->probes,
                              .probe_batch = 1,
                              .part_count = s->stages};
    check(b, hop_calloc(&plan->parts, (size_t)s->stages, sizeof *plan->parts, &b->err));
    check(b, hop_cost_create(s->stages, s->stages, cost, &b->err));
    for (int32_t i = 0; i < s->stages; i++) {
        struct hop_cost_device *const device = &cost->devices[i];
        check(b, hop_calloc(&device->backward, (size_t)s->stages, sizeof(double), &b->err));
        device->forward[i] = device->probe[i] = s->forward[i];
        device->backward[i] = beta * s->forward[i];
        plan->parts[i] = (struct hop_part){.device = i,
                                           .stage = i,
                                           .lo = i,
                                           .hi = i + 1,
                                           .sample_hi = 1,
                                           .tensor_hi = 1,
                                           .micro_hi = 1,
                                           .gradient = i < s->bp_free ? HOP_GRADIENT_ZEROTH_ORDER
                                                                      : HOP_GRADIENT_BACKPROP};
    }
    check(b, hop_plan_price(plan, cost, 1, &b->err));
}

static void add(struct ratios *ratios, double head, double lower)
{
    ratios->head[ratios->count] = head;
    ratios->lower[ratios->count++] = lower;
}

static void measure(struct bench *b, const struct setting *s)
{
    struct hop_plan plan;
    struct hop_cost_table cost;
    struct hop_plan_times times;
    struct hop_greedy *greedy;
    make_plan(b, s, &plan, &cost);
    check(b, hop_plan_times_create(&plan, &cost, &times, &b->err));
    check(b,
          hop_greedy_create(&cost, s->stages, s->micro_batches, s->probes, 0, 1, &greedy, &b->err));
    const double seconds = hop_greedy_makespan(greedy, &plan, INFINITY);
    const double head = hop_bound_head(&times.times), lower = hop_bound_lower(&times.times);
    add(&b->regimes[regime_of(s, lower)], head / seconds, lower / seconds);
    add(&b->all, head / seconds, lower / seconds);
    hop_greedy_free(greedy);
    hop_plan_times_free(&times);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print_quantiles(const char *name, double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    printf(",\"%s\":{\"p5\":%.3f,\"median\":%.3f,\"p95\":%.3f}", name, values[count / 20],
           values[count / 2], values[count - 1 - count / 20]);
}

static void report(struct ratios *ratios, const char *regime)
{
    if (!ratios->count)
        return;
    int32_t close = 0;
    for (int32_t i = 0; i < ratios->count; i++)
        close += ratios->lower[i] >= 0.98;
    printf("{\"bench\":\"formula\",\"regime\":\"%s\",\"settings\":%d", regime, ratios->count);
    print_quantiles("T_head", ratios->head, ratios->count);
    print_quantiles("T_lb", ratios->lower, ratios->count);
    printf(",\"T_lb_within_2_percent\":%.3f}\n", (double)close / ratios->count);
}

static void create_ratios(struct bench *b, struct ratios *ratios, int32_t settings)
{
    check(b, hop_calloc(&ratios->head, (size_t)settings, sizeof(double), &b->err));
    check(b, hop_calloc(&ratios->lower, (size_t)settings, sizeof(double), &b->err));
}

static void free_ratios(struct ratios *ratios)
{
    free(ratios->head);
    free(ratios->lower);
}

int main(int argc, char **argv)
{
    const int32_t settings = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 4000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct bench b = {0};
    if (settings < 1)
        check(&b, hop_fail(&b.err, HOP_INPUT, "at least 1 setting is needed"));
    create_ratios(&b, &b.all, settings);
    for (int32_t r = 0; r < REGIMES; r++)
        create_ratios(&b, &b.regimes[r], settings);
    for (int32_t n = 0; n < settings; n++) {
        const struct setting s = draw(seed, (uint32_t)n);
        measure(&b, &s);
    }
    for (int32_t r = 0; r < REGIMES; r++)
        report(&b.regimes[r], regime_names[r]);
    report(&b.all, "all");
    free_ratios(&b.all);
    for (int32_t r = 0; r < REGIMES; r++)
        free_ratios(&b.regimes[r]);
    return 0;
}
