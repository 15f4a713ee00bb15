/* levin ops check accelerator=NAME [OP...]: a backend's kernels against ref, for those who write
 * one. With seconds=S over shapes drawn at random, for a new machine or version of a library. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "kernels/check/drawn.h"
#include "run/devices.h"
#include "run/error_record.h"
#include "tensor/ctx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct totals {
    int passed, failed, missing; /* ops and functions */
} totals;

static void print_cases(const lvni_check_result *r)
{
    static const lvn_dtype types[] = {LVN_F32, LVN_BF16, LVN_F16, LVN_F64};
    const char *between = "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (r->passed[types[i]] > 0) {
            printf("%s%d in %s", between, r->passed[types[i]], lvn_dtype_name(types[i]));
            between = ", ";
        }
    }
    if (r->refused > 0) {
        printf("%s%d not supported", between, r->refused);
    }
    if (r->worst > 0.0) {
        lvni_core_print(stdout, "; largest error %.0f%% of what is allowed", 100.0 * r->worst);
    }
}

static int passed_of(const lvni_check_result *r)
{
    int n = 0;
    for (int i = 0; i < LVN_DTYPE_COUNT; i++) {
        n += r->passed[i];
    }
    return n;
}

static void print_result(const char *name, const lvni_check_result *r, totals *t)
{
    const int passed = passed_of(r);
    const char *verdict = r->failed > 0 ? "failed" : passed > 0 ? "passed" : "not supported";
    t->failed += r->failed > 0;
    t->passed += r->failed == 0 && passed > 0;
    t->missing += r->failed == 0 && passed == 0;
    printf("%-24s %-13s  ", name, verdict);
    if (r->failed > 0) {
        lvni_core_print(stdout, "%d of %d cases; %s", r->failed, r->failed + passed, r->why);
    } else if (passed > 0) {
        print_cases(r);
    } else {
        fputs(r->refused > 0 ? "all cases" : "no kernel", stdout);
    }
    putchar('\n');
    fflush(stdout);
}

static bool is_named(const char *name, int n, const char *const *names)
{
    bool named = n == 0;
    for (int i = 0; i < n; i++) {
        named = named || strcmp(names[i], name) == 0;
    }
    return named;
}

static bool exists(const char *name)
{
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (strcmp(lvni_kernels_ops[i].name, name) == 0) {
            return true;
        }
    }
    for (int i = 0; lvni_check_flat_name(i) != NULL; i++) {
        if (strcmp(lvni_check_flat_name(i), name) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_status check_all(lvni_tensor_device *device, int n, const char *const *names, totals *t)
{
    lvni_check_result r;
    for (int i = 0; lvni_check_flat_name(i) != NULL; i++) {
        if (is_named(lvni_check_flat_name(i), n, names)) {
            LVN_TRY(lvni_check_flat(i, device, &r));
            print_result(lvni_check_flat_name(i), &r, t);
        }
    }
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (is_named(lvni_kernels_ops[i].name, n, names)) {
            LVN_TRY(lvni_check_op((lvni_kernels_op)i, device, &r));
            print_result(lvni_kernels_ops[i].name, &r, t);
        }
    }
    return LVN_OK;
}

/* "sim", "sim:1"; gpu and gpu:1 as in training; NULL for cpu. */
static lvn_status find(const char *name, lvni_tensor_device **device)
{
    lvn_device d;
    char of_backend[64];
    *device = NULL;
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_run_accelerator_find(name, of_backend, sizeof of_backend));
    LVN_TRY(lvn_device_find(of_backend, &d));
    return d.kind == LVN_DEVICE_CPU ? LVN_OK
                                    : lvni_tensor_device_open((int)d.kind, d.index, device);
}

/* ---- drawn shapes ---- */

/* As given: seconds=20 seed=3 first=17 type=bf16; seconds 0: the cases of the table. */
typedef struct drawing {
    double seconds;
    int64_t seed, first;
    lvn_dtype type; /* LVN_DTYPE_COUNT: all */
} drawing;

