#include "cluster/network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/schema.h"

enum { PLACE = 512 };

enum duplex { FULL_DUPLEX, HALF_DUPLEX };
enum nic { SEPARATE_NIC, SHARED_NIC };

static const char *const duplex_names[] = {[FULL_DUPLEX] = "full", [HALF_DUPLEX] = "half", NULL};
static const char *const nic_names[] = {[SEPARATE_NIC] = "separate", [SHARED_NIC] = "shared", NULL};

const struct hop_field hop_network_fields[] = {
    {.key = "bandwidth",
     .type = HOP_FIELD_RATE,
     .offset = offsetof(struct hop_network_keys, bandwidth),
     .help = "of a link between two devices, e.g. 1Gbps"},
    {.key = "latency",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct hop_network_keys, latency),
     .help = "of a message, e.g. 0.3ms"},
    {.key = "duplex",
     .type = HOP_FIELD_CHOICE,
     .offset = offsetof(struct hop_network_keys, duplex),
     .choices = duplex_names,
     .help = "half: both directions of a link take turns"},
    {.key = "nic",
     .type = HOP_FIELD_CHOICE,
     .offset = offsetof(struct hop_network_keys, nic),
     .choices = nic_names,
     .help = "shared: all that a device sends takes turns, and all it receives"},
    {.key = "pairs",
     .type = HOP_FIELD_ANY,
     .offset = offsetof(struct hop_network_keys, pairs),
     .help = "list of {from, to, bandwidth, latency}, one direction each"},
    {.key = NULL},
};

struct pair_keys {
    char *from, *to;
    double bandwidth, latency;
};

static const struct hop_field pair_fields[] = {
    {.key = "from", .type = HOP_FIELD_STRING, .offset = offsetof(struct pair_keys, from)},
    {.key = "to", .type = HOP_FIELD_STRING, .offset = offsetof(struct pair_keys, to)},
    {.key = "bandwidth",
     .type = HOP_FIELD_RATE,
     .offset = offsetof(struct pair_keys, bandwidth),
     .fallback = NAN,
     .minimum = 1,
     .maximum = INFINITY},
    {.key = "latency",
     .type = HOP_FIELD_SECONDS,
     .offset = offsetof(struct pair_keys, latency),
     .fallback = NAN},
    {.key = NULL},
};

static hop_status unknown_device(const struct hop_cluster *cluster, const char *name,
                                 const char *key, const char *place, struct hop_error *err)
{
    const char **names;
    HOP_TRY(hop_cluster_names(cluster, &names, err));
    const char *const near = hop_nearest_name(name, names, cluster->count);
    free(names);
    if (near)
        return hop_fail(err, HOP_INPUT, "%s: %s: there is no device '%.64s'; did you mean '%s'?",
                        place, key, name, near);
    return hop_fail(err, HOP_INPUT,
                    "%s: %s: there is no device '%.64s'; use a name of the list devices", place,
                    key, name);
}

static hop_status find_device(const struct hop_cluster *cluster, const char *name, const char *key,
                              const char *place, int32_t *out, struct hop_error *err)
{
    if (!name)
        return hop_fail(err, HOP_INPUT,
                        "%s: %s is missing; a pair is a map such as {from: a, to: b, bandwidth: "
                        "100Mbps}",
                        place, key);
    *out = hop_cluster_find(cluster, name);
    return *out < 0 ? unknown_device(cluster, name, key, place, err) : HOP_OK;
}

/* What a pair leaves out is as in the whole network. */
static hop_status make_link(const struct hop_cluster *cluster, const struct pair_keys *keys,
                            const char *place, struct hop_link *out, struct hop_error *err)
{
    HOP_TRY(find_device(cluster, keys->from, "from", place, &out->from, err));
    HOP_TRY(find_device(cluster, keys->to, "to", place, &out->to, err));
    if (out->from == out->to)
        return hop_fail(err, HOP_INPUT, "%s: from and to are both '%s'; two devices are needed",
                        place, keys->from);
    if (isnan(keys->bandwidth) && isnan(keys->latency))
        return hop_fail(err, HOP_INPUT, "%s: bandwidth or latency is needed", place);
    out->bandwidth = isnan(keys->bandwidth) ? cluster->bandwidth : keys->bandwidth;
    out->latency = isnan(keys->latency) ? cluster->latency : keys->latency;
    return HOP_OK;
}

