#include "strategy/line_bound.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/price.h"

/* What one micro-batch costs in a stage. */
struct stage {
    double forward, backward, probe, last_probe, exit, step;
    double end;   /* what follows the last gradient: of the first stage that takes any its STEP, or
                     what its gradient is for; of others 0 */
    int32_t kept; /* micro-batches, at most; 0: no backward */
};

/* What one micro-batch costs on the way over a cut. */
struct hop {
    double send, send_back, send_probe, send_last_probe;
};

static bool is_front(const struct hop_line_bound *bound, int32_t type)
{
    return type < bound->pipeline->front_types;
}

/* Does a stage of the type take the gradient of its output, and hand that of its input on? */
static bool runs_backward(const struct hop_line_bound *bound, int32_t type)
{
    return !is_front(bound, type) || bound->feedback;
}

static bool runs_probes(const struct hop_line_bound *bound, int32_t type)
{
    return bound->probed && (is_front(bound, type) || bound->through);
}

/* Behind a state with `size` BP-capable devices at most the others can follow. */
static int32_t kept_by(const struct hop_line_bound *bound, int32_t state, int32_t type, int32_t lo,
                       int32_t hi)
{
    const struct hop_pipeline *const pipeline = bound->pipeline;
    if (is_front(bound, type))
        return pipeline->micro_batches;
    const int32_t devices = pipeline->devices - pipeline->front_devices;
    const int32_t stages = devices - bound->order->size[state] + 1;
    return hop_pipeline_kept(pipeline, type, lo, hi,
                             hop_in_flight_most(stages, 0, pipeline->micro_batches));
}

/* The stage that follows `state`. */
static struct stage stage_of(const struct hop_line_bound *bound, int32_t state, int32_t type,
                             int32_t lo, int32_t hi)
{
    const struct hop_device_type *const t = &bound->pipeline->types[type];
    const double step = hop_sum(t->step, lo, hi);
    const int32_t to = bound->order->next[state * bound->order->types + type];
    const bool backward = runs_backward(bound, type);
    const bool first = bound->feedback ? state == 0 : state < bound->order->fronts;
    return (struct stage){.forward = hop_sum(t->forward, lo, hi),
                          .backward = hop_sum(t->backward, lo, hi),
                          .probe = bound->probed ? hop_sum(t->probe, lo, hi) : 0,
                          .last_probe = bound->probed ? hop_sum(t->last_probe, lo, hi) : 0,
                          .exit = bound->probed ? hop_sum(t->exit, lo, hi) : 0,
                          .step = step,
                          .end = backward && first ? step : 0,
                          .kept = backward ? kept_by(bound, to, type, lo, hi) : 0};
}

/* One direction of a link. */
struct link {
    double latency, per_byte;
};

static double message(const struct hop_line_bound *bound, int32_t cut, struct link link)
{
    return link.latency + bound->pipeline->cost->boundary_bytes[cut - 1] * link.per_byte;
}

static struct hop hop_of(const struct hop_line_bound *bound, int32_t cut, struct link there,
                         struct link back, bool probes)
{
    const struct hop_pipeline *const pipeline = bound->pipeline;
    const double bytes = pipeline->cost->boundary_bytes[cut - 1] * pipeline->passes;
    struct hop hop = {.send = message(bound, cut, there), .send_back = message(bound, cut, back)};
    if (!probes)
        return hop;
    hop.send_probe =
        pipeline->probe_tasks * there.latency + pipeline->probes * (bytes * there.per_byte);
    hop.send_last_probe = there.latency + pipeline->last_probes * (bytes * there.per_byte);
    return hop;
}

static struct link link_between(const struct hop_line_bound *bound, int32_t from, int32_t to)
{
    const int32_t i = from * bound->pipeline->type_count + to;
    return (struct link){bound->latency[i], bound->seconds_per_byte[i]};
}

/* Between two stages whose types are known. */
static struct hop hop_between(const struct hop_line_bound *bound, int32_t cut, int32_t from,
                              int32_t to)
{
    const struct link none = {0, 0};
    return hop_of(bound, cut, link_between(bound, from, to),
                  runs_backward(bound, from) ? link_between(bound, to, from) : none,
                  runs_probes(bound, to));
}

/* From a stage to whichever comes next, with the probes that any next one gets; the order must let
 * something come next. */
static struct hop hop_behind(const struct hop_line_bound *bound, int32_t cut, int32_t from)
{
    const struct link none = {0, 0};
    return hop_of(bound, cut, (struct link){bound->least_latency[from], bound->least_seconds[from]},
                  runs_backward(bound, from)
                      ? (struct link){bound->back_latency[from], bound->back_seconds[from]}
                      : none,
                  bound->through);
}

