/* How long levin takes to start: `levin --version`, and a whole tiny training from exec to exit
 * with the checkpoint saved.
 * usage: bench_startup [LEVIN]     run by `make bench` from the root; LEVIN: build/levin
 * Prints median, spread and peak memory, and whether the line to beat is met; writes
 * out/bench/startup.json. Exit 1 when levin fails or a line is missed. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

enum { RUNS = 21, MAX_ARGS = 12 };
static const char run_dir[] = "out/bench/startup", metrics[] = "out/bench/startup/metrics.jsonl";

typedef struct sample {
    double exit_ms;  /* from exec to the end of the process */
    double first_ms; /* from exec to the first line in metrics.jsonl; 0 when not asked for */
    long peak_kib;
} sample;

typedef struct bench {
    const char *name;
    const char *args[MAX_ARGS]; /* after the program; NULL ends them */
    bool training;
    double limit_exit_ms, limit_first_ms; /* lines to beat; 0: none */
    long limit_kib;
} bench;

static const bench benches[] = {
    {.name = "version", .args = {"--version"}, .limit_exit_ms = 10},
    {.name = "train",
     .args = {"train", "classify", "data=builtin:shapes", "model=cnn", "image_size=32",
              "batch_size=8", "max_steps=1", "val_split=0", "quiet=true", "overwrite=true",
              "out=out/bench/startup"},
     .training = true,
     .limit_exit_ms = 80,
     .limit_first_ms = 50,
     .limit_kib = 60 * 1024},
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool has_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* Runs the program once. Its stdout goes nowhere, its stderr is seen. False, with a message, when
 * it fails. */
static bool run_once(const char *program, const bench *b, sample *out)
{
    char *argv[MAX_ARGS + 2] = {NULL};
    const void *args[MAX_ARGS + 2] = {program};
    memcpy(args + 1, b->args, sizeof b->args);
    /* posix_spawn promises not to write to what it takes as char * */
    memcpy(argv, args, sizeof argv);
    if (b->training && remove(metrics) != 0 && errno != ENOENT) {
        perror(metrics);
        return false;
    }
    extern char **environ;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    *out = (sample){0};
    const double start = now_ms();
    const int error = posix_spawn(&pid, program, &quiet, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", program, strerror(error));
        return false;
    }
    int status;
    struct rusage usage;
    pid_t ended = 0;
    while (b->training && ended == 0 && out->first_ms == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
        ended = wait4(pid, &status, WNOHANG, &usage);
        out->first_ms = ended == 0 && !has_bytes(metrics) ? 0 : now_ms() - start;
    }
    if (ended == 0) {
        ended = wait4(pid, &status, 0, &usage);
    }
    out->exit_ms = now_ms() - start;
    out->peak_kib = usage.ru_maxrss;
    if (ended != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s %s: ended with status 0x%x\n", program, b->args[0], (unsigned)status);
        return false;
    }
    if (b->training && !has_bytes(metrics)) {
        fprintf(stderr, "%s %s: left no %s\n", program, b->args[0], metrics);
        return false;
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints one figure as median [least, largest]; false when it misses its line. */
static bool report(FILE *json, const char *bench_name, const char *what, const char *unit,
                   double *values, double limit)
{
    qsort(values, RUNS, sizeof *values, by_value);
    const double median = values[RUNS / 2];
    const bool good = limit == 0 || median <= limit;
    printf("%-8s %-12s %9.2f %s  [%.2f, %.2f]", bench_name, what, median, unit, values[0],
           values[RUNS - 1]);
    if (limit > 0) {
        printf("  line %.0f: %s", limit, good ? "met" : "MISSED");
    }
    printf("\n");
    fprintf(json,
            ",\n  \"%s/%s_%s\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f, \"line\": %.0f}",
            bench_name, what, unit, median, values[0], values[RUNS - 1], limit);
    return good;
}

static bool run_bench(FILE *json, const char *program, const bench *b)
{
    double exits[RUNS], firsts[RUNS], peaks[RUNS];
    sample s;
    if (!run_once(program, b, &s)) {
        /* brings the program and its libraries into the page cache; not counted */
        return false;
    }
    for (int i = 0; i < RUNS; ++i) {
        if (!run_once(program, b, &s)) {
            return false;
        }
        exits[i] = s.exit_ms;
        firsts[i] = s.first_ms;
        peaks[i] = (double)s.peak_kib / 1024;
    }
    bool good = report(json, b->name, "exit", "ms", exits, b->limit_exit_ms);
    if (b->training) {
        good = report(json, b->name, "first_step", "ms", firsts, b->limit_first_ms) && good;
    }
    return report(json, b->name, "peak", "MiB", peaks, (double)b->limit_kib / 1024) && good;
}

int main(int argc, char **argv)
{
    const char *program = argc > 1 ? argv[1] : "build/levin";
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/startup.json", "w");
    if (json == NULL) {
        perror("out/bench/startup.json");
        return 1;
    }
    struct utsname machine;
    uname(&machine);
    printf("%s %s, gcc %s, median [least, largest] of %d runs, written under %s\n", machine.sysname,
           machine.machine, __VERSION__, RUNS, run_dir);
    fprintf(json, "{\n  \"machine\": \"%s %s\",\n  \"compiler\": \"gcc %s\",\n  \"runs\": %d",
            machine.release, machine.machine, __VERSION__, RUNS);
    bool good = true;
    for (size_t i = 0; i < sizeof benches / sizeof *benches; ++i) {
        good = run_bench(json, program, &benches[i]) && good;
    }
    fprintf(json, "\n}\n");
    return fclose(json) == 0 && good ? 0 : 1;
}
