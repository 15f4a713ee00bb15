/* Chooses the instruction set of the own kernels, once per process (isa.h). */
#include "kernels/cpu/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Of the process on purpose: read from CPU and environment once, constant from then on. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const lvni_cpu_vec *chosen;
static char request[16];
static bool request_refused;

/* The features by which processors of a level differ from those below; named one by one, since not
 * every compiler knows the levels' names here. */
static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static void choose(void)
{
    static const lvni_cpu_vec *const tables[] = {&lvni_vec_v2, &lvni_vec_v3, &lvni_cpu_vec_v4};
    __builtin_cpu_init();
    int best = 0;
    if (has_v3()) {
        best = has_v4() ? 2 : 1;
    }
    const char *env = getenv("LEVIN_CPU_ISA");
    if (env != NULL && *env != 0) {
        strncpy(request, env, sizeof request - 1);
        int asked = -1;
        for (int i = 0; i < 3; i++) {
            asked = strcmp(env, tables[i]->name) == 0 ? i : asked;
        }
        request_refused = asked < 0 || asked > best;
        best = request_refused ? best : asked;
    }
    chosen = tables[best];
}

const lvni_cpu_vec *lvni_cpu_isa(void)
{
    pthread_once(&once, choose);
    return chosen;
}

lvn_status lvni_cpu_isa_check(void)
{
    const lvni_cpu_vec *best = lvni_cpu_isa();
    if (request_refused) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "LEVIN_CPU_ISA is \"%s\", but must be v2, v3 or v4 and no more than this machine's %s; "
            "unset it or lower it",
            request, best->name);
    }
    return LVN_OK;
}
