#include "report/recommend.h"

#include <math.h>
#include <string.h>

#include "report/quantity.h"

static const double tie = 0.01;

/* Does any part of the device have the gradient? HOP_GRADIENT_NONE counts only with blocks: a stage
 * that embeds has nothing to train. */
static bool device_has(const struct hop_forecast *forecast, int32_t device,
                       enum hop_gradient gradient)
{
    for (int32_t p = 0; p < forecast->plan.part_count; p++) {
        const struct hop_part *const part = &forecast->plan.parts[p];
        if (part->device == device && part->gradient == gradient && part->lo < part->hi)
            return true;
    }
    return false;
}

static bool any_has(const struct hop_forecast *forecast, enum hop_gradient gradient)
{
    for (int32_t d = 0; d < forecast->plan.devices; d++)
        if (device_has(forecast, d, gradient))
            return true;
    return false;
}

bool hop_forecast_trains_all(const struct hop_forecast *forecast)
{
    return !any_has(forecast, HOP_GRADIENT_NONE);
}

/* Order */

static bool ahead(const struct hop_forecast *a, const struct hop_forecast *b)
{
    if (!a->feasible || !b->feasible)
        return a->feasible && !b->feasible;
    return a->samples_per_second > b->samples_per_second;
}

void hop_forecasts_sort(struct hop_forecast *forecasts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const struct hop_forecast moving = forecasts[i];
        size_t place = i;
        for (; place > 0 && ahead(&moving, &forecasts[place - 1]); place--)
            forecasts[place] = forecasts[place - 1];
        forecasts[place] = moving;
    }
}

/* Choice */

static double best_rate(const struct hop_forecast *forecasts, size_t count, bool trained)
{
    double best = 0;
    for (size_t i = 0; i < count; i++)
        if (forecasts[i].feasible && (!trained || hop_forecast_trains_all(&forecasts[i])))
            best = fmax(best, forecasts[i].samples_per_second);
    return best;
}

/* Is a, about as fast as b, to be preferred? */
static bool preferred(const struct hop_forecast *a, const struct hop_forecast *b)
{
    const bool estimates_a = any_has(a, HOP_GRADIENT_ZEROTH_ORDER);
    const bool estimates_b = any_has(b, HOP_GRADIENT_ZEROTH_ORDER);
    if (estimates_a != estimates_b)
        return estimates_b;
    return a->simulation.working < b->simulation.working;
}

static const struct hop_forecast *choose(const struct hop_forecast *forecasts, size_t count,
                                         bool trained)
{
    const struct hop_forecast *chosen = NULL;
    const double least = best_rate(forecasts, count, trained) * (1 - tie);
    for (size_t i = 0; i < count; i++) {
        const struct hop_forecast *const forecast = &forecasts[i];
        if (!forecast->feasible || forecast->samples_per_second < least)
            continue;
        if (trained && !hop_forecast_trains_all(forecast))
            continue;
        if (!chosen || preferred(forecast, chosen))
            chosen = forecast;
    }
    return chosen;
}

/* Facts */

static bool uses_bp_free(const struct hop_forecast *forecast, const struct hop_cost_table *cost)
{
    for (int32_t d = 0; d < cost->device_count; d++)
        if (!cost->devices[d].bp && hop_forecast_uses(forecast, d))
            return true;
    return false;
}

static int32_t count_capable(const struct hop_cost_table *cost)
{
    int32_t count = 0;
    for (int32_t d = 0; d < cost->device_count; d++)
        count += cost->devices[d].bp;
    return count;
}

/* Do two strategies come to the same thing? */
static bool same_step(const struct hop_forecast *a, const struct hop_forecast *b)
{
    if (a->plan.part_count != b->plan.part_count ||
        a->simulation.makespan != b->simulation.makespan)
        return false;
    for (int32_t p = 0; p < a->plan.part_count; p++) {
        const struct hop_part *const x = &a->plan.parts[p], *const y = &b->plan.parts[p];
        if (x->device != y->device || x->lo != y->lo || x->hi != y->hi ||
            x->gradient != y->gradient)
            return false;
    }
    return true;
}

