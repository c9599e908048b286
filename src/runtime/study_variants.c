/* Which variants a study has: from a file, and crossed with axes of the command line. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/json.h"
#include "runtime/study.h"

void hop_study_axis_free(struct hop_study_axis *axis)
{
    if (!axis)
        return;
    free(axis->key);
    hop_string_list_free(&axis->values);
    *axis = (struct hop_study_axis){0};
}

static void free_variant(struct hop_study_variant *variant)
{
    free(variant->name);
    hop_string_list_free(&variant->settings);
    hop_string_list_free(&variant->chosen);
    for (size_t i = 0; i < variant->tune_count; i++)
        hop_study_axis_free(&variant->tune[i]);
    free(variant->tune);
}

static void free_variants(struct hop_study_variant *variants, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free_variant(&variants[i]);
    free(variants);
}

void hop_study_free(struct hop_study *study)
{
    if (!study)
        return;
    free_variants(study->variants, study->variant_count);
    hop_string_list_free(&study->settings);
    hop_string_list_free(&study->tuning_settings);
    free(study->seeds);
    *study = (struct hop_study){0};
}

hop_status hop_study_set(struct hop_string_list *list, const char *key, const char *value,
                         struct hop_error *err)
{
    struct hop_string text = {0};
    hop_status status = hop_string_printf(&text, err, "%s=%s", key, value);
    if (status == HOP_OK)
        status = hop_string_list_add(list, hop_string_text(&text), err);
    hop_string_free(&text);
    return status;
}

/* A comma inside brackets or braces does not part values. */
static size_t value_length(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (depth > 0 || text[n] != ','); n++)
        depth += (text[n] == '[' || text[n] == '{') - (text[n] == ']' || text[n] == '}');
    return n;
}

static hop_status add_values(const char *text, struct hop_string_list *values,
                             struct hop_error *err)
{
    for (;;) {
        struct hop_string value = {0};
        const size_t n = value_length(text);
        hop_status status = hop_string_append(&value, text, n, err);
        if (status == HOP_OK)
            status = hop_string_list_add(values, hop_string_text(&value), err);
        hop_string_free(&value);
        if (status != HOP_OK || !text[n])
            return status;
        text += n + 1;
    }
}

hop_status hop_study_axis_parse(const char *text, struct hop_study_axis *out, struct hop_error *err)
{
    const char *const equal = strchr(text, '=');
    struct hop_study_axis axis = {0};
    struct hop_string key = {0};
    hop_status status = HOP_OK;
    if (!equal || equal == text || !equal[1])
        return hop_fail(err, HOP_INPUT, "'%s': expected KEY=VALUE,VALUE,...", text);
    HOP_TRY_DONE(hop_string_append(&key, text, (size_t)(equal - text), err));
    HOP_TRY_DONE(hop_string_copy(&axis.key, hop_string_text(&key), err));
    HOP_TRY_DONE(add_values(equal + 1, &axis.values, err));
    *out = axis;
    axis = (struct hop_study_axis){0};
done:
    hop_string_free(&key);
    hop_study_axis_free(&axis);
    return status;
}

/* Strings as they are, all else as JSON, which YAML reads. */
static hop_status value_text(const json_t *value, struct hop_string *out, struct hop_error *err)
{
    if (json_is_string(value))
        return hop_string_printf(out, err, "%s", json_string_value(value));
    return hop_json_text(value, 0, out, err);
}

static hop_status parse_setting(const char *key, const json_t *value, struct hop_string_list *list,
                                struct hop_error *err)
{
    struct hop_string text = {0};
    hop_status status = value_text(value, &text, err);
    if (status == HOP_OK)
        status = hop_study_set(list, key, hop_string_text(&text), err);
    hop_string_free(&text);
    return status;
}

static hop_status parse_axis(const char *key, const json_t *values, const char *where,
                             struct hop_study_axis *axis, struct hop_error *err)
{
    size_t i;
    const json_t *value;
    if (json_array_size(values) < 1)
        return hop_fail(err, HOP_INPUT, "%s: tune.%s: a list of values is needed", where, key);
    HOP_TRY(hop_string_copy(&axis->key, key, err));
    json_array_foreach(values, i, value)
    {
        struct hop_string text = {0};
        hop_status status = value_text(value, &text, err);
        if (status == HOP_OK)
            status = hop_string_list_add(&axis->values, hop_string_text(&text), err);
        hop_string_free(&text);
        HOP_TRY(status);
    }
    return HOP_OK;
}

