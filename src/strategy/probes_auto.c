#include "strategy/probes_auto.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/estimator.h"
#include "strategy/line_search.h"
#include "strategy/parts.h"

/* The largest number with the answer yes, which 0 has. */
static hop_status largest(hop_probes_question question, void *context, int32_t *probes,
                          struct hop_error *err)
{
    int32_t yes = 0, no = 1;
    bool answer = true;
    while (answer && no <= HOP_PROBES_MOST) {
        HOP_TRY(question(context, no, &answer, err));
        if (answer) {
            yes = no;
            no *= 2;
        }
    }
    while (no - yes > 1 && yes < HOP_PROBES_MOST) {
        const int32_t middle = yes + (no - yes) / 2;
        HOP_TRY(question(context, middle, &answer, err));
        *(answer ? &yes : &no) = middle;
    }
    *probes = yes;
    return HOP_OK;
}

hop_status hop_probes_largest(hop_probes_question question, void *context, int32_t *probes,
                              struct hop_error *err)
{
    HOP_TRY(largest(question, context, probes, err));
    if (*probes < 1)
        *probes = 1;
    return HOP_OK;
}

int32_t hop_probes_fewest(enum hop_estimator estimator)
{
    return estimator == HOP_BOUNDARY ? 1 : 0;
}

struct exit_question {
    const struct hop_cost_table *cost;
    struct hop_plan *plan;
    double seconds; /* without exit probes */
};

static hop_status exits_are_free(void *context, int32_t probes, bool *yes, struct hop_error *err)
{
    const struct exit_question *const question = context;
    struct hop_error refusal = {0};
    question->plan->exit_probes = probes;
    *yes = false;
    const hop_status status = hop_plan_price(question->plan, question->cost, 1, &refusal);
    if (status == HOP_INFEASIBLE)
        return HOP_OK;
    HOP_TRY(hop_plan_time(question->plan, question->cost, err));
    *yes = question->plan->simulated_seconds <= question->seconds * (1 + HOP_PLAN_TIE);
    return HOP_OK;
}

hop_status hop_exit_probes_choose(const struct hop_plan_request *request, struct hop_plan *plan,
                                  struct hop_error *err)
{
    struct exit_question question = {
        .cost = request->cost, .plan = plan, .seconds = plan->simulated_seconds};
    int32_t probes;
    if (request->exit_probes != HOP_PROBES_AUTO || !hop_plan_has_zeroth_order(plan) ||
        !hop_estimator_has_exit(plan->estimator))
        return HOP_OK;
    HOP_TRY(largest(exits_are_free, &question, &probes, err));
    plan->exit_probes = probes;
    HOP_TRY(hop_plan_price(plan, request->cost, 1, err));
    return hop_plan_time(plan, request->cost, err);
}
