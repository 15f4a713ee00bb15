/* Buffers of random numbers (kernels/random.h), spread over the team. */
#include "kernels/random.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"

enum { GRAIN = 1024 }; /* a multiple of the 4 elements of a counter */

typedef struct random_job {
    float *y;
    double deviation; /* of normal numbers */
    const lvni_core_rng *rng;
} random_job;

static void uniform_range(const void *job, int64_t begin, int64_t end)
{
    const random_job *j = job;
    lvni_cpu_isa()->uniform(j->y + begin, begin, end - begin, j->rng);
}

void lvni_kernels_random_uniform(float *y, int64_t n, const lvni_core_rng *rng)
{
    const random_job job = {.y = y, .rng = rng};
    lvni_cpu_par(n, GRAIN, 4, uniform_range, &job);
}

static void normal_range(const void *job, int64_t begin, int64_t end)
{
    const random_job *j = job;
    lvni_cpu_isa()->normal(j->y + begin, begin, end - begin, j->deviation, j->rng);
}

void lvni_kernels_random_normal(float *y, int64_t n, double deviation, const lvni_core_rng *rng)
{
    const random_job job = {.y = y, .deviation = deviation, .rng = rng};
    lvni_cpu_par(n, GRAIN, 16, normal_range, &job);
}