static hop_status parse_pair(const json_t *object, const struct hop_cluster *cluster,
                             const char *place, struct hop_link *out, struct hop_error *err)
{
    struct pair_keys keys;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT,
                        "%s: a pair is a map such as {from: a, to: b, bandwidth: 100Mbps}", place);
    HOP_TRY(hop_schema_bind(pair_fields, object, place, &keys, err));
    const hop_status status = make_link(cluster, &keys, place, out, err);
    hop_schema_release(pair_fields, &keys);
    return status;
}

static hop_status refuse_twin(const struct hop_cluster *cluster, const struct hop_link *link,
                              const char *place, struct hop_error *err)
{
    for (size_t i = 0; i < cluster->link_count; i++)
        if (cluster->links[i].from == link->from && cluster->links[i].to == link->to)
            return hop_fail(err, HOP_INPUT,
                            "%s: from '%s' to '%s' is also network.pairs[%zu]'s; give a direction "
                            "once",
                            place, cluster->devices[link->from].name,
                            cluster->devices[link->to].name, i);
    return HOP_OK;
}

static hop_status parse_pairs(const json_t *list, const char *where, struct hop_cluster *cluster,
                              struct hop_error *err)
{
    const size_t count = json_array_size(list);
    if (list && !json_is_array(list))
        return hop_fail(err, HOP_INPUT,
                        "%s: network.pairs must be a list such as [{from: a, to: b, bandwidth: "
                        "100Mbps}]",
                        where);
    if (count == 0)
        return HOP_OK;
    HOP_TRY(hop_calloc(&cluster->links, count, sizeof *cluster->links, err));
    for (size_t i = 0; i < count; i++) {
        char place[PLACE];
        struct hop_link *const link = &cluster->links[i];
        snprintf(place, sizeof place, "%s: network.pairs[%zu]", where, i);
        HOP_TRY(parse_pair(json_array_get(list, i), cluster, place, link, err));
        HOP_TRY(refuse_twin(cluster, link, place, err));
        cluster->link_count = i + 1;
    }
    return HOP_OK;
}

hop_status hop_network_apply(const struct hop_network_keys *keys, const char *where,
                             struct hop_cluster *cluster, struct hop_error *err)
{
    cluster->bandwidth = keys->bandwidth;
    cluster->latency = keys->latency;
    cluster->half_duplex = keys->duplex == HALF_DUPLEX;
    cluster->shared_nic = keys->nic == SHARED_NIC;
    return parse_pairs(keys->pairs, where, cluster, err);
}

/* A bandwidth of 0 was given nowhere, and is left out. */
static json_t *pair_json(const struct hop_cluster *cluster, const struct hop_link *link)
{
    json_t *const pair = json_pack("{s:s, s:s, s:f}", "from", cluster->devices[link->from].name,
                                   "to", cluster->devices[link->to].name, "latency", link->latency);
    if (!pair || link->bandwidth == 0 ||
        json_object_set_new(pair, "bandwidth", json_real(link->bandwidth)) == 0)
        return pair;
    json_decref(pair);
    return NULL;
}

static json_t *pairs_json(const struct hop_cluster *cluster)
{
    json_t *const pairs = json_array();
    for (size_t i = 0; pairs && i < cluster->link_count; i++) {
        if (json_array_append_new(pairs, pair_json(cluster, &cluster->links[i])) == 0)
            continue;
        json_decref(pairs);
        return NULL;
    }
    return pairs;
}

json_t *hop_network_json(const struct hop_cluster *cluster)
{
    const enum duplex duplex = cluster->half_duplex ? HALF_DUPLEX : FULL_DUPLEX;
    const enum nic nic = cluster->shared_nic ? SHARED_NIC : SEPARATE_NIC;
    return json_pack("{s:f, s:f, s:s, s:s, s:o}", "bandwidth", cluster->bandwidth, "latency",
                     cluster->latency, "duplex", duplex_names[duplex], "nic", nic_names[nic],
                     "pairs", pairs_json(cluster));
}
