#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "oracle.h"
#include "strategy/chimera_slots.h"

enum { MOST_CHIMERA_DEVICES = 256, MOST_CHIMERA_MICRO_BATCHES = 4096 };

/* One unit of a pipeline. Units are numbered in the order in which they are made. */
struct unit {
    int32_t pipeline, start, micro_batches;
};

struct table {
    int32_t devices, pipelines, micro_batches;
    struct unit *units;
    int32_t unit_count, dealt; /* micro-batches of the units */
    int32_t *waiting;          /* (devices, micro_batches) units whose gradients shall be summed */
    int32_t *first, *last;     /* (devices) of those */
    char (*cells)[24];         /* (devices) */
};

static void free_table(struct table *table)
{
    free(table->units);
    free(table->waiting);
    free(table->first);
    free(table->last);
    free(table->cells);
}

static hop_status create_table(struct table *table, struct hop_error *err)
{
    const size_t devices = (size_t)table->devices, most = (size_t)table->micro_batches;
    const size_t units = (size_t)table->pipelines + most;
    HOP_TRY(hop_calloc(&table->units, units, sizeof *table->units, err));
    HOP_TRY(hop_calloc(&table->waiting, devices * units, sizeof *table->waiting, err));
    HOP_TRY(hop_calloc(&table->first, devices, sizeof *table->first, err));
    HOP_TRY(hop_calloc(&table->last, devices, sizeof *table->last, err));
    return hop_calloc(&table->cells, devices, sizeof *table->cells, err);
}

/* The next micro-batches, as many as a unit takes or as are left. */
static int32_t deal(struct table *table)
{
    const int32_t most = table->devices / table->pipelines;
    const int32_t left = table->micro_batches - table->dealt;
    const int32_t count = left < most ? left : most;
    table->dealt += count;
    return count;
}

static void first_units(struct table *table)
{
    const int32_t half = table->pipelines / 2;
    for (int32_t i = 0; i < half; i++)
        for (int32_t up = 0; up < 2; up++) {
            const int32_t pipeline = i + up * half;
            table->units[pipeline] = (struct unit){pipeline, 0, deal(table)};
        }
    table->unit_count = table->pipelines;
}

/* The authors number the micro-batches of a third and further pair of pipelines as if they belonged
 * to the next unit. */
static int32_t first_micro_batch(const struct table *table, int32_t pipeline)
{
    const int32_t half = table->pipelines / 2, i = pipeline % half;
    return i / 2 * table->devices + pipeline * (table->devices / table->pipelines);
}

static void print_unit(const struct table *table, const struct unit *unit)
{
    const int32_t half = table->pipelines / 2;
    const int32_t first = first_micro_batch(table, unit->pipeline);
    const bool up = unit->pipeline >= half;
    printf("   %s %d mb [", up ? "up" : "down", unit->pipeline % half);
    for (int32_t m = 0; m < unit->micro_batches; m++)
        printf("%s%d", m ? ", " : "", first + m);
    printf("] map {");
    for (int32_t i = 0; i < table->devices; i++) {
        const int32_t stage = up ? table->devices - 1 - i : i;
        printf("%s'%d': [%d]", i ? ", " : "", stage,
               hop_chimera_device(table->devices, table->pipelines, unit->pipeline, stage));
    }
    printf("}\n");
}

static void write_cell(struct table *table, int32_t device, int32_t unit, char kind)
{
    const bool up = table->units[unit].pipeline >= table->pipelines / 2;
    snprintf(table->cells[device], sizeof *table->cells, "'%d@%s@%c'", unit, up ? "up" : "down",
             kind);
}

/* What a unit's micro-batch does in a slot. The sum of a stage's gradients may follow the last
 * BACKWARD. */
