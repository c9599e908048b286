/* The table of one plan. */
#include <math.h>
#include <stdarg.h>

#include "report/forecast_table.h"
#include "report/quantity.h"
#include "report/table.h"
#include "schedule/estimator.h"

static const char *role(enum hop_gradient gradient)
{
    switch (gradient) {
    case HOP_GRADIENT_BACKPROP:
        return "backprop";
    case HOP_GRADIENT_ZEROTH_ORDER:
        return "zeroth-order";
    default:
        return "forward only";
    }
}

static hop_status put_memory(struct hop_table *table, const struct hop_part *part,
                             struct hop_error *err)
{
    const struct hop_quantity used = hop_quantity_bytes(part->memory_bytes);
    if (isinf(part->memory_limit))
        return hop_table_cell(table, err, "%s", used.text);
    return hop_table_cell(table, err, "%s of %s", used.text,
                          hop_quantity_bytes(part->memory_limit).text);
}

/* Frozen weights of the part: its blocks, the embedding in front, the head behind. */
static double parameters(const struct hop_part *part, int32_t blocks,
                         const struct hop_forecast_facts *facts)
{
    const bool front = part->lo == 0, back = part->hi == blocks;
    const int32_t tables = front && back && facts->tied ? 1 : front + back;
    return (double)facts->block_parameters * (part->hi - part->lo) +
           (double)facts->embed_parameters * tables;
}

static hop_status put_parameters(struct hop_table *table, const struct hop_part *part,
                                 int32_t blocks, const struct hop_forecast_facts *facts,
                                 struct hop_error *err)
{
    const double adapters = (double)facts->adapter_parameters * (part->hi - part->lo);
    if (!facts->block_parameters)
        return HOP_OK;
    HOP_TRY(
        hop_table_cell(table, err, "%s", hop_quantity_count(parameters(part, blocks, facts)).text));
    return hop_table_cell(table, err, "%s", hop_quantity_count(adapters).text);
}

static hop_status put_blocks(struct hop_table *table, const struct hop_part *part,
                             struct hop_error *err)
{
    if (part->lo == part->hi)
        return hop_table_cell(table, err, "none");
    if (part->hi - part->lo == 1)
        return hop_table_cell(table, err, "%d", part->lo);
    return hop_table_cell(table, err, "%d-%d", part->lo, part->hi - 1);
}

static hop_status put_part(struct hop_table *table, const struct hop_plan *plan,
                           const struct hop_part *part, const struct hop_cost_table *cost,
                           const struct hop_forecast_facts *facts, struct hop_error *err)
{
    const struct hop_cost_device *const device = &cost->devices[part->device];
    HOP_TRY(hop_table_cell(table, err, "%s", device->name));
    HOP_TRY(hop_table_cell(table, err, "%s", device->bp ? "BP-capable" : "BP-free"));
    HOP_TRY(hop_table_cell(table, err, "%s", role(part->gradient)));
    HOP_TRY(put_blocks(table, part, err));
    HOP_TRY(put_parameters(table, part, plan->blocks, facts, err));
    HOP_TRY(put_memory(table, part, err));
    HOP_TRY(hop_table_cell(table, err, "%d", part->in_flight));
    return hop_table_cell(table, err, "%s", hop_quantity_seconds(part->forward_seconds).text);
}

static hop_status print_parts(const struct hop_forecast *forecast,
                              const struct hop_cost_table *cost,
                              const struct hop_forecast_facts *facts, FILE *to,
                              struct hop_error *err)
{
    static const char *const headers[] = {"device",  "role",  "gradient", "blocks",
                                          ">memory", ">kept", ">forward", NULL};
    static const char *const longer[] = {"device",      "role",      "gradient", "blocks",
                                         ">parameters", ">adapters", ">memory",  ">kept",
                                         ">forward",    NULL};
    const struct hop_plan *const plan = &forecast->plan;
    hop_status status = HOP_OK;
    struct hop_table *table = NULL;
    HOP_TRY(hop_table_create(facts->block_parameters ? longer : headers, &table, err));
    for (int32_t p = 0; p < plan->part_count; p++)
        HOP_TRY_DONE(put_part(table, plan, &plan->parts[p], cost, facts, err));
    hop_table_print(table, to);
done:
    hop_table_free(table);
    return status;
}

static void print_sizes(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                        const struct hop_forecast_facts *facts, FILE *to)
{
    const struct hop_plan *const plan = &forecast->plan;
    fprintf(to, "strategy     %s, %d micro-batch%s of %s row%s", plan->strategy,
            plan->micro_batches, plan->micro_batches == 1 ? "" : "es",
            hop_quantity_number(cost->micro_batch_samples).text,
            cost->micro_batch_samples == 1 ? "" : "s");
    if (plan->probes > 0)
        fprintf(to, ", %d probe%s each", plan->probes, plan->probes == 1 ? "" : "s");
    if (facts->tokens > 0)
        fprintf(to, "; a row is priced at %d tokens, %d of them labels", facts->tokens,
                facts->labels);
    fprintf(to, "\n");
}

static bool is_plain(const struct hop_plan *plan)
{
    return plan->estimator == HOP_DIFFERENCE && plan->directions == HOP_SHARED &&
           plan->exit_probes == 0;
}

/* Half a sentence that grows. */
struct note {
    char *text;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct note *note, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int count =
        vsnprintf(note->text + note->used, note->size - note->used, format, arguments);
    va_end(arguments);
    note->used += count > 0 && (size_t)count < note->size - note->used ? (size_t)count : 0;
}

