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
    char *host;                    /* NULL: this machine */
    char *profile;                 /* NULL: none; else the file it came from */
    char *mode;                    /* power mode of the profile; NULL: none */
    char *backend;                 /* name of a numeric backend */
    bool bp;                       /* BP-capable */
    double rate;                   /* forward, achieved, TFLOPS (1e12 operations a second) */
    bool rate_known;               /* given by the file or a profile; else the rate is a guess */
    double memory;                 /* bytes a stage may use; 0: not limited */
    double memory_bandwidth;       /* bytes/s achieved; 0: never what limits a block */
    double overhead;               /* seconds a block takes beside the arithmetic */
    double backward_ratio;         /* backward / forward with frozen weights */
    double probe_ratio;            /* what a further probe of one PROBE takes / forward */
    double idle_watts, busy_watts; /* NAN: not known */
    int32_t threads;               /* 0: the device's share of its machine's cores */
    bool emulate;      /* the run waits until the cost table says a task or message is done */
    double time_scale; /* of those waits; the same for all emulated devices */
};

/* An exception to the network's figures, one direction. */
struct hop_link {
    int32_t from, to; /* indices of devices */
    double bandwidth, latency;
};

struct hop_cluster {
    struct hop_device *devices;
    size_t count;
    double bandwidth, latency; /* bytes/s, seconds; 0: not given */
    bool half_duplex;          /* both directions of a link take turns */
    bool shared_nic;           /* all that a device sends takes turns, and all that it receives */
    struct hop_link *links;
    size_t link_count;
    bool share_files; /* ranks that can open the very same model files map them (default true) */
};

/* From the parsed cluster object. Names are unique, non-empty; unknown keys suggest the nearest;
 * `profile` is looked up next to the file, then in profiles/ of the program. A device that gives
 * every figure itself needs no such file. */
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
/* Names of the devices in order (point into the cluster). Caller frees the array. */
hop_status hop_cluster_names(const struct hop_cluster *cluster, const char ***out,
                             struct hop_error *err);
/* time_scale of the emulated devices; 0 where none is emulated. */
double hop_cluster_time_scale(const struct hop_cluster *cluster);
/* Does the device run on this machine (no host, localhost, 127.0.0.1, or this machine's name)? */
bool hop_device_is_local(const struct hop_device *device);
/* Cores this process may use (hwloc: cgroup and affinity are respected). */
int32_t hop_machine_cores(void);

#endif
