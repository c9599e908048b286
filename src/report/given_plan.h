/* Plans that were brought along instead of asked for. Private to src/report. */
#ifndef HOP_REPORT_GIVEN_PLAN_H
#define HOP_REPORT_GIVEN_PLAN_H

#include "cluster/cost.h"
#include "schedule/plan.h"

/* Follows the plan as it stands and takes prices and limits from the table. The micro-batches that
 * its parts say they keep (in_flight) are kept; where a part says nothing, as many as are useful
 * and fit. HOP_INFEASIBLE names the part that does not fit. */
hop_status hop_given_plan_price(struct hop_plan *plan, const struct hop_cost_table *cost,
                                struct hop_error *err);

#endif
