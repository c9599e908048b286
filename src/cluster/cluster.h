/* The boards: what the cluster file (or the `cluster:` section of a job) says. */
#ifndef HOP_CLUSTER_CLUSTER_H
#define HOP_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

struct hop_device {
    char *name;
    char *host;      /* NULL: this machine */
    char *profile;   /* NULL: none; else the file it came from */
    char *backend;   /* name of a numeric backend */
    bool bp;         /* BP-capable */
    double rate;     /* forward rate; only ratios between devices matter */
    double memory;   /* bytes a stage may use; 0: not limited */
    int32_t threads; /* 0: the device's share of its machine's cores */
};

struct hop_cluster {
    struct hop_device *devices;
    size_t count;
    double bandwidth, latency; /* bytes/s, seconds; 0: not given */
    bool share_files; /* ranks that can open the very same model files map them (default true) */
};

/* From the parsed cluster object. Names are unique, non-empty; unknown keys suggest the nearest;
 * `profile` is looked up next to the file, then in profiles/ of the program. */
hop_status hop_cluster_parse(const json_t *object, const char *where, struct hop_cluster *out,
                             struct hop_error *err);
hop_status hop_cluster_load(const char *path, struct hop_cluster *out, struct hop_error *err);
/* Every core of this machine as one BP-capable device named "local". */
hop_status hop_cluster_local(struct hop_cluster *out, struct hop_error *err);
/* An object hop_cluster_parse() reads back to the same cluster. NULL: out of memory. */
json_t *hop_cluster_json(const struct hop_cluster *cluster);
void hop_cluster_free(struct hop_cluster *cluster);

/* Index of the device of that name, or -1. */
int32_t hop_cluster_find(const struct hop_cluster *cluster, const char *name);
/* Does the device run on this machine (no host, localhost, 127.0.0.1, or this machine's name)? */
bool hop_device_is_local(const struct hop_device *device);
/* Cores this process may use (hwloc: cgroup and affinity are respected). */
int32_t hop_machine_cores(void);

#endif
