#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors_header.h"

struct file {
    char *path;
    struct hop_map map;
    uint64_t fingerprint;
};

/* Tensors are sorted by name, so that looking one up is a binary search. */
struct hop_safetensors {
    struct file *files;
    size_t file_count, file_capacity;
    struct hop_tensor *tensors;
    size_t count, capacity;
};

/* FNV-1a of the header and the size of the file. */
static uint64_t fingerprint(const struct hop_map *map, size_t header_bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < header_bytes; i++)
        hash = (hash ^ map->data[i]) * 0x100000001b3u;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((uint64_t)map->size >> 8 * i & 255)) * 0x100000001b3u;
    return hash;
}

/* Moves the tensors that the weight map places in this shard (all, without a map) into the set. */
static hop_status keep_tensors(struct hop_safetensors *set, struct hop_tensor *tensors,
                               size_t count, const json_t *weight_map, const char *shard,
                               struct hop_error *err)
{
    HOP_TRY(hop_grow(&set->tensors, &set->capacity, set->count + count, sizeof *tensors, err));
    for (size_t i = 0; i < count; i++) {
        const char *const home = json_string_value(json_object_get(weight_map, tensors[i].name));
        if (weight_map && (!home || strcmp(home, shard) != 0))
            continue;
        set->tensors[set->count++] = tensors[i];
        tensors[i].name = NULL;
    }
    return HOP_OK;
}

static hop_status add_file(struct hop_safetensors *set, const char *path, const json_t *weight_map,
                           const char *shard, struct hop_error *err)
{
    struct hop_tensor *tensors = NULL;
    size_t count = 0, header_bytes;
    struct file file = {0};
    hop_status status;
    HOP_TRY_DONE(
        hop_grow(&set->files, &set->file_capacity, set->file_count + 1, sizeof *set->files, err));
    HOP_TRY_DONE(hop_string_copy(&file.path, path, err));
    HOP_TRY_DONE(hop_map_open(path, &file.map, err));
    HOP_TRY_DONE(hop_safetensors_parse(path, &file.map, (int)set->file_count, &tensors, &count,
                                       &header_bytes, err));
    HOP_TRY_DONE(keep_tensors(set, tensors, count, weight_map, shard, err));
    file.fingerprint = fingerprint(&file.map, header_bytes);
    set->files[set->file_count++] = file;
    file = (struct file){0};
done:
    hop_tensors_free(tensors, count);
    hop_map_close(&file.map);
    free(file.path);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hop_tensor *)a)->name, ((const struct hop_tensor *)b)->name);
}

hop_status hop_safetensors_open(const char *path, struct hop_safetensors **out,
                                struct hop_error *err)
{
    struct hop_safetensors *set;
    HOP_TRY(hop_calloc(&set, 1, sizeof *set, err));
    const hop_status status = add_file(set, path, NULL, NULL, err);
    if (status != HOP_OK) {
        hop_safetensors_close(set);
        return status;
    }
    if (set->count)
        qsort(set->tensors, set->count, sizeof *set->tensors, by_name);
    *out = set;
    return HOP_OK;
}

