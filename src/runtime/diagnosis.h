/* Why a run failed, from what its ranks, mpiexec and the kernel say. */
#ifndef HOP_RUNTIME_DIAGNOSIS_H
#define HOP_RUNTIME_DIAGNOSIS_H

#include <stdbool.h>

#include "base/error.h"
#include "runtime/launcher.h"

struct hop_diagnosis;

hop_status hop_diagnosis_create(const struct hop_launch *launch, struct hop_diagnosis **out,
                                struct hop_error *err);
void hop_diagnosis_free(struct hop_diagnosis *diagnosis);

/* What local ranks join (watch.h), for their command line. */
const char *hop_diagnosis_watch_name(const struct hop_diagnosis *diagnosis);

/* Texts of marked lines (console.h) behind their kind: "hello", "error", "silent". */
void hop_diagnosis_hello(struct hop_diagnosis *diagnosis, const char *text);
void hop_diagnosis_error(struct hop_diagnosis *diagnosis, const char *text);
void hop_diagnosis_silent(struct hop_diagnosis *diagnosis, const char *text);
/* Any other line: mpiexec's own words. */
void hop_diagnosis_foreign(struct hop_diagnosis *diagnosis, const char *line);

/* Did a rank say why the run ends? */
bool hop_diagnosis_reported(const struct hop_diagnosis *diagnosis);
/* The verdict on a run whose mpiexec ended with `wait_status` and was not well: what a rank
 * reported, else who was silent, else who died; failing all that, mpiexec's last words go to
 * stderr. */
hop_status hop_diagnosis_conclude(const struct hop_diagnosis *diagnosis, int wait_status,
                                  struct hop_error *err);

#endif
