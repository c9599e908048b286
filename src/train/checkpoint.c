#include "train/checkpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"

static const char *const optimizer_suffixes[] = {".exp_avg", ".exp_avg_sq"};

#define CORES_FILE "cores.safetensors"

/* The parameters that are cores, or the others: items of its own (free()), the same arrays. */
static hop_status select_factors(const struct hop_parameters *all, bool cores,
                                 struct hop_parameters *out, struct hop_error *err)
{
    struct hop_parameters selected = *all;
    HOP_TRY(hop_calloc(&selected.items, all->count, sizeof *selected.items, err));
    selected.count = 0;
    for (size_t p = 0; p < all->count; p++)
        if ((all->items[p].factor == HOP_LORA_CORE) == cores)
            selected.items[selected.count++] = all->items[p];
    *out = selected;
    return HOP_OK;
}

static hop_status save_cores(const char *directory, const struct hop_parameters *parameters,
                             struct hop_error *err)
{
    const float *const arrays[] = {parameters->values};
    const char *const suffixes[] = {""};
    struct hop_parameters cores = {0};
    char *path = NULL;
    hop_status status;
    HOP_TRY_DONE(select_factors(parameters, true, &cores, err));
    HOP_TRY_DONE(hop_path_join(directory, CORES_FILE, &path, err));
    if (cores.count > 0)
        HOP_TRY_DONE(hop_parameters_write(path, &cores, arrays, suffixes, 1, err));
done:
    free(cores.items);
    free(path);
    return status;
}

static hop_status save_optimizer(const char *directory, const struct hop_parameters *parameters,
                                 const struct hop_adamw *adamw, struct hop_error *err)
{
    const float *const arrays[] = {adamw->exp_avg, adamw->exp_avg_sq};
    char *path;
    HOP_TRY(hop_path_join(directory, "optimizer.safetensors", &path, err));
    const hop_status status =
        hop_parameters_write(path, parameters, arrays, optimizer_suffixes, 2, err);
    free(path);
    return status;
}

/* Renames are durable only when the folder that holds the names is. */
static void sync_folder(const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    fsync(descriptor);
    close(descriptor);
}

/* An older checkpoint of the same number keeps its content under a name no reader looks for. */
static hop_status move_aside(const char *path, struct hop_error *err)
{
    for (int k = 1; hop_file_exists(path); k++) {
        struct hop_string aside = {0};
        hop_status status = hop_string_printf(&aside, err, "%s.replaced-%d", path, k);
        if (status == HOP_OK && !hop_file_exists(hop_string_text(&aside)) &&
            rename(path, hop_string_text(&aside)) != 0)
            status = hop_fail(err, HOP_IO, "%s: cannot be renamed to %s: %s", path,
                              hop_string_text(&aside), strerror(errno));
        hop_string_free(&aside);
        HOP_TRY(status);
    }
    return HOP_OK;
}

static hop_status publish(const char *run, const char *temporary, const char *path,
                          struct hop_error *err)
{
    sync_folder(temporary);
    HOP_TRY(move_aside(path, err));
    if (rename(temporary, path) != 0)
        return hop_fail(err, HOP_IO, "%s: cannot be renamed to %s: %s", temporary, path,
                        strerror(errno));
    sync_folder(run);
    return HOP_OK;
}

hop_status hop_checkpoint_save(const char *run, const struct hop_trainer_state *state,
                               const struct hop_plain_adapter *plain,
                               const struct hop_parameters *parameters,
                               const struct hop_adamw *adamw, const char *base,
                               struct hop_error *err)
{
    struct hop_string path = {0}, temporary = {0};
    hop_status status;
    HOP_TRY_DONE(
        hop_string_printf(&path, err, "%s/checkpoint-%lld", run, (long long)state->global_step));
    HOP_TRY_DONE(hop_string_printf(&temporary, err, "%s.tmp", hop_string_text(&path)));
    HOP_TRY_DONE(
        hop_adapter_save(hop_string_text(&temporary), &plain->lora, &plain->parameters, base, err));
    HOP_TRY_DONE(save_cores(hop_string_text(&temporary), parameters, err));
    HOP_TRY_DONE(save_optimizer(hop_string_text(&temporary), parameters, adamw, err));
    HOP_TRY_DONE(
        hop_trainer_state_save(hop_string_text(&temporary), run, state, adamw->steps, err));
    HOP_TRY_DONE(publish(run, hop_string_text(&temporary), hop_string_text(&path), err));
done:
    hop_string_free(&path);
    hop_string_free(&temporary);
    return status;
}

