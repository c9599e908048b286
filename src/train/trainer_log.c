/* Entries of the Trainer's log_history. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "train/trainer_state.h"

static double rounded(double value, double scale)
{
    return round(value * scale) / scale;
}

static bool is_kept(const char *key)
{
    static const char *const keys[] = {"step",          "epoch",     "loss",
                                       "learning_rate", "grad_norm", "zo_grad_norm"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return strncmp(key, "eval_", 5) == 0;
}

/* Under the Trainer's name and with its number of decimals. */
static int add_value(json_t *entry, const char *key, json_t *value)
{
    const double number = json_number_value(value);
    if (strcmp(key, "loss") == 0)
        return json_object_set_new(entry, key, json_real(rounded(number, 1e4)));
    if (strcmp(key, "eval_seconds") == 0)
        return json_object_set_new(entry, "eval_runtime", json_real(rounded(number, 1e4)));
    if (strncmp(key, "eval_", 5) == 0 && strstr(key, "_per_second"))
        return json_object_set_new(entry, key, json_real(rounded(number, 1e3)));
    return json_object_set(entry, key, value);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Takes the reference of `object` and gives one to the same with sorted keys; NULL: out of memory.
 */
static json_t *sorted(json_t *object)
{
    const size_t n = json_object_size(object);
    const char **const keys = calloc(n + 1, sizeof *keys), *key;
    json_t *const out = keys ? json_object() : NULL, *value;
    size_t count = 0;
    json_object_foreach(object, key, value)
    {
        if (keys && count < n)
            keys[count++] = key;
    }
    if (keys)
        qsort(keys, count, sizeof *keys, by_key);
    for (size_t i = 0; i < count; i++)
        json_object_set(out, keys[i], json_object_get(object, keys[i]));
    free(keys);
    json_decref(object);
    return out;
}

/* Takes the reference. */
static hop_status append(struct hop_trainer_state *state, json_t *entry, struct hop_error *err)
{
    json_t *const in_order = entry ? sorted(entry) : NULL;
    if (!state->log_history)
        state->log_history = json_array();
    if (!in_order || json_array_append_new(state->log_history, in_order) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory while keeping the history");
    return HOP_OK;
}

hop_status hop_trainer_state_log(struct hop_trainer_state *state, const json_t *line,
                                 struct hop_error *err)
{
    json_t *const entry = json_object(), *value;
    const json_t *const loss = json_object_get(line, "loss");
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)line, key, value)
    {
        if (is_kept(key) && add_value(entry, key, value) != 0) {
            json_decref(entry);
            return hop_fail(err, HOP_MEMORY, "out of memory while keeping the history");
        }
    }
    HOP_TRY(append(state, entry, err));
    if (loss) {
        state->last_loss = json_number_value(loss);
        state->loss_sum += state->last_loss;
    }
    return HOP_OK;
}

static double per_second(double count, double seconds)
{
    return seconds > 0 ? rounded(count / seconds, 1e3) : 0;
}

hop_status hop_trainer_state_finish(struct hop_trainer_state *state,
                                    const struct hop_train_totals *totals, struct hop_error *err)
{
    const double mean = state->global_step > 0 ? state->loss_sum / (double)state->global_step : 0;
    return append(state,
                  json_pack("{s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "epoch", state->epoch, "step",
                            (json_int_t)state->global_step, "total_flos",
                            hop_trainer_state_flos(state), "train_loss", mean, "train_runtime",
                            rounded(totals->seconds, 1e4), "train_samples_per_second",
                            per_second(totals->samples, totals->seconds), "train_steps_per_second",
                            per_second((double)totals->steps, totals->seconds)),
                  err);
}