static hop_status parse_tune(const json_t *object, const char *where,
                             struct hop_study_variant *variant, struct hop_error *err)
{
    const char *key;
    const json_t *values;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: tune: a map of key to list of values is needed",
                        where);
    HOP_TRY(hop_calloc(&variant->tune, json_object_size(object), sizeof *variant->tune, err));
    json_object_foreach((json_t *)(uintptr_t)object, key, values)
        HOP_TRY(parse_axis(key, values, where, &variant->tune[variant->tune_count++], err));
    return HOP_OK;
}

static hop_status parse_variant(const json_t *object, const char *where,
                                struct hop_study_variant *variant, struct hop_error *err)
{
    const char *key;
    const json_t *value;
    if (!json_is_object(object))
        return hop_fail(err, HOP_INPUT, "%s: %s: a map of job keys is needed", where,
                        variant->name);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
        HOP_TRY(strcmp(key, "tune") == 0 ? parse_tune(value, where, variant, err)
                                         : parse_setting(key, value, &variant->settings, err));
    return HOP_OK;
}

static hop_status add_variant(struct hop_study *study, const char *name,
                              struct hop_study_variant **out, struct hop_error *err)
{
    size_t capacity = study->variant_count;
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return hop_fail(err, HOP_INPUT,
                        "variant '%s': the name becomes a folder: no '/', no '.' "
                        "in front",
                        name);
    HOP_TRY(hop_grow(&study->variants, &capacity, study->variant_count + 1, sizeof *study->variants,
                     err));
    *out = &study->variants[study->variant_count];
    **out = (struct hop_study_variant){0};
    HOP_TRY(hop_string_copy(&(*out)->name, name, err));
    study->variant_count++;
    return HOP_OK;
}

hop_status hop_study_variants_parse(const json_t *object, const char *where,
                                    struct hop_study *study, struct hop_error *err)
{
    const char *name;
    const json_t *value;
    struct hop_study_variant *variant;
    if (json_object_size(object) < 1)
        return hop_fail(err, HOP_INPUT, "%s: a map of variants is needed, {NAME: {KEY: VALUE}}",
                        where);
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        HOP_TRY(add_variant(study, name, &variant, err));
        HOP_TRY(parse_variant(value, where, variant, err));
    }
    return HOP_OK;
}

hop_status hop_study_default_variant(struct hop_study *study, struct hop_error *err)
{
    struct hop_study_variant *variant;
    return study->variant_count > 0 ? HOP_OK : add_variant(study, "job", &variant, err);
}

static hop_status copy_axis(const struct hop_study_axis *from, struct hop_study_axis *to,
                            struct hop_error *err)
{
    HOP_TRY(hop_string_copy(&to->key, from->key, err));
    return hop_string_list_add_all(&to->values, &from->values, err);
}

static hop_status copy_variant(struct hop_study *to, const struct hop_study_variant *from,
                               const char *key, const char *value, struct hop_error *err)
{
    struct hop_string name = {0};
    struct hop_study_variant *variant = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_string_printf(&name, err, "%s %s=%s", from->name, key, value));
    HOP_TRY_DONE(add_variant(to, hop_string_text(&name), &variant, err));
    HOP_TRY_DONE(hop_string_list_add_all(&variant->settings, &from->settings, err));
    HOP_TRY_DONE(hop_study_set(&variant->settings, key, value, err));
    HOP_TRY_DONE(hop_calloc(&variant->tune, from->tune_count, sizeof *variant->tune, err));
    for (size_t i = 0; i < from->tune_count; i++)
        HOP_TRY_DONE(copy_axis(&from->tune[i], &variant->tune[variant->tune_count++], err));
done:
    hop_string_free(&name);
    return status;
}

hop_status hop_study_cross(struct hop_study *study, const struct hop_study_axis *axis,
                           struct hop_error *err)
{
    struct hop_study crossed = {0};
    hop_status status = HOP_OK;
    for (size_t v = 0; v < study->variant_count; v++)
        for (size_t i = 0; i < axis->values.count; i++)
            HOP_TRY_DONE(
                copy_variant(&crossed, &study->variants[v], axis->key, axis->values.items[i], err));
    free_variants(study->variants, study->variant_count);
    study->variants = crossed.variants;
    study->variant_count = crossed.variant_count;
    return HOP_OK;
done:
    free_variants(crossed.variants, crossed.variant_count);
    return status;
}
