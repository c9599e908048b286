#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    int exit_code;
} statuses[] = {
#define HOP_STATUS_ROW(name, text, code) {text, code},
    HOP_STATUS_MAP(HOP_STATUS_ROW)
#undef HOP_STATUS_ROW
};

/* Messages are one line by contract; text quoted from a file may hold line breaks. */
static void flatten(char *text)
{
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

hop_status hop_fail(struct hop_error *err, hop_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    flatten(err->message);
    return status;
}

hop_status hop_wrap(struct hop_error *err, const char *format, ...)
{
    char prefix[sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    char joined[2 * sizeof err->message + 3];
    snprintf(joined, sizeof joined, "%s: %s", prefix, err->message);
    joined[sizeof err->message - 1] = '\0';
    memcpy(err->message, joined, sizeof err->message);
    flatten(err->message);
    return err->status;
}

const char *hop_status_text(hop_status status)
{
    return statuses[status].text;
}

int hop_status_exit_code(hop_status status)
{
    return statuses[status].exit_code;
}