/* N of "checkpoint-N", -1 for any other name. */
int64_t hop_checkpoint_number(const char *name)
{
    static const char prefix[] = "checkpoint-";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return -1;
    const char *const digits = name + sizeof prefix - 1;
    const size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 18 || digits[n] != '\0')
        return -1;
    return strtoll(digits, NULL, 10);
}

static bool has_state(const char *run, const char *name)
{
    struct hop_string path = {0};
    struct hop_error ignored = {0};
    const bool found =
        hop_string_printf(&path, &ignored, "%s/%s/trainer_state.json", run, name) == HOP_OK &&
        hop_file_exists(hop_string_text(&path));
    hop_string_free(&path);
    return found;
}

hop_status hop_checkpoint_latest(const char *run, char **out, struct hop_error *err)
{
    DIR *const directory = opendir(run);
    int64_t best = -1;
    if (!directory && errno != ENOENT)
        return hop_fail(err, HOP_INPUT, "%s: cannot be opened: %s", run, strerror(errno));
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        const int64_t number = hop_checkpoint_number(entry->d_name);
        if (number > best && has_state(run, entry->d_name))
            best = number;
    }
    if (directory)
        closedir(directory);
    if (best < 0) {
        *out = NULL;
        return HOP_OK;
    }
    struct hop_string path = {0};
    HOP_TRY(hop_string_printf(&path, err, "%s/checkpoint-%lld", run, (long long)best));
    *out = path.data;
    return HOP_OK;
}

/* The keys of a job that say what every module has. */
static hop_status check_common(const char *path, const struct hop_lora_config *found,
                               const struct hop_lora_config *expected, struct hop_error *err)
{
    if (found->rank != expected->rank)
        return hop_fail(err, HOP_INPUT,
                        "%s: the adapter has rank %d, the job asks for lora.rank %d", path,
                        found->rank, expected->rank);
    if (fabs(found->alpha - expected->alpha) > 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: the adapter has alpha %g, the job asks for lora.alpha %g", path,
                        found->alpha, expected->alpha);
    if (found->rslora != expected->rslora)
        return hop_fail(err, HOP_INPUT, "%s: the adapter %s rank-stabilised, the job's %s", path,
                        found->rslora ? "is" : "is not", expected->rslora ? "is" : "is not");
    for (int target = 0; target < HOP_TARGETS; target++)
        if (found->targets[target] != expected->targets[target])
            return hop_fail(err, HOP_INPUT, "%s: the adapter %s %s, the job's lora.targets %s",
                            path, found->targets[target] ? "has" : "lacks",
                            hop_target_names[target],
                            expected->targets[target] ? "list it" : "do not");
    return HOP_OK;
}

static hop_status check_lora(const char *path, const struct hop_model_config *model,
                             const struct hop_lora_config *lora, struct hop_error *err)
{
    struct hop_lora_config found, plain;
    const struct hop_lora_config *const expected = &plain;
    int32_t block;
    enum hop_target target;
    HOP_TRY(hop_lora_plain(lora, model->blocks, &plain, err));
    HOP_TRY(hop_adapter_config(path, model, &found, err));
    HOP_TRY(check_common(path, &found, expected, err));
    if (!hop_lora_difference(&found, expected, model->blocks, &block, &target))
        return HOP_OK;
    return hop_fail(err, HOP_INPUT,
                    "%s: %s of block %d has rank %d and scale %g, the job asks for rank %d and "
                    "scale %g",
                    path, hop_target_names[target], block, hop_lora_rank(&found, block, target),
                    hop_lora_scale(&found, block, target), hop_lora_rank(expected, block, target),
                    hop_lora_scale(expected, block, target));
}

