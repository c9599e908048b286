#include "strategy/strategy.h"

#include <string.h>

#include "base/string.h"
#include "strategy/systems.h"

const char *const hop_objective_names[] = {"simulated", "formula", NULL};

/* Ours, then those it is compared with, then the yardstick. */
const struct hop_strategy *const hop_strategies[] = {
    &hop_strategy_hybridop,    &hop_strategy_frozen,   &hop_strategy_gpipe,
    &hop_strategy_pipedream,   &hop_strategy_chimera,  &hop_strategy_hdp,
    &hop_strategy_dapple,      &hop_strategy_asteroid, &hop_strategy_accpar,
    &hop_strategy_accpar_full, &hop_strategy_single,   NULL,
};

enum { STRATEGIES = sizeof hop_strategies / sizeof *hop_strategies - 1 };

hop_status hop_strategy_find(const char *name, const struct hop_strategy **out,
                             struct hop_error *err)
{
    const char *names[STRATEGIES];
    for (size_t i = 0; i < STRATEGIES; i++) {
        names[i] = hop_strategies[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = hop_strategies[i];
            return HOP_OK;
        }
    }
    const char *const nearest = hop_nearest_name(name, names, STRATEGIES);
    if (nearest)
        return hop_fail(err, HOP_INPUT, "strategy: there is no '%s'; did you mean '%s'?", name,
                        nearest);
    struct hop_string list = {0};
    hop_status status = HOP_OK;
    for (size_t i = 0; i < STRATEGIES && status == HOP_OK; i++)
        status = hop_string_printf(&list, err, "%s%s", i ? ", " : "", names[i]);
    if (status == HOP_OK)
        status = hop_fail(err, HOP_INPUT, "strategy: there is no '%s'; choose one of %s", name,
                          hop_string_text(&list));
    hop_string_free(&list);
    return status;
}
