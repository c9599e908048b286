/* Forecasts as tables for people. */
#ifndef HOP_REPORT_FORECAST_TABLE_H
#define HOP_REPORT_FORECAST_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "report/forecast.h"

/* What the cost table does not say. Zeroed: nothing is known and its columns are left out. */
struct hop_forecast_facts {
    int64_t block_parameters;   /* frozen, of one block */
    int64_t embed_parameters;   /* of the embedding, and of the head where it has its own */
    bool tied;                  /* embedding and head share them */
    int64_t adapter_parameters; /* trained, of one block; of the largest where they differ */
    int32_t tokens, labels;     /* of a row, that times are priced at */
    double time_scale;          /* of emulated devices; 0: there are none */
};

/* A row a device, below it what the whole plan does, and how good it is. A feasible one. */
hop_status hop_forecast_print(const struct hop_forecast *forecast,
                              const struct hop_cost_table *cost,
                              const struct hop_forecast_facts *facts, FILE *to,
                              struct hop_error *err);

/* A row a forecast, feasible or not, below them the reasons of those that are not. */
hop_status hop_forecast_compare(const struct hop_forecast *forecasts, size_t count, FILE *to,
                                struct hop_error *err);

/* Writes how the plan's zeroth-order parts learn about their gradient, as half a sentence; false
 * where there are none, or where nothing differs from plain probes. */
bool hop_forecast_estimator(const struct hop_forecast *forecast, char *text, size_t size);

#endif
