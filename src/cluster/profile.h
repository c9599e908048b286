/* Device profiles: profiles/NAME.yaml (docs/profiles.md has the format). Private to src/cluster. */
#ifndef HOP_CLUSTER_PROFILE_H
#define HOP_CLUSTER_PROFILE_H

#include <jansson.h>

#include "base/error.h"

/* The path of the profile that a cluster file at `where` means by `name`: a path (it has a '/' or
 * ends in .yaml) is relative to the file's folder; a bare name is looked for there, then in the
 * program's profiles folder ($HYBRIDOP_PROFILES, else the one known when it was built). *path =
 * NULL: none. */
hop_status hop_profile_find(const char *name, const char *where, char **path,
                            struct hop_error *err);
/* HOP_INPUT "there is no profile NAME" with the nearest one that exists and the remedy. */
hop_status hop_profile_missing(const char *name, const char *place, struct hop_error *err);

/* *out = a new object with the figures (cluster/figures.h) that the profile gives in `mode` (NULL:
 * in its default mode, where it has one) and the `mode` they are of. The whole file is checked:
 * every mode, and that every figure has its source. */
hop_status hop_profile_load(const char *path, const char *mode, json_t **out,
                            struct hop_error *err);

#endif
