#include "model/merge_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/string.h"
#include "io/file.h"
#include "io/json.h"

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

hop_status hop__merge_check_output(const char *output, struct hop_error *err)
{
    bool empty = true;
    DIR *const directory = opendir(output);
    if (!directory && errno == ENOENT)
        return HOP_OK;
    if (!directory)
        return hop_fail(err, HOP_INPUT, "%s: cannot be the output: %s", output, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(directory));)
        empty = empty && is_dots(entry->d_name);
    closedir(directory);
    if (!empty)
        return hop_fail(err, HOP_INPUT, "%s: the folder is not empty; name a new one", output);
    return HOP_OK;
}

static size_t length_without_slash(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

static hop_status create_parent(const char *path, struct hop_error *err)
{
    char *parent;
    HOP_TRY(hop_path_directory(path, &parent, err));
    const hop_status status = hop_directory_create(parent, err);
    free(parent);
    return status;
}

hop_status hop__merge_folder_begin(const char *output, char **aside, struct hop_error *err)
{
    struct hop_string path = {0};
    hop_status status;
    HOP_TRY_DONE(
        hop_string_printf(&path, err, "%.*s.tmp", (int)length_without_slash(output), output));
    HOP_TRY_DONE(create_parent(hop_string_text(&path), err));
    if (mkdir(hop_string_text(&path), 0777) == 0) {
        *aside = path.data;
        return HOP_OK;
    }
    status = errno == EEXIST
                 ? hop_fail(err, HOP_INPUT,
                            "%s: is there already; another merge is at work, or one was "
                            "interrupted: then remove it",
                            hop_string_text(&path))
                 : hop_fail(err, HOP_IO, "%s: the folder cannot be created: %s",
                            hop_string_text(&path), strerror(errno));
done:
    hop_string_free(&path);
    return status;
}

/* Names are durable only when the folder that holds them is. */
static void sync_folder(const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    fsync(descriptor);
    close(descriptor);
}

hop_status hop__merge_folder_commit(const char *aside, const char *output, struct hop_error *err)
{
    char *parent;
    sync_folder(aside);
    if (rename(aside, output) != 0)
        return hop_fail(err, HOP_IO, "%s: cannot be renamed to %s: %s", aside, output,
                        strerror(errno));
    HOP_TRY(hop_path_directory(aside, &parent, err));
    sync_folder(parent);
    free(parent);
    return HOP_OK;
}

void hop__merge_folder_discard(const char *aside)
{
    DIR *const directory = aside ? opendir(aside) : NULL;
    if (!directory)
        return;
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (!is_dots(entry->d_name))
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(aside);
}

/* Copying */

static const char *const copied[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
    "USE_POLICY.md",
};

static hop_status copy_file(const char *from, const char *to, struct hop_error *err)
{
    struct hop_map map = {0};
    HOP_TRY(hop_map_open(from, &map, err));
    const hop_status status = hop_file_write(to, map.data, map.size, err);
    hop_map_close(&map);
    return status;
}

/* New files say "dtype", older ones "torch_dtype", which every reader knows. */
static hop_status copy_config(const char *from, const char *to, enum hop_dtype dtype,
                              struct hop_error *err)
{
    static const char *const names[] = {
        [HOP_F32] = "float32", [HOP_BF16] = "bfloat16", [HOP_F16] = "float16"};
    json_t *object;
    HOP_TRY(hop_json_load(from, &object, err));
    const char *const key = json_object_get(object, "dtype") ? "dtype" : "torch_dtype";
    hop_status status = HOP_OK;
    if (json_object_set_new(object, key, json_string(names[dtype])) != 0)
        status = hop_fail(err, HOP_INPUT, "%s: must be an object", from);
    if (status == HOP_OK)
        status = hop_json_save(to, object, err);
    json_decref(object);
    return status;
}

static hop_status copy_named(const char *model, const char *directory, const char *name,
                             const enum hop_dtype *dtype, struct hop_error *err)
{
    char *from = NULL, *to = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(model, name, &from, err));
    HOP_TRY_DONE(hop_path_join(directory, name, &to, err));
    if (!hop_file_exists(from))
        goto done;
    status = dtype && strcmp(name, "config.json") == 0 ? copy_config(from, to, *dtype, err)
                                                       : copy_file(from, to, err);
done:
    free(from);
    free(to);
    return status;
}

hop_status hop__merge_copy_files(const char *model, const char *directory,
                                 const enum hop_dtype *dtype, struct hop_error *err)
{
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        HOP_TRY(copy_named(model, directory, copied[i], dtype, err));
    return HOP_OK;
}
