/* Teams that are what they claim to be (omp_team.h). */
#include "kernels/cpu/omp_team.h"

#include "tensor/ctx.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS are per thread in libgomp: a lane made after lvni_cpu_start
 * has the environment's values again, so they are set here each time (some nanoseconds). */
int lvni_cpu_omp_enter(int team)
{
    const int before = omp_get_max_threads();
    /* members of a team get the setting of the thread that makes them */
    lvni_tensor_thread_set_ftz();
    omp_set_dynamic(0);
    if (omp_get_max_active_levels() != 1) {
        omp_set_max_active_levels(1);
    }
    omp_set_num_threads(team);
    return before;
}

void lvni_cpu_omp_leave(int before)
{
    omp_set_num_threads(before);
}

static bool flushes_denormals(void)
{
#if defined(__x86_64__)
    return (_mm_getcsr() & 0x8040u) == 0x8040u;
#else
    return true;
#endif
}

/* Names the first variable that can make teams smaller, for the message. */
static const char *suspect(void)
{
    static const char *const names[] = {"OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS",
                                        "OMP_NESTED"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (getenv(names[i]) != NULL) {
            return names[i];
        }
    }
    return "no OMP_ variable that levin knows";
}

lvn_status lvni_cpu_omp_prove_team(int team)
{
    _Atomic int members = 0, flushing = 0;
    const int before = lvni_cpu_omp_enter(team);
#pragma omp parallel
    {
        atomic_fetch_add(&members, 1);
        atomic_fetch_add(&flushing, flushes_denormals() ? 1 : 0);
    }
    lvni_cpu_omp_leave(before);
    if (members != team) {
        const char *name = suspect(), *value = getenv(name);
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "a team of %d OpenMP threads got only %d members, so results would depend on the "
                 "machine: unset %s (now '%s') before the program starts",
                 team, (int)members, name, value == NULL ? "" : value);
    }
    if (flushing != team) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "only %d of %d OpenMP threads flush denormals to zero: threads were made before "
                 "lvni_cpu_start; call it first",
                 (int)flushing, team);
    }
    return LVN_OK;
}