/* Cores in exactly the blocks where the job has them. */
static hop_status load_core_file(const char *path, const struct hop_parameters *cores,
                                 struct hop_error *err)
{
    struct hop_safetensors *set = NULL;
    hop_status status = HOP_OK;
    const bool there = hop_file_exists(path);
    if (!there && cores->count > 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: missing; the checkpoint was trained without cores, the job asks for "
                        "%zu; set lora.core to 0 or start a new run",
                        path, cores->count);
    if (!there)
        return HOP_OK;
    HOP_TRY_DONE(hop_safetensors_open(path, &set, err));
    if (hop_safetensors_count(set) != cores->count) {
        status = hop_fail(err, HOP_INPUT,
                          "%s: holds %zu cores, the job asks for %zu; set lora.core and "
                          "lora.core_blocks as they were",
                          path, hop_safetensors_count(set), cores->count);
        goto done;
    }
    HOP_TRY_DONE(hop_parameters_read(set, cores, "", cores->values, err));
done:
    hop_safetensors_close(set);
    return status;
}

static hop_status load_cores(const char *directory, const struct hop_parameters *parameters,
                             struct hop_error *err)
{
    struct hop_parameters cores = {0};
    char *path = NULL;
    hop_status status;
    HOP_TRY_DONE(select_factors(parameters, true, &cores, err));
    HOP_TRY_DONE(hop_path_join(directory, CORES_FILE, &path, err));
    HOP_TRY_DONE(load_core_file(path, &cores, err));
done:
    free(cores.items);
    free(path);
    return status;
}

hop_status hop_checkpoint_load_adapter(const char *path, const struct hop_model_config *config,
                                       const struct hop_lora_config *lora,
                                       struct hop_parameters *parameters, struct hop_error *err)
{
    struct hop_parameters pairs = {0};
    HOP_TRY(load_cores(path, parameters, err));
    HOP_TRY(select_factors(parameters, false, &pairs, err));
    const hop_status status = hop_adapter_load(path, config, lora, &pairs, err);
    free(pairs.items);
    return status;
}

static hop_status load_state(const char *directory, struct hop_trainer_state *state,
                             int64_t *optimizer_steps, struct hop_error *err)
{
    char *path = NULL;
    json_t *object = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "trainer_state.json", &path, err));
    HOP_TRY_DONE(hop_json_load(path, &object, err));
    HOP_TRY_DONE(hop_trainer_state_parse(object, path, state, optimizer_steps, err));
done:
    json_decref(object);
    free(path);
    return status;
}

static hop_status load_optimizer(const char *directory, const struct hop_parameters *parameters,
                                 struct hop_adamw *adamw, struct hop_error *err)
{
    char *path = NULL;
    struct hop_safetensors *set = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "optimizer.safetensors", &path, err));
    HOP_TRY_DONE(hop_safetensors_open(path, &set, err));
    HOP_TRY_DONE(hop_parameters_read(set, parameters, optimizer_suffixes[0], adamw->exp_avg, err));
    HOP_TRY_DONE(
        hop_parameters_read(set, parameters, optimizer_suffixes[1], adamw->exp_avg_sq, err));
done:
    hop_safetensors_close(set);
    free(path);
    return status;
}

hop_status hop_checkpoint_load(const char *path, const struct hop_model_config *config,
                               const struct hop_lora_config *lora,
                               struct hop_parameters *parameters, struct hop_adamw *adamw,
                               struct hop_trainer_state *state, struct hop_error *err)
{
    struct hop_trainer_state loaded = hop_trainer_state_default();
    int64_t optimizer_steps = 0;
    hop_status status;
    HOP_TRY_DONE(check_lora(path, config, lora, err));
    HOP_TRY_DONE(load_state(path, &loaded, &optimizer_steps, err));
    HOP_TRY_DONE(hop_checkpoint_load_adapter(path, config, lora, parameters, err));
    HOP_TRY_DONE(load_optimizer(path, parameters, adamw, err));
    adamw->steps = optimizer_steps;
    *state = loaded;
    loaded.log_history = NULL;
done:
    hop_trainer_state_free(&loaded);
    return status;
}
