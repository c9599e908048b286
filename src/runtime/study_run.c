/* The runs of a study: which there are, and running those that are not there yet. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"
#include "runtime/study.h"

struct run {
    char *folder;
    struct hop_string_list settings;
    pid_t child; /* 0: not running */
};

struct runs {
    struct run *items;
    size_t count, capacity;
};

static void free_runs(struct runs *runs)
{
    for (size_t r = 0; r < runs->count; r++) {
        hop_string_list_free(&runs->items[r].settings);
        free(runs->items[r].folder);
    }
    free(runs->items);
}

/* A run into `folder`, which it takes, with the settings of the study and the variant. */
static hop_status add_run(struct runs *runs, const struct hop_study *study,
                          const struct hop_study_variant *variant, int64_t seed, char *folder,
                          struct hop_error *err)
{
    char number[32];
    const hop_status status =
        hop_grow(&runs->items, &runs->capacity, runs->count + 1, sizeof *runs->items, err);
    if (status != HOP_OK) {
        free(folder);
        return status;
    }
    struct run *const run = &runs->items[runs->count++];
    *run = (struct run){.folder = folder};
    snprintf(number, sizeof number, "%lld", (long long)seed);
    HOP_TRY(hop_string_list_add_all(&run->settings, &study->settings, err));
    HOP_TRY(hop_string_list_add_all(&run->settings, &variant->settings, err));
    HOP_TRY(hop_study_set(&run->settings, "train.seed", number, err));
    return hop_study_set(&run->settings, "output", folder, err);
}

/* Running */

static hop_status is_done(const char *folder, bool *done, struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(folder, "summary.json", &path, err));
    *done = hop_file_exists(path);
    free(path);
    return HOP_OK;
}

static void run_child(const char *log, char *const *arguments)
{
    const int to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    execv(arguments[0], arguments);
    _exit(127);
}

/* program train JOB --set ... --set ... NULL; the strings are borrowed. */
static hop_status make_arguments(const struct hop_study *study, const struct run *run, char ***out,
                                 struct hop_error *err)
{
    char **arguments;
    size_t n = 0;
    HOP_TRY(hop_calloc(&arguments, 4 + 2 * run->settings.count, sizeof *arguments, err));
    arguments[n++] = (char *)(uintptr_t)study->program;
    arguments[n++] = (char *)(uintptr_t) "train";
    arguments[n++] = (char *)(uintptr_t)study->job;
    for (size_t i = 0; i < run->settings.count; i++) {
        arguments[n++] = (char *)(uintptr_t) "--set";
        arguments[n++] = run->settings.items[i];
    }
    *out = arguments;
    return HOP_OK;
}

static hop_status start(const struct hop_study *study, struct run *run, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *log = NULL, **arguments = NULL;
    HOP_TRY_DONE(hop_directory_create(run->folder, err));
    HOP_TRY_DONE(hop_path_join(run->folder, "log.txt", &log, err));
    HOP_TRY_DONE(make_arguments(study, run, &arguments, err));
    fflush(NULL);
    run->child = fork();
    if (run->child == 0)
        run_child(log, arguments);
    if (run->child < 0)
        status = hop_fail(err, HOP_PEER, "cannot start a process: %s", strerror(errno));
done:
    free(log);
    free(arguments);
    return status;
}

static hop_status say_failure(const struct run *run, bool tolerant, struct hop_error *err)
{
    if (!tolerant)
        return hop_fail(err, HOP_PEER, "the run in %s failed; see its log.txt", run->folder);
    hop_warn("the run in %s failed (see its log.txt) and is left out", run->folder);
    return HOP_OK;
}

