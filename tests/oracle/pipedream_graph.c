#include "pipedream_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/file.h"

enum { MOST_STATES = 4096 };

struct node {
    char *id, *description;
    double seconds, activation, parameters;
    bool removed;
};

struct edge {
    int32_t from, to;
};

struct graph {
    const char *path;
    struct node *nodes;
    int32_t count;
    size_t node_capacity;
    struct edge *edges; /* as the file lists them */
    int32_t edge_count;
    size_t edge_capacity;
    bool *before; /* (count, count): is there a way from row to column? */
};

/* A set of nodes in the order in which it was made. */
struct antichain {
    int32_t *nodes, count;
    int32_t *extended, extended_count; /* with the nodes before it whose outputs are needed later */
    bool *has;                         /* (nodes) */
};

struct builder {
    struct graph *graph;
    struct antichain *items;
    int32_t count;
    size_t capacity;
    struct edge *links; /* from antichain to antichain */
    int32_t link_count;
    size_t link_capacity;
    int32_t *order, *place; /* (count) antichain of a state; state of an antichain */
    int32_t *scratch;
    bool *marked;
};

static void free_graph(struct graph *graph)
{
    for (int32_t n = 0; n < graph->count; n++) {
        free(graph->nodes[n].id);
        free(graph->nodes[n].description);
    }
    free(graph->nodes);
    free(graph->edges);
    free(graph->before);
}

static void free_builder(struct builder *builder)
{
    for (int32_t i = 0; i < builder->count; i++) {
        free(builder->items[i].nodes);
        free(builder->items[i].extended);
        free(builder->items[i].has);
    }
    free(builder->items);
    free(builder->links);
    free(builder->order);
    free(builder->place);
    free(builder->scratch);
    free(builder->marked);
}

/* Reading */

static hop_status bad_line(const struct graph *graph, int32_t line, const char *what,
                           struct hop_error *err)
{
    return hop_fail(err, HOP_INPUT, "%s: line %d %s", graph->path, line, what);
}

/* The number after "name=", or the sum of a list "[a; b]"; NAN where there is none. */
static double figure(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at)
        return NAN;
    at += strlen(name);
    if (*at == '[')
        at++;
    double sum = 0;
    for (;;) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || !isfinite(value) || value < 0)
            return NAN;
        sum += value;
        if (*end != ';')
            return sum;
        at = end + 1;
    }
}

static hop_status add_node(struct graph *graph, char *line, int32_t number, struct hop_error *err)
{
    char *const description = strstr(line, " -- ");
    char *const figures = description ? strstr(description + 4, " -- ") : NULL;
    if (!figures)
        return bad_line(graph, number, "is no `ID -- DESCRIPTION -- FIGURES`", err);
    *description = *figures = '\0';
    struct node node = {.activation = figure(figures + 4, "activation_size="),
                        .parameters = figure(figures + 4, "parameter_size=")};
    node.seconds = (figure(figures + 4, "forward_compute_time=") +
                    figure(figures + 4, "backward_compute_time=")) /
                   1000;
    if (!isfinite(node.seconds + node.activation + node.parameters))
        return bad_line(graph, number, "lacks one of the four figures", err);
    HOP_TRY(hop_grow(&graph->nodes, &graph->node_capacity, (size_t)graph->count + 1,
                     sizeof *graph->nodes, err));
    HOP_TRY(hop_string_copy(&node.id, line, err));
    const hop_status status = hop_string_copy(&node.description, description + 4, err);
    if (status != HOP_OK)
        free(node.id);
    else
        graph->nodes[graph->count++] = node;
    return status;
}

static int32_t find_node(const struct graph *graph, const char *id)
{
    for (int32_t n = 0; n < graph->count; n++)
        if (strcmp(graph->nodes[n].id, id) == 0)
            return n;
    return -1;
}

static hop_status add_edge(struct graph *graph, char *line, int32_t number, struct hop_error *err)
{
    char *const to = strstr(line, " -- ");
    if (!to)
        return bad_line(graph, number, "is no `ID -- ID`", err);
    *to = '\0';
    const struct edge edge = {find_node(graph, line + 1), find_node(graph, to + 4)};
    if (edge.from < 0 || edge.to < 0)
        return bad_line(graph, number, "names a layer that no line before it describes", err);
    HOP_TRY(hop_grow(&graph->edges, &graph->edge_capacity, (size_t)graph->edge_count + 1,
                     sizeof *graph->edges, err));
    graph->edges[graph->edge_count++] = edge;
    return HOP_OK;
}