static bool plain_name(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static hop_status load_index(const char *path, json_t **index, json_t **weight_map,
                             struct hop_error *err)
{
    const char *name;
    json_t *shard, *root;
    HOP_TRY(hop_json_load(path, &root, err));
    json_t *const map = json_object_get(root, "weight_map");
    hop_status status = HOP_OK;
    if (!json_is_object(map))
        status = hop_fail(err, HOP_INPUT, "%s: \"weight_map\" is missing or not an object", path);
    json_object_foreach(map, name, shard) if (status == HOP_OK &&
                                              (!json_is_string(shard) ||
                                               !plain_name(json_string_value(shard)))) status =
        hop_fail(err, HOP_INPUT, "%s: weight_map: tensor %s must name a file of the same folder",
                 path, name);
    if (status != HOP_OK) {
        json_decref(root);
        return status;
    }
    *index = root;
    *weight_map = map;
    return HOP_OK;
}

/* Adds each shard the map names once, in the order of first mention. */
static hop_status add_shards(struct hop_safetensors *set, const char *directory, json_t *weight_map,
                             json_t *seen, struct hop_error *err)
{
    const char *name;
    json_t *shard;
    json_object_foreach(weight_map, name, shard)
    {
        const char *const file = json_string_value(shard);
        if (json_object_get(seen, file))
            continue;
        char *path;
        HOP_TRY(hop_path_join(directory, file, &path, err));
        const hop_status status = add_file(set, path, weight_map, file, err);
        free(path);
        if (status != HOP_OK)
            return hop_wrap(err, "shard of tensor %s", name);
        if (json_object_set_new(seen, file, json_true()) != 0)
            return hop_fail(err, HOP_MEMORY, "out of memory for the list of shards");
    }
    return HOP_OK;
}

static hop_status check_complete(const struct hop_safetensors *set, const char *index,
                                 json_t *weight_map, struct hop_error *err)
{
    const char *name;
    json_t *shard;
    json_object_foreach(weight_map, name, shard) if (
        !hop_safetensors_find(
            set,
            name)) return hop_fail(err, HOP_INPUT,
                                   "%s: tensor %s is not in %s, where the weight map places it",
                                   index, name, json_string_value(shard));
    return HOP_OK;
}

static hop_status open_sharded(const char *directory, const char *index_path,
                               struct hop_safetensors **out, struct hop_error *err)
{
    struct hop_safetensors *set = NULL;
    json_t *index = NULL, *weight_map, *const seen = json_object();
    hop_status status;
    if (!seen)
        return hop_fail(err, HOP_MEMORY, "out of memory for the list of shards");
    HOP_TRY_DONE(load_index(index_path, &index, &weight_map, err));
    HOP_TRY_DONE(hop_calloc(&set, 1, sizeof *set, err));
    HOP_TRY_DONE(add_shards(set, directory, weight_map, seen, err));
    if (set->count)
        qsort(set->tensors, set->count, sizeof *set->tensors, by_name);
    HOP_TRY_DONE(check_complete(set, index_path, weight_map, err));
    *out = set;
    set = NULL;
done:
    hop_safetensors_close(set);
    json_decref(index);
    json_decref(seen);
    return status;
}

hop_status hop_safetensors_open_folder(const char *directory, struct hop_safetensors **out,
                                       struct hop_error *err)
{
    char *single = NULL, *index = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(directory, "model.safetensors", &single, err));
    HOP_TRY_DONE(hop_path_join(directory, "model.safetensors.index.json", &index, err));
    if (hop_file_exists(single))
        status = hop_safetensors_open(single, out, err);
    else if (hop_file_exists(index))
        status = open_sharded(directory, index, out, err);
    else
        status = hop_fail(err, HOP_INPUT,
                          "%s: holds neither model.safetensors nor model.safetensors.index.json; "
                          "name the folder of a model in safetensors format",
                          directory);
done:
    free(single);
    free(index);
    return status;
}

void hop_safetensors_close(struct hop_safetensors *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->file_count; i++) {
        hop_map_close(&set->files[i].map);
        free(set->files[i].path);
    }
    free(set->files);
    hop_tensors_free(set->tensors, set->count);
    free(set);
}

size_t hop_safetensors_count(const struct hop_safetensors *set)
{
    return set->count;
}

const struct hop_tensor *hop_safetensors_at(const struct hop_safetensors *set, size_t index)
{
    return &set->tensors[index];
}

const struct hop_tensor *hop_safetensors_find(const struct hop_safetensors *set, const char *name)
{
    const struct hop_tensor key = {.name = name};
    if (!set->count)
        return NULL;
    return bsearch(&key, set->tensors, set->count, sizeof *set->tensors, by_name);
}

size_t hop_safetensors_files(const struct hop_safetensors *set)
{
    return set->file_count;
}

const char *hop_safetensors_path(const struct hop_safetensors *set, size_t file)
{
    return set->files[file].path;
}

uint64_t hop_safetensors_fingerprint(const struct hop_safetensors *set, size_t file)
{
    return set->files[file].fingerprint;
}
