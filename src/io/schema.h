/* Binds a json object to a C struct by a table: types, defaults, limits and the list of known keys
 * in one place. An unknown key is an error that suggests the nearest known one; a wrong type or a
 * value out of range names the key, what was found and what is allowed. */
#ifndef HOP_IO_SCHEMA_H
#define HOP_IO_SCHEMA_H

#include <stddef.h>

#include <jansson.h>

#include "base/error.h"

enum hop_field_type {
    HOP_FIELD_INT,     /* int64_t, checked against minimum/maximum */
    HOP_FIELD_REAL,    /* double, checked against minimum/maximum; integers are accepted */
    HOP_FIELD_BOOL,    /* bool */
    HOP_FIELD_STRING,  /* char *, malloc'ed (NULL when absent and fallback_text is NULL) */
    HOP_FIELD_CHOICE,  /* int, index into choices */
    HOP_FIELD_STRINGS, /* struct hop_string_list, from a list (or one string) */
    HOP_FIELD_BYTES,   /* double, "7GiB", "512MB" or a number */
    HOP_FIELD_RATE,    /* double bytes/s, "1Gbps", "100Mbps", "125MB/s" or a number */
    HOP_FIELD_SECONDS, /* double, "0.3ms", "2s", "50us" or a number */
    HOP_FIELD_SECTION, /* nested object, bound by `fields` into the same struct */
    HOP_FIELD_ANY      /* json_t *, new reference (NULL when absent) */
};

struct hop_string_list {
    char **items;
    size_t count;
};
/* Copies the text. */
hop_status hop_string_list_add(struct hop_string_list *list, const char *text,
                               struct hop_error *err);
hop_status hop_string_list_add_all(struct hop_string_list *list, const struct hop_string_list *from,
                                   struct hop_error *err);
/* Leaves it empty. */
void hop_string_list_free(struct hop_string_list *list);

struct hop_field {
    const char *key;
    enum hop_field_type type;
    size_t offset; /* of the member; unused for HOP_FIELD_SECTION */
    double fallback;
    const char *fallback_text;      /* for strings; comma-separated for string lists */
    double minimum, maximum;        /* for numbers; both 0 means unlimited */
    const char *const *choices;     /* NULL-terminated */
    const struct hop_field *fields; /* of a section; tables end with a NULL key */
    const char *help;               /* one line for --help and docs */
};

/* Fills every field of `target` (absent keys get their defaults). `where` is the file name. */
hop_status hop_schema_bind(const struct hop_field *fields, const json_t *object, const char *where,
                           void *target, struct hop_error *err);
/* Releases the strings, lists and values a bind created; sets them to NULL/0. */
void hop_schema_release(const struct hop_field *fields, void *target);
/* The resolved object: every field with its value, in table order. NULL when out of memory. */
json_t *hop_schema_dump(const struct hop_field *fields, const void *target);
/* Sets `path` ("train.learning_rate") in object to the YAML text, creating sections as needed.
 * Unknown paths are left to hop_schema_bind(), which knows the names. */
hop_status hop_schema_set(json_t *object, const char *path, const char *text,
                          struct hop_error *err);

#endif
