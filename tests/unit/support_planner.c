#include "support_planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/simulate.h"
#include "support_schedule.h"

static void must(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "support_planner: %s\n", err->message);
    abort();
}

static double uniform(uint64_t *state, double lo, double hi)
{
    return lo + (hi - lo) * (double)(support_random(state) >> 11) / 9007199254740992.0;
}

static double *numbers(int32_t n)
{
    double *const values = calloc((size_t)n, sizeof *values);
    if (!values)
        abort();
    return values;
}

static struct hop_cost_table create(int32_t blocks, int32_t devices)
{
    struct hop_cost_table cost;
    struct hop_error err = {0};
    must(hop_cost_create(blocks, devices, &cost, &err), &err);
    for (int32_t d = 0; d < devices; d++) {
        cost.devices[d].name = calloc(1, 16);
        if (!cost.devices[d].name)
            abort();
        snprintf(cost.devices[d].name, 16, "d%d", d);
    }
    return cost;
}

struct hop_cost_table support_plain_cluster(int32_t blocks, int32_t devices, const double *forward,
                                            const double *backward)
{
    struct hop_cost_table cost = create(blocks, devices);
    for (int32_t d = 0; d < devices; d++) {
        struct hop_cost_device *const device = &cost.devices[d];
        device->bp = backward[d] > 0;
        device->backward = device->bp ? numbers(blocks) : NULL;
        for (int32_t b = 0; b < blocks; b++) {
            device->forward[b] = device->probe[b] = forward[d];
            if (device->bp)
                device->backward[b] = backward[d];
        }
    }
    return cost;
}

void support_slow_backward(struct hop_cost_table *cost, double times)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        struct hop_cost_device *const device = &cost->devices[d];
        if (device->backward)
            continue;
        device->backward = numbers(cost->blocks);
        for (int32_t b = 0; b < cost->blocks; b++)
            device->backward[b] = times * device->forward[b];
    }
}

void support_estimator_costs(struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        struct hop_cost_device *const device = &cost->devices[d];
        for (int32_t b = 0; b < cost->blocks; b++)
            device->feedback[b] = 0.2 * device->forward[b] + 0.01 * device->state_bytes[b];
        device->exit_forward = 0.6 * device->forward[0];
        device->exit_bytes = 1 + floor(device->state_bytes[0] / 2);
    }
}

static void random_times(struct hop_cost_table *cost, struct hop_cost_device *device,
                         const struct support_cluster *kind, uint64_t *state)
{
    const double speed = uniform(state, 0.3, 3), ratio = uniform(state, 0.5, 2.5);
    const double stacked = support_between(state, 0, 1) ? 1 : uniform(state, 0.3, 1.2);
    const double step = support_between(state, 0, 1) ? uniform(state, 0, 0.5) : 0;
    if (device->bp || support_between(state, 0, 1))
        device->backward = numbers(cost->blocks);
    for (int32_t b = 0; b < cost->blocks; b++) {
        device->forward[b] = speed * (kind->equal_blocks ? 1 : uniform(state, 0.4, 2));
        device->probe[b] = stacked * device->forward[b];
        device->step[b] = step;
        if (device->backward)
            device->backward[b] = ratio * device->forward[b];
    }
}

static void random_memory(struct hop_cost_table *cost, struct hop_cost_device *device,
                          const struct support_cluster *kind, uint64_t *state)
{
    double total = 0;
    for (int32_t b = 0; b < cost->blocks; b++) {
        device->state_bytes[b] = support_between(state, 1, 6);
        device->activation_bytes[b] = support_between(state, 0, 4);
        total += device->state_bytes[b] + device->activation_bytes[b];
    }
    device->fixed_bytes = support_between(state, 0, 3);
    if (kind->tight)
        device->memory =
            floor(device->fixed_bytes + total * uniform(state, 0.1, 2.2) / cost->device_count);
}

