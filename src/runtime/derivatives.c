/* Diagnostics of the directional derivatives of a step: are they more than noise? */
#include "runtime/coordinator_internal.h"

#include <stdlib.h>

#include "base/memory.h"
#include "runtime/console.h"
#include "schedule/estimator.h"
#include "train/zo.h"

/* Above this share of the derivatives' size the rounding floor is worth a warning. */
static const double high_floor = 0.3;

/* Numbers of a probe of a micro-batch, as the devices pack them. */
static size_t values_of(const struct hop_coordinator *c, int32_t micro_batch)
{
    return c->plan.directions == HOP_PER_SAMPLE ? (size_t)c->session.batches[micro_batch].sequences
                                                : 1;
}

static size_t all_values(const struct hop_coordinator *c, int32_t micro_batches)
{
    size_t all = 0;
    for (int32_t m = 0; m < micro_batches; m++)
        all += values_of(c, m);
    return all;
}

/* Derivatives of a probe of every micro-batch, `stride` probes each, into `out`. */
static void pick_probe(const struct hop_coordinator *c, int32_t micro_batches, const double *g,
                       size_t stride, size_t probe, double *out)
{
    for (int32_t m = 0; m < micro_batches; m++) {
        const size_t values = values_of(c, m);
        for (size_t v = 0; v < values; v++)
            *out++ = g[probe * values + v];
        g += stride * values;
    }
}

static void warn_of_floor(double floor, double rms)
{
    if (floor > high_floor * rms)
        hop_console_note(
            "warning: directional derivatives (rms %.3g) barely rise above their rounding "
            "floor %.3g: raise zo.epsilon, use train.dtype f32 or take zo.estimator boundary",
            rms, floor);
}

/* The first step has one probe more: direction 0 again (see train/zo.h). */
static hop_status add_rounding_floor(const struct hop_coordinator *c, json_t *line,
                                     const struct hop_reduced_step *reduced, size_t stride,
                                     double rms, struct hop_error *err)
{
    const size_t n = all_values(c, reduced->losses);
    double *pair;
    HOP_TRY(hop_calloc(&pair, 2 * n, sizeof *pair, err));
    pick_probe(c, reduced->losses, reduced->probes.derivative, stride, 0, pair);
    pick_probe(c, reduced->losses, reduced->probes.derivative, stride, stride - 1, pair + n);
    const double floor = hop_zo_floor(pair, pair + n, n, hop_plan_passes(&c->plan));
    free(pair);
    json_object_set_new(line, "zo_g_floor", json_real(floor));
    warn_of_floor(floor, rms);
    return HOP_OK;
}

/* Of the plan's probes only. */
static hop_status add_probes(const struct hop_coordinator *c, json_t *line,
                             const struct hop_reduced_step *reduced, struct hop_error *err)
{
    const size_t probes = (size_t)c->plan.probes, n = all_values(c, reduced->losses);
    const size_t stride = (size_t)reduced->probes.derivatives / n;
    double *g;
    HOP_TRY(hop_calloc(&g, probes * n, sizeof *g, err));
    for (size_t q = 0; q < probes; q++)
        pick_probe(c, reduced->losses, reduced->probes.derivative, stride, q, g + q * n);
    const struct hop_zo_spread spread = hop_zo_spread(g, probes * n);
    free(g);
    json_object_set_new(line, "zo_g_mean", json_real(spread.mean));
    json_object_set_new(line, "zo_g_std", json_real(spread.std));
    json_object_set_new(line, "zo_g_stderr", json_real(spread.error));
    return stride > probes ? add_rounding_floor(c, line, reduced, stride, spread.rms, err) : HOP_OK;
}

static void add_exits(const struct hop_coordinator *c, json_t *line,
                      const struct hop_reduced_step *reduced)
{
    const struct hop_pass *const exits = &reduced->exits;
    const struct hop_zo_spread spread =
        hop_zo_spread(exits->exit_derivative, (size_t)exits->exit_derivatives);
    double offset = 0;
    for (int32_t m = 0; m < exits->exit_losses; m++)
        offset += exits->exit_loss[m] - c->losses[m];
    json_object_set_new(line, "zo_exit_g_mean", json_real(spread.mean));
    json_object_set_new(line, "zo_exit_g_std", json_real(spread.std));
    json_object_set_new(line, "zo_exit_offset", json_real(offset));
}

hop_status hop_coordinator_add_derivatives(const struct hop_coordinator *c, json_t *line,
                                           const struct hop_reduced_step *reduced,
                                           struct hop_error *err)
{
    if (reduced->probes.derivatives > 0)
        HOP_TRY(add_probes(c, line, reduced, err));
    if (reduced->exits.exit_derivatives > 0)
        add_exits(c, line, reduced);
    return HOP_OK;
}
