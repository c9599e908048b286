/* What a run with emulated devices tells about them. */
#include <math.h>

#include "base/string.h"
#include "runtime/console.h"
#include "runtime/coordinator_internal.h"

double hop_coordinator_time_scale(const struct hop_coordinator *c)
{
    return hop_cluster_time_scale(&c->job.cluster);
}

void hop_coordinator_take_lateness(struct hop_coordinator *c, int32_t device, int64_t step,
                                   const struct hop_lateness *late)
{
    if (step > c->resumed + 1)
        hop_lateness_add(&c->late[device], late);
}

static struct hop_lateness total_lateness(const struct hop_coordinator *c)
{
    struct hop_lateness total = {0};
    for (size_t d = 0; d < c->job.cluster.count; d++)
        hop_lateness_add(&total, &c->late[d]);
    return total;
}

static hop_status list_late_devices(const struct hop_coordinator *c, struct hop_string *out,
                                    struct hop_error *err)
{
    for (size_t d = 0; d < c->job.cluster.count; d++) {
        const struct hop_lateness *const late = &c->late[d];
        if (late->tasks > 0)
            HOP_TRY(hop_string_printf(out, err, "%s%s %d (worst %.1f ms)", out->length ? ", " : "",
                                      c->job.cluster.devices[d].name, late->tasks,
                                      1e3 * late->seconds));
    }
    return HOP_OK;
}

hop_status hop_coordinator_warn_of_lateness(const struct hop_coordinator *c, struct hop_error *err)
{
    const struct hop_lateness total = total_lateness(c);
    struct hop_string devices = {0};
    if (total.tasks == 0)
        return HOP_OK;
    const hop_status status = list_late_devices(c, &devices, err);
    if (status == HOP_OK)
        hop_console_note("warning: step times are longer than those of the emulated devices: "
                         "tasks computed longer here than the cost table gives them: %s; raise "
                         "time_scale from %.3g to %.2g or more, or run fewer devices a core",
                         hop_string_text(&devices), hop_coordinator_time_scale(c),
                         hop_coordinator_time_scale(c) * fmax(total.ratio, 1.1));
    hop_string_free(&devices);
    return status;
}

json_t *hop_coordinator_emulation_json(const struct hop_coordinator *c)
{
    const struct hop_lateness total = total_lateness(c);
    return json_pack("{s:f, s:i, s:f}", "time_scale", hop_coordinator_time_scale(c), "late_tasks",
                     (int)total.tasks, "late_seconds", total.seconds);
}
