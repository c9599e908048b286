/* YAML through libyaml, read into a jansson value: job and cluster files have free-form maps
 * (plan.blocks) and keys that hold either a file name or a map (cluster), which schema-only readers
 * cannot express. Plain scalars become null, booleans, integers or reals as in the YAML 1.2 core
 * schema (also 5e-5); quoted ones stay strings. Anchors and tags are refused. */
#ifndef HOP_IO_YAML_H
#define HOP_IO_YAML_H

#include <jansson.h>

#include "base/error.h"
#include "base/string.h"

/* Syntax errors and duplicate keys name file:line. Caller json_decref()s *out. */
hop_status hop_yaml_load(const char *path, json_t **out, struct hop_error *err);
/* `where` names the text in messages. Used for --set values: "[q_proj, v_proj]", "3", "text". */
hop_status hop_yaml_parse(const char *text, size_t length, const char *where, json_t **out,
                          struct hop_error *err);
/* Appends block-style text, keys in insertion order, lists of scalars on one line. Reading the text
 * back gives the same value. */
hop_status hop_yaml_write(const json_t *value, struct hop_string *out, struct hop_error *err);

#endif
