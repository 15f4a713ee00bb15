/* Threads that load the data of a rank (rank_workers.h). */
#include "recipes/rank_workers.h"

#include "launch/workers.h"
#include "recipes/train_options.h"

int lvni_rank_workers(const lvni_config *c, const lvni_who *who, int local, const lvni_rank *rank,
                      lvni_notices *notices)
{
    lvni_who seen = *who;
    if (local > who->local_world && who->local_world > 0) {
        /* they share what this process has, as those of a launcher do */
        seen.source = LVNI_SOURCE_LEVIN;
    }
    seen.local_world = local;
    const int cpus = lvni_usable_cores();
    const lvni_workers_request request = {
        .asked = lvni_config_is_set(c, "num_workers") ? (int)lvni_config_int(c, "num_workers") : -1,
        .cpus = cpus,
        .bound = rank->cores == cpus && rank->cores_all > cpus};
    return lvni_workers_choose(&seen, &request, notices);
}