/* The fastest other one that trains everything: of another strategy, or with BP-free devices. */
static const struct hop_forecast *find_rival(const struct hop_forecast *forecasts, size_t count,
                                             const struct hop_forecast *chosen,
                                             const struct hop_cost_table *bp_free_of)
{
    const struct hop_forecast *rival = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct hop_forecast *const forecast = &forecasts[i];
        const bool asked = bp_free_of ? uses_bp_free(forecast, bp_free_of)
                                      : strcmp(forecast->plan.strategy, chosen->plan.strategy) != 0;
        if (forecast->feasible && asked && !same_step(forecast, chosen) &&
            hop_forecast_trains_all(forecast) &&
            (!rival || forecast->samples_per_second > rival->samples_per_second))
            rival = forecast;
    }
    return rival;
}

/* The fastest that leaves adapters untrained. */
static const struct hop_forecast *find_yardstick(const struct hop_forecast *forecasts, size_t count)
{
    const struct hop_forecast *found = NULL;
    for (size_t i = 0; i < count; i++)
        if (forecasts[i].feasible && !hop_forecast_trains_all(&forecasts[i]) &&
            (!found || forecasts[i].samples_per_second > found->samples_per_second))
            found = &forecasts[i];
    return found;
}

static double largest_memory(const struct hop_forecast *forecast)
{
    double most = 0;
    for (int32_t d = 0; d < forecast->simulation.devices; d++)
        most = fmax(most, forecast->simulation.peak_memory[d]);
    return most;
}

/* Words */

/* "asteroid on the 4 BP-capable devices". */
static hop_status say_plan(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                           struct hop_string *out, struct hop_error *err)
{
    const int32_t used = forecast->simulation.working, capable = count_capable(cost);
    HOP_TRY(hop_string_printf(out, err, "%s ", forecast->plan.strategy));
    if (used == 1)
        for (int32_t d = 0; d < cost->device_count; d++)
            if (hop_forecast_uses(forecast, d))
                return hop_string_printf(out, err, "on %s alone", cost->devices[d].name);
    if (used == cost->device_count)
        return hop_string_printf(out, err, "with all %d devices", used);
    if (used == capable && !uses_bp_free(forecast, cost))
        return hop_string_printf(out, err, "on the %d BP-capable devices", used);
    return hop_string_printf(out, err, "on %d of %d devices", used, cost->device_count);
}

/* "npu0, npu1": the devices with such a gradient. */
static hop_status say_devices(const struct hop_forecast *forecast,
                              const struct hop_cost_table *cost, enum hop_gradient gradient,
                              struct hop_string *out, struct hop_error *err)
{
    const char *separator = "";
    for (int32_t d = 0; d < cost->device_count; d++) {
        if (!device_has(forecast, d, gradient))
            continue;
        HOP_TRY(hop_string_printf(out, err, "%s%s", separator, cost->devices[d].name));
        separator = ", ";
    }
    return HOP_OK;
}

/* "23 % fewer samples/s" and, before what it is measured by, " than ". */
static hop_status say_rate(double ratio, bool link, struct hop_string *out, struct hop_error *err)
{
    if (fabs(ratio - 1) < tie / 2)
        return hop_string_printf(out, err, "as many samples/s%s", link ? " as " : "");
    if (ratio >= 2)
        return hop_string_printf(out, err, "%.1f times the samples/s%s", ratio, link ? " of " : "");
    return hop_string_printf(out, err, "%.0f %% %s samples/s%s", 100 * fabs(ratio - 1),
                             ratio > 1 ? "more" : "fewer", link ? " than " : "");
}

