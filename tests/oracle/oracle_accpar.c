/* The four tables of AccPar's released program: data parallelism, "one weird trick", HyPar and
 * AccPar itself, a row for each halving of the accelerators. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"
#include "oracle.h"
#include "strategy/accpar_level.h"

enum { NAME = 64, LEVELS = 64, LAYERS = 10000, BATCH = 1 << 24 };

struct list {
    struct hop_accpar_layer *layers;
    char (*names)[NAME];
    bool *convolution;
    int32_t count;
};

static void free_list(struct list *list)
{
    free(list->layers);
    free(list->names);
    free(list->convolution);
}

/* Words of the file, one after the other. */
struct words {
    const char *path, *at, *end;
    int32_t line;
    char word[NAME];
};

static hop_status next_word(struct words *words, const char *expected, struct hop_error *err)
{
    size_t n = 0;
    for (; words->at < words->end && isspace((unsigned char)*words->at); words->at++)
        words->line += *words->at == '\n';
    while (words->at + n < words->end && !isspace((unsigned char)words->at[n]))
        n++;
    if (n == 0)
        return hop_fail(err, HOP_INPUT, "%s:%d: the file ends where %s was expected", words->path,
                        words->line, expected);
    if (n >= NAME || memchr(words->at, 0, n))
        return hop_fail(err, HOP_INPUT, "%s:%d: a word of %zu bytes where %s was expected",
                        words->path, words->line, n, expected);
    memcpy(words->word, words->at, n);
    words->word[n] = 0;
    words->at += n;
    return HOP_OK;
}

static hop_status read_key(struct words *words, const char *key, struct hop_error *err)
{
    HOP_TRY(next_word(words, key, err));
    if (strcmp(words->word, key) != 0)
        return hop_fail(err, HOP_INPUT, "%s:%d: found '%s' where %s was expected", words->path,
                        words->line, words->word, key);
    return HOP_OK;
}

static hop_status read_size(struct words *words, const char *key, double *out,
                            struct hop_error *err)
{
    HOP_TRY(read_key(words, key, err));
    HOP_TRY(next_word(words, "a number", err));
    const hop_status status = oracle_real(words->word, key, out, err);
    return status == HOP_OK ? HOP_OK : hop_wrap(err, "%s:%d", words->path, words->line);
}

static hop_status read_map(struct words *words, const char *height, const char *width, double *out,
                           struct hop_error *err)
{
    double h, w;
    HOP_TRY(read_size(words, height, &h, err));
    HOP_TRY(read_size(words, width, &w, err));
    *out = h * w;
    return HOP_OK;
}

static hop_status read_connected(struct words *words, struct hop_accpar_layer *layer,
                                 struct hop_error *err)
{
    layer->kernel = layer->in_map = layer->out_map = 1;
    HOP_TRY(read_size(words, "in_ch", &layer->in, err));
    return read_size(words, "out_ch", &layer->out, err);
}

static hop_status read_convolution(struct words *words, struct hop_accpar_layer *layer,
                                   struct hop_error *err)
{
    double kernel, pool;
    HOP_TRY(read_size(words, "in_ch", &layer->in, err));
    HOP_TRY(read_map(words, "in_fmap_h", "in_fmap_w", &layer->in_map, err));
    HOP_TRY(read_size(words, "kernel", &kernel, err));
    layer->kernel = kernel * kernel;
    HOP_TRY(read_size(words, "out_ch", &layer->out, err));
    HOP_TRY(read_map(words, "out_fmap_h", "out_fmap_w", &layer->out_map, err));
    return read_size(words, "pool", &pool, err);
}

static hop_status read_layer(struct words *words, int32_t l, struct list *list,
                             struct hop_error *err)
{
    HOP_TRY(next_word(words, "a layer's name", err));
    memcpy(list->names[l], words->word, NAME);
    HOP_TRY(next_word(words, "CONV or FC", err));
    list->convolution[l] = strcmp(words->word, "CONV") == 0;
    if (list->convolution[l])
        return read_convolution(words, &list->layers[l], err);
    if (strcmp(words->word, "FC") == 0)
        return read_connected(words, &list->layers[l], err);
    return hop_fail(err, HOP_INPUT, "%s:%d: found '%s' where CONV or FC was expected", words->path,
                    words->line, words->word);
}

static hop_status read_count(struct words *words, int32_t *count, struct hop_error *err)
{
    HOP_TRY(read_key(words, "num_layers", err));
    HOP_TRY(next_word(words, "a number", err));
    const hop_status status = oracle_integer(words->word, "num_layers", 1, LAYERS, count, err);
    return status == HOP_OK ? HOP_OK : hop_wrap(err, "%s:%d", words->path, words->line);
}

/* The program takes lists of 18, 34 and 50 layers for residual networks. */
static void add_shortcuts(struct list *list)
{
    const int32_t length = list->count == 50 ? 3 : 2;
    if (list->count != 18 && list->count != 34 && list->count != 50)
        return;
    for (int32_t l = length + 1; l < list->count; l++)
        if (l % length == 1)
            list->layers[l].shortcut = length;
}

