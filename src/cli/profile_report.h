/* What `hybridop profile` prints for people. */
#ifndef HOP_CLI_PROFILE_REPORT_H
#define HOP_CLI_PROFILE_REPORT_H

#include <stdio.h>

#include "cluster/measure.h"

hop_status hop_profile_report(const struct hop_measurement *m, const char *model, const char *name,
                              FILE *to, struct hop_error *err);

#endif
