/* Evaluations that stand in the history of a run that goes on. */
#include "runtime/coordinator_internal.h"

static double value(const json_t *entry, const char *key)
{
    return json_number_value(json_object_get(entry, key));
}

static struct hop_evaluation recalled(const json_t *entry)
{
    return (struct hop_evaluation){
        .loss = value(entry, "eval_loss"),
        .labelled = json_object_get(entry, "eval_accuracy") != NULL,
        .accuracy = value(entry, "eval_accuracy"),
        .macro_f1 = value(entry, "eval_macro_f1"),
        .multirc = {.questions = json_object_get(entry, "eval_em0") != NULL,
                    .em0 = value(entry, "eval_em0"),
                    .em1 = value(entry, "eval_em1"),
                    .f1m = value(entry, "eval_f1m"),
                    .f1a = value(entry, "eval_f1a")},
        .squad = {.questions = json_object_get(entry, "eval_exact_match") != NULL,
                  .exact_match = value(entry, "eval_exact_match"),
                  .f1 = value(entry, "eval_f1")}};
}

bool hop_history_first_evaluation(const struct hop_trainer_state *state, struct hop_evaluation *out)
{
    for (size_t i = 0; i < json_array_size(state->log_history); i++) {
        const json_t *const entry = json_array_get(state->log_history, i);
        if (!json_object_get(entry, "eval_loss"))
            continue;
        *out = recalled(entry);
        return true;
    }
    return false;
}

bool hop_history_last_evaluation(const struct hop_trainer_state *state, int64_t until,
                                 int64_t *step, struct hop_evaluation *out)
{
    for (size_t i = json_array_size(state->log_history); i-- > 0;) {
        const json_t *const entry = json_array_get(state->log_history, i);
        *step = json_integer_value(json_object_get(entry, "step"));
        if (!json_object_get(entry, "eval_loss") || *step > until)
            continue;
        *out = recalled(entry);
        return true;
    }
    return false;
}
