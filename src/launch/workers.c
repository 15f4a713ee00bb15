/* Threads that load data (workers.h). */
#include "launch/workers.h"

#include "core/str.h"

enum { MOST = 8 }; /* of auto, where nobody said how many processors a task gets */

/* srun does not hand on --cpus-per-task of the batch script since 22.05: the variable says 12, and
 * the task has one. */
static void warn_smaller(int reported, int cpus, lvni_core_notices *n)
{
    lvni_core_notice_warn(n, 208,
                          "SLURM_CPUS_PER_TASK=%d, but this task may use %d: export "
                          "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or "
                          "srun --cpus-per-task=$SLURM_CPUS_PER_TASK",
                          reported, cpus);
}

static int at_least_0(int n)
{
    return n < 0 ? 0 : n;
}

/* Of the node, as far as its ranks may use them; 0: unknown. */
static int cpus_of_node(const lvni_launch_rank_info *info, const lvni_launch_workers_request *r,
                        bool task)
{
    if (task) {
        return info->slurm.cpus_on_node;
    }
    return r->bound ? r->cpus * info->local_world : r->cpus;
}

int lvni_launch_workers_choose(const lvni_launch_rank_info *info,
                               const lvni_launch_workers_request *request,
                               lvni_core_notices *notices)
{
    /* The ranks of a launcher inside of a step share what the step's task has. */
    const bool task = info->slurm.job &&
                      (info->source == LVNI_SOURCE_SLURM || info->source == LVNI_SOURCE_SINGLE);
    const int ranks = info->local_world > 0 ? info->local_world : 1,
              reported = task ? info->slurm.cpus_per_task : 0;
    const int usable = reported > 0 && reported < request->cpus ? reported : request->cpus;
    if (reported > request->cpus) {
        warn_smaller(reported, request->cpus, notices);
    }
    if (request->asked < 0) {
        const int own = task || request->bound ? usable : usable / ranks;
        const int n = at_least_0(own - 1);
        return reported > 0 || n < MOST ? n : MOST;
    }
    const int node = cpus_of_node(info, request, task);
    if (reported > 0 && request->asked >= usable) {
        lvni_core_notice_warn(
            notices, 209,
            "workers (%d) must be smaller than cpus-per-task (%d): the rank itself needs one",
            request->asked, usable);
    } else if (node > 0 && (int64_t)request->asked * ranks > node) {
        lvni_core_notice_warn(
            notices, 202,
            "%d workers x %d rank%s are more than the %d processors of this node: "
            "lower num_workers",
            request->asked, ranks, lvni_core_plural(ranks, "", "s"), node);
    }
    return request->asked;
}