static const lvn_dtype drawn_types[] = {LVN_F32, LVN_BF16, LVN_F16};
enum { N_DRAWN_TYPES = 3, LONG_CHECK = 100 /* seconds */ };
static const int64_t MOST_SECONDS = 10000000, MOST_NUMBER = (int64_t)1 << 52;

static bool read_type(const char *text, lvn_dtype *out)
{
    for (int i = 0; i < N_DRAWN_TYPES; i++) {
        if (strcmp(text, lvn_dtype_name(drawn_types[i])) == 0) {
            *out = drawn_types[i];
            return true;
        }
    }
    return false;
}

/* 0 to most */
static bool read_whole(const char *text, int64_t most, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *out >= 0 && *out <= most;
}

/* A key of the drawing; `known`: there is such a key. */
static bool read_key(const char *arg, drawing *d, bool *known)
{
    int64_t seconds;
    *known = true;
    if (strncmp(arg, "seconds=", 8) == 0 && read_whole(arg + 8, MOST_SECONDS, &seconds) &&
        seconds > 0) {
        d->seconds = (double)seconds;
        return true;
    }
    if (strncmp(arg, "seed=", 5) == 0 && read_whole(arg + 5, INT64_MAX, &d->seed)) {
        return true;
    }
    if (strncmp(arg, "first=", 6) == 0 && read_whole(arg + 6, MOST_NUMBER, &d->first)) {
        return true;
    }
    if (strncmp(arg, "type=", 5) == 0 && read_type(arg + 5, &d->type)) {
        return true;
    }
    *known = strncmp(arg, "seconds=", 8) == 0 || strncmp(arg, "seed=", 5) == 0 ||
             strncmp(arg, "first=", 6) == 0 || strncmp(arg, "type=", 5) == 0;
    return false;
}

/* One shape in one type; a failure is printed at once. */
static lvn_status check_shape(const drawing *d, int64_t number, lvni_kernels_op op,
                              const lvni_check_case *row, lvn_dtype type,
                              lvni_tensor_device *device, lvni_check_result *of_op)
{
    lvni_check_result r = {.failed = 0};
    LVN_TRY(lvni_check_case_run(op, row, type, device, &r));
    of_op->passed[type] += r.passed[type];
    of_op->refused += r.refused;
    of_op->worst = r.worst > of_op->worst ? r.worst : of_op->worst;
    if (r.failed > 0) {
        char text[600];
        lvni_check_case_print(op, row, text, sizeof text);
        printf("failed: %s of %s in %s, seed=%lld first=%lld\n", lvni_kernels_ops[op].name, text,
               lvn_dtype_name(type), (long long)d->seed, (long long)number);
        lvni_core_print(stdout, "  %s\n", r.why);
        fflush(stdout);
        if (of_op->failed++ == 0) {
            memcpy(of_op->why, r.why, sizeof r.why);
        }
    }
    return LVN_OK;
}

/* Libraries divide work among threads, and some do so wrongly: every other round of the ops runs on
 * all cores, the weight gradient, too. Sizes come in turns of 16 rounds, and each has both. */
static void set_team(int64_t number, int cores)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int64_t round = number / LVNI_CHECK_ROUND;
    if (ctx != NULL) {
        ctx->team = (round + round / 16) % 2 == 0 ? cores : 1;
        ctx->pins.wgrad_threads = ctx->team;
    }
}

/* Shape after shape, in every type, for a round of the ops at least, until the time is over. A
 * short check leaves large ones out, except the first. */
static lvn_status check_drawn(const drawing *d, lvni_tensor_device *device, int n,
                              const char *const *names, totals *t)
{
    static lvni_check_result of_op[LVNI_OP_COUNT];
    const uint64_t end = lvni_core_now_ns() + (uint64_t)(d->seconds * 1e9);
    const lvni_check_drawn_size largest =
        d->seconds < LONG_CHECK ? LVNI_CHECK_SMALL : LVNI_CHECK_LARGE;
    const int cores = lvni_run_usable_cores();
    memset(of_op, 0, sizeof of_op);
    for (int64_t k = d->first; k < d->first + LVNI_CHECK_ROUND || lvni_core_now_ns() < end; k++) {
        lvni_check_case row;
        lvni_kernels_op op;
        const bool fits = lvni_check_draw_case((uint64_t)d->seed, k, &op, &row) <= largest;
        if (!is_named(lvni_kernels_ops[op].name, n, names) || (!fits && k > d->first)) {
            continue;
        }
        set_team(k, cores);
        for (int i = 0; i < N_DRAWN_TYPES; i++) {
            if (d->type == LVN_DTYPE_COUNT || d->type == drawn_types[i]) {
                LVN_TRY(check_shape(d, k, op, &row, drawn_types[i], device, &of_op[op]));
            }
        }
    }
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if (passed_of(&of_op[op]) + of_op[op].failed + of_op[op].refused > 0) {
            print_result(lvni_kernels_ops[op].name, &of_op[op], t);
        }
    }
    return LVN_OK;
}

