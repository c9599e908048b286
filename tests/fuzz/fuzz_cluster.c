/* A cluster file in YAML: what is accepted comes back from its own JSON, and the YAML from what it
 * was read to. */
#include "cluster/cluster.h"
#include "fuzz.h"
#include "io/yaml.h"

/* True when the file is YAML. */
static bool check_yaml(const char *path)
{
    json_t *value, *back;
    struct hop_string text = {0};
    struct hop_error err = {0};
    if (!hop_fuzz_read(hop_yaml_load(path, &value, &err), &err))
        return false;
    hop_fuzz_ok(hop_yaml_write(value, &text, &err), &err);
    hop_fuzz_ok(hop_yaml_parse(hop_string_text(&text), text.length, "back", &back, &err), &err);
    HOP_FUZZ_EXPECT(json_equal(value, back));
    json_decref(value);
    json_decref(back);
    hop_string_free(&text);
    return true;
}

static void check_cluster(const struct hop_cluster *cluster)
{
    HOP_FUZZ_EXPECT(cluster->count > 0);
    for (size_t i = 0; i < cluster->count; i++)
        HOP_FUZZ_EXPECT(hop_cluster_find(cluster, cluster->devices[i].name) == (int32_t)i);
    for (size_t i = 0; i < cluster->link_count; i++)
        HOP_FUZZ_EXPECT((size_t)cluster->links[i].from < cluster->count &&
                        (size_t)cluster->links[i].to < cluster->count);
}

static void check_round_trip(const struct hop_cluster *cluster)
{
    struct hop_cluster back;
    struct hop_error err = {0};
    json_t *const object = hop_cluster_json(cluster);
    HOP_FUZZ_EXPECT(object);
    hop_fuzz_ok(hop_cluster_parse(object, "back", &back, &err), &err);
    json_t *const again = hop_cluster_json(&back);
    HOP_FUZZ_EXPECT(json_equal(object, again));
    json_decref(object);
    json_decref(again);
    hop_cluster_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_cluster cluster;
    struct hop_error err = {0};
    const char *const path = hop_fuzz_write("cluster.yaml", data, size);
    if (!check_yaml(path) || !hop_fuzz_read(hop_cluster_load(path, &cluster, &err), &err))
        return 0;
    check_cluster(&cluster);
    check_round_trip(&cluster);
    hop_cluster_free(&cluster);
    return 0;
}
