/* Small steps of gathering: entries of the report, files of the folder. */
#include <stdlib.h>

#include "cli/inspect.h"
#include "io/file.h"
#include "io/json.h"

hop_status hop_inspect_folder(const char *kind, const char *directory,
                              hop_status (*gather)(const char *directory, json_t *out,
                                                   struct hop_error *err),
                              json_t **out, struct hop_error *err)
{
    json_t *const found = json_pack("{s:s, s:s, s:[], s:[]}", "kind", kind, "directory", directory,
                                    "missing", "notes");
    if (!found)
        return hop_fail(err, HOP_INPUT, "%s: the name of the folder is not UTF-8", directory);
    const hop_status status = gather(directory, found, err);
    if (status == HOP_OK)
        *out = found;
    else
        json_decref(found);
    return status;
}

hop_status hop_inspect_put(json_t *object, const char *key, json_t *value, struct hop_error *err)
{
    if (!value || json_object_set_new(object, key, value) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory for \"%s\" of what was found", key);
    return HOP_OK;
}

hop_status hop_inspect_append(json_t *object, const char *key, const char *text,
                              struct hop_error *err)
{
    if (json_array_append_new(json_object_get(object, key), json_string(text)) != 0)
        return hop_fail(err, HOP_MEMORY, "out of memory for \"%s\" of what was found", key);
    return HOP_OK;
}

hop_status hop_inspect_has(const char *directory, const char *name, bool *out,
                           struct hop_error *err)
{
    char *path;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    *out = hop_file_exists(path);
    free(path);
    return HOP_OK;
}

hop_status hop_inspect_load(const char *directory, const char *name, json_t **out,
                            struct hop_error *err)
{
    char *path;
    hop_status status = HOP_OK;
    HOP_TRY(hop_path_join(directory, name, &path, err));
    *out = NULL;
    if (hop_file_exists(path))
        status = hop_json_load(path, out, err);
    free(path);
    return status;
}
