/* Where in a schedule the tasks of a part and micro-batch stand. Private to src/schedule. */
#ifndef HOP_SCHEDULE_TASK_INDEX_H
#define HOP_SCHEDULE_TASK_INDEX_H

#include <stdint.h>

#include "base/error.h"
#include "schedule/schedule.h"

struct hop_task_index {
    int32_t parts, micro_batches;
    size_t *begin; /* (kinds * parts * micro_batches + 1), into refs */
    struct hop_task_ref *refs;
};

/* Tasks with a kind, part, micro-batch or probe range that cannot be are HOP_INPUT naming them. */
hop_status hop_task_index_create(const struct hop_plan *plan, const struct hop_schedule *schedule,
                                 struct hop_task_index *out, struct hop_error *err);
void hop_task_index_free(struct hop_task_index *index);

/* The tasks of that kind, part and micro-batch (-1 for REDUCE and STEP), device by device in list
 * order. */
const struct hop_task_ref *hop_task_index_find(const struct hop_task_index *index,
                                               enum hop_task_kind kind, int32_t part,
                                               int32_t micro_batch, int32_t *count);

#endif
