/* Which of a part's places a micro-batch has, while something of it is kept. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/executor_internal.h"

hop_status hop_kept_create(int32_t count, int32_t micro_batches, struct hop_kept *out,
                           struct hop_error *err)
{
    out->count = count;
    HOP_TRY(hop_calloc(&out->busy, (size_t)count, sizeof *out->busy, err));
    return hop_calloc(&out->of, (size_t)micro_batches, sizeof *out->of, err);
}

void hop_kept_free(struct hop_kept *kept)
{
    if (!kept)
        return;
    free(kept->busy);
    free(kept->of);
    *kept = (struct hop_kept){0};
}

int32_t hop_kept_take(struct hop_kept *kept, int32_t micro_batch)
{
    int32_t place = 0;
    while (kept->busy[place])
        place++;
    kept->busy[place] = true;
    kept->of[micro_batch] = place;
    return place;
}

void hop_kept_release(struct hop_kept *kept, int32_t micro_batch)
{
    kept->busy[kept->of[micro_batch]] = false;
}
