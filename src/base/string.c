#include "base/string.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

hop_status hop_string_append(struct hop_string *s, const char *bytes, size_t n,
                             struct hop_error *err)
{
    HOP_TRY(hop_grow(&s->data, &s->capacity, s->length + n + 1, 1, err));
    if (n)
        memcpy(s->data + s->length, bytes, n);
    s->length += n;
    s->data[s->length] = '\0';
    return HOP_OK;
}

hop_status hop_string_printf(struct hop_string *s, struct hop_error *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    hop_status status = n < 0
                            ? hop_fail(err, HOP_MEMORY, "a text of over 2 GiB cannot be formatted")
                            : hop_grow(&s->data, &s->capacity, s->length + (size_t)n + 1, 1, err);
    if (status == HOP_OK) {
        vsnprintf(s->data + s->length, (size_t)n + 1, format, again);
        s->length += (size_t)n;
    }
    va_end(again);
    return status;
}

const char *hop_string_text(const struct hop_string *s)
{
    return s->data ? s->data : "";
}

void hop_string_free(struct hop_string *s)
{
    free(s->data);
    *s = (struct hop_string){0};
}

hop_status hop_string_copy(char **out, const char *text, struct hop_error *err)
{
    char *copy;
    HOP_TRY(hop_calloc(&copy, strlen(text) + 1, 1, err));
    strcpy(copy, text);
    *out = copy;
    return HOP_OK;
}

enum { NAME_MAX_LENGTH = 64 };

/* Levenshtein distance; names longer than the limit count as infinitely far. */
static size_t edit_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > NAME_MAX_LENGTH || m > NAME_MAX_LENGTH)
        return NAME_MAX_LENGTH;
    size_t row[NAME_MAX_LENGTH + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const size_t added = row[j - 1] + 1, dropped = row[j] + 1;
            row[j] = replaced < added ? replaced : added;
            if (dropped < row[j])
                row[j] = dropped;
        }
    }
    return row[m];
}

const char *hop_nearest_name(const char *name, const char *const *candidates, size_t count)
{
    const size_t limit = strlen(name) / 3 + 1;
    size_t best = limit + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        const size_t distance = edit_distance(name, candidates[i]);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
