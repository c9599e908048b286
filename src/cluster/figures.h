/* The figures of a board that profiles, their modes and devices of cluster files give under the
 * same keys. Private to src/cluster. */
#ifndef HOP_CLUSTER_FIGURES_H
#define HOP_CLUSTER_FIGURES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "io/schema.h"

/* What struct hop_device says about them, in the same units. */
struct hop_figures {
    bool bp;
    double rate, memory, bandwidth, overhead, backward_ratio, probe_ratio;
    double idle_watts, busy_watts;
};

/* The section `power`. */
extern const struct hop_field hop_power_fields[];

#define HOP_FIGURE(name, kind, ...)                                                                \
    {                                                                                              \
        .key = #name, .type = HOP_FIELD_##kind, .offset = offsetof(struct hop_figures, name),      \
        __VA_ARGS__                                                                                \
    }

/* Rows for the table of a struct whose first member is a struct hop_figures. */
#define HOP_FIGURE_FIELDS                                                                          \
    HOP_FIGURE(bp, BOOL, .fallback = 1, .help = "whether the device runs backward"),               \
        HOP_FIGURE(rate, REAL, .fallback = 0.1, .minimum = 1e-6, .maximum = 1e9,                   \
                   .help = "forward speed achieved at 16 bits, TFLOPS"),                           \
        HOP_FIGURE(memory, BYTES, .help = "that a stage may use, e.g. 7GiB; 0: not limited"),      \
        HOP_FIGURE(bandwidth, RATE,                                                                \
                   .help = "of the memory, achieved, e.g. 50GB/s; 0: never what limits"),          \
        HOP_FIGURE(overhead, SECONDS, .help = "of a block beside its arithmetic, e.g. 0.2ms"),     \
        HOP_FIGURE(backward_ratio, REAL, .fallback = 1.05, .minimum = 1e-3, .maximum = 1e3,        \
                   .help = "time of backward / forward, frozen weights"),                          \
        HOP_FIGURE(probe_ratio, REAL, .fallback = 1, .minimum = 1e-3, .maximum = 1e3,              \
                   .help = "time of one more probe of several at once / forward"),                 \
    {                                                                                              \
        .key = "power", .type = HOP_FIELD_SECTION, .fields = hop_power_fields                      \
    }

/* The index of a figure's key in table order, or -1. */
int hop_figure_find(const char *key);
/* The key of figure i, or NULL beyond the last one. */
const char *hop_figure_name(int i);
/* The figure with the nearest name, or NULL. */
const char *hop_figure_nearest(const char *key);

/* Is the key there and not null? */
bool hop_key_given(const json_t *object, const char *key);
/* Are all of them? `power` may be empty. */
bool hop_figures_complete(const json_t *object);
/* Sets in `base` what `over` gives; of `power` each number on its own. False: out of memory. */
bool hop_figures_override(json_t *base, const json_t *over);

#endif
