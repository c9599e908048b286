/* Writing the tensors of a model folder: one file, or shards and their index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

/* A folder that is being written; list holds all tensors, shard after shard. */
struct folder {
    const char *directory;
    const struct hop_tensor_source **list;
    size_t *ends; /* of each shard in list */
    size_t count, shards;
    hop_tensor_put put;
    void *context;
};

static hop_status total_bytes(const struct folder *folder, size_t *out, struct hop_error *err)
{
    size_t total = 0, bytes = 0;
    for (size_t i = 0; i < folder->count; i++) {
        HOP_TRY(hop_tensor_source_bytes(folder->directory, folder->list[i], &bytes, err));
        if (__builtin_add_overflow(total, bytes, &total))
            return hop_fail(err, HOP_INTERNAL, "%s: the tensors overflow 64 bits",
                            folder->directory);
    }
    *out = total;
    return HOP_OK;
}

/* A shard ends before the tensor that would make it too large. */
static hop_status cut(struct folder *folder, size_t shard_bytes, struct hop_error *err)
{
    size_t held = 0, bytes = 0;
    for (size_t i = 0; i < folder->count; i++) {
        HOP_TRY(hop_tensor_source_bytes(folder->directory, folder->list[i], &bytes, err));
        if (held > 0 && (held > shard_bytes || bytes > shard_bytes - held)) {
            folder->ends[folder->shards++] = i;
            held = 0;
        }
        held += bytes;
    }
    folder->ends[folder->shards++] = folder->count;
    return HOP_OK;
}

static void shard_name(const struct folder *folder, size_t shard, char name[64])
{
    if (folder->shards == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, folder->shards);
}

static hop_status write_shard(const struct folder *folder, size_t shard, struct hop_error *err)
{
    const size_t begin = shard ? folder->ends[shard - 1] : 0;
    char name[64], *path;
    shard_name(folder, shard, name);
    HOP_TRY(hop_path_join(folder->directory, name, &path, err));
    const hop_status status = hop_safetensors_write_with(
        path, folder->list + begin, folder->ends[shard] - begin, folder->put, folder->context, err);
    free(path);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct hop_tensor_source *const *const x = a, *const *const y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* {tensor: file}, sorted by name as Hugging Face writes it. */
static json_t *weight_map(const struct folder *folder)
{
    json_t *const in_list_order = json_object(), *const map = json_object();
    size_t shard = 0;
    for (size_t i = 0; i < folder->count; i++) {
        char name[64];
        while (i >= folder->ends[shard])
            shard++;
        shard_name(folder, shard, name);
        json_object_set_new(in_list_order, folder->list[i]->name, json_string(name));
    }
    qsort(folder->list, folder->count, sizeof *folder->list, by_name);
    for (size_t i = 0; i < folder->count; i++)
        json_object_set(map, folder->list[i]->name,
                        json_object_get(in_list_order, folder->list[i]->name));
    json_decref(in_list_order);
    return map;
}

static hop_status write_index(const struct folder *folder, struct hop_error *err)
{
    size_t total = 0;
    char *path = NULL;
    json_t *index = NULL;
    hop_status status;
    HOP_TRY_DONE(total_bytes(folder, &total, err));
    HOP_TRY_DONE(hop_path_join(folder->directory, "model.safetensors.index.json", &path, err));
    index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map",
                      weight_map(folder));
    if (!index)
        HOP_TRY_DONE(hop_fail(err, HOP_MEMORY, "%s: out of memory", path));
    HOP_TRY_DONE(hop_json_save(path, index, err));
done:
    json_decref(index);
    free(path);
    return status;
}

hop_status hop_safetensors_write_folder(const char *directory,
                                        const struct hop_tensor_source *tensors, size_t count,
                                        size_t shard_bytes, hop_tensor_put put, void *context,
                                        size_t *files, struct hop_error *err)
{
    struct folder folder = {.directory = directory, .count = count, .put = put, .context = context};
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&folder.list, count, sizeof(void *), err));
    HOP_TRY_DONE(hop_calloc(&folder.ends, count + 1, sizeof *folder.ends, err));
    for (size_t i = 0; i < count; i++)
        folder.list[i] = &tensors[i];
    HOP_TRY_DONE(cut(&folder, shard_bytes, err));
    for (size_t shard = 0; shard < folder.shards; shard++)
        HOP_TRY_DONE(write_shard(&folder, shard, err));
    if (folder.shards > 1)
        HOP_TRY_DONE(write_index(&folder, err));
    *files = folder.shards;
done:
    free(folder.list);
    free(folder.ends);
    return status;
}