static hop_status read_lines(struct graph *graph, char *text, struct hop_error *err)
{
    int32_t number = 1;
    for (char *line = text; line && *line; number++) {
        char *const end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (*line == '\t')
            HOP_TRY(add_edge(graph, line, number, err));
        else if (*line)
            HOP_TRY(add_node(graph, line, number, err));
        line = end ? end + 1 : NULL;
    }
    return HOP_OK;
}

static hop_status read_graph(struct graph *graph, struct hop_error *err)
{
    struct hop_map map;
    struct hop_string text = {0};
    HOP_TRY(hop_map_open(graph->path, &map, err));
    hop_status status = hop_string_append(&text, (const char *)map.data, map.size, err);
    hop_map_close(&map);
    if (status == HOP_OK && text.length)
        status = read_lines(graph, text.data, err);
    hop_string_free(&text);
    return status;
}

/* Graph */

static bool is_live(const struct graph *graph, const struct edge *edge)
{
    return !graph->nodes[edge->from].removed && !graph->nodes[edge->to].removed;
}

/* Has the node no live edge that leaves it (or, inward, none that enters it)? */
static bool is_end(const struct graph *graph, int32_t node, bool inward)
{
    for (int32_t e = 0; e < graph->edge_count; e++) {
        const struct edge *const edge = &graph->edges[e];
        if ((inward ? edge->to : edge->from) == node && is_live(graph, edge))
            return false;
    }
    return true;
}

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* One sweep: what becomes an end by a removal stays. */
static hop_status remove_ends(struct graph *graph, bool inward, const char *prefix,
                              struct hop_error *err)
{
    bool *ends;
    HOP_TRY(hop_calloc(&ends, (size_t)graph->count, sizeof *ends, err));
    for (int32_t n = 0; n < graph->count; n++)
        ends[n] = !graph->nodes[n].removed && is_end(graph, n, inward) &&
                  begins_with(graph->nodes[n].description, prefix);
    for (int32_t n = 0; n < graph->count; n++)
        graph->nodes[n].removed |= ends[n];
    free(ends);
    return HOP_OK;
}

static bool is_before(const struct graph *graph, int32_t a, int32_t b)
{
    return graph->before[(size_t)a * (size_t)graph->count + (size_t)b];
}

static void join(bool *row, const bool *other, int32_t count)
{
    for (int32_t n = 0; n < count; n++)
        row[n] |= other[n];
}

/* Warshall's closure. */
static hop_status close_graph(struct graph *graph, struct hop_error *err)
{
    const size_t n = (size_t)graph->count;
    HOP_TRY(hop_calloc(&graph->before, n * n, sizeof *graph->before, err));
    for (int32_t e = 0; e < graph->edge_count; e++)
        if (is_live(graph, &graph->edges[e]))
            graph->before[(size_t)graph->edges[e].from * n + (size_t)graph->edges[e].to] = true;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < n; i++)
            if (graph->before[i * n + k])
                join(&graph->before[i * n], &graph->before[k * n], graph->count);
    for (int32_t i = 0; i < graph->count; i++)
        if (is_before(graph, i, i))
            return hop_fail(err, HOP_INPUT, "%s: layer %s comes before itself", graph->path,
                            graph->nodes[i].id);
    return HOP_OK;
}

/* Antichains */

/* Is the output of `node`, which comes before some node of the antichain, needed elsewhere? */
static bool is_needed(const struct graph *graph, const struct antichain *item, int32_t node)
{
    for (int32_t i = 0; i < item->count; i++) {
        const int32_t end = item->nodes[i];
        if (!is_before(graph, node, end))
            continue;
        for (int32_t e = 0; e < graph->edge_count; e++) {
            const struct edge *const edge = &graph->edges[e];
            if (edge->from == node && is_live(graph, edge) && edge->to != end &&
                !is_before(graph, edge->to, end))
                return true;
        }
    }
    return false;
}

static hop_status extend(const struct graph *graph, struct antichain *item, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&item->extended, (size_t)graph->count, sizeof *item->extended, err));
    for (int32_t n = 0; n < graph->count; n++)
        if (is_needed(graph, item, n))
            item->extended[item->extended_count++] = n;
    for (int32_t i = 0; i < item->count; i++)
        item->extended[item->extended_count++] = item->nodes[i];
    return HOP_OK;
}

static int32_t find_antichain(const struct builder *builder, const bool *has)
{
    for (int32_t i = 0; i < builder->count; i++)
        if (memcmp(builder->items[i].has, has, (size_t)builder->graph->count * sizeof *has) == 0)
            return i;
    return -1;
}