static void copy_device(struct hop_cost_table *cost, int32_t to, int32_t from)
{
    struct hop_cost_device *const a = &cost->devices[to], *const b = &cost->devices[from];
    const size_t size = (size_t)cost->blocks * sizeof(double);
    a->bp = b->bp;
    memcpy(a->forward, b->forward, size);
    memcpy(a->probe, b->probe, size);
    memcpy(a->step, b->step, size);
    memcpy(a->state_bytes, b->state_bytes, size);
    memcpy(a->activation_bytes, b->activation_bytes, size);
    if (b->backward) {
        a->backward = numbers(cost->blocks);
        memcpy(a->backward, b->backward, size);
    }
    a->fixed_bytes = b->fixed_bytes;
    a->memory = b->memory;
}

/* One network for all, or every pair its own. Boundary tensors are far larger than derivatives. */
static void random_links(struct hop_cost_table *cost, uint64_t *state)
{
    const bool same = support_between(state, 0, 1);
    const double latency = uniform(state, 0, 0.3), bandwidth = uniform(state, 0.5e6, 4e6);
    const int32_t n = cost->device_count;
    cost->half_duplex = support_between(state, 0, 3) == 0;
    cost->shared_nic = support_between(state, 0, 3) == 0;
    for (int32_t i = 0; i < n * n; i++) {
        if (i / n == i % n)
            continue;
        cost->latency[i] = same ? latency : uniform(state, 0, 0.3);
        cost->bandwidth[i] = same ? bandwidth : uniform(state, 0.5e6, 4e6);
    }
    for (int32_t b = 0; b + 1 < cost->blocks; b++)
        cost->boundary_bytes[b] = uniform(state, 0.2e6, 1.5e6);
}

/* Lines of n devices, `bp_free` of them BP-free, that use all of them or any. */
static int64_t count_lines(int32_t blocks, int32_t bp_free, int32_t bp)
{
    int64_t total = 0, front = 1;
    for (int32_t a = 0; a <= bp_free; front *= bp_free - a, a++) {
        int64_t back = bp;
        for (int32_t b = 1; b <= bp; back *= bp - b, b++) {
            int64_t cuts = 1;
            for (int32_t k = 1; k < a + b; k++)
                cuts = cuts * (blocks - k) / k;
            total += front * back * (a + b <= blocks ? cuts : 0);
        }
    }
    return total;
}

static void choose_sizes(const struct support_cluster *kind, uint64_t *state, int32_t *blocks,
                         int32_t *bp_free, int32_t *bp)
{
    /* Few clusters with more devices than blocks: they are soon told. */
    bool again;
    do {
        *blocks = support_between(state, 1, kind->blocks);
        *bp = support_between(state, 1, kind->devices);
        *bp_free = support_between(state, 0, kind->devices - *bp);
        again = (kind->lines && count_lines(*blocks, *bp_free, *bp) > kind->lines) ||
                (*bp_free + *bp > *blocks && support_between(state, 0, 4));
    } while (again);
}

struct hop_cost_table support_cluster(const struct support_cluster *kind, uint64_t *state)
{
    int32_t blocks, bp_free, bp;
    choose_sizes(kind, state, &blocks, &bp_free, &bp);
    struct hop_cost_table cost = create(blocks, bp_free + bp);
    for (int32_t d = 0; d < cost.device_count; d++) {
        /* BP-free devices anywhere in the table. */
        const int32_t left = cost.device_count - d;
        cost.devices[d].bp = support_between(state, 1, left) > bp_free;
        bp_free -= !cost.devices[d].bp;
        const int32_t like = d ? support_between(state, 0, d - 1) : -1;
        if (like >= 0 && cost.devices[like].bp == cost.devices[d].bp &&
            support_between(state, 0, 1)) {
            copy_device(&cost, d, like);
            continue;
        }
        random_times(&cost, &cost.devices[d], kind, state);
        random_memory(&cost, &cost.devices[d], kind, state);
    }
    cost.tied_bytes = support_between(state, 0, 1);
    if (kind->links)
        random_links(&cost, state);
    return cost;
}

