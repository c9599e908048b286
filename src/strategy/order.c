#include "strategy/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static hop_status create(int64_t states, int32_t types, struct hop_order *order,
                         struct hop_error *err)
{
    *order = (struct hop_order){.states = (int32_t)states, .types = types};
    const size_t n = (size_t)states, edges = n * (size_t)types;
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&order->next, edges, sizeof *order->next, err));
    HOP_TRY_DONE(hop_calloc(&order->size, n, sizeof *order->size, err));
    HOP_TRY_DONE(hop_calloc(&order->complete, n, sizeof *order->complete, err));
    HOP_TRY_DONE(hop_calloc(&order->missing, n, sizeof *order->missing, err));
    memset(order->next, -1, edges * sizeof *order->next);
    return HOP_OK;
done:
    hop_order_free(order);
    return status;
}

void hop_order_free(struct hop_order *order)
{
    if (!order)
        return;
    free(order->next);
    free(order->size);
    free(order->complete);
    free(order->missing);
    *order = (struct hop_order){0};
}

/* Every set of devices: a number with one digit a type, which counts the devices that stand. */
static hop_status sets(const struct hop_device_type *types, int32_t count, int64_t states, bool all,
                       struct hop_order *out, struct hop_error *err)
{
    HOP_TRY(create(states, count, out, err));
    out->exhaustive = true;
    for (int32_t s = 0; s < out->states; s++) {
        int32_t weight = 1, rest = s, missing = 0;
        for (int32_t t = 0; t < count; t++) {
            const int32_t base = types[t].count + 1, digit = rest % base;
            if (digit + 1 < base)
                out->next[s * count + t] = s + weight;
            out->size[s] += digit;
            missing += types[t].count - digit;
            weight *= base;
            rest /= base;
        }
        out->missing[s] = all ? missing : 0;
        out->complete[s] = !out->missing[s];
    }
    return HOP_OK;
}

/* The types from the fastest on, each as often as it has devices. */
static void by_speed(const struct hop_device_type *types, int32_t count, int32_t blocks,
                     bool backward, int32_t *line)
{
    int32_t n = 0;
    for (int32_t t = 0; t < count; t++)
        for (int32_t i = 0; i < types[t].count; i++) {
            int32_t at = n++;
            for (; at > 0 && types[line[at - 1]].forward[blocks] > types[t].forward[blocks]; at--)
                line[at] = line[at - 1];
            line[at] = t;
        }
    for (int32_t i = 0; backward && i < n / 2; i++) {
        const int32_t swapped = line[i];
        line[i] = line[n - 1 - i];
        line[n - 1 - i] = swapped;
    }
}

/* State 0, and one for every last position. Where devices may be passed over and must be counted,
 * one for every last position and number of devices that stand; otherwise those count as standing.
 */
static hop_status chain(const struct hop_device_type *types, int32_t count, int32_t devices,
                        int32_t blocks, bool all, bool backward, struct hop_order *out,
                        struct hop_error *err)
{
    const int32_t counted = backward && !all ? devices : 1;
    int32_t *line;
    HOP_TRY(hop_calloc(&line, (size_t)devices, sizeof *line, err));
    by_speed(types, count, blocks, backward, line);
    const hop_status status = create(1 + (int64_t)devices * counted, count, out, err);
    for (int32_t s = 0; status == HOP_OK && s < out->states; s++) {
        const int32_t from = s ? (s - 1) / counted + 1 : 0;
        const int32_t more = s && counted > 1 ? (s - 1) % counted + 1 : 0;
        const int32_t end = all && from < devices ? from + 1 : devices;
        out->size[s] = counted > 1 ? more : from;
        out->missing[s] = all ? devices - from : 0;
        out->complete[s] = !out->missing[s];
        for (int32_t i = from; more < devices && i < end; i++)
            if (out->next[s * count + line[i]] < 0)
                out->next[s * count + line[i]] = 1 + i * counted + more;
    }
    free(line);
    return status;
}

hop_status hop_order_class(const struct hop_pipeline *pipeline, int32_t first, int32_t types,
                           bool all, bool backward, struct hop_order *out, struct hop_error *err)
{
    const int64_t square = (int64_t)pipeline->blocks * pipeline->blocks;
    int64_t states = 1;
    int32_t devices = 0;
    for (int32_t t = first; t < first + types; t++) {
        devices += pipeline->types[t].count;
        if (states <= HOP_ORDER_WORK)
            states *= pipeline->types[t].count + 1;
    }
    if (types < 2 || states * square <= HOP_ORDER_WORK)
        return sets(pipeline->types + first, types, states, all, out, err);
    return chain(pipeline->types + first, types, devices, pipeline->blocks, all, backward, out,
                 err);
}

/* `size` counts inside a class: it starts anew with the first BP-capable device. */
static void copy_front(const struct hop_order *front, int32_t back_missing, struct hop_order *line)
{
    for (int32_t s = 0; s < front->states; s++) {
        for (int32_t t = 0; t < front->types; t++)
            line->next[s * line->types + t] = front->next[s * front->types + t];
        line->size[s] = front->size[s];
        line->missing[s] = front->missing[s] + back_missing;
    }
}

/* State s of the back is state s + offset of the line, but for the empty one: a complete front
 * stands in its place. */
static void copy_back(const struct hop_order *front, const struct hop_order *back, bool needs_front,
                      struct hop_order *line)
{
    const int32_t offset = front->states - 1, first = line->types - back->types;
    for (int32_t t = 0; t < back->types; t++)
        for (int32_t f = 0; back->next[t] >= 0 && f < front->states; f++)
            if (front->complete[f] && (!needs_front || front->size[f]))
                line->next[f * line->types + first + t] = back->next[t] + offset;
    for (int32_t s = 1; s < back->states; s++) {
        for (int32_t t = 0; t < back->types; t++) {
            const int32_t to = back->next[s * back->types + t];
            line->next[(s + offset) * line->types + first + t] = to < 0 ? -1 : to + offset;
        }
        line->size[s + offset] = back->size[s];
        line->complete[s + offset] = back->complete[s];
        line->missing[s + offset] = back->missing[s];
    }
}

hop_status hop_order_line(const struct hop_pipeline *pipeline, bool all, bool front,
                          struct hop_order *out, struct hop_error *err)
{
    struct hop_order first = {0}, second = {0};
    hop_status status = HOP_OK;
    const int32_t fronts = pipeline->front_types, backs = pipeline->type_count - fronts;
    HOP_TRY_DONE(hop_order_class(pipeline, 0, front ? fronts : 0, all, false, &first, err));
    HOP_TRY_DONE(hop_order_class(pipeline, fronts, backs, all, false, &second, err));
    HOP_TRY_DONE(create((int64_t)first.states + second.states - 1, fronts + backs, out, err));
    out->exhaustive = first.exhaustive && second.exhaustive;
    out->fronts = first.states;
    copy_front(&first, second.missing[0] > 1 ? second.missing[0] : 1, out);
    copy_back(&first, &second, front, out);
done:
    hop_order_free(&first);
    hop_order_free(&second);
    return status;
}