/* A new antichain of builder->scratch[0 .. count). */
static hop_status add_antichain(struct builder *builder, int32_t count, struct hop_error *err)
{
    const struct graph *const graph = builder->graph;
    if (builder->count == MOST_STATES)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: the graph has more than %d states", graph->path,
                        MOST_STATES);
    HOP_TRY(hop_grow(&builder->items, &builder->capacity, (size_t)builder->count + 1,
                     sizeof *builder->items, err));
    struct antichain *const item = &builder->items[builder->count++];
    *item = (struct antichain){.count = count};
    HOP_TRY(hop_calloc(&item->nodes, (size_t)count, sizeof *item->nodes, err));
    HOP_TRY(hop_calloc(&item->has, (size_t)graph->count, sizeof *item->has, err));
    for (int32_t i = 0; i < count; i++) {
        item->nodes[i] = builder->scratch[i];
        item->has[builder->scratch[i]] = true;
    }
    return extend(graph, item, err);
}

static bool comes_before_any(const struct graph *graph, int32_t node, const int32_t *nodes,
                             int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (is_before(graph, node, nodes[i]))
            return true;
    return false;
}

/* The extended antichain with `old` replaced by `node`, less what comes before the rest, into
 * builder->scratch; returns its size. */
static int32_t replace(struct builder *builder, const struct antichain *item, int32_t old,
                       int32_t node)
{
    int32_t *const all = builder->scratch + builder->graph->count;
    int32_t count = 0;
    for (int32_t i = 0; i < item->extended_count; i++)
        all[i] = item->extended[i] == old ? node : item->extended[i];
    for (int32_t i = 0; i < item->extended_count; i++)
        if (!comes_before_any(builder->graph, all[i], all, item->extended_count))
            builder->scratch[count++] = all[i];
    return count;
}

static hop_status link_antichain(struct builder *builder, int32_t from, int32_t count,
                                 struct hop_error *err)
{
    memset(builder->marked, 0, (size_t)builder->graph->count * sizeof *builder->marked);
    for (int32_t i = 0; i < count; i++)
        builder->marked[builder->scratch[i]] = true;
    int32_t to = find_antichain(builder, builder->marked);
    if (to < 0) {
        to = builder->count;
        HOP_TRY(add_antichain(builder, count, err));
    }
    HOP_TRY(hop_grow(&builder->links, &builder->link_capacity, (size_t)builder->link_count + 1,
                     sizeof *builder->links, err));
    builder->links[builder->link_count++] = (struct edge){from, to};
    return HOP_OK;
}

/* Every antichain that follows by one node more. */
static hop_status follow(struct builder *builder, int32_t from, struct hop_error *err)
{
    const struct graph *const graph = builder->graph;
    for (int32_t i = 0; i < builder->items[from].extended_count; i++) {
        for (int32_t e = 0; e < graph->edge_count; e++) {
            const struct antichain *const item = &builder->items[from];
            const struct edge *const edge = &graph->edges[e];
            if (edge->from != item->extended[i] || !is_live(graph, edge) || item->has[edge->to] ||
                comes_before_any(graph, edge->to, item->extended, item->extended_count))
                continue;
            HOP_TRY(
                link_antichain(builder, from, replace(builder, item, edge->from, edge->to), err));
        }
    }
    return HOP_OK;
}

static hop_status find_antichains(struct builder *builder, struct hop_error *err)
{
    const struct graph *const graph = builder->graph;
    const size_t n = (size_t)graph->count;
    int32_t source = 0;
    HOP_TRY(hop_calloc(&builder->scratch, 2 * n, sizeof *builder->scratch, err));
    HOP_TRY(hop_calloc(&builder->marked, n, sizeof *builder->marked, err));
    while (source < graph->count && (graph->nodes[source].removed || !is_end(graph, source, true)))
        source++;
    if (source == graph->count)
        return hop_fail(err, HOP_INPUT, "%s: there is no layer to begin with", graph->path);
    builder->scratch[0] = source;
    HOP_TRY(add_antichain(builder, 1, err));
    for (int32_t i = 0; i < builder->count; i++)
        HOP_TRY(follow(builder, i, err));
    return HOP_OK;
}

/* Topological order: depth first, along the links as they were made, numbered from the end. */
struct visit {
    int32_t antichain, link;
};

