/* Plain scalars of the YAML 1.2 core schema. Internal to src/io. */
#ifndef HOP_IO_YAML_SCALAR_H
#define HOP_IO_YAML_SCALAR_H

#include <stddef.h>

#include <jansson.h>

enum hop_yaml_scalar_kind {
    HOP_YAML_STRING,
    HOP_YAML_NULL,
    HOP_YAML_TRUE,
    HOP_YAML_FALSE,
    HOP_YAML_INT,
    HOP_YAML_REAL,
    HOP_YAML_BEYOND /* a number, but infinite, not a number or outside 64 bits */
};

struct hop_yaml_scalar {
    enum hop_yaml_scalar_kind kind;
    json_int_t integer;
    double real;
};

/* What the plain (unquoted) text stands for. text[length] must be NUL. */
struct hop_yaml_scalar hop_yaml_resolve(const char *text, size_t length);

#endif