static void add_count(struct note *note, int32_t count, const char *what)
{
    add(note, "%d %s%s each", count, what, count == 1 ? "" : "s");
}

static void add_exits(struct note *note, const struct hop_plan *plan)
{
    static const char *const bases[] = {"the exit's own loss", "the full model's loss"};
    if (plan->exit_probes == 0)
        return;
    add(note, "; ");
    add_count(note, plan->exit_probes, "exit probe");
    if (hop_plan_has_exit_base(plan) || hop_plan_sends_base_loss(plan))
        add(note, " against %s", bases[plan->exit_base]);
}

/* How far feedback reaches, in a plan with zeroth-order parts. */
static void add_reach(struct note *note, const struct hop_plan *plan)
{
    if (plan->estimator != HOP_FEEDBACK)
        return;
    const int32_t lo = hop_plan_feedback_lo(plan);
    const int32_t hi = plan->parts[hop_plan_last_zeroth_order(plan)].hi;
    if (hi - lo == 1)
        add(note, " to block %d", lo);
    else
        add(note, " to blocks %d-%d", lo, hi - 1);
}

bool hop_forecast_estimator(const struct hop_forecast *forecast, char *text, size_t size)
{
    const struct hop_plan *const plan = &forecast->plan;
    struct note note = {.text = text, .size = size};
    if (!hop_plan_has_zeroth_order(plan) || is_plain(plan))
        return false;
    add(&note, "%s", hop_estimator_names[plan->estimator]);
    add_reach(&note, plan);
    add(&note, ", ");
    if (plan->probes > 0)
        add_count(&note, plan->probes, "probe");
    else
        add(&note, "no probes");
    if (plan->directions == HOP_PER_SAMPLE && plan->probes > 0)
        add(&note, ", every sample its own directions");
    add_exits(&note, plan);
    return true;
}

static void print_estimator(const struct hop_forecast *forecast, FILE *to)
{
    char text[256];
    if (hop_forecast_estimator(forecast, text, sizeof text))
        fprintf(to, "estimator    %s\n", text);
}

/* Devices that only carry blocks. */
static void print_untrained(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                            FILE *to)
{
    const struct hop_plan *const plan = &forecast->plan;
    int32_t count = 0;
    for (int32_t p = 0; p < plan->part_count; p++)
        if (plan->parts[p].gradient == HOP_GRADIENT_NONE)
            fprintf(to, "%s %s", count++ ? "," : "untrained    the adapters of",
                    cost->devices[plan->parts[p].device].name);
    if (count)
        fprintf(to, " stay as they are: only forward runs there\n");
}

static void print_seconds(const struct hop_forecast *forecast,
                          const struct hop_forecast_facts *facts, FILE *to)
{
    const struct hop_plan *const plan = &forecast->plan;
    fprintf(to, "step         %s by simulation",
            hop_quantity_seconds(plan->simulated_seconds).text);
    if (isfinite(plan->formula_seconds))
        fprintf(to, "; the published formula says %s: %.2f of the simulation",
                hop_quantity_seconds(plan->formula_seconds).text,
                plan->formula_seconds / plan->simulated_seconds);
    fprintf(to, "\n");
    if (facts->time_scale > 0)
        fprintf(to, "emulated     %s on this machine's clock (time_scale %g)\n",
                hop_quantity_seconds(facts->time_scale * plan->simulated_seconds).text,
                facts->time_scale);
    fprintf(to, "throughput   %s samples/s, utilization %.0f %%\n",
            hop_quantity_number(forecast->samples_per_second).text,
            100 * forecast->simulation.utilization);
}

/* Equal up to the rounding of two sums in different order. */
static bool reaches(double seconds, double bound)
{
    return seconds <= bound * (1 + 1e-9);
}

static void print_bound(const struct hop_plan *plan, FILE *to)
{
    if (!isfinite(plan->bound_seconds))
        return;
    if (reaches(plan->simulated_seconds, plan->bound_seconds))
        fprintf(to, "optimality   proven: no plan of these devices and blocks is faster\n");
    else
        fprintf(to, "optimality   no plan can take less than %s; this one is %.1f %% above\n",
                hop_quantity_seconds(plan->bound_seconds).text,
                100 * (plan->simulated_seconds / plan->bound_seconds - 1));
}

static void print_left_out(const struct hop_forecast *forecast, const struct hop_cost_table *cost,
                           FILE *to)
{
    for (int32_t d = 0; d < cost->device_count; d++) {
        char reason[256];
        if (hop_forecast_uses(forecast, d))
            continue;
        hop_forecast_left_out(forecast, cost, d, reason, sizeof reason);
        fprintf(to, "left out     %s: %s\n", cost->devices[d].name, reason);
    }
}

hop_status hop_forecast_print(const struct hop_forecast *forecast,
                              const struct hop_cost_table *cost,
                              const struct hop_forecast_facts *facts, FILE *to,
                              struct hop_error *err)
{
    HOP_TRY(print_parts(forecast, cost, facts, to, err));
    fprintf(to, "\n");
    print_sizes(forecast, cost, facts, to);
    print_estimator(forecast, to);
    print_untrained(forecast, cost, to);
    print_seconds(forecast, facts, to);
    print_bound(&forecast->plan, to);
    print_left_out(forecast, cost, to);
    return HOP_OK;
}
