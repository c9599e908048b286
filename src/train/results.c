#include "train/results.h"

#include <stdlib.h>

#include "io/file.h"
#include "io/json.h"

/* The last entry that has the key, without its step; NULL when there is none. */
static json_t *last_with(const struct hop_trainer_state *state, const char *key)
{
    for (size_t i = json_array_size(state->log_history); i-- > 0;) {
        const json_t *const entry = json_array_get(state->log_history, i);
        if (!json_object_get(entry, key))
            continue;
        json_t *const copy = json_copy((json_t *)(uintptr_t)entry);
        json_object_del(copy, "step");
        return copy;
    }
    return NULL;
}

static hop_status save(const char *directory, const char *name, const json_t *object,
                       struct hop_error *err)
{
    char *path;
    if (!object)
        return HOP_OK;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    const hop_status status = hop_json_save(path, object, err);
    free(path);
    return status;
}

/* Keys of an evaluation sort between "epoch" and those of training. */
static json_t *joined(const json_t *train, const json_t *eval)
{
    json_t *const all = json_object();
    json_object_set(all, "epoch", json_object_get(train, "epoch"));
    json_object_update_missing(all, (json_t *)(uintptr_t)eval);
    json_object_update_missing(all, (json_t *)(uintptr_t)train);
    return all;
}

hop_status hop_results_save(const char *directory, const struct hop_trainer_state *state,
                            struct hop_error *err)
{
    json_t *const train = last_with(state, "train_loss"), *const eval =
                                                              last_with(state, "eval_loss");
    json_t *const all = joined(train, eval);
    hop_status status;
    HOP_TRY_DONE(save(directory, "train_results.json", train, err));
    HOP_TRY_DONE(save(directory, "eval_results.json", eval, err));
    HOP_TRY_DONE(save(directory, "all_results.json", all, err));
done:
    json_decref(train);
    json_decref(eval);
    json_decref(all);
    return status;
}
