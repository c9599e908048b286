#include "runtime/console.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void hop_console_hello(int rank)
{
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    fprintf(stderr, HOP_CONSOLE_MARK "hello %d %s %ld\n", rank, host, (long)getpid());
}

void hop_console_note(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, HOP_CONSOLE_MARK "note %s\n", text);
}

void hop_console_error(const char *device, const struct hop_error *err)
{
    const int code = hop_status_exit_code(err->status);
    const char *const text = err->message[0] ? err->message : hop_status_text(err->status);
    if (device)
        fprintf(stderr, HOP_CONSOLE_MARK "error %d device %s: %s\n", code, device, text);
    else
        fprintf(stderr, HOP_CONSOLE_MARK "error %d %s\n", code, text);
}

void hop_console_silent(int rank, int peer, const struct hop_error *err)
{
    fprintf(stderr, HOP_CONSOLE_MARK "silent %d %d %s\n", rank, peer, err->message);
}

void hop_console_progress(const struct hop_progress_line *line)
{
    fprintf(stderr, HOP_CONSOLE_MARK "progress %lld %lld %.9g %.9g %.9g %.9g %.9g %.9g %.9g %.9g\n",
            (long long)line->step, (long long)line->steps, line->loss, line->learning_rate,
            line->grad_norm, line->zo_grad_norm, line->samples_per_second, line->tokens_per_second,
            line->utilization, line->eta);
}

bool hop_console_parse_progress(const char *text, struct hop_progress_line *line)
{
    long long step, steps;
    struct hop_progress_line parsed = {0};
    if (sscanf(text, "%lld %lld %lg %lg %lg %lg %lg %lg %lg %lg", &step, &steps, &parsed.loss,
               &parsed.learning_rate, &parsed.grad_norm, &parsed.zo_grad_norm,
               &parsed.samples_per_second, &parsed.tokens_per_second, &parsed.utilization,
               &parsed.eta) != 10)
        return false;
    parsed.step = step;
    parsed.steps = steps;
    *line = parsed;
    return true;
}
