/* Notes and warnings for people, on stderr, one line each: "hybridop: text". */
#ifndef HOP_BASE_LOG_H
#define HOP_BASE_LOG_H

#include <stdbool.h>

#include "base/error.h"

/* Quiet processes (all ranks but the coordinator) print nothing but errors. */
void hop_log_set_quiet(bool quiet);
void hop_note(const char *format, ...) HOP_PRINTF(1, 2);
void hop_warn(const char *format, ...) HOP_PRINTF(1, 2);
void hop_log_error(const struct hop_error *err);

#endif