static void sort_from(struct builder *builder, struct visit *stack, bool *done, int32_t *left)
{
    int32_t depth = 1;
    stack[0] = (struct visit){0, 0};
    done[0] = true;
    while (depth) {
        struct visit *const top = &stack[depth - 1];
        while (top->link < builder->link_count &&
               (builder->links[top->link].from != top->antichain ||
                done[builder->links[top->link].to]))
            top->link++;
        if (top->link < builder->link_count) {
            const int32_t next = builder->links[top->link].to;
            done[next] = true;
            stack[depth++] = (struct visit){next, 0};
        } else {
            builder->order[--*left] = top->antichain;
            depth--;
        }
    }
}

static hop_status sort_states(struct builder *builder, struct hop_error *err)
{
    const size_t n = (size_t)builder->count;
    struct visit *stack = NULL;
    bool *done = NULL;
    int32_t left = builder->count;
    hop_status status = HOP_OK;
    HOP_TRY(hop_calloc(&builder->order, n, sizeof *builder->order, err));
    HOP_TRY(hop_calloc(&builder->place, n, sizeof *builder->place, err));
    HOP_TRY_DONE(hop_calloc(&stack, n, sizeof *stack, err));
    HOP_TRY_DONE(hop_calloc(&done, n, sizeof *done, err));
    sort_from(builder, stack, done, &left);
    for (int32_t s = 0; s < builder->count; s++)
        builder->place[builder->order[s]] = s;
done:
    free(stack);
    free(done);
    return status;
}

/* States */

static void sum_state(const struct graph *graph, const struct antichain *item,
                      struct pipedream_states *states, int32_t state)
{
    for (int32_t n = 0; n < graph->count; n++) {
        const bool in = item->has[n];
        if (!in && !comes_before_any(graph, n, item->nodes, item->count))
            continue;
        states->seconds[state] += graph->nodes[n].seconds;
        states->gradient[state] += graph->nodes[n].parameters;
    }
    for (int32_t i = 0; i < item->extended_count; i++)
        states->output[state] += graph->nodes[item->extended[i]].activation;
}

/* States are in topological order, so a row is complete before it is needed from the end. */
static void close_states(const struct builder *builder, struct pipedream_states *states)
{
    const size_t n = (size_t)builder->count;
    for (int32_t e = 0; e < builder->link_count; e++)
        states->before[(size_t)builder->place[builder->links[e].from] * n +
                       (size_t)builder->place[builder->links[e].to]] = true;
    for (size_t s = n; s-- > 0;)
        for (size_t t = s + 1; t < n; t++)
            if (states->before[s * n + t])
                join(&states->before[s * n], &states->before[t * n], builder->count);
}

static hop_status fill_states(const struct builder *builder, struct pipedream_states *states,
                              struct hop_error *err)
{
    const size_t n = (size_t)builder->count;
    HOP_TRY(hop_calloc(&states->seconds, n, sizeof *states->seconds, err));
    HOP_TRY(hop_calloc(&states->gradient, n, sizeof *states->gradient, err));
    HOP_TRY(hop_calloc(&states->output, n, sizeof *states->output, err));
    HOP_TRY(hop_calloc(&states->before, n * n, sizeof *states->before, err));
    for (int32_t s = 0; s < builder->count; s++)
        sum_state(builder->graph, &builder->items[builder->order[s]], states, s);
    close_states(builder, states);
    states->model = (struct hop_pipedream_model){.states = builder->count,
                                                 .seconds = states->seconds,
                                                 .gradient = states->gradient,
                                                 .output = states->output,
                                                 .before = states->before};
    return HOP_OK;
}

hop_status pipedream_states_load(const char *path, struct pipedream_states *out,
                                 struct hop_error *err)
{
    struct graph graph = {.path = path};
    struct builder builder = {.graph = &graph};
    struct pipedream_states states = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(read_graph(&graph, err));
    HOP_TRY_DONE(remove_ends(&graph, true, "Input", err));
    HOP_TRY_DONE(remove_ends(&graph, false, "__getitem__", err));
    HOP_TRY_DONE(close_graph(&graph, err));
    HOP_TRY_DONE(find_antichains(&builder, err));
    HOP_TRY_DONE(sort_states(&builder, err));
    HOP_TRY_DONE(fill_states(&builder, &states, err));
    *out = states;
    states = (struct pipedream_states){0};
done:
    pipedream_states_free(&states);
    free_builder(&builder);
    free_graph(&graph);
    return status;
}

void pipedream_states_free(struct pipedream_states *states)
{
    if (!states)
        return;
    free(states->seconds);
    free(states->gradient);
    free(states->output);
    free(states->before);
    *states = (struct pipedream_states){0};
}
