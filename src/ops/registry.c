#include <string.h>

#include "ops/backends.h"
#include "ops/ops.h"

const struct hop_ops *const hop_backends[] = {&hop_cpu_ops, &hop_reference_ops, NULL};

const struct hop_ops *hop_backend_find(const char *name)
{
    for (size_t i = 0; hop_backends[i]; i++)
        if (strcmp(hop_backends[i]->name, name) == 0)
            return hop_backends[i];
    return NULL;
}

bool hop_ops_bp_capable(const struct hop_ops *ops)
{
    return ops->embed_backward && ops->rmsnorm_backward && ops->project_backward &&
           ops->rope_backward && ops->attention_backward && ops->swiglu_backward &&
           ops->gather_backward && ops->loss_backward;
}

struct hop_ops hop_ops_forward_only(const struct hop_ops *ops)
{
    struct hop_ops copy = *ops;
    copy.embed_backward = NULL;
    copy.rmsnorm_backward = NULL;
    copy.project_backward = NULL;
    copy.rope_backward = NULL;
    copy.attention_backward = NULL;
    copy.swiglu_backward = NULL;
    copy.gather_backward = NULL;
    copy.loss_backward = NULL;
    return copy;
}
