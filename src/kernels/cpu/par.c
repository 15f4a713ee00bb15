/* A static split of items over an OpenMP team (par.h). The only parallel region of the own
 * kernels. */
#include "kernels/cpu/par.h"

#include "tensor/device.h"

#include <omp.h>

/* Below this many elements waking a team costs more than it saves. */
static const int64_t SMALL = 32768;

static void run_part(lvni_tensor_fp_mode mode, lvni_cpu_range_fn fn, const void *job, int64_t begin,
                     int64_t end)
{
    if (begin < end) {
        const unsigned before = lvni_tensor_fp_enter(mode);
        fn(job, begin, end);
        lvni_tensor_fp_leave(before);
    }
}

void lvni_cpu_par_in(lvni_tensor_fp_mode mode, int64_t n, int64_t grain, int64_t work,
                     lvni_cpu_range_fn fn, const void *job)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (lvni_tensor_device_dry_run()) {
        return;
    }
    const int64_t chunks = lvni_cpu_div_up(n, grain);
    int64_t team = ctx == NULL ? 1 : ctx->team;
    if (team > chunks) {
        team = chunks;
    }
    if (team <= 1 || n * work <= SMALL) {
        run_part(mode, fn, job, 0, n);
        return;
    }
    const unsigned before = lvni_tensor_fp_enter(
        LVNI_FP_FLUSH); /* members that are made here get it for good, for oneDNN's regions */
#pragma omp parallel num_threads((int)team)
    {
        const int64_t t = omp_get_thread_num();
        const int64_t members = omp_get_num_threads(); /* fewer than asked for is fine here */
        const int64_t begin = chunks * t / members * grain,
                      end = chunks * (t + 1) / members * grain;
        run_part(mode, fn, job, begin, end < n ? end : n);
    }
    lvni_tensor_fp_leave(before);
}

void lvni_cpu_par(int64_t n, int64_t grain, int64_t work, lvni_cpu_range_fn fn, const void *job)
{
    lvni_cpu_par_in(LVNI_FP_FLUSH, n, grain, work, fn, job);
}
