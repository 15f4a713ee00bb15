/* Start of the cpu backend: hostile OpenMP variables, instruction set, self-test. Called by the
 * command's main and by programs that use the library, before the first op.
 *
 * libgomp reads its variables when the program is loaded, and OMP_THREAD_LIMIT, the pinning
 * variables and stack sizes cannot be taken back later. So the command starts itself again without
 * them (lvni_cpu_clean_environment, about 2 ms); the library cannot do that to its host and refuses
 * instead when teams come out too small.
 *
 * Left alone on purpose: OMP_NUM_THREADS (mpirun and Slurm set it; levin sets the team before every
 * region), OMP_SCHEDULE (no loop uses schedule(runtime)) and OMP_WAIT_POLICY=passive. How long a
 * waiting thread spins: libgomp's 300,000 rounds hold a core for milliseconds, which on busy cores
 * (loader workers, other programs) made a step of two threads ten times slower; 2,000 rounds (some
 * 100 us) cost nothing on idle cores and lose nothing on busy ones; 0 costs 70 % on idle ones. Only
 * the environment at load can set it, so the command starts itself again for this alone, too;
 * setting GOMP_SPINCOUNT=2000 beforehand (launchers do) saves these 2 ms. */

#include "core/own_program.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_api.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char GUARD[] = "LEVIN_OMP_CLEANED";

/* Which values of a variable do harm. */
typedef enum harm {
    HARM_ALWAYS,
    HARM_UNLESS_FALSE,
    HARM_IF_ACTIVE,
    HARM_UNLESS_1_OR_MORE,
    HARM_IF_LONG
} harm;

static const struct {
    const char *name;
    harm harm;
} hostile[] = {
    {"OMP_THREAD_LIMIT", HARM_ALWAYS},  /* teams shrink: gradients lose parts, or a hang */
    {"OMP_DYNAMIC", HARM_UNLESS_FALSE}, /* the same */
    {"OMP_MAX_ACTIVE_LEVELS", HARM_UNLESS_1_OR_MORE}, /* 0: no teams at all */
    {"OMP_NESTED", HARM_UNLESS_FALSE},
    {"OMP_PROC_BIND", HARM_UNLESS_FALSE}, /* every lane's team is pinned to the same cores */
    {"OMP_PLACES", HARM_ALWAYS},
    {"GOMP_CPU_AFFINITY", HARM_ALWAYS},
    {"OMP_WAIT_POLICY", HARM_IF_ACTIVE}, /* idle teams burn the cores of other lanes */
    {"GOMP_SPINCOUNT", HARM_IF_LONG},    /* the same */
    /* too small a stack for oneDNN kills the process */
    {"OMP_STACKSIZE", HARM_ALWAYS},
    {"GOMP_STACKSIZE", HARM_ALWAYS},
};

static bool does_harm(harm h, const char *value)
{
    char *end;
    switch (h) {
    case HARM_ALWAYS: return true;
    case HARM_UNLESS_FALSE: return strcasecmp(value, "false") != 0;
    case HARM_IF_ACTIVE: return strcasecmp(value, "active") == 0;
    case HARM_UNLESS_1_OR_MORE: return strtol(value, NULL, 10) < 1;
    /* "infinity" */
    case HARM_IF_LONG: return strtoll(value, &end, 10) > 20000 || *end != '\0' || end == value;
    }
    return true;
}

/* Removes what does harm; how many there were. */
static int remove_hostile(void)
{
    int n = 0;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const char *value = getenv(hostile[i].name);
        if (value != NULL && does_harm(hostile[i].harm, value)) {
            unsetenv(hostile[i].name);
            n++;
        }
    }
    return n;
}

/* The arguments the program was started with: a main may have removed some before it calls here.
 * NULL when they cannot be read. */
static char **first_arguments(void)
{
    enum { BYTES = 1 << 16, ARGS = 4096 };
    static char text[BYTES];
    static char *args[ARGS + 1];
    FILE *f = fopen("/proc/self/cmdline", "r");
    const size_t n = f == NULL ? 0 : fread(text, 1, BYTES, f);
    if (f != NULL) {
        fclose(f);
    }
    if (n == 0 || n == BYTES || text[n - 1] != '\0') {
        return NULL;
    }
    int count = 0;
    for (size_t at = 0; at < n; at += strlen(text + at) + 1) {
        if (count == ARGS) {
            return NULL;
        }
        args[count++] = text + at;
    }
    args[count] = NULL;
    const int loader = lvni_core_self_loader_words();
    return count > loader ? args + loader : NULL;
}

void lvni_cpu_clean_environment(char **argv)
{
    char **args = first_arguments();
    argv = args != NULL ? args : argv;
    if (getenv(GUARD) != NULL) {
        /* this is the second start; programs started from here decide again */
        unsetenv(GUARD);
        return;
    }
    if (remove_hostile() == 0 &&
        (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL)) {
        return;
    }
    /* The real path, so that ps shows the program's name; the link when the file was moved
     * meanwhile. */
    char path[4096];
    setenv(GUARD, "1", 1);
    setenv("GOMP_SPINCOUNT", "2000", 0);
    if (lvni_core_self(path, sizeof path)) {
        execv(path, argv);
    }
    if (lvni_core_self_loader_words() == 0) {
        execv("/proc/self/exe", argv);
    }
    unsetenv(GUARD); /* no /proc: lvni_cpu_start reports whether it matters */
}

/* Of the process on purpose: so is libgomp, whose settings this has looked at. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static lvn_status start(void)
{
    /* Falling sizes: libgomp ends the threads a smaller team does not need, so the pool is left
     * small. */
    static const int teams[] = {16, 2, 1};
    LVN_TRY(lvni_cpu_isa_check());
    LVN_TRY(lvni_cpu_dnn_setup(getenv("LEVIN_CPU_ISA")));
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        LVN_TRY(lvni_cpu_omp_prove_team(teams[i]));
    }
    return LVN_OK;
}

lvn_status lvni_cpu_start(void)
{
    pthread_mutex_lock(&start_lock);
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = started ? LVN_OK : start();
    lvni_tensor_fp_leave(before);
    started = started || s == LVN_OK;
    pthread_mutex_unlock(&start_lock);
    return s;
}

const char *lvni_cpu_describe(void)
{
    return lvni_cpu_dnn_describe();
}

lvni_cpu_stats lvni_cpu_get_stats(void)
{
    return lvni_cpu_dnn_stats();
}
