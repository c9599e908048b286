#include "strategy/accpar_level.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

const struct hop_accpar_group hop_accpar_equal_groups[2] = {{INFINITY, 1}, {INFINITY, 1}};

struct hop_accpar_rules hop_accpar_rules(void)
{
    return (struct hop_accpar_rules){.types = HOP_ACCPAR_TYPES, .share = NAN, .shortcuts = true};
}

struct hop_accpar_rules hop_accpar_released_rules(int32_t types)
{
    return (struct hop_accpar_rules){
        .types = types, .share = 0.5, .shortcuts = types == HOP_ACCPAR_TYPES, .free_after_i = true};
}

double hop_accpar_step_seconds(const struct hop_accpar_step *step,
                               const struct hop_accpar_group *group, double alpha)
{
    double inter = 0;
    if (step->before >= 0)
        inter =
            hop_accpar_inter(step->layer, (enum hop_accpar_type)step->before, step->type, alpha);
    if (step->from >= 0)
        inter +=
            hop_accpar_across(step->layer, (enum hop_accpar_type)step->from, step->type, alpha);
    return alpha * hop_accpar_work(step->layer) / group->speed +
           (hop_accpar_intra(step->layer, step->type) + inter) / group->bandwidth;
}

/* By how much the first group ends later. */
static double lag(const struct hop_accpar_step *step, const struct hop_accpar_group *groups,
                  double alpha)
{
    return hop_accpar_step_seconds(step, &groups[0], alpha) -
           hop_accpar_step_seconds(step, &groups[1], 1 - alpha);
}

static double later(const struct hop_accpar_step *step, const struct hop_accpar_group *groups,
                    double alpha)
{
    return fmax(hop_accpar_step_seconds(step, &groups[0], alpha),
                hop_accpar_step_seconds(step, &groups[1], 1 - alpha));
}

