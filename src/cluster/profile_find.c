#include "cluster/profile.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/string.h"
#include "io/file.h"

static const char extension[] = ".yaml";

static const char *profile_directory(void)
{
    const char *const set = getenv("HYBRIDOP_PROFILES");
    return set && *set ? set : HOP_PROFILE_DIR;
}

static bool has_extension(const char *name)
{
    const size_t n = strlen(name), e = sizeof extension - 1;
    return n > e && strcmp(name + n - e, extension) == 0;
}

/* *path = the file's canonical path, or NULL where there is none. */
static hop_status look_in(const char *directory, const char *file, char **path,
                          struct hop_error *err)
{
    char *joined;
    HOP_TRY(hop_path_join(directory, file, &joined, err));
    *path = hop_file_exists(joined) ? realpath(joined, NULL) : NULL;
    free(joined);
    return HOP_OK;
}

static hop_status look_beside(const char *where, const char *file, char **path,
                              struct hop_error *err)
{
    char *directory;
    HOP_TRY(hop_path_directory(where, &directory, err));
    const hop_status status = look_in(directory, file, path, err);
    free(directory);
    return status;
}

hop_status hop_profile_find(const char *name, const char *where, char **path, struct hop_error *err)
{
    char *found = NULL;
    if (strchr(name, '/') || has_extension(name)) {
        HOP_TRY(look_beside(where, name, &found, err));
        *path = found;
        return HOP_OK;
    }
    struct hop_string file = {0};
    HOP_TRY(hop_string_printf(&file, err, "%s%s", name, extension));
    hop_status status = look_beside(where, hop_string_text(&file), &found, err);
    if (status == HOP_OK && !found)
        status = look_in(profile_directory(), hop_string_text(&file), &found, err);
    hop_string_free(&file);
    if (status == HOP_OK)
        *path = found;
    return status;
}

/* The profile in the program's folder whose name is nearest, of equally near ones the first by
 * name; false when none is near. */
static bool nearest_profile(const char *name, char *nearest, size_t size)
{
    DIR *const directory = opendir(profile_directory());
    if (!directory)
        return false;
    nearest[0] = '\0';
    for (struct dirent *entry; (entry = readdir(directory));) {
        char candidate[256];
        if (!has_extension(entry->d_name))
            continue;
        snprintf(candidate, sizeof candidate, "%.*s",
                 (int)(strlen(entry->d_name) + 1 - sizeof extension), entry->d_name);
        const bool before = nearest[0] && strcmp(nearest, candidate) < 0;
        const char *const both[] = {before ? nearest : candidate, before ? candidate : nearest};
        const char *const nearer = hop_nearest_name(name, both, nearest[0] ? 2 : 1);
        if (nearer == candidate)
            snprintf(nearest, size, "%s", candidate);
    }
    closedir(directory);
    return nearest[0] != '\0';
}

hop_status hop_profile_missing(const char *name, const char *place, struct hop_error *err)
{
    char nearest[256];
    if (nearest_profile(name, nearest, sizeof nearest))
        return hop_fail(err, HOP_INPUT, "%s: there is no profile '%s'; did you mean '%s'?", place,
                        name, nearest);
    return hop_fail(err, HOP_INPUT,
                    "%s: there is no profile '%s' beside this file or in %s; give one of those, "
                    "or leave profile out",
                    place, name, profile_directory());
}