/* Waits for any run; HOP_PEER where it failed. */
static hop_status await_one(struct runs *runs, bool tolerant, struct hop_error *err)
{
    int outcome = 0;
    pid_t child;
    do
        child = waitpid(-1, &outcome, 0);
    while (child < 0 && errno == EINTR);
    for (size_t r = 0; r < runs->count; r++) {
        struct run *const run = &runs->items[r];
        if (child <= 0 || run->child != child)
            continue;
        run->child = 0;
        if (!WIFEXITED(outcome) || WEXITSTATUS(outcome) != 0)
            return say_failure(run, tolerant, err);
        hop_note("done: %s", run->folder);
        return HOP_OK;
    }
    return hop_fail(err, HOP_PEER, "waiting for a run: %s", strerror(errno));
}

static size_t running(const struct runs *runs)
{
    size_t n = 0;
    for (size_t r = 0; r < runs->count; r++)
        n += runs->items[r].child > 0;
    return n;
}

static hop_status start_all(const struct hop_study *study, struct runs *runs, bool tolerant,
                            struct hop_error *err)
{
    for (size_t r = 0; r < runs->count; r++) {
        bool done;
        HOP_TRY(is_done(runs->items[r].folder, &done, err));
        if (done)
            continue;
        if (running(runs) >= (size_t)study->parallel)
            HOP_TRY(await_one(runs, tolerant, err));
        HOP_TRY(start(study, &runs->items[r], err));
    }
    return HOP_OK;
}

/* All of them, even where one fails: the others are worth having. `tolerant`: a failure is noted
 * and forgiven. */
static hop_status execute(const struct hop_study *study, struct runs *runs, bool tolerant,
                          struct hop_error *err)
{
    hop_status status = start_all(study, runs, tolerant, err);
    while (running(runs) > 0) {
        struct hop_error other;
        const hop_status one = await_one(runs, tolerant, &other);
        if (status == HOP_OK && one != HOP_OK) {
            status = one;
            *err = other;
        }
    }
    return status;
}

/* Which runs */

hop_status hop_study_folder(const struct hop_study *study, const struct hop_study_variant *variant,
                            int64_t seed, char **out, struct hop_error *err)
{
    struct hop_string path = {0};
    HOP_TRY(hop_string_printf(&path, err, "%s/runs/%s/seed-%lld", study->directory, variant->name,
                              (long long)seed));
    *out = path.data;
    return HOP_OK;
}

static hop_status add_final_runs(const struct hop_study *study,
                                 const struct hop_study_variant *variant, struct runs *runs,
                                 struct hop_error *err)
{
    for (size_t s = 0; s < study->seed_count; s++) {
        char *folder;
        HOP_TRY(hop_study_folder(study, variant, study->seeds[s], &folder, err));
        HOP_TRY(add_run(runs, study, variant, study->seeds[s], folder, err));
        HOP_TRY(
            hop_string_list_add_all(&runs->items[runs->count - 1].settings, &variant->chosen, err));
    }
    return HOP_OK;
}

hop_status hop_study_run(const struct hop_study *study, struct hop_error *err)
{
    struct runs runs = {0};
    hop_status status = HOP_OK;
    for (size_t v = 0; v < study->variant_count; v++)
        HOP_TRY_DONE(add_final_runs(study, &study->variants[v], &runs, err));
    status = execute(study, &runs, false, err);
done:
    free_runs(&runs);
    return status;
}

/* Tuning */

static size_t combinations(const struct hop_study_variant *variant)
{
    size_t n = variant->tune_count > 0;
    for (size_t i = 0; i < variant->tune_count; i++)
        n *= variant->tune[i].values.count;
    return n;
}

/* "key=value" of every axis in combination `index`. */
static hop_status combination(const struct hop_study_variant *variant, size_t index,
                              struct hop_string_list *out, struct hop_error *err)
{
    for (size_t i = 0; i < variant->tune_count; i++) {
        const struct hop_study_axis *const axis = &variant->tune[i];
        HOP_TRY(hop_study_set(out, axis->key, axis->values.items[index % axis->values.count], err));
        index /= axis->values.count;
    }
    return HOP_OK;
}

