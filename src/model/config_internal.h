/* What the readers of config.json share. */
#ifndef HOP_MODEL_CONFIG_INTERNAL_H
#define HOP_MODEL_CONFIG_INTERNAL_H

#include "model/config.h"

/* An integer from 1 to maximum; missing or null: fallback. */
hop_status hop__config_size(const json_t *object, const char *key, const char *where,
                            int64_t fallback, int64_t maximum, int32_t *out, struct hop_error *err);
/* A finite number above 0; missing or null: fallback. */
hop_status hop__config_positive(const json_t *object, const char *key, const char *where,
                                double fallback, double *out, struct hop_error *err);

/* Everything about rotary embedding; the sizes of *out are already there. */
hop_status hop__config_rope(const json_t *object, const char *where, struct hop_model_config *out,
                            struct hop_error *err);
/* The "rope_scaling" that hop__config_rope() reads back to the same. NULL: out of memory. */
json_t *hop__config_rope_json(const struct hop_model_config *config);

#endif
