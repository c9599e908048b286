#include "report/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static const double terminal_interval = 0.1, plain_interval = 5;

/* "210", "4.1k", "2.3M": three digits at most. */
static void short_number(double value, char *text, size_t size)
{
    const char *const suffixes[] = {"", "k", "M", "G", "T"};
    size_t suffix = 0;
    while (fabs(value) >= 999.5 && suffix + 1 < sizeof suffixes / sizeof *suffixes) {
        value /= 1000;
        suffix++;
    }
    const int digits = fabs(value) < 9.95 ? (suffix || fabs(value) >= 1 ? 1 : 2) : 0;
    snprintf(text, size, "%.*f%s", digits, value, suffixes[suffix]);
}

/* "0:42", "12:05", "3:20:00". */
static void short_time(double seconds, char *text, size_t size)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, size, "-");
        return;
    }
    const int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    else
        snprintf(text, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* "|g| 0.91", "|g| 0.91  |zo| 12" or "|zo| 12". */
static void describe_norms(const struct hop_progress_line *line, char *text, size_t size)
{
    if (isnan(line->zo_grad_norm))
        snprintf(text, size, "|g| %.3g", line->grad_norm);
    else if (isnan(line->grad_norm))
        snprintf(text, size, "|zo| %.3g", line->zo_grad_norm);
    else
        snprintf(text, size, "|g| %.3g  |zo| %.3g", line->grad_norm, line->zo_grad_norm);
}

hop_status hop_progress_format(const struct hop_progress_line *line, struct hop_string *out,
                               struct hop_error *err)
{
    char samples[32], tokens[32], eta[32], norms[64];
    short_number(line->samples_per_second, samples, sizeof samples);
    short_number(line->tokens_per_second, tokens, sizeof tokens);
    short_time(line->eta, eta, sizeof eta);
    describe_norms(line, norms, sizeof norms);
    return hop_string_printf(out, err,
                             "step %lld/%lld  loss %.3f  %s samples/s  util %.0f%%  eta %s  "
                             "lr %.1e  %s  %s tokens/s",
                             (long long)line->step, (long long)line->steps, line->loss, samples,
                             100 * line->utilization, eta, line->learning_rate, norms, tokens);
}

static bool is_due(const struct hop_progress *progress, const struct hop_progress_line *line,
                   double now)
{
    const double interval = progress->terminal ? terminal_interval : plain_interval;
    return progress->last_print == 0 || line->step >= line->steps ||
           now - progress->last_print >= interval;
}

/* A line as wide as the terminal would wrap and could not be redrawn. */
static int visible_length(const struct hop_progress *progress, const struct hop_string *text)
{
    const int length = (int)text->length;
    return progress->terminal && progress->width > 1 && length >= progress->width
               ? progress->width - 1
               : length;
}

void hop_progress_show(struct hop_progress *progress, const struct hop_progress_line *line)
{
    struct hop_error err = {0};
    struct hop_string text = {0};
    const double now = hop_clock_now();
    if (!is_due(progress, line, now))
        return;
    /* Out of memory for one line is no reason to stop a run. */
    if (hop_progress_format(line, &text, &err) == HOP_OK) {
        const int length = visible_length(progress, &text);
        fprintf(stderr, progress->terminal ? "\r\033[K%.*s" : "%.*s\n", length,
                hop_string_text(&text));
        fflush(stderr);
        progress->last_print = now;
        progress->open = progress->terminal;
    }
    hop_string_free(&text);
}

void hop_progress_break(struct hop_progress *progress)
{
    if (!progress->open)
        return;
    fputc('\n', stderr);
    progress->open = false;
}
