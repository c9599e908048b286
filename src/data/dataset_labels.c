#include "data/dataset_labels.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"

/* Moves begin and end inwards over white space. */
static void trim(const char *text, size_t *begin, size_t *end)
{
    while (*begin < *end && isspace((unsigned char)text[*begin]))
        ++*begin;
    while (*end > *begin && isspace((unsigned char)text[*end - 1]))
        --*end;
}

static hop_status copy_part(const char *text, size_t length, char **out, struct hop_error *err)
{
    struct hop_string copy = {0};
    HOP_TRY(hop_string_append(&copy, text, length, err));
    *out = copy.data;
    return HOP_OK;
}

static hop_status add_name(struct hop_label_set *set, const char *name, struct hop_error *err)
{
    size_t begin = 0, end = strlen(name);
    int32_t same;
    trim(name, &begin, &end);
    if (begin == end)
        return hop_fail(err, HOP_INPUT, "a label is empty; name the answers");
    for (same = 0; (size_t)same < set->count; same++)
        if (strlen(set->names[same]) == end - begin &&
            memcmp(set->names[same], name + begin, end - begin) == 0)
            return hop_fail(err, HOP_INPUT, "the label \"%.64s\" is given twice", name);
    HOP_TRY(copy_part(name + begin, end - begin, &set->names[set->count], err));
    set->count++;
    return HOP_OK;
}

hop_status hop_label_set_create(const char *const *names, size_t count, struct hop_label_set *out,
                                struct hop_error *err)
{
    struct hop_label_set set = {0};
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&set.names, count, sizeof *set.names, err));
    HOP_TRY_DONE(hop_calloc(&set.forms, count, sizeof *set.forms, err));
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(add_name(&set, names[i], err));
    *out = set;
    set = (struct hop_label_set){0};
done:
    hop_label_set_free(&set);
    return status;
}

void hop_label_set_free(struct hop_label_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++) {
        free(set->names[i]);
        free(set->forms[i]);
    }
    free(set->names);
    free(set->forms);
    *set = (struct hop_label_set){0};
}

hop_status hop_label_set_match(struct hop_label_set *set, const char *completion, size_t length,
                               int32_t *index, struct hop_error *err)
{
    size_t begin = 0, end = length;
    trim(completion, &begin, &end);
    for (size_t i = 0; i < set->count; i++) {
        const char *const name = set->names[i];
        if (strlen(name) != end - begin || memcmp(name, completion + begin, end - begin) != 0)
            continue;
        if (!set->forms[i])
            HOP_TRY(copy_part(completion, length, &set->forms[i], err));
        *index = (int32_t)i;
        return HOP_OK;
    }
    *index = -1;
    return HOP_OK;
}

hop_status hop_label_set_complete(struct hop_label_set *set, struct hop_error *err)
{
    const char *model = "";
    for (size_t i = 0; i < set->count; i++)
        if (set->forms[i])
            model = set->forms[i];
    size_t begin = 0, end = strlen(model);
    trim(model, &begin, &end);
    for (size_t i = 0; i < set->count; i++) {
        struct hop_string form = {0};
        if (set->forms[i])
            continue;
        HOP_TRY(hop_string_printf(&form, err, "%.*s%s%s", (int)begin, model, set->names[i],
                                  model + end));
        set->forms[i] = form.data;
    }
    return HOP_OK;
}
