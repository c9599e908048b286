/* Hidden states that the shards of a gang add up. */
#include "model/stage_internal.h"

hop_status hop__stage_reduce(struct hop_stage *stage, const struct hop__run *run, void *partial,
                             struct hop_error *err)
{
    const struct hop_exchange *const exchange = &stage->config.exchange;
    const size_t count = run->rows * stage->layout.hidden, bytes = count * stage->layout.element;
    if (hop_shard_is_whole(&stage->config.shard))
        return HOP_OK;
    if (stage->ops->host_memory)
        return exchange->reduce(exchange->context, partial, count, stage->config.dtype, err);
    HOP_TRY(stage->ops->read(stage->backend, stage->exchanged, partial, bytes, err));
    HOP_TRY(exchange->reduce(exchange->context, stage->exchanged, count, stage->config.dtype, err));
    return stage->ops->write(stage->backend, partial, stage->exchanged, bytes, err);
}