struct brute {
    const struct hop_plan_request *request;
    const struct hop_cost_table *cost;
    int32_t probes;
    enum hop_gradient front;
    bool formula, needs_front;
    struct hop_plan plan;
    bool *used;
    struct support_best best;
};

static bool is_usable(const struct brute *brute, int32_t d)
{
    const struct hop_cost_device *const device = &brute->cost->devices[d];
    return device->bp ? device->backward != NULL : !brute->request->bp_only;
}

static bool is_last_front(const struct hop_plan *plan, int32_t p)
{
    return plan->parts[p].gradient != HOP_GRADIENT_BACKPROP &&
           (p + 1 == plan->part_count || plan->parts[p + 1].gradient == HOP_GRADIENT_BACKPROP);
}

static double bytes_of(const struct hop_cost_table *cost, const struct hop_plan *plan, int32_t p,
                       int32_t kept, int32_t pending)
{
    const struct hop_part *const part = &plan->parts[p];
    const struct hop_cost_device *const device = &cost->devices[part->device];
    double bytes = device->fixed_bytes;
    for (int32_t b = part->lo; b < part->hi; b++)
        bytes += device->state_bytes[b] + kept * device->activation_bytes[b];
    if (plan->exit_probes && is_last_front(plan, p))
        bytes += device->exit_bytes;
    if (pending)
        bytes += pending * plan->probes * cost->boundary_bytes[part->hi - 1];
    return part->lo == 0 && part->hi == cost->blocks ? bytes - cost->tied_bytes : bytes;
}

/* The first block that feedback trains, in a plan whose BP-free parts are in front. */
static int32_t fed_from(const struct hop_plan *plan)
{
    int32_t front = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient != HOP_GRADIENT_BACKPROP)
            front = plan->parts[p].hi;
    return plan->feedback_blocks > 0 ? front - plan->feedback_blocks : 0;
}

/* Tangents and feedback: a BP-free part keeps as many micro-batches as fit, at least one, and the
 * last one the tangents of as many as then fit, at least of one. */
static bool keep_front(const struct brute *brute, struct hop_plan *plan, int32_t p)
{
    struct hop_part *const part = &plan->parts[p];
    const double memory = brute->cost->devices[part->device].memory;
    const bool trained = part->gradient == HOP_GRADIENT_ZEROTH_ORDER;
    const bool tangents = trained && plan->estimator == HOP_BOUNDARY && plan->probes;
    const bool feeds = trained && plan->estimator == HOP_FEEDBACK && part->hi > fed_from(plan);
    const bool keeps = tangents || feeds;
    const bool waits = tangents && is_last_front(plan, p);
    part->in_flight = keeps ? plan->micro_batches : 0;
    part->pending = waits;
    while (part->in_flight > 1 &&
           bytes_of(brute->cost, plan, p, part->in_flight, part->pending) > memory)
        part->in_flight--;
    if (bytes_of(brute->cost, plan, p, part->in_flight, part->pending) > memory)
        return false;
    while (waits && part->pending < plan->micro_batches &&
           bytes_of(brute->cost, plan, p, part->in_flight, part->pending + 1) <= memory)
        part->pending++;
    return true;
}

/* Keeps min(M, G - i) micro-batches on the i-th of G for the formula; for the simulation the most
 * that fit, up to min(M, 2 (G - i) - 1), and at least one. */
static bool keep(const struct brute *brute, struct hop_plan *plan)
{
    for (int32_t p = 0; p < plan->part_count; p++) {
        struct hop_part *const part = &plan->parts[p];
        const double memory = brute->cost->devices[part->device].memory;
        const int32_t behind = plan->part_count - p;
        if (part->gradient != HOP_GRADIENT_BACKPROP) {
            if (!keep_front(brute, plan, p))
                return false;
            continue;
        }
        int32_t kept = brute->formula ? behind : 2 * behind - 1;
        kept = kept > plan->micro_batches ? plan->micro_batches : kept;
        while (!brute->formula && kept > 1 && bytes_of(brute->cost, plan, p, kept, 0) > memory)
            kept--;
        if (bytes_of(brute->cost, plan, p, kept, 0) > memory)
            return false;
        part->in_flight = kept;
        part->pending = 0;
    }
    return true;
}

