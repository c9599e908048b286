/* The tables of the backends in this tree. Their internals clash by design: each defines its own
 * struct hop_backend and struct hop_weight. */
#ifndef HOP_OPS_BACKENDS_H
#define HOP_OPS_BACKENDS_H

#include "ops/ops.h"

extern const struct hop_ops hop_cpu_ops;
extern const struct hop_ops hop_reference_ops;

#endif