static hop_status say_speed(const struct hop_forecast *chosen, const struct hop_forecast *rival,
                            const struct hop_cost_table *cost, struct hop_string *out,
                            struct hop_error *err)
{
    HOP_TRY(say_plan(chosen, cost, out, err));
    if (!rival) {
        HOP_TRY(hop_string_printf(out, err,
                                  ": nothing else that was tried fits and trains every "
                                  "adapter"));
    } else {
        HOP_TRY(hop_string_printf(out, err, ": "));
        HOP_TRY(say_rate(chosen->samples_per_second / rival->samples_per_second, true, out, err));
        HOP_TRY(say_plan(rival, cost, out, err));
    }
    const double most = largest_memory(chosen);
    if (most > 0)
        return hop_string_printf(out, err, ", and no device needs more than %s",
                                 hop_quantity_bytes(most).text);
    return HOP_OK;
}

static hop_status say_bp_free(const struct hop_forecast *chosen, const struct hop_forecast *with,
                              const struct hop_cost_table *cost, struct hop_string *out,
                              struct hop_error *err)
{
    if (any_has(chosen, HOP_GRADIENT_ZEROTH_ORDER)) {
        HOP_TRY(hop_string_printf(out, err, "; the adapters of "));
        HOP_TRY(say_devices(chosen, cost, HOP_GRADIENT_ZEROTH_ORDER, out, err));
        return hop_string_printf(out, err, " learn from estimates");
    }
    if (uses_bp_free(chosen, cost) || !with)
        return HOP_OK;
    HOP_TRY(hop_string_printf(out, err, "; the best with BP-free devices, "));
    HOP_TRY(say_plan(with, cost, out, err));
    HOP_TRY(hop_string_printf(out, err, ", has "));
    return say_rate(with->samples_per_second / chosen->samples_per_second, false, out, err);
}

static hop_status say_yardstick(const struct hop_forecast *chosen,
                                const struct hop_forecast *yardstick,
                                const struct hop_cost_table *cost, struct hop_string *out,
                                struct hop_error *err)
{
    const double ratio = yardstick->samples_per_second / chosen->samples_per_second;
    HOP_TRY(hop_string_printf(out, err, "; "));
    HOP_TRY(say_plan(yardstick, cost, out, err));
    HOP_TRY(hop_string_printf(out, err, " has "));
    HOP_TRY(say_rate(ratio, false, out, err));
    HOP_TRY(hop_string_printf(out, err, ", %s leaves the adapters of ", ratio > 1 ? "but" : "and"));
    HOP_TRY(say_devices(yardstick, cost, HOP_GRADIENT_NONE, out, err));
    return hop_string_printf(out, err, " untrained");
}

static hop_status explain(const struct hop_forecast *forecasts, size_t count,
                          const struct hop_forecast *chosen, const struct hop_cost_table *cost,
                          struct hop_string *out, struct hop_error *err)
{
    const struct hop_forecast *const yardstick = find_yardstick(forecasts, count);
    HOP_TRY(say_speed(chosen, find_rival(forecasts, count, chosen, NULL), cost, out, err));
    HOP_TRY(say_bp_free(chosen, find_rival(forecasts, count, chosen, cost), cost, out, err));
    return yardstick ? say_yardstick(chosen, yardstick, cost, out, err) : HOP_OK;
}

static hop_status explain_untrained(const struct hop_forecast *chosen,
                                    const struct hop_cost_table *cost, struct hop_string *out,
                                    struct hop_error *err)
{
    HOP_TRY(say_plan(chosen, cost, out, err));
    HOP_TRY(hop_string_printf(out, err,
                              ": nothing that trains every adapter fits; this leaves the "
                              "adapters of "));
    HOP_TRY(say_devices(chosen, cost, HOP_GRADIENT_NONE, out, err));
    return hop_string_printf(out, err, " untrained");
}

hop_status hop_recommend(const struct hop_forecast *forecasts, size_t count,
                         const struct hop_cost_table *cost, const struct hop_forecast **chosen,
                         struct hop_string *reason, struct hop_error *err)
{
    const struct hop_forecast *found = choose(forecasts, count, true);
    if (found) {
        HOP_TRY(explain(forecasts, count, found, cost, reason, err));
    } else {
        found = choose(forecasts, count, false);
        if (found)
            HOP_TRY(explain_untrained(found, cost, reason, err));
    }
    *chosen = found;
    return HOP_OK;
}