static double work_of(const struct hop_line_bound *bound, const struct stage *stage)
{
    return bound->pipeline->micro_batches * (stage->forward + stage->backward + stage->probe);
}

/* From the arrival of the first micro-batch at a BP-capable stage: its forward, all its backwards,
 * and the forwards that had to wait for the first of them; without the way that the first
 * micro-batch has to the head and back. */
static double turn_of(const struct hop_line_bound *bound, const struct stage *stage)
{
    const int32_t turns = bound->pipeline->micro_batches, late = turns - stage->kept;
    return (1 + late) * stage->forward + turns * stage->backward;
}

/* A stage that keeps k micro-batches forwards number i + k after the backward of number i: so many
 * times a micro-batch must go all the way to the head and back. */
static double rounds_of(const struct hop_line_bound *bound, const struct stage *stage)
{
    return (double)((bound->pipeline->micro_batches - 1) / stage->kept + 1);
}

/* What the rounds take on the stage itself: then the backwards after the last round's first. */
static double round_rest_of(const struct hop_line_bound *bound, const struct stage *stage)
{
    const int32_t more = (bound->pipeline->micro_batches - 1) % stage->kept;
    return rounds_of(bound, stage) * (stage->forward + stage->backward) + more * stage->backward;
}

/* What the stage itself takes, `way` being that of a micro-batch behind it. Its STEP is left out
 * where the backwards below it are added to the load. */
static double load_own(const struct hop_line_bound *bound, const struct stage *stage, double way)
{
    const double after = bound->through ? stage->step : stage->end;
    const double turn = turn_of(bound, stage) + way;
    const double rounds = rounds_of(bound, stage) * way + round_rest_of(bound, stage);
    return fmax(work_of(bound, stage) + after, fmax(turn, rounds) + stage->end);
}

/* Relative to the arrival at the stage, like load. A backward tail of probed lines is left out: it
 * may end before the last probe's way does, which gets shorter behind every stage. */
static double load_behind(const struct hop_line_bound *bound, const struct stage *stage,
                          const struct hop *hop, int32_t type, int32_t at)
{
    const int32_t turns = bound->pipeline->micro_batches;
    const double next = stage->forward + hop->send + bound->load[at];
    if (!runs_backward(bound, type)) {
        if (bound->probed)
            return fmax(next, work_of(bound, stage) + hop->send_last_probe + bound->drain[at] +
                                  bound->derivative[type] + stage->step);
        return fmax(next, turns * stage->forward + hop->send + bound->path[at]);
    }
    const double way = hop->send + hop->send_back + bound->path[at];
    const double tail = bound->through ? 0 : stage->backward + hop->send_back + stage->end;
    return fmax(next + tail, load_own(bound, stage, way));
}

static void keep_least(double *least, double value)
{
    if (value < *least)
        *least = value;
}

/* Goes on from `state` at block `lo` with one more stage. */
static void relax(struct hop_line_bound *bound, int32_t state, int32_t lo, int32_t type, int32_t hi)
{
    const int32_t to = bound->order->next[state * bound->order->types + type];
    const int32_t blocks = bound->pipeline->blocks;
    const int32_t at = to * (blocks + 1) + hi, here = state * (blocks + 1) + lo;
    const struct stage stage = stage_of(bound, state, type, lo, hi);
    if (isinf(bound->load[at]))
        return;
    if (hi == blocks) {
        keep_least(&bound->load[here], load_own(bound, &stage, 0));
        keep_least(&bound->path[here], stage.forward + stage.backward + stage.end);
        keep_least(&bound->drain[here], stage.last_probe);
        return;
    }
    const struct hop hop = hop_behind(bound, hi, type);
    keep_least(&bound->load[here], load_behind(bound, &stage, &hop, type, at));
    keep_least(&bound->path[here], stage.forward + stage.backward + stage.end + hop.send +
                                       hop.send_back + bound->path[at]);
    keep_least(&bound->drain[here], stage.last_probe + hop.send_last_probe + bound->drain[at]);
}

static void solve(struct hop_line_bound *bound)
{
    const struct hop_order *const order = bound->order;
    const struct hop_pipeline *const pipeline = bound->pipeline;
    const int32_t row = pipeline->blocks + 1;
    for (int32_t i = 0; i < order->states * row; i++)
        bound->load[i] = bound->path[i] = bound->drain[i] = INFINITY;
    for (int32_t s = order->states - 1; s >= 0; s--) {
        if (order->complete[s])
            bound->load[s * row + row - 1] = bound->path[s * row + row - 1] =
                bound->drain[s * row + row - 1] = 0;
        for (int32_t t = 0; t < order->types; t++) {
            const int32_t to = order->next[s * order->types + t];
            for (int32_t lo = row - 2; to >= 0 && lo >= 0; lo--)
                for (int32_t hi = row - 1 - order->missing[to]; hi > lo; hi--)
                    if (hop_pipeline_fits(pipeline, t, lo, hi, hop_pipeline_least(pipeline, t)))
                        relax(bound, s, lo, t, hi);
        }
    }
}