static hop_status read_layers(struct words *words, double batch, struct list *list,
                              struct hop_error *err)
{
    HOP_TRY(read_count(words, &list->count, err));
    const size_t count = (size_t)list->count;
    HOP_TRY(hop_calloc(&list->layers, count, sizeof *list->layers, err));
    HOP_TRY(hop_calloc(&list->names, count, sizeof *list->names, err));
    HOP_TRY(hop_calloc(&list->convolution, count, sizeof *list->convolution, err));
    for (int32_t l = 0; l < list->count; l++) {
        list->layers[l].batch = batch;
        HOP_TRY(read_layer(words, l, list, err));
    }
    add_shortcuts(list);
    return HOP_OK;
}

static hop_status load_list(const char *path, double batch, struct list *list,
                            struct hop_error *err)
{
    struct hop_map map;
    HOP_TRY(hop_map_open(path, &map, err));
    const char *const text = (const char *)map.data;
    struct words words = {.path = path, .at = text, .end = text + map.size, .line = 1};
    const hop_status status = read_layers(&words, batch, list, err);
    hop_map_close(&map);
    return status;
}

static hop_status begin_table(const struct list *list, const char *title, struct hop_string *text,
                              struct hop_error *err)
{
    HOP_TRY(hop_string_printf(text, err, "%s######## %s ########\n   h", text->length ? "\n" : "",
                              title));
    for (int32_t l = 0; l < list->count; l++)
        HOP_TRY(hop_string_printf(text, err, "%8s", list->names[l]));
    return hop_string_printf(text, err, "\n");
}

static hop_status add_row(int32_t level, const enum hop_accpar_type *types, int32_t n,
                          struct hop_string *text, struct hop_error *err)
{
    HOP_TRY(hop_string_printf(text, err, "%4d", level));
    for (int32_t l = 0; l < n; l++)
        HOP_TRY(hop_string_printf(text, err, "%8d", (int)types[l]));
    return hop_string_printf(text, err, "\n");
}

/* The same types at every level: I for convolutions, `connected` for the others. */
static hop_status add_constant(const struct list *list, int32_t levels, const char *title,
                               enum hop_accpar_type connected, struct hop_string *text,
                               struct hop_error *err)
{
    enum hop_accpar_type *types;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&types, (size_t)list->count, sizeof *types, err));
    for (int32_t l = 0; l < list->count; l++)
        types[l] = list->convolution[l] ? HOP_ACCPAR_I : connected;
    HOP_TRY_DONE(begin_table(list, title, text, err));
    for (int32_t h = 0; h < levels; h++)
        HOP_TRY_DONE(add_row(h, types, list->count, text, err));
done:
    free(types);
    return status;
}

static hop_status add_levels(struct hop_accpar_layer *layers, int32_t n, int32_t levels,
                             const struct hop_accpar_rules *rules, enum hop_accpar_type *types,
                             double *shares, struct hop_string *text, struct hop_error *err)
{
    for (int32_t h = 0; h < levels; h++) {
        double seconds;
        HOP_TRY(hop_accpar_level(layers, n, hop_accpar_equal_groups, rules, types, shares, &seconds,
                                 err));
        HOP_TRY(add_row(h, types, n, text, err));
        for (int32_t l = 0; l < n; l++)
            layers[l] = hop_accpar_cut(&layers[l], types[l], shares[l]);
    }
    return HOP_OK;
}

/* Both halves of a level are equal, so one of them is split further. */
static hop_status add_planned(const struct list *list, int32_t levels, const char *title,
                              int32_t type_count, struct hop_string *text, struct hop_error *err)
{
    const struct hop_accpar_rules rules = hop_accpar_released_rules(type_count);
    const size_t count = (size_t)list->count;
    struct hop_accpar_layer *layers = NULL;
    enum hop_accpar_type *types = NULL;
    double *shares = NULL;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&layers, count, sizeof *layers, err));
    HOP_TRY_DONE(hop_calloc(&types, count, sizeof *types, err));
    HOP_TRY_DONE(hop_calloc(&shares, count, sizeof *shares, err));
    memcpy(layers, list->layers, count * sizeof *layers);
    HOP_TRY_DONE(begin_table(list, title, text, err));
    HOP_TRY_DONE(add_levels(layers, list->count, levels, &rules, types, shares, text, err));
done:
    free(layers);
    free(types);
    free(shares);
    return status;
}

static hop_status add_tables(const struct list *list, int32_t levels, struct hop_string *text,
                             struct hop_error *err)
{
    HOP_TRY(add_constant(list, levels, "DATA PAR", HOP_ACCPAR_I, text, err));
    HOP_TRY(add_constant(list, levels, "THE TRICK", HOP_ACCPAR_II, text, err));
    HOP_TRY(add_planned(list, levels, "HYPAR", 2, text, err));
    return add_planned(list, levels, "ACCPAR", HOP_ACCPAR_TYPES, text, err);
}

hop_status oracle_accpar(int argc, char **argv, struct hop_error *err)
{
    struct list list = {0};
    struct hop_string text = {0};
    int32_t batch, levels;
    hop_status status = HOP_OK;
    if (argc != 3)
        return oracle_usage("accpar FILE BATCH LEVELS", err);
    HOP_TRY(oracle_integer(argv[1], "BATCH", 1, BATCH, &batch, err));
    HOP_TRY(oracle_integer(argv[2], "LEVELS", 1, LEVELS, &levels, err));
    HOP_TRY_DONE(load_list(argv[0], batch, &list, err));
    HOP_TRY_DONE(add_tables(&list, levels, &text, err));
    fputs(hop_string_text(&text), stdout);
done:
    hop_string_free(&text);
    free_list(&list);
    return status;
}
