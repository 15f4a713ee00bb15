/* A static split of items over an OpenMP team (par.h). The only parallel region of the own kernels. */
#include "kernels/cpu/par.h"

#include "tensor/device.h"

#include <omp.h>

/* Below this many elements waking a team costs more than it saves. */
static const int64_t SMALL = 32768;

void lvni_par(int64_t n, int64_t grain, int64_t work, lvni_range_fn fn, const void *job)
{
    const lvni_ctx *ctx = lvni_ctx_get();
    if (lvni_device_dry_run()) {
        return;
    }
    const int64_t chunks = lvni_div_up(n, grain);
    int64_t team = ctx == NULL ? 1 : ctx->team;
    if (team > chunks) {
        team = chunks;
    }
    if (team <= 1 || n * work <= SMALL) {
        if (n > 0) {
            fn(job, 0, n);
        }
        return;
    }
#pragma omp parallel num_threads((int)team)
    {
        lvni_thread_set_ftz();
        const int64_t t = omp_get_thread_num();
        const int64_t members = omp_get_num_threads(); /* fewer than asked for is fine here */
        const int64_t begin = chunks * t / members * grain;
        const int64_t end = chunks * (t + 1) / members * grain;
        if (begin < end) {
            fn(job, begin, end < n ? end : n);
        }
    }
}