double hop_accpar_solve_share(const struct hop_accpar_step *step,
                              const struct hop_accpar_group *groups)
{
    enum { HALVINGS = 50 };
    double low = 0, high = 1;
    const double at_low = lag(step, groups, low), at_high = lag(step, groups, high);
    if (at_low == 0 && at_high == 0)
        return 0.5;
    if ((at_low < 0) == (at_high < 0))
        return later(step, groups, low) <= later(step, groups, high) ? low : high;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if ((lag(step, groups, middle) < 0) == (at_low < 0))
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* The program's table: the best way to a layer of a type. */
struct state {
    double seconds, share;
    int32_t before; /* type of the layer before, or -1 */
};

struct level {
    const struct hop_accpar_layer *layers;
    const struct hop_accpar_group *groups;
    const struct hop_accpar_rules *rules;
    struct state *states; /* (layers, types) */
};

static struct state *state_of(const struct level *level, int32_t layer, int32_t type)
{
    return &level->states[(size_t)layer * (size_t)level->rules->types + (size_t)type];
}

/* Type of a layer on the best way to layer `l` of type `type`. */
static int32_t trace(const struct level *level, int32_t l, int32_t type, int32_t layer)
{
    for (; l > layer; l--)
        type = state_of(level, l, type)->before;
    return type;
}

static struct state try_step(const struct level *level, const struct hop_accpar_step *step)
{
    struct state state = {.share = level->rules->share, .before = step->before};
    if (isnan(state.share))
        state.share = hop_accpar_solve_share(step, level->groups);
    state.seconds = later(step, level->groups, state.share);
    return state;
}

static struct state try_before(const struct level *level, int32_t l, int32_t type, int32_t before)
{
    struct hop_accpar_step step = {&level->layers[l], (enum hop_accpar_type)type, before, -1};
    const bool is_free = level->rules->free_after_i && before == HOP_ACCPAR_I;
    if (level->layers[l].shortcut && level->rules->shortcuts && !is_free)
        step.from = trace(level, l - 1, before, l - level->layers[l].shortcut);
    struct state state = try_step(level, &step);
    state.seconds += state_of(level, l - 1, before)->seconds;
    return state;
}

static struct state best_state(const struct level *level, int32_t l, int32_t type)
{
    if (l == 0)
        return try_step(
            level, &(struct hop_accpar_step){level->layers, (enum hop_accpar_type)type, -1, -1});
    struct state best = try_before(level, l, type, 0);
    for (int32_t before = 1; before < level->rules->types; before++) {
        const struct state state = try_before(level, l, type, before);
        if (state.seconds < best.seconds)
            best = state;
    }
    return best;
}

static int32_t best_type(const struct level *level, int32_t l)
{
    int32_t best = 0;
    for (int32_t type = 1; type < level->rules->types; type++)
        if (state_of(level, l, type)->seconds < state_of(level, l, best)->seconds)
            best = type;
    return best;
}

static bool is_size(double value)
{
    return isfinite(value) && value >= 0;
}

static hop_status check_layer(const struct hop_accpar_layer *layer, int32_t l,
                              struct hop_error *err)
{
    if (!is_size(layer->batch) || !is_size(layer->in) || !is_size(layer->out) ||
        !is_size(layer->kernel) || !is_size(layer->in_map) || !is_size(layer->out_map))
        return hop_fail(err, HOP_INPUT, "accpar: layer %d has a size that is not finite or below 0",
                        l);
    if (layer->shortcut < 0 || layer->shortcut > l)
        return hop_fail(err, HOP_INPUT,
                        "accpar: a shortcut of %d layers ends at layer %d; it must begin at layer "
                        "0 or later",
                        layer->shortcut, l);
    return HOP_OK;
}

static hop_status check(const struct level *level, int32_t n, struct hop_error *err)
{
    const double share = level->rules->share;
    if (n < 1)
        return hop_fail(err, HOP_INPUT, "accpar: %d layers; at least 1 is needed", n);
    if (level->rules->types < 1 || level->rules->types > HOP_ACCPAR_TYPES)
        return hop_fail(err, HOP_INPUT, "accpar: %d types; 1 to %d are possible",
                        level->rules->types, HOP_ACCPAR_TYPES);
    if (!isnan(share) && !(share >= 0 && share <= 1))
        return hop_fail(err, HOP_INPUT, "accpar: a share of %g; 0 to 1 are possible", share);
    for (int g = 0; g < 2; g++)
        if (!(level->groups[g].speed > 0 && level->groups[g].bandwidth > 0))
            return hop_fail(err, HOP_INPUT,
                            "accpar: group %d has speed %g and bandwidth %g; both must be above 0",
                            g, level->groups[g].speed, level->groups[g].bandwidth);
    for (int32_t l = 0; l < n; l++)
        HOP_TRY(check_layer(&level->layers[l], l, err));
    return HOP_OK;
}

hop_status hop_accpar_level(const struct hop_accpar_layer *layers, int32_t n,
                            const struct hop_accpar_group *groups,
                            const struct hop_accpar_rules *rules, enum hop_accpar_type *types,
                            double *shares, double *seconds, struct hop_error *err)
{
    struct level level = {.layers = layers, .groups = groups, .rules = rules};
    HOP_TRY(check(&level, n, err));
    HOP_TRY(hop_calloc(&level.states, (size_t)n * (size_t)rules->types, sizeof *level.states, err));
    for (int32_t l = 0; l < n; l++)
        for (int32_t type = 0; type < rules->types; type++)
            *state_of(&level, l, type) = best_state(&level, l, type);
    int32_t type = best_type(&level, n - 1);
    *seconds = state_of(&level, n - 1, type)->seconds;
    for (int32_t l = n - 1; l >= 0; l--) {
        types[l] = (enum hop_accpar_type)type;
        shares[l] = state_of(&level, l, type)->share;
        type = state_of(&level, l, type)->before;
    }
    free(level.states);
    return HOP_OK;
}