/* Two devices of those types, different where the types are equal; -1: there are none. */
static int32_t link_of(const struct hop_pipeline *pipeline, int32_t from, int32_t to)
{
    const struct hop_device_type *const a = &pipeline->types[from], *const b = &pipeline->types[to];
    if (from == to && a->count < 2)
        return -1;
    return a->devices[0] * pipeline->cost->device_count + b->devices[from == to];
}

static void read_links(struct hop_line_bound *bound)
{
    const int32_t n = bound->pipeline->type_count;
    for (int32_t t = 0; t < n; t++)
        bound->least_latency[t] = bound->least_seconds[t] = bound->back_latency[t] =
            bound->back_seconds[t] = bound->derivative[t] = INFINITY;
    for (int32_t i = 0; i < n * n; i++) {
        const int32_t from = i / n, to = i % n, link = link_of(bound->pipeline, from, to);
        if (link < 0)
            continue;
        bound->latency[i] = bound->pipeline->cost->latency[link];
        bound->seconds_per_byte[i] = 1 / bound->pipeline->cost->bandwidth[link];
        keep_least(&bound->least_latency[from], bound->latency[i]);
        keep_least(&bound->least_seconds[from], bound->seconds_per_byte[i]);
        if (!runs_backward(bound, from))
            continue;
        keep_least(&bound->back_latency[to], bound->latency[i]);
        keep_least(&bound->back_seconds[to], bound->seconds_per_byte[i]);
        keep_least(&bound->derivative[to], bound->latency[i] + bound->pipeline->last_probes *
                                                                   (double)sizeof(float) *
                                                                   bound->seconds_per_byte[i]);
    }
    /* The stage that has them may be the very one that needs them. */
    for (int32_t t = 0; !bound->through && t < n; t++)
        bound->derivative[t] = 0;
}

hop_status hop_line_bound_create(const struct hop_pipeline *pipeline, const struct hop_order *order,
                                 bool front, struct hop_line_bound *out, struct hop_error *err)
{
    const size_t n = (size_t)pipeline->type_count;
    const size_t cells = (size_t)order->states * ((size_t)pipeline->blocks + 1);
    const bool probed = front && pipeline->probes > 0;
    const bool feedback = front && hop_pipeline_feeds_all(pipeline);
    struct hop_line_bound bound = {.pipeline = pipeline,
                                   .order = order,
                                   .probed = probed,
                                   .through = probed && pipeline->through,
                                   .feedback = feedback};
    HOP_TRY(hop_calloc(&bound.storage, 3 * cells + 2 * n * n + 5 * n, sizeof(double), err));
    double *at = bound.storage;
    bound.load = at;
    bound.path = at += cells;
    bound.drain = at += cells;
    bound.latency = at += cells;
    bound.seconds_per_byte = at += n * n;
    bound.least_latency = at += n * n;
    bound.least_seconds = at += n;
    bound.back_latency = at += n;
    bound.back_seconds = at += n;
    bound.derivative = at += n;
    read_links(&bound);
    solve(&bound);
    *out = bound;
    return HOP_OK;
}

void hop_line_bound_free(struct hop_line_bound *bound)
{
    if (!bound)
        return;
    free(bound->storage);
    *bound = (struct hop_line_bound){0};
}

struct hop_line_start hop_line_empty(void)
{
    return (struct hop_line_start){.last = -1};
}

/* The link in front of the new stage: it carries every message, and behind BP-free stages a probe's
 * is the last, if they go on. */
static void cross(const struct hop_line_bound *bound, const struct hop *hop,
                  const struct stage *stage, int32_t type, struct hop_line_start *line)
{
    const bool probes = runs_probes(bound, type);
    const double carried =
        line->ready + bound->pipeline->micro_batches * (hop->send + hop->send_probe);
    if (probes && is_front(bound, line->last))
        line->drain = fmax(line->drain + hop->send_last_probe, carried);
    else
        line->drain += hop->send_last_probe;
    const double last = probes ? fmin(stage->forward, stage->last_probe) : stage->forward;
    line->settled = fmax(line->settled, carried + last);
    line->ready += hop->send;
    line->path += hop->send + hop->send_back;
    line->turn += hop->send + hop->send_back;
    line->round_way += hop->send + hop->send_back;
    line->below += hop->send_back;
}

static void add_front(const struct hop_line_bound *bound, const struct stage *stage,
                      struct hop_line_start *line)
{
    const double work = work_of(bound, stage);
    line->drain = fmax(line->drain + stage->last_probe, line->ready + work);
    line->settled =
        fmax(line->settled,
             line->ready + work + bound->pipeline->micro_batches * stage->exit + stage->step);
    line->turn = 0;
}

