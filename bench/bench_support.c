/* Helpers of the bench programs (bench_support.h). */
#include "bench_support.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "kernels/kernels.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

static const bench_noise *noise_of(const lvn_dataset *dataset)
{
    return (const bench_noise *)(const void *)dataset;
}

static int noise_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const int side = noise_of(dataset)->side;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 3, .shape = {side, side, 3}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 0};
    return 2;
}

static int64_t noise_length(const lvn_dataset *dataset)
{
    return noise_of(dataset)->samples;
}

static lvn_status noise_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    const bench_noise *n = noise_of(dataset);
    memcpy(field[0], n->pixels + key->sample,
           (size_t)n->side * (size_t)n->side * 3 * sizeof(float));
    *(int64_t *)field[1] = key->sample % n->base.n_classes;
    return LVN_OK;
}

static const lvn_dataset_class noise_class = {
    .name = "noise", .fields = noise_fields, .length = noise_length, .get = noise_get};

lvn_status bench_noise_open(bench_noise *noise, int side, int64_t samples, int n_classes)
{
    *noise = (bench_noise){
        .base = {.cls = &noise_class, .n_classes = n_classes}, .side = side, .samples = samples};
    const size_t n = (size_t)samples + (size_t)side * (size_t)side * 3;
    noise->pixels = lvni_core_alloc(LVNI_TAG_DATA, n * sizeof *noise->pixels);
    if (noise->pixels == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(1, lvni_core_rng_purpose("noise"))};
    for (size_t i = 0; i < n; i++) {
        noise->pixels[i] = (float)lvni_core_rng_normal(&rng, i);
    }
    return LVN_OK;
}

void bench_noise_close(bench_noise *noise)
{
    lvni_core_free(noise->pixels);
    noise->pixels = NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static double used_by_all_s(void)
{
    double user = 0, niced = 0, kernel = 0;
    FILE *f = fopen("/proc/stat", "r");
    const bool read = f != NULL && fscanf(f, "cpu %lf %lf %lf", &user, &niced, &kernel) == 3;
    if (f != NULL) {
        fclose(f);
    }
    return read ? (user + niced + kernel) / (double)sysconf(_SC_CLK_TCK) : 0;
}

static double used_by(int target)
{
    struct rusage u;
    getrusage(target, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

int bench_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

double bench_used_by_us_s(void)
{
    return used_by(RUSAGE_SELF);
}

double bench_used_by_others_s(void)
{
    static double before;
    const double now = used_by_all_s() - used_by(RUSAGE_SELF) - used_by(RUSAGE_CHILDREN);
    const double since = now - before;
    before = now;
    return since;
}

double bench_peak_mb(int pid)
{
    char path[48], line[128];
    long kb = 0;
    if (pid == 0) {
        snprintf(path, sizeof path, "/proc/self/status");
    } else {
        snprintf(path, sizeof path, "/proc/%d/status", pid);
    }
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kb = strtol(line + 6, NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return (double)kb * 1024e-6;
}

void bench_forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f != NULL) {
        fputs("5", f);
        fclose(f);
    }
}

void bench_describe(FILE *report, FILE *json)
{
    struct utsname machine;
    uname(&machine);
    fprintf(report, "%s %s, %s, gcc %s\n", machine.sysname, machine.machine, lvni_cpu_describe(),
            __VERSION__);
    fprintf(json, "{\n  \"machine\": \"%s %s\",\n  \"cpu\": \"%s\",\n  \"compiler\": \"gcc %s\"",
            machine.release, machine.machine, lvni_cpu_describe(), __VERSION__);
}
