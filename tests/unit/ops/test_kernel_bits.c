/* Sameness of the cpu kernels, for every row of cases.def: equal bits for every team, for
 * repetition, and for every instruction set. The reducing class (LVNI_REDUCING
 * and matmul with a transposed left side) may depend on wgrad_threads, never on team. With --hash
 * the program prints one line per case instead: so it runs itself under LEVIN_CPU_ISA=v2, v3, v4
 * and compares. */
#include "case_support.h"

#include "kernels/cpu/isa.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

extern char **environ;
static const char *self; /* path of this program */

static uint64_t hash_outputs(const lvn_kernel_args *args, int n_out)
{
    uint64_t h = 0;
    for (int i = 0; i < n_out; i++) {
        const lvn_tensor *t = args->out[i];
        h = XXH3_64bits_withSeed(t->data, (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype), h);
    }
    return h;
}

static uint64_t run_hash(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in,
                         int team, int wgrad_threads)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->team = team;
    ctx->pins.wgrad_threads = wgrad_threads;
    lvn_kernel_args args = {.attr = lvni_check_attribute(op, row)};
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        args.in[i] = in[i];
    }
    if (lvni_kernels_run(op, &args, ~0u) != LVN_OK) {
        fail_msg("%s, case \"%s\": %s", lvni_kernels_ops[op].name, row->name,
                 lvn_last_error()->message);
    }
    const uint64_t h = hash_outputs(&args, lvni_kernels_ops[op].n_out);
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        lvn_release(args.out[i]);
    }
    return h;
}

static bool may_depend_on_wgrad_threads(lvni_kernels_op op, const lvni_check_case *row)
{
    return (lvni_kernels_ops[op].flags & LVNI_REDUCING) != 0 ||
           (op == LVNI_OP_matmul && row->attr.matmul.trans_a);
}

static void need_equal(lvni_kernels_op op, const lvni_check_case *row, const char *what, int a,
                       int b, uint64_t have, uint64_t want)
{
    if (have != want) {
        fail_msg("%s, case \"%s\": other bits with %s (%d, %d) than with (1, 2)",
                 lvni_kernels_ops[op].name, row->name, what, a, b);
    }
}

static void bits_do_not_depend_on_the_team(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    static const int teams[] = {1, 2, 3, 8, 16};
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        const lvni_check_case *row = &lvni_check_all[op].rows[c];
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
        case_inputs(op, row, in64, in32);
        const uint64_t want = run_hash(op, row, in32, 1, 2);
        for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
            need_equal(op, row, "team and wgrad_threads", teams[t], 2,
                       run_hash(op, row, in32, teams[t], 2), want);
            if (!may_depend_on_wgrad_threads(op, row)) {
                need_equal(op, row, "team and wgrad_threads", 2, teams[t],
                           run_hash(op, row, in32, 2, teams[t]), want);
            }
        }
        support_release(NULL);
    }
}

/* The test of the test: one bit of one output is seen. */
TEST_WITH(the_hash_sees_one_bit, NULL, support_release)
{
    lvn_tensor *y = support_tensor(LVN_F32, DIMS(1000)), *place = support_tensor(LVN_U8, DIMS(10));
    const lvn_kernel_args args = {.out = {y, place}};
    const uint64_t before = hash_outputs(&args, 2);
    ((uint8_t *)y->data)[3999] ^= 1;
    assert_true(hash_outputs(&args, 2) != before);
    ((uint8_t *)y->data)[3999] ^= 1;
    assert_true(hash_outputs(&args, 2) == before);
    ((uint8_t *)place->data)[9] ^= 1;
    assert_true(hash_outputs(&args, 2) != before);
}

/* ---- instruction sets ---- */

static bool by_onednn(int op)
{
    static const char *const prefixes[] = {"conv", "matmul", "linear"};
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(lvni_kernels_ops[op].name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static int print_hashes(void)
{
    printf("%s\n", lvni_cpu_isa()->name);
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        for (int c = 0; c < lvni_check_all[op].n && !by_onednn(op); c++) {
            const lvni_check_case *row = &lvni_check_all[op].rows[c];
            lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
            case_inputs((lvni_kernels_op)op, row, in64, in32);
            printf("%s \"%s\" %016llx\n", lvni_kernels_ops[op].name, row->name,
                   (unsigned long long)run_hash((lvni_kernels_op)op, row, in32, 2, 2));
            case_inputs_low((lvni_kernels_op)op, row, LVN_BF16, in64, in32);
            printf("%s \"%s\" bf16 %016llx\n", lvni_kernels_ops[op].name, row->name,
                   (unsigned long long)run_hash((lvni_kernels_op)op, row, in32, 2, 2));
            support_release(NULL);
        }
    }
    return 0;
}

/* What this program prints with --hash under LEVIN_CPU_ISA=isa; the caller closes the stream. */
static FILE *spawn_hashes(const char *isa, pid_t *pid)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    setenv("LEVIN_CPU_ISA", isa, 1);
    char program[4096], flag[] = "--hash";
    snprintf(program, sizeof program, "%s", self);
    char *const argv[] = {program, flag, NULL};
    assert_int_equal(posix_spawn(pid, program, &actions, NULL, argv, environ), 0);
    unsetenv("LEVIN_CPU_ISA");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    assert_non_null(f);
    return f;
}

/* The first line names the instruction set: what was asked for took effect. */
static void need_isa(FILE *f, const char *isa)
{
    char line[256];
    assert_non_null(fgets(line, sizeof line, f));
    line[strcspn(line, "\n")] = 0;
    assert_string_equal(line, isa);
}

static void need_exit_0(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Those that this machine has, line by line. */
TEST(instruction_sets_agree)
{
    static const char *const sets[] = {"v2", "v3", "v4"};
    enum { SETS = sizeof sets / sizeof *sets };
    FILE *f[SETS] = {NULL};
    pid_t pid[SETS] = {0};
    int n = 0, lines = 0;
    while (n < SETS && strcmp(lvni_cpu_isa()->name, sets[n]) >= 0) {
        n++;
    }
    if (n < SETS) {
        print_message("left out: this machine has no %s\n", sets[n]);
    }
    for (int i = 0; i < n; i++) {
        f[i] = spawn_hashes(sets[i], &pid[i]);
        need_isa(f[i], sets[i]);
    }
    for (char line[SETS][256]; fgets(line[0], sizeof line[0], f[0]) != NULL; lines++) {
        for (int i = 1; i < n; i++) {
            assert_non_null(fgets(line[i], sizeof line[i], f[i]));
            if (strcmp(line[0], line[i]) != 0) {
                fail_msg("%s and %s differ:\n%s%s", sets[0], sets[i], line[0], line[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(fgetc(f[i]), EOF);
        fclose(f[i]);
        need_exit_0(pid[i]);
    }
    assert_true(lines > 100);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "--hash") == 0) {
        return print_hashes();
    }
    for (uintptr_t op = 0; op < LVNI_OP_COUNT; op++) {
        test_add((test_case){__FILE__, 0, lvni_kernels_ops[op].name, bits_do_not_depend_on_the_team,
                             NULL, support_release, (void *)op});
    }
    return test_main(argc, argv);
}
