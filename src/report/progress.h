/* The live line of a run on a terminal, plain lines elsewhere; on stderr. */
#ifndef HOP_REPORT_PROGRESS_H
#define HOP_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/string.h"

struct hop_progress {
    bool terminal; /* redraw one line; else print a line every few seconds and at the last step */
    int32_t width; /* columns of the terminal */
    double last_print;
    bool open; /* a live line stands without its line break */
};

struct hop_progress_line {
    int64_t step, steps;
    double loss, learning_rate, samples_per_second, tokens_per_second, utilization;
    double grad_norm, zo_grad_norm; /* of the exact and the zeroth-order half; NAN: there is none */
    double eta;                     /* seconds left */
};

/* Appends to out, in one line, what matters most first, because a narrow terminal cuts the end:
 * "step 12/200  loss 1.234  210 samples/s  util 83%  eta 0:42  lr 3.0e-03  |g| 0.91  4.1k tokens/s"
 */
hop_status hop_progress_format(const struct hop_progress_line *line, struct hop_string *out,
                               struct hop_error *err);
void hop_progress_show(struct hop_progress *progress, const struct hop_progress_line *line);
/* Leaves the live line standing so that other text can follow. */
void hop_progress_break(struct hop_progress *progress);

#endif
