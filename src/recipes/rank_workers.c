/* Threads that load the data of a rank (rank_workers.h). */
#include "recipes/rank_workers.h"

#include "launch/rank_resources.h"
#include "recipes/options.h"

int lvni_recipes_rank_workers(const lvni_core_config *c, const lvni_launch_rank_info *info,
                              int local, const lvni_recipes_rank *rank, lvni_core_notices *notices)
{
    lvni_launch_rank_info seen = *info;
    if (local > info->local_world && info->local_world > 0) {
        /* they share the cores of this process, as those of a launcher do */
        seen.source = LVNI_SOURCE_LEVIN;
    }
    seen.local_world = local;
    const int cpus = lvni_recipes_usable_cores();
    const lvni_launch_workers_request request = {
        .asked = lvni_core_config_is_set(c, "num_workers")
                     ? (int)lvni_core_config_int(c, "num_workers")
                     : -1,
        .cpus = cpus,
        .bound = rank->cores == cpus && rank->cores_all > cpus};
    return lvni_launch_workers_choose(&seen, &request, notices);
}
