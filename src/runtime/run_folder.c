#include "runtime/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/string.h"
#include "io/file.h"
#include "runtime/planning.h"
#include "train/checkpoint.h"

/* The first free name of the form path.old-K. */
static hop_status set_aside(const char *path, struct hop_error *err)
{
    for (int k = 1;; k++) {
        struct hop_string to = {0};
        HOP_TRY(hop_string_printf(&to, err, "%s.old-%d", path, k));
        const bool taken = hop_file_exists(to.data);
        const bool renamed = !taken && rename(path, to.data) == 0;
        hop_string_free(&to);
        if (renamed)
            return HOP_OK;
        if (!taken)
            return hop_fail(err, HOP_IO, "%s: cannot be renamed: %s", path, strerror(errno));
    }
}

hop_status hop_run_folder_set_aside(const char *directory, struct hop_error *err)
{
    hop_status status = HOP_OK;
    DIR *const folder = opendir(directory);
    if (!folder)
        return hop_fail(err, HOP_IO, "%s: %s", directory, strerror(errno));
    for (struct dirent *entry; status == HOP_OK && (entry = readdir(folder)) != NULL;) {
        char *path = NULL;
        if (hop_checkpoint_number(entry->d_name) < 0)
            continue;
        status = hop_path_join(directory, entry->d_name, &path, err);
        if (status == HOP_OK)
            status = set_aside(path, err);
        free(path);
    }
    closedir(folder);
    return status;
}

hop_status hop_run_folder_create(const char *directory, const struct hop_job *job,
                                 const struct hop_plan *plan, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *config = NULL, *planned = NULL;
    HOP_TRY_DONE(hop_directory_create(directory, err));
    HOP_TRY_DONE(hop_path_join(directory, "config.yaml", &config, err));
    HOP_TRY_DONE(hop_path_join(directory, "plan.json", &planned, err));
    HOP_TRY_DONE(hop_job_save(job, config, err));
    HOP_TRY_DONE(hop_plan_save(plan, job, planned, err));
done:
    free(config);
    free(planned);
    return status;
}
