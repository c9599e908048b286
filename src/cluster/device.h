/* One device of a cluster file. Private to src/cluster. */
#ifndef HOP_CLUSTER_DEVICE_H
#define HOP_CLUSTER_DEVICE_H

#include <jansson.h>

#include "base/error.h"
#include "cluster/cluster.h"

/* `where` is the cluster file, `place` the device in it ("c.yaml: devices[0]"). */
hop_status hop_device_parse(const json_t *object, const char *where, const char *place,
                            struct hop_device *out, struct hop_error *err);
/* An object with every figure, so that reading it back needs no profile. NULL: out of memory. */
json_t *hop_device_json(const struct hop_device *device);
void hop_device_free(struct hop_device *device);

#endif
