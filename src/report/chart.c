#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 420, LEFT = 70, RIGHT = 210, TOP = 36, BOTTOM = 48, TICKS = 6 };

/* Distinct in hue and lightness (after Okabe and Ito), darkened where white would swallow them. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#b58900", "#56b4e9", "#7b3294", "#444444"};
static const char *const dashes[] = {"", "6 3", "2 3", "8 3 2 3"};
enum { COLOURS = sizeof colours / sizeof *colours, DASHES = sizeof dashes / sizeof *dashes };

struct axis {
    double low, high;
    bool log;
};

static double shown(const struct axis *axis, double value)
{
    return axis->log ? log10(value) : value;
}

static bool is_point(const struct hop_chart_line *line, size_t i, bool log_y)
{
    return isfinite(line->x[i]) && isfinite(line->y[i]) && (!log_y || line->y[i] > 0);
}

static void widen(struct axis *axis, double value)
{
    if (!isfinite(value) || (axis->log && value <= 0))
        return;
    axis->low = fmin(axis->low, shown(axis, value));
    axis->high = fmax(axis->high, shown(axis, value));
}

/* False: there is no point. */
static bool find_axes(const struct hop_chart *chart, struct axis *x, struct axis *y)
{
    *x = (struct axis){INFINITY, -INFINITY, false};
    *y = (struct axis){INFINITY, -INFINITY, chart->log_y};
    for (size_t l = 0; l < chart->line_count; l++) {
        const struct hop_chart_line *const line = &chart->lines[l];
        for (size_t i = 0; i < line->count; i++) {
            if (!is_point(line, i, chart->log_y))
                continue;
            widen(x, line->x[i]);
            widen(y, line->y[i]);
            if (line->low)
                widen(y, line->low[i]);
            if (line->high)
                widen(y, line->high[i]);
        }
    }
    if (x->low > x->high)
        return false;
    if (x->low == x->high)
        x->high = x->low + 1;
    if (y->low == y->high)
        y->high = y->low + 1;
    return true;
}