static bool is_drawn(const char *name)
{
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (strcmp(lvni_kernels_ops[i].name, name) == 0) {
            return lvni_check_is_drawn((lvni_kernels_op)i);
        }
    }
    return false;
}

/* Without this an op whose shapes are not drawn would pass unseen. */
static int check_names(const drawing *d, int n, const char *const *names)
{
    drawing key;
    bool known;
    for (int i = 0; i < n && d->seconds > 0.0; i++) {
        if (!read_key(names[i], &key, &known) && !is_drawn(names[i])) {
            lvni_core_print(stderr,
                            "error: no shapes are drawn for %s, which no library computes; leave "
                            "seconds= out to check its cases\n",
                            names[i]);
            return lvni_cli_command_misused("ops");
        }
    }
    return LVNI_EXIT_OK;
}

/* Keys of the drawing, and names of ops: *ops of them. */
static int read_arguments(int n, const char *const *args, drawing *d, int *ops)
{
    for (int i = 0; i < n; i++) {
        bool known;
        if (read_key(args[i], d, &known)) {
            continue;
        }
        if (known) {
            lvni_core_print(
                stderr,
                "error: %s: seconds, seed and first are whole numbers (seconds 1 to %lld, first at "
                "most %lld), type is f32, bf16 or f16\n",
                args[i], (long long)MOST_SECONDS, (long long)MOST_NUMBER);
            return lvni_cli_command_misused("ops");
        }
        if (!exists(args[i])) {
            return lvni_cli_op_unknown(args[i]);
        }
        ++*ops;
    }
    return LVNI_EXIT_OK;
}

static int check(const drawing *d, const char *accelerator, int n, const char *const *names)
{
    totals t = {0};
    lvni_tensor_device *device;
    lvn_status s = find(accelerator, &device);
    const char *name = device == NULL ? "cpu" : lvni_tensor_device_name(device);
    if (s == LVN_OK && d->seconds > 0.0) {
        lvni_core_print(
            stdout, "%s: %g seconds of drawn shapes against ref in double precision, seed=%lld\n",
            name, d->seconds, (long long)d->seed);
        fflush(stdout);
        s = check_drawn(d, device, n, names, &t);
    } else if (s == LVN_OK) {
        printf("%s: every case against ref in double precision\n", name);
        s = check_all(device, n, names, &t);
    }
    if (s != LVN_OK) {
        return lvni_run_report_status(s);
    }
    printf("%d passed, %d failed, %d not supported\n", t.passed, t.failed, t.missing);
    return t.failed > 0 ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
}

int lvni_cli_cmd_ops_check(int n, const char *const *args)
{
    static const char key[] = "accelerator=";
    drawing d = {.seed = (int64_t)time(NULL) / 86400, .type = LVN_DTYPE_COUNT};
    int ops = 0;
    if (n < 1 || strncmp(args[0], key, sizeof key - 1) != 0) {
        fputs("error: check which backend? accelerator=NAME comes first\n", stderr);
        return lvni_cli_command_misused("ops");
    }
    const int code = read_arguments(n - 1, args + 1, &d, &ops);
    const int names = code != LVNI_EXIT_OK ? code : check_names(&d, n - 1, args + 1);
    return names != LVNI_EXIT_OK
               ? names /* no op is named as a key, so keys may stay among them */
               : check(&d, args[0] + sizeof key - 1, ops == 0 ? 0 : n - 1, args + 1);
}
