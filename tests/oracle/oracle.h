/* planner-oracle: prints what the authors' planners print for their own inputs. One file and one
 * line in main.c a system. */
#ifndef HOP_TESTS_ORACLE_H
#define HOP_TESTS_ORACLE_H

#include <stdint.h>

#include "base/error.h"

/* A system: the words after its name, results to standard output. HOP_INPUT where the words or the
 * files they name are wrong; nothing is printed then. */
typedef hop_status oracle_run(int argc, char **argv, struct hop_error *err);

oracle_run oracle_accpar, oracle_asteroid, oracle_chimera, oracle_dapple, oracle_pipedream;

/* A whole number of [low, high], or HOP_INPUT with its `name`. */
hop_status oracle_integer(const char *text, const char *name, int32_t low, int32_t high,
                          int32_t *out, struct hop_error *err);
/* A finite number above 0, or HOP_INPUT with its `name`. */
hop_status oracle_real(const char *text, const char *name, double *out, struct hop_error *err);

/* HOP_INPUT: what the system expects. */
hop_status oracle_usage(const char *usage, struct hop_error *err);

#endif