static double place_x(const struct axis *axis, double value)
{
    const double share = (shown(axis, value) - axis->low) / (axis->high - axis->low);
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct axis *axis, double value)
{
    const double share = (shown(axis, value) - axis->low) / (axis->high - axis->low);
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them make the range. */
static double tick_step(double range)
{
    const double rough = range / TICKS, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

hop_status hop_xml_text(const char *text, struct hop_string *out, struct hop_error *err)
{
    for (; *text; text++) {
        const char *const escaped = *text == '&'   ? "&amp;"
                                    : *text == '<' ? "&lt;"
                                    : *text == '>' ? "&gt;"
                                    : *text == '"' ? "&quot;"
                                                   : NULL;
        HOP_TRY(escaped ? hop_string_append(out, escaped, strlen(escaped), err)
                        : hop_string_append(out, text, 1, err));
    }
    return HOP_OK;
}

static hop_status put_text(struct hop_string *out, double x, double y, const char *attributes,
                           const char *text, struct hop_error *err)
{
    HOP_TRY(hop_string_printf(out, err, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes));
    HOP_TRY(hop_xml_text(text, out, err));
    return hop_string_printf(out, err, "</text>\n");
}

static hop_status put_x_ticks(const struct axis *x, struct hop_string *out, struct hop_error *err)
{
    const double step = tick_step(x->high - x->low);
    for (double at = ceil(x->low / step) * step; at <= x->high + step * 1e-9; at += step) {
        const double place = place_x(x, at);
        HOP_TRY(hop_string_printf(out, err,
                                  "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" class=\"g\"/>"
                                  "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                                  place, TOP, place, HEIGHT - BOTTOM, place, HEIGHT - BOTTOM + 16,
                                  fabs(at) < step * 1e-9 ? 0 : at));
    }
    return HOP_OK;
}

static hop_status put_y_ticks(const struct axis *y, struct hop_string *out, struct hop_error *err)
{
    const double step = tick_step(y->high - y->low);
    for (double at = ceil(y->low / step) * step; at <= y->high + step * 1e-9; at += step) {
        const double value = y->log ? pow(10, at) : at, place = place_y(y, value);
        HOP_TRY(hop_string_printf(out, err,
                                  "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"g\"/>"
                                  "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                                  LEFT, place, WIDTH - RIGHT, place, LEFT - 6, place + 4,
                                  !y->log && fabs(at) < step * 1e-9 ? 0 : value));
    }
    return HOP_OK;
}

static hop_status put_frame(const struct hop_chart *chart, const struct axis *x,
                            const struct axis *y, struct hop_string *out, struct hop_error *err)
{
    const double middle = (LEFT + WIDTH - RIGHT) / 2.0, centre = (TOP + HEIGHT - BOTTOM) / 2.0;
    char turned[64];
    snprintf(turned, sizeof turned, "text-anchor=\"middle\" transform=\"rotate(-90 16 %.1f)\"",
             centre);
    HOP_TRY(put_x_ticks(x, out, err));
    HOP_TRY(put_y_ticks(y, out, err));
    HOP_TRY(put_text(out, middle, HEIGHT - 10, "text-anchor=\"middle\"", chart->x_label, err));
    return put_text(out, 16, centre, turned, chart->y_label, err);
}

static hop_status put_band(const struct hop_chart_line *line, const struct axis *x,
                           const struct axis *y, const char *colour, struct hop_string *out,
                           struct hop_error *err)
{
    bool any = false;
    if (!line->low || !line->high)
        return HOP_OK;
    HOP_TRY(hop_string_printf(out, err, "<polygon fill=\"%s\" fill-opacity=\"0.14\" points=\"",
                              colour));
    for (size_t n = 0; n < 2 * line->count; n++) {
        const bool back = n >= line->count;
        const size_t i = back ? 2 * line->count - 1 - n : n;
        const double value = back ? line->high[i] : line->low[i];
        if (!is_point(line, i, y->log) || !isfinite(value) || (y->log && value <= 0))
            continue;
        HOP_TRY(
            hop_string_printf(out, err, "%.1f,%.1f ", place_x(x, line->x[i]), place_y(y, value)));
        any = true;
    }
    return hop_string_printf(out, err, any ? "\"/>\n" : "0,0\"/>\n");
}

static hop_status put_line(const struct hop_chart_line *line, const struct axis *x,
                           const struct axis *y, const char *style, struct hop_string *out,
                           struct hop_error *err)
{
    bool drawing = false;
    HOP_TRY(hop_string_printf(out, err, "<path fill=\"none\" %s d=\"", style));
    for (size_t i = 0; i < line->count; i++) {
        if (!is_point(line, i, y->log)) {
            drawing = false;
            continue;
        }
        HOP_TRY(hop_string_printf(out, err, "%c%.1f %.1f", drawing ? 'L' : 'M',
                                  place_x(x, line->x[i]), place_y(y, line->y[i])));
        drawing = true;
    }
    return hop_string_printf(out, err, "\"/>\n");
}

static hop_status put_lines(const struct hop_chart *chart, const struct axis *x,
                            const struct axis *y, struct hop_string *out, struct hop_error *err)
{
    for (size_t l = 0; l < chart->line_count; l++) {
        const char *const colour = colours[l % COLOURS];
        const double legend = TOP + 8 + 18 * (double)l;
        char style[128];
        snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"1.8\" stroke-dasharray=\"%s\"",
                 colour, dashes[l / COLOURS % DASHES]);
        HOP_TRY(put_band(&chart->lines[l], x, y, colour, out, err));
        HOP_TRY(put_line(&chart->lines[l], x, y, style, out, err));
        HOP_TRY(hop_string_printf(out, err, "<path %s d=\"M%d %.1fh24\"/>\n", style,
                                  WIDTH - RIGHT + 12, legend));
        HOP_TRY(put_text(out, WIDTH - RIGHT + 42, legend + 4, "", chart->lines[l].name, err));
    }
    return HOP_OK;
}

hop_status hop_chart_svg(const struct hop_chart *chart, struct hop_string *out,
                         struct hop_error *err)
{
    const int legend = TOP + 24 + 18 * (int)chart->line_count;
    struct axis x, y;
    HOP_TRY(hop_string_printf(
        out, err,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n"
        "<style>.g{stroke:#ddd}</style><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        WIDTH, legend > HEIGHT ? legend : HEIGHT, WIDTH));
    HOP_TRY(put_text(out, LEFT, 20, "font-size=\"14\" font-weight=\"bold\"", chart->title, err));
    if (!find_axes(chart, &x, &y)) {
        HOP_TRY(put_text(out, LEFT, HEIGHT / 2.0, "", "nothing to show", err));
    } else {
        HOP_TRY(put_frame(chart, &x, &y, out, err));
        HOP_TRY(put_lines(chart, &x, &y, out, err));
    }
    return hop_string_printf(out, err, "</svg>\n");
}
