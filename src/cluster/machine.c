#include "cluster/cluster.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <hwloc.h>

/* Does `host` mean `machine`, in full or without its domain? */
static bool is_name_of(const char *host, const char *machine)
{
    const size_t first = strcspn(machine, ".");
    return strcasecmp(host, machine) == 0 ||
           (strlen(host) == first && strncasecmp(host, machine, first) == 0);
}

bool hop_device_is_local(const struct hop_device *device)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "::1"};
    if (!device->host || !*device->host)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(device->host, names[i]) == 0)
            return true;
    char machine[256] = "";
    if (gethostname(machine, sizeof machine - 1) != 0 || !*machine)
        return false;
    return is_name_of(device->host, machine);
}

/* Cores with at least one hardware thread in `allowed`; where no cores are known, hardware threads.
 */
static int32_t count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t allowed)
{
    int32_t cores = 0;
    for (hwloc_obj_t core = NULL;
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));)
        cores += hwloc_bitmap_intersects(core->cpuset, allowed);
    return cores ? cores : hwloc_bitmap_weight(allowed);
}

static int32_t allowed_cores(hwloc_topology_t topology)
{
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    if (!allowed)
        return 0;
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
    const int32_t cores = count_cores(topology, allowed);
    hwloc_bitmap_free(allowed);
    return cores;
}

int32_t hop_machine_cores(void)
{
    hwloc_topology_t topology;
    int32_t cores = 0;
    if (hwloc_topology_init(&topology) != 0)
        return 1;
    if (hwloc_topology_load(topology) == 0)
        cores = allowed_cores(topology);
    hwloc_topology_destroy(topology);
    return cores > 0 ? cores : 1;
}
