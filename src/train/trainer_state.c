/* trainer_state.json: the Trainer's fields in its order (sorted keys), ours in one object of their
 * own. */
#include "train/trainer_state.h"

#include <math.h>
#include <stdlib.h>

#include "base/string.h"
#include "io/file.h"
#include "io/json.h"

struct hop_trainer_state hop_trainer_state_default(void)
{
    return (struct hop_trainer_state){.best_metric = NAN, .last_loss = NAN};
}

void hop_trainer_state_free(struct hop_trainer_state *state)
{
    if (!state)
        return;
    json_decref(state->log_history);
    state->log_history = NULL;
}

static json_t *control_json(const struct hop_trainer_state *state)
{
    const int stop = state->max_steps > 0 && state->global_step >= state->max_steps;
    return json_pack("{s:{s:{s:b, s:b, s:b, s:b, s:b}, s:{}}}", "TrainerControl", "args",
                     "should_epoch_stop", 0, "should_evaluate", 0, "should_log", 0, "should_save",
                     1, "should_training_stop", stop, "attributes");
}

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *history_json(const struct hop_trainer_state *state)
{
    return state->log_history ? json_incref(state->log_history) : json_array();
}

/* The seed is text: JSON readers may hold numbers as doubles. */
static json_t *own_json(const struct hop_trainer_state *state, int64_t optimizer_steps)
{
    return json_pack("{s:I, s:o, s:f, s:I, s:o}", "evaluations_without_gain",
                     (json_int_t)state->evaluations_without_gain, "last_loss",
                     real_or_null(state->last_loss), "loss_sum", state->loss_sum, "optimizer_steps",
                     (json_int_t)optimizer_steps, "seed",
                     json_sprintf("%llu", (unsigned long long)state->seed));
}

double hop_trainer_state_flos(const struct hop_trainer_state *state)
{
    return 6 * (double)state->input_tokens * (double)state->parameters;
}

json_t *hop_trainer_state_json(const struct hop_trainer_state *state, int64_t optimizer_steps,
                               const char *best_checkpoint)
{
    return json_pack(
        "{s:o, s:o, s:s?, s:f, s:I, s:I, s:o, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:o, "
        "s:f, s:I, s:n, s:n}",
        "best_global_step", state->best_step > 0 ? json_integer(state->best_step) : json_null(),
        "best_metric", real_or_null(state->best_metric), "best_model_checkpoint", best_checkpoint,
        "epoch", state->epoch, "eval_steps", (json_int_t)state->eval_steps, "global_step",
        (json_int_t)state->global_step, "hybridop", own_json(state, optimizer_steps),
        "is_hyper_param_search", 0, "is_local_process_zero", 1, "is_world_process_zero", 1,
        "log_history", history_json(state), "logging_steps", (json_int_t)state->logging_steps,
        "max_steps", (json_int_t)state->max_steps, "num_input_tokens_seen",
        (json_int_t)state->input_tokens, "num_train_epochs", (json_int_t)state->num_train_epochs,
        "save_steps", (json_int_t)state->save_steps, "stateful_callbacks", control_json(state),
        "total_flos", hop_trainer_state_flos(state), "train_batch_size",
        (json_int_t)state->train_batch_size, "trial_name", "trial_params");
}

/* *out = malloc'ed path of the best checkpoint, NULL when there is none. */
static hop_status best_checkpoint(const char *run, const struct hop_trainer_state *state,
                                  char **out, struct hop_error *err)
{
    struct hop_string path = {0};
    *out = NULL;
    if (state->best_step <= 0)
        return HOP_OK;
    HOP_TRY(hop_string_printf(&path, err, "%s/checkpoint-%lld", run, (long long)state->best_step));
    if (state->best_step == state->global_step || hop_file_exists(hop_string_text(&path)))
        *out = path.data;
    else
        hop_string_free(&path);
    return HOP_OK;
}

hop_status hop_trainer_state_save(const char *directory, const char *run,
                                  const struct hop_trainer_state *state, int64_t optimizer_steps,
                                  struct hop_error *err)
{
    char *path = NULL, *best = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "trainer_state.json", &path, err));
    HOP_TRY_DONE(best_checkpoint(run, state, &best, err));
    object = hop_trainer_state_json(state, optimizer_steps, best);
    if (!object)
        HOP_TRY_DONE(hop_fail(err, HOP_MEMORY, "%s: out of memory", path));
    HOP_TRY_DONE(hop_json_save(path, object, err));
done:
    json_decref(object);
    free(best);
    free(path);
    return status;
}

static hop_status read_own(const json_t *object, const char *where, struct hop_trainer_state *state,
                           int64_t *optimizer_steps, struct hop_error *err)
{
    const json_t *const own = json_object_get(object, "hybridop");
    const char *seed = NULL;
    *optimizer_steps = state->global_step;
    if (!own)
        return HOP_OK;
    HOP_TRY(hop_json_get_int(own, "evaluations_without_gain", where, 0,
                             &state->evaluations_without_gain, err));
    HOP_TRY(
        hop_json_get_int(own, "optimizer_steps", where, state->global_step, optimizer_steps, err));
    HOP_TRY(hop_json_get_real(own, "last_loss", where, NAN, &state->last_loss, err));
    HOP_TRY(hop_json_get_real(own, "loss_sum", where, 0, &state->loss_sum, err));
    HOP_TRY(hop_json_get_string(own, "seed", where, "0", &seed, err));
    if (*optimizer_steps < 0)
        return hop_fail(err, HOP_INPUT, "%s: \"optimizer_steps\" is negative", where);
    state->seed = strtoull(seed, NULL, 10);
    return HOP_OK;
}

static hop_status read_integers(const json_t *object, const char *where,
                                struct hop_trainer_state *state, struct hop_error *err)
{
    const struct {
        const char *key;
        int64_t *out;
    } fields[] = {
        {"global_step", &state->global_step},
        {"max_steps", &state->max_steps},
        {"num_train_epochs", &state->num_train_epochs},
        {"train_batch_size", &state->train_batch_size},
        {"logging_steps", &state->logging_steps},
        {"eval_steps", &state->eval_steps},
        {"save_steps", &state->save_steps},
        {"num_input_tokens_seen", &state->input_tokens},
        {"best_global_step", &state->best_step},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        HOP_TRY(hop_json_get_int(object, fields[i].key, where, 0, fields[i].out, err));
        if (*fields[i].out < 0)
            return hop_fail(err, HOP_INPUT, "%s: \"%s\" is negative", where, fields[i].key);
    }
    return HOP_OK;
}

hop_status hop_trainer_state_parse(const json_t *object, const char *where,
                                   struct hop_trainer_state *out, int64_t *optimizer_steps,
                                   struct hop_error *err)
{
    struct hop_trainer_state state = hop_trainer_state_default();
    HOP_TRY(read_integers(object, where, &state, err));
    HOP_TRY(hop_json_get_real(object, "epoch", where, 0, &state.epoch, err));
    HOP_TRY(hop_json_get_real(object, "best_metric", where, NAN, &state.best_metric, err));
    HOP_TRY(read_own(object, where, &state, optimizer_steps, err));
    json_t *const history = json_object_get(object, "log_history");
    if (history && !json_is_array(history))
        return hop_fail(err, HOP_INPUT, "%s: \"log_history\" must be a list", where);
    state.log_history = history ? json_incref(history) : NULL;
    *out = state;
    return HOP_OK;
}
