/* Line charts as SVG, for pages and files: no scripts, no fonts to load, readable in light and dark
 * surroundings alike. */
#ifndef HOP_REPORT_CHART_H
#define HOP_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/string.h"

/* One line. Points whose x or y is not finite break it. */
struct hop_chart_line {
    const char *name;
    const double *x, *y;      /* (count) */
    const double *low, *high; /* (count) a band around it; NULL: none */
    size_t count;
};

struct hop_chart {
    const char *title, *x_label, *y_label;
    const struct hop_chart_line *lines;
    size_t line_count;
    bool log_y; /* only where all y are positive */
};

/* Appends an <svg> element. Colours follow the index of a line, so that charts of the same lines
 * agree. A chart without a single point says so. */
hop_status hop_chart_svg(const struct hop_chart *chart, struct hop_string *out,
                         struct hop_error *err);

/* Appends text with the characters that XML reserves escaped. */
hop_status hop_xml_text(const char *text, struct hop_string *out, struct hop_error *err);

#endif
