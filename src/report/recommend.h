/* Which of several forecasts to run, and why in one sentence. */
#ifndef HOP_REPORT_RECOMMEND_H
#define HOP_REPORT_RECOMMEND_H

#include <stddef.h>

#include "base/string.h"
#include "report/forecast.h"

/* Does every adapter get a gradient, exact or estimated? Not with `frozen` on BP-free devices. */
bool hop_forecast_trains_all(const struct hop_forecast *forecast);

/* Feasible ones by falling samples/s, then the others; equals keep their order. */
void hop_forecasts_sort(struct hop_forecast *forecasts, size_t count);

/* The fastest that fits and trains every adapter. Of those within 1 % of it, which is less than
 * what figures are good to: exact gradients before estimates, then the fewest devices, then the
 * first. One that leaves adapters untrained is a yardstick: it is recommended only where nothing
 * else fits, and the reason says so. *chosen is NULL where nothing fits. Appends to reason. */
hop_status hop_recommend(const struct hop_forecast *forecasts, size_t count,
                         const struct hop_cost_table *cost, const struct hop_forecast **chosen,
                         struct hop_string *reason, struct hop_error *err);

#endif