static double head_seconds(const struct brute *brute, const struct hop_plan *plan)
{
    double sum = 0, slowest = 0, first = 0;
    bool any = false;
    const int32_t passes = plan->estimator == HOP_CENTRAL ? 2 : 1;
    const int32_t each = brute->request->probe_batch * passes;
    const int32_t probed = plan->estimator == HOP_BOUNDARY ? 0 : plan->probes * passes;
    for (int32_t p = 0; p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const struct hop_cost_device *const device = &brute->cost->devices[part->device];
        double forward = 0, backward = 0, probes = 0;
        for (int32_t b = part->lo; b < part->hi; b++) {
            forward += device->forward[b];
            backward += device->bp ? device->backward[b] : 0;
            for (int32_t q = 0; q < probed; q++)
                probes += (each ? q % each : q) ? device->probe[b] : device->forward[b];
        }
        sum += forward + backward;
        if (!device->bp)
            continue;
        slowest = fmax(slowest, forward + backward);
        first = any ? first : probes;
        any = true;
    }
    return sum + (plan->micro_batches - 1) * slowest + plan->micro_batches * first;
}

static double greedy_seconds(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    struct hop_error err = {0};
    must(hop_schedule_greedy(plan, cost, plan->micro_batches, plan->probes, &schedule, &err), &err);
    must(hop_simulate(plan, &schedule, cost, NULL, &simulation, &err), &err);
    const double seconds = simulation.makespan;
    hop_schedule_free(&schedule);
    hop_simulation_free(&simulation);
    return seconds;
}

static void set_probes(const struct brute *brute, struct hop_plan *plan)
{
    const bool trained = plan->parts[0].gradient == HOP_GRADIENT_ZEROTH_ORDER;
    const int32_t exit_probes = brute->request->exit_probes;
    plan->probes = trained && plan->estimator != HOP_FEEDBACK ? brute->probes : 0;
    plan->exit_probes = trained && exit_probes > 0 ? exit_probes : 0;
}

static void judge(struct brute *brute)
{
    struct hop_plan *const plan = &brute->plan;
    const bool front = plan->parts[0].gradient != HOP_GRADIENT_BACKPROP;
    set_probes(brute, plan);
    if (plan->parts[plan->part_count - 1].gradient != HOP_GRADIENT_BACKPROP ||
        (brute->needs_front && !front) || !keep(brute, plan))
        return;
    const double seconds =
        brute->formula ? head_seconds(brute, plan) : greedy_seconds(plan, brute->cost);
    double *const best =
        plan->part_count == brute->best.usable ? &brute->best.all : &brute->best.some;
    *best = fmin(*best, seconds);
    brute->best.lines++;
}

static void add_part(struct brute *brute, int32_t device, int32_t lo, int32_t hi)
{
    struct hop_plan *const plan = &brute->plan;
    plan->parts[plan->part_count] = (struct hop_part){
        .device = device,
        .stage = plan->part_count,
        .lo = lo,
        .hi = hi,
        .sample_hi = 1,
        .tensor_hi = 1,
        .micro_hi = 1,
        .gradient = brute->cost->devices[device].bp ? HOP_GRADIENT_BACKPROP : brute->front};
    plan->part_count++;
}

static void extend(struct brute *brute, int32_t lo, bool bp)
{
    if (lo == brute->cost->blocks) {
        judge(brute);
        return;
    }
    for (int32_t d = 0; d < brute->cost->device_count; d++) {
        if (brute->used[d] || !is_usable(brute, d) || (bp && !brute->cost->devices[d].bp))
            continue;
        brute->used[d] = true;
        for (int32_t hi = lo + 1; hi <= brute->cost->blocks; hi++) {
            add_part(brute, d, lo, hi);
            extend(brute, hi, brute->cost->devices[d].bp);
            brute->plan.part_count--;
        }
        brute->used[d] = false;
    }
}