static hop_status tuning_folder(const struct hop_study *study,
                                const struct hop_study_variant *variant,
                                const struct hop_string_list *settings, char **out,
                                struct hop_error *err)
{
    struct hop_string path = {0};
    HOP_TRY(hop_string_printf(&path, err, "%s/tuning/%s/", study->directory, variant->name));
    for (size_t i = 0; i < settings->count; i++)
        HOP_TRY(hop_string_printf(&path, err, "%s%s", i ? "," : "", settings->items[i]));
    *out = path.data;
    return HOP_OK;
}

static hop_status add_tuning_runs(const struct hop_study *study,
                                  const struct hop_study_variant *variant, struct runs *runs,
                                  struct hop_error *err)
{
    for (size_t c = 0; c < combinations(variant); c++) {
        struct hop_string_list settings = {0};
        char *folder = NULL;
        hop_status status = combination(variant, c, &settings, err);
        if (status == HOP_OK)
            status = tuning_folder(study, variant, &settings, &folder, err);
        if (status == HOP_OK)
            status = add_run(runs, study, variant, study->seeds[0], folder, err);
        if (status == HOP_OK)
            status = hop_string_list_add_all(&runs->items[runs->count - 1].settings,
                                             &study->tuning_settings, err);
        if (status == HOP_OK)
            status =
                hop_string_list_add_all(&runs->items[runs->count - 1].settings, &settings, err);
        hop_string_list_free(&settings);
        HOP_TRY(status);
    }
    return HOP_OK;
}

/* Of the last evaluation, larger is better; -INFINITY where there is none or the run diverged. */
static hop_status score(const struct hop_study *study, const char *folder, double *out,
                        struct hop_error *err)
{
    struct hop_study_curve curve;
    const bool by_loss = strcmp(study->tuning_metric, "loss") == 0;
    bool done;
    *out = -INFINITY;
    HOP_TRY(is_done(folder, &done, err));
    if (!done)
        return HOP_OK;
    HOP_TRY(hop_study_curve_read(folder, study->tuning_metric, &curve, err));
    if (curve.evaluations > 0) {
        const size_t last = curve.evaluations - 1;
        *out = by_loss ? -curve.eval_loss[last] : curve.eval_metric[last];
    }
    if (!isfinite(*out))
        *out = -INFINITY;
    hop_study_curve_free(&curve);
    return HOP_OK;
}

static hop_status choose(const struct hop_study *study, struct hop_study_variant *variant,
                         struct hop_error *err)
{
    double best = -INFINITY;
    for (size_t c = 0; c < combinations(variant); c++) {
        struct hop_string_list settings = {0};
        char *folder = NULL;
        double value = -INFINITY;
        hop_status status = combination(variant, c, &settings, err);
        if (status == HOP_OK)
            status = tuning_folder(study, variant, &settings, &folder, err);
        if (status == HOP_OK)
            status = score(study, folder, &value, err);
        free(folder);
        if (status != HOP_OK || (c > 0 && value <= best)) {
            hop_string_list_free(&settings);
            HOP_TRY(status);
            continue;
        }
        best = value;
        hop_string_list_free(&variant->chosen);
        variant->chosen = settings;
    }
    if (variant->tune_count > 0 && best == -INFINITY)
        return hop_fail(err, HOP_PEER, "%s: every tuning run failed or has no %s; see %s/tuning",
                        variant->name, study->tuning_metric, study->directory);
    for (size_t i = 0; i < variant->chosen.count; i++)
        hop_note("%s: %s (%s %.4g)", variant->name, variant->chosen.items[i], study->tuning_metric,
                 fabs(best));
    return HOP_OK;
}

hop_status hop_study_tune(struct hop_study *study, struct hop_error *err)
{
    struct runs runs = {0};
    hop_status status = HOP_OK;
    for (size_t v = 0; v < study->variant_count; v++)
        HOP_TRY_DONE(add_tuning_runs(study, &study->variants[v], &runs, err));
    HOP_TRY_DONE(execute(study, &runs, true, err));
    for (size_t v = 0; v < study->variant_count; v++)
        HOP_TRY_DONE(choose(study, &study->variants[v], err));
done:
    free_runs(&runs);
    return status;
}