/* The least that follows a start: ways of a micro-batch and of the last PROBE. */
struct rest {
    double way, drain;
};

static struct rest rest_of(const struct hop_line_bound *bound, const struct hop_line_start *line)
{
    const int32_t blocks = bound->pipeline->blocks;
    const int32_t at = line->state * (blocks + 1) + line->cut;
    if (line->cut == blocks || line->last < 0)
        return (struct rest){bound->path[at], bound->probed ? bound->drain[at] : 0};
    const struct hop hop = hop_behind(bound, line->cut, line->last);
    return (struct rest){.way = hop.send + hop.send_back + bound->path[at],
                         .drain = bound->probed ? hop.send_last_probe + bound->drain[at] : 0};
}

static double rounds_end(const struct hop_line_start *line, double way)
{
    return line->round_rest + line->rounds * (line->round_way + way);
}

/* Of this stage and the one remembered, keeps the one whose rounds take longer. */
static void add_rounds(const struct hop_line_bound *bound, const struct stage *stage, double way,
                       struct hop_line_start *line)
{
    line->round_way += stage->forward + stage->backward;
    const struct hop_line_start own = {.rounds = rounds_of(bound, stage),
                                       .round_rest =
                                           line->ready + round_rest_of(bound, stage) + line->below};
    if (rounds_end(&own, way) <= rounds_end(line, way))
        return;
    line->rounds = own.rounds;
    line->round_rest = own.round_rest;
    line->round_way = 0;
}

/* Before ready and below count the stage itself. */
static void add_back(const struct hop_line_bound *bound, const struct stage *stage,
                     const struct rest *rest, struct hop_line_start *line)
{
    line->below += stage->end;
    line->path += stage->end;
    const double drain = rest->drain + line->derivative;
    const double tail = bound->through ? fmin(line->below, drain) : line->below;
    line->drain += stage->last_probe;
    line->settled =
        fmax(line->settled, line->ready + work_of(bound, stage) + fmax(tail, stage->step));
    line->turn = fmax(line->turn + stage->forward + stage->backward,
                      line->ready + turn_of(bound, stage) + line->below);
    add_rounds(bound, stage, rest->way, line);
    line->below += stage->backward;
    line->path += stage->backward;
}

/* Do the derivatives of tangents wait for the last gradient of the new stage? */
static bool takes_delta(const struct hop_line_bound *bound, const struct hop_line_start *start,
                        int32_t type)
{
    return bound->probed && !bound->through && start->last >= 0 && is_front(bound, start->last) &&
           !is_front(bound, type);
}

struct hop_line_start hop_line_extend(const struct hop_line_bound *bound,
                                      const struct hop_line_start *start, int32_t type, int32_t hi)
{
    struct hop_line_start line = *start;
    struct stage stage = stage_of(bound, start->state, type, start->cut, hi);
    if (start->last >= 0) {
        const struct hop hop = hop_between(bound, start->cut, start->last, type);
        cross(bound, &hop, &stage, type, &line);
    }
    if (takes_delta(bound, start, type)) {
        const struct link back = link_between(bound, type, start->last);
        stage.end = fmax(stage.end, message(bound, start->cut, back) + start->derivative);
    }
    line.state = bound->order->next[start->state * bound->order->types + type];
    line.cut = hi;
    line.last = type;
    if (!runs_backward(bound, type)) {
        line.derivative = fmax(line.derivative, bound->derivative[type] + stage.step);
        add_front(bound, &stage, &line);
    } else {
        const struct rest rest = rest_of(bound, &line);
        add_back(bound, &stage, &rest, &line);
    }
    line.ready += stage.forward;
    line.path += stage.forward;
    line.slowest = fmax(line.slowest, stage.forward);
    return line;
}

double hop_line_seconds(const struct hop_line_bound *bound, const struct hop_line_start *start)
{
    const int32_t blocks = bound->pipeline->blocks;
    const double load = bound->load[start->state * (blocks + 1) + start->cut];
    if (isinf(load))
        return INFINITY;
    const struct rest rest = rest_of(bound, start);
    const double waits = (bound->pipeline->micro_batches - 1) * start->slowest;
    double seconds = fmax(start->settled, start->path + rest.way + waits);
    seconds = fmax(seconds, fmax(start->turn + rest.way, rounds_end(start, rest.way)));
    if (bound->probed)
        seconds = fmax(seconds, start->drain + rest.drain + start->derivative);
    if (start->cut == blocks)
        return seconds;
    struct hop hop = {0};
    if (start->last >= 0)
        hop = hop_behind(bound, start->cut, start->last);
    const double tail = bound->through ? 0 : start->below + hop.send_back;
    return fmax(seconds, start->ready + hop.send + tail + load);
}
