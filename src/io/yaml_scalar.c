#include "io/yaml_scalar.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static size_t digits(const char *text)
{
    size_t n = 0;
    while (isdigit((unsigned char)text[n]))
        n++;
    return n;
}

static bool is_signed_digits(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    const size_t n = digits(text);
    return n > 0 && text[n] == '\0';
}

/* [-+]? ( \.[0-9]+ | [0-9]+(\.[0-9]*)? ) ([eE][-+]?[0-9]+)? */
static bool is_real(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    const size_t whole = digits(text);
    text += whole;
    if (*text == '.') {
        const size_t fraction = digits(++text);
        if (whole + fraction == 0)
            return false;
        text += fraction;
    } else if (whole == 0) {
        return false;
    }
    if (*text == 'e' || *text == 'E')
        return is_signed_digits(text + 1);
    return *text == '\0';
}

/* 0o17 or 0x1f: the base, or 0. */
static int prefixed_base(const char *text)
{
    if (text[0] != '0' || (text[1] != 'o' && text[1] != 'x') || !text[2])
        return 0;
    const char *const allowed = text[1] == 'o' ? "01234567" : "0123456789abcdefABCDEF";
    if (text[2 + strspn(text + 2, allowed)] != '\0')
        return 0;
    return text[1] == 'o' ? 8 : 16;
}

static struct hop_yaml_scalar integer(const char *text, int base)
{
    errno = 0;
    const long long value = strtoll(text, NULL, base);
    if (errno == ERANGE)
        return (struct hop_yaml_scalar){.kind = HOP_YAML_BEYOND};
    return (struct hop_yaml_scalar){.kind = HOP_YAML_INT, .integer = value};
}

static struct hop_yaml_scalar real(const char *text)
{
    const double value = strtod(text, NULL);
    if (!isfinite(value))
        return (struct hop_yaml_scalar){.kind = HOP_YAML_BEYOND};
    return (struct hop_yaml_scalar){.kind = HOP_YAML_REAL, .real = value};
}

struct hop_yaml_scalar hop_yaml_resolve(const char *text, size_t length)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    static const char *const beyond[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                         "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                         ".NaN",  ".NAN",  NULL};
    struct hop_yaml_scalar out = {.kind = HOP_YAML_STRING};
    if (strlen(text) != length)
        return out;
    if (one_of(text, nulls))
        out.kind = HOP_YAML_NULL;
    else if (one_of(text, trues))
        out.kind = HOP_YAML_TRUE;
    else if (one_of(text, falses))
        out.kind = HOP_YAML_FALSE;
    else if (one_of(text, beyond))
        out.kind = HOP_YAML_BEYOND;
    else if (is_signed_digits(text))
        out = integer(text, 10);
    else if (prefixed_base(text))
        out = integer(text + 2, prefixed_base(text));
    else if (is_real(text))
        out = real(text);
    return out;
}