static void play_micro_batch(struct table *table, int32_t u, int32_t m, int32_t slot)
{
    const struct unit *const unit = &table->units[u];
    for (int32_t stage = 0; stage < table->devices; stage++) {
        const int32_t device =
            hop_chimera_device(table->devices, table->pipelines, unit->pipeline, stage);
        if (slot == unit->start + hop_chimera_forward_slot(stage, m))
            write_cell(table, device, u, 'f');
        if (slot != unit->start + hop_chimera_backward_slot(table->devices, stage, m))
            continue;
        write_cell(table, device, u, 'b');
        if (m == unit->micro_batches - 1)
            table->waiting[(size_t)device * (size_t)(table->pipelines + table->micro_batches) +
                           (size_t)table->last[device]++] = u;
    }
}

/* A pipeline gets its next unit when a micro-batch has come back and others are still under way. */
static void follow_up(struct table *table, int32_t u, int32_t m, int32_t slot)
{
    const struct unit *const unit = &table->units[u];
    if (slot != unit->start + 2 * m + 2 * table->devices || m == unit->micro_batches - 1)
        return;
    const int32_t count = deal(table);
    if (count)
        table->units[table->unit_count++] = (struct unit){unit->pipeline, slot, count};
}

static bool is_active(const struct table *table, const struct unit *unit, int32_t slot)
{
    return unit->micro_batches && slot >= unit->start &&
           slot <= unit->start + 2 * (unit->micro_batches - 1) + 2 * table->devices;
}

/* False: nothing was left to do. */
static bool play_slot(struct table *table, int32_t slot)
{
    bool any = false;
    for (int32_t d = 0; d < table->devices; d++)
        table->cells[d][0] = '\0';
    for (int32_t u = 0; u < table->unit_count; u++) {
        if (!is_active(table, &table->units[u], slot))
            continue;
        any = true;
        for (int32_t m = 0; m < table->units[u].micro_batches; m++) {
            play_micro_batch(table, u, m, slot);
            follow_up(table, u, m, slot);
        }
    }
    const size_t row = (size_t)(table->pipelines + table->micro_batches);
    for (int32_t d = 0; d < table->devices; d++)
        if (!table->cells[d][0] && table->first[d] < table->last[d])
            write_cell(table, d, table->waiting[(size_t)d * row + (size_t)table->first[d]++], 's');
    return any;
}

static void print_slot(const struct table *table, int32_t slot)
{
    printf("   t=%2d  [", slot);
    for (int32_t d = 0; d < table->devices; d++)
        printf("%s%s", d ? ", " : "", table->cells[d][0] ? table->cells[d] : "'.'");
    printf("]\n");
}

hop_status oracle_chimera(int argc, char **argv, struct hop_error *err)
{
    struct table table = {0};
    if (argc != 3)
        return oracle_usage("chimera D PIPELINES N", err);
    HOP_TRY(oracle_integer(argv[0], "D", 2, MOST_CHIMERA_DEVICES, &table.devices, err));
    HOP_TRY(oracle_integer(argv[1], "PIPELINES", 2, MOST_CHIMERA_DEVICES, &table.pipelines, err));
    HOP_TRY(oracle_integer(argv[2], "N", 1, MOST_CHIMERA_MICRO_BATCHES, &table.micro_batches, err));
    if (!hop_chimera_fits(table.devices, table.pipelines))
        return hop_fail(err, HOP_INPUT,
                        "chimera: D = %d and %d pipelines; D must be even and half the pipelines "
                        "must divide D/2",
                        table.devices, table.pipelines);
    const hop_status status = create_table(&table, err);
    if (status == HOP_OK) {
        first_units(&table);
        printf("D=%d pipelines=%d N=%d\n", table.devices, table.pipelines, table.micro_batches);
        for (int32_t p = 0; p < table.pipelines; p++)
            print_unit(&table, &table.units[p]);
        for (int32_t slot = 0; play_slot(&table, slot); slot++)
            print_slot(&table, slot);
    }
    free_table(&table);
    return status;
}
