/* PyTorch's side of a duel (bench_torch.h). */
#include "bench_torch.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { VARIABLES = 512 };

const bench_variant bench_layouts[BENCH_VARIANTS] = {
    {"channels_last, as installed", "channels_last", false},
    {"contiguous, as installed", "contiguous", false},
    {"channels_last, tuned", "channels_last", true},
    {"contiguous, tuned", "contiguous", true}};

/* Our environment without what this program set for itself, and with the tuning. */
static void environment(char *out[VARIABLES], bool tuned)
{
    static char blas[] = "OPENBLAS_CORETYPE=SkylakeX", waits[] = "OMP_WAIT_POLICY=passive";
    int n = 0;
    for (char **e = environ; *e != NULL && n < VARIABLES - 3; e++) {
        if (strncmp(*e, "GOMP_SPINCOUNT=", 15) != 0) {
            out[n++] = *e;
        }
    }
    if (tuned) {
        out[n++] = blas;
        out[n++] = waits;
    }
    out[n] = NULL;
}

bool bench_torch_start(bench_torch *t, const char *script, const char *net, const char *file,
                       const char *variant, const char *precision, int threads, bool tuned)
{
    char python[] = "/usr/bin/python3", program[512], args[4][64], path[256], count[16],
         *env[VARIABLES];
    *t = (bench_torch){.child = {.pid = 0}};
    snprintf(program, sizeof program, "%s/%s", LEVIN_BENCH_DIR, script);
    snprintf(args[0], sizeof args[0], "%s", net);
    snprintf(args[1], sizeof args[1], "%s", variant);
    snprintf(args[2], sizeof args[2], "%s", precision);
    snprintf(path, sizeof path, "%s", file);
    snprintf(count, sizeof count, "%d", threads);
    environment(env, tuned);
    if (!bench_child_start(
            &t->child, (char *[]){python, program, args[0], path, args[1], args[2], count, NULL},
            env)) {
        snprintf(t->about, sizeof t->about, "%s does not start", python);
        return false;
    }
    if (fgets(t->about, sizeof t->about, t->child.from) == NULL) {
        snprintf(t->about, sizeof t->about, "%s ended without output", script);
    }
    t->about[strcspn(t->about, "\n")] = '\0';
    if (strncmp(t->about, "ready ", 6) != 0) {
        bench_torch_stop(t);
        return false;
    }
    return true;
}

bool bench_torch_steps(bench_torch *t, int n, double *seconds, double *core_s, double *losses)
{
    if (t->child.pid == 0 || fprintf(t->child.to, "%d\n", n) < 0 || fflush(t->child.to) != 0 ||
        fscanf(t->child.from, "%lf %lf", seconds, core_s) != 2) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (fscanf(t->child.from, "%lf", &losses[i]) != 1) {
            return false;
        }
    }
    return true;
}

void bench_print_losses(const char *name, const double *losses)
{
    printf("  losses of %-28s", name);
    for (int i = 0; i < BENCH_EQUAL_STEPS; i++) {
        printf(" %.6f", losses[i]);
    }
    printf("\n");
}

bool bench_close_losses(const double *a, const double *b, double tolerance)
{
    bool close = true;
    for (int i = 0; i < BENCH_EQUAL_STEPS; i++) {
        close = close && fabs(a[i] - b[i]) <= tolerance;
    }
    return close;
}

const char *bench_torch_choose(bench_torch *chosen, const bench_torch_job *job, double *losses)
{
    const char *name = NULL;
    double best = 0, seconds, core_s, own[BENCH_EQUAL_STEPS], timed[BENCH_TURN_STEPS];
    *chosen = (bench_torch){.child = {.pid = 0}};
    for (int v = 0; v < BENCH_VARIANTS; v++) {
        const bench_variant *variant = &job->variants[v];
        bench_torch t;
        if (!bench_torch_start(&t, job->script, job->net, job->file, variant->arg, job->precision,
                               job->threads, variant->tuned)) {
            printf("  PyTorch: %s\n", t.about);
            break;
        }
        if (!bench_torch_steps(&t, BENCH_EQUAL_STEPS, &seconds, &core_s, own) ||
            !bench_torch_steps(&t, BENCH_TURN_STEPS, &seconds, &core_s, timed)) {
            printf("  PyTorch, %s: no answer\n", variant->name);
            bench_torch_stop(&t);
            continue;
        }
        if (v == 0) {
            printf("  PyTorch: %s\n", t.about);
        }
        printf("  PyTorch, %-28s %8.4f s\n", variant->name, seconds);
        const bool quickest = name == NULL || seconds < best;
        bench_torch_stop(quickest ? chosen : &t);
        if (quickest) {
            *chosen = t;
            name = variant->name;
            best = seconds;
            memcpy(losses, own, sizeof own);
        }
    }
    if (name != NULL) {
        bench_print_losses(name, losses);
    }
    return name;
}

void bench_torch_stop(bench_torch *t)
{
    bench_child_stop(&t->child); /* the end of its input ends it */
}