static struct brute begin(const struct hop_plan_request *request, int32_t probes)
{
    struct brute brute = {.request = request,
                          .cost = request->cost,
                          .probes = probes,
                          .front = HOP_GRADIENT_ZEROTH_ORDER,
                          .best = {.all = INFINITY, .some = INFINITY},
                          .plan = {.strategy = "hybridop",
                                   .blocks = request->cost->blocks,
                                   .devices = request->cost->device_count,
                                   .micro_batches = request->micro_batches,
                                   .probe_batch = request->probe_batch,
                                   .estimator = request->estimator,
                                   .feedback_blocks = request->feedback_blocks,
                                   .directions = request->directions,
                                   .exit_base = request->exit_base}};
    for (int32_t d = 0; d < request->cost->device_count; d++)
        brute.best.usable += is_usable(&brute, d);
    brute.plan.parts = calloc((size_t)request->cost->device_count, sizeof *brute.plan.parts);
    brute.used = calloc((size_t)request->cost->device_count, sizeof *brute.used);
    if (!brute.plan.parts || !brute.used)
        abort();
    return brute;
}

struct support_best support_brute_force(const struct hop_plan_request *request, int32_t probes,
                                        enum hop_gradient front, bool formula, bool needs_front)
{
    struct brute brute = begin(request, probes);
    brute.front = front;
    brute.formula = formula;
    brute.needs_front = needs_front;
    extend(&brute, 0, false);
    hop_plan_free(&brute.plan);
    free(brute.used);
    return brute.best;
}

double support_simulated(const struct hop_plan *plan, const struct hop_cost_table *cost)
{
    const struct hop_strategy *strategy;
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    struct hop_error err = {0};
    must(hop_strategy_find(plan->strategy, &strategy, &err), &err);
    must(strategy->schedule(plan, cost, plan->micro_batches, plan->probes, &schedule, &err), &err);
    must(hop_simulate(plan, &schedule, cost, NULL, &simulation, &err), &err);
    const double seconds = simulation.makespan;
    hop_schedule_free(&schedule);
    hop_simulation_free(&simulation);
    return seconds;
}

/* Devices in random order, BP-free ones first, and random cuts. */
static void random_line(struct brute *brute, uint64_t *state)
{
    const int32_t blocks = brute->cost->blocks;
    int32_t lo = 0;
    brute->plan.part_count = 0;
    memset(brute->used, 0, (size_t)brute->cost->device_count * sizeof *brute->used);
    for (int bp = 0; bp < 2; bp++)
        for (;;) {
            int32_t left = 0, choice = -1;
            for (int32_t d = 0; d < brute->cost->device_count; d++)
                if (!brute->used[d] && is_usable(brute, d) && brute->cost->devices[d].bp == bp &&
                    support_between(state, 0, left++) == 0)
                    choice = d;
            if (choice < 0)
                break;
            brute->used[choice] = true;
            const int32_t rest = brute->best.usable - brute->plan.part_count - 1;
            const int32_t even = 2 * (blocks - lo) / (rest + 1);
            const int32_t most = blocks - lo - rest < even ? blocks - lo - rest : even;
            const int32_t hi = rest ? lo + support_between(state, 1, most > 1 ? most : 1) : blocks;
            add_part(brute, choice, lo, hi);
            lo = hi;
        }
}

bool support_random_line(const struct hop_plan_request *request, int32_t probes, uint64_t *state,
                         struct hop_plan *out)
{
    enum { TRIES = 1000 };
    struct brute brute = begin(request, probes);
    bool found = false;
    for (int i = 0; i < TRIES && !found; i++) {
        random_line(&brute, state);
        set_probes(&brute, &brute.plan);
        found = keep(&brute, &brute.plan);
    }
    free(brute.used);
    if (found)
        *out = brute.plan;
    else
        hop_plan_free(&brute.plan);
    return found;
}
