/* In which orders devices may line up: a graph of states ("these devices stand already") whose
 * edges add one device. Planners run dynamic programs over it. Private to src/strategy. */
#ifndef HOP_STRATEGY_ORDER_H
#define HOP_STRATEGY_ORDER_H

#include "strategy/pipeline.h"

/* States are numbered so that every edge leads to a higher one; 0 is the empty line. */
struct hop_order {
    int32_t states, types;
    int32_t fronts;   /* of a whole line: states [0, fronts) have no BP-capable device */
    bool exhaustive;  /* are all orders of the devices there? */
    int32_t *next;    /* (states, types) state after adding a device of the type, or -1 */
    int32_t *size;    /* (states) devices of the class that stand, or can no longer do */
    bool *complete;   /* (states) may the line end here? */
    int32_t *missing; /* (states) devices that must still be added, at least */
};

/* A state of a class (BP-free or BP-capable) is a set of devices; equal devices are counted, not
 * told apart. Where states x blocks^2 exceed this (with 28 blocks: above 11 different devices) the
 * devices of the class stand in one order only, fastest first, and planners are no longer exact. */
enum { HOP_ORDER_WORK = 1 << 21 };

/* Lines of the types [first, first + types) of one class. all: complete is only the line of all
 * devices; otherwise any, the empty one too. `backward` lines up from the last device: it matters
 * where only one order is kept. Type t of the order is type first + t of the pipeline. */
hop_status hop_order_class(const struct hop_pipeline *pipeline, int32_t first, int32_t types,
                           bool all, bool backward, struct hop_order *out, struct hop_error *err);

/* Whole lines: BP-free devices, then BP-capable ones, at least one of these. `front`: at least one
 * BP-free device stands too (there must be one); otherwise none does. */
hop_status hop_order_line(const struct hop_pipeline *pipeline, bool all, bool front,
                          struct hop_order *out, struct hop_error *err);
void hop_order_free(struct hop_order *order);

#endif
