/* levin ops check accelerator=NAME [OP...]: a backend's kernels against ref, for those who write
 * one. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "kernels/check/check.h"
#include "recipes/devices.h"
#include "recipes/report_error.h"

#include <stdio.h>
#include <string.h>

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
        printf("; largest error %.0f%% of what is allowed", 100.0 * r->worst);
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
    LVN_TRY(lvni_recipes_accelerator_find(name, of_backend, sizeof of_backend));
    LVN_TRY(lvn_device_find(of_backend, &d));
    return d.kind == LVN_DEVICE_CPU ? LVN_OK
                                    : lvni_tensor_device_open((int)d.kind, d.index, device);
}

int lvni_cli_cmd_ops_check(int n, const char *const *args)
{
    static const char key[] = "accelerator=";
    totals t = {0};
    lvni_tensor_device *device;
    if (n < 1 || strncmp(args[0], key, sizeof key - 1) != 0) {
        fputs("error: check which backend? accelerator=NAME comes first\n", stderr);
        return lvni_cli_command_misused("ops");
    }
    for (int i = 1; i < n; i++) {
        if (!exists(args[i])) {
            return lvni_cli_op_unknown(args[i]);
        }
    }
    lvn_status s = find(args[0] + sizeof key - 1, &device);
    if (s == LVN_OK) {
        printf("%s: every case against ref in double precision\n",
               device == NULL ? "cpu" : lvni_tensor_device_name(device));
        s = check_all(device, n - 1, args + 1, &t);
    }
    if (s != LVN_OK) {
        return lvni_recipes_report_status(s);
    }
    printf("%d passed, %d failed, %d not supported\n", t.passed, t.failed, t.missing);
    return t.failed > 0 ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
}
