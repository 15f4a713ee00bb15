/* Hostile OpenMP variables. The test starts itself again with them set, as "child" with what to do:
 * "clean" goes the way of the command (start again without them), "library" the way of a host
 * program (refuse when teams come out small). The child prints a line; its exit code is the
 * answer. */
#include "kernels/kernels.h"
#include "kernels/cpu/omp_team.h"
#include "onednn_support.h"
#include "support/test.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { CHILD_OK = 0, CHILD_REFUSED = 3, CHILD_WRONG = 4 };

static const conv_case small = {2, 8, 8, 16, 32, 3, 1, 1, 1, 1};

static uint64_t gradient_hash(void)
{
    conv_data d = conv_data_make(&small);
    const lvn_status s = run_grad_weight(&d, 2, 16);
    const uint64_t h = hash_of(d.dw);
    conv_data_free(&d);
    return s == LVN_OK ? h : 0;
}

static int child(char **argv)
{
    if (strcmp(argv[2], "clean") == 0) {
        lvni_cpu_clean_environment(argv);
        /* else our children would think that they are clean */
        static const char *const gone[] = {
            "LEVIN_OMP_CLEANED", "OMP_THREAD_LIMIT", "OMP_DYNAMIC",       "OMP_MAX_ACTIVE_LEVELS",
            "OMP_WAIT_POLICY",   "OMP_PROC_BIND",    "GOMP_CPU_AFFINITY", "OMP_STACKSIZE"};
        for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
            if (getenv(gone[i]) != NULL) {
                return CHILD_WRONG;
            }
        }
        const char *spin = getenv("GOMP_SPINCOUNT");
        if (spin != NULL && strcmp(spin, "2000") != 0) {
            return CHILD_WRONG;
        }
    }
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return lvn_last_error()->code == LVN_ERR_UNSUPPORTED ? CHILD_REFUSED : CHILD_WRONG;
    }
    return gradient_hash() == strtoull(argv[3], NULL, 16) ? CHILD_OK : CHILD_WRONG;
}

/* Runs this program again with `settings` ("A=1 B=2") on top of a small environment; its exit
 * code. */
static int run_child(const char *mode, const char *settings)
{
    char text[256], hash[32], mode_text[16], *env[16] = {NULL}, *save = NULL;
    char *argv[] = {(char[]){"test"}, (char[]){"child"}, mode_text, hash, NULL};
    snprintf(text, sizeof text, "%s", settings);
    snprintf(mode_text, sizeof mode_text, "%s", mode);
    snprintf(hash, sizeof hash, "%llx", (unsigned long long)gradient_hash());
    int n = 0;
    for (char *word = strtok_r(text, " ", &save); word != NULL && n < 15;
         word = strtok_r(NULL, " ", &save)) {
        env[n++] = word;
    }
    pid_t pid;
    int status = 0;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, env), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The first test, before any team exists. The start tries no kernels: it creates no primitive. */
TEST(the_start_measures_nothing)
{
    assert_int_equal(lvni_cpu_start(), LVN_OK);
    print_message("lvni_cpu_start: %s\n", lvni_cpu_describe());
    assert_int_equal(lvni_cpu_get_stats().primitives_created, 0);
    assert_int_equal(lvni_cpu_omp_prove_team(5), LVN_OK);
}

TEST(the_command_cleans_its_environment)
{
    assert_int_equal(run_child("clean", "PATH=/bin"), CHILD_OK);
    assert_int_equal(run_child("clean", "OMP_THREAD_LIMIT=1"), CHILD_OK);
    assert_int_equal(
        run_child("clean", "OMP_THREAD_LIMIT=1 OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0"),
        CHILD_OK);
    assert_int_equal(
        run_child("clean", "OMP_NUM_THREADS=1 OMP_WAIT_POLICY=active OMP_PROC_BIND=true"),
        CHILD_OK);
    assert_int_equal(
        run_child("clean", "GOMP_CPU_AFFINITY=0 GOMP_SPINCOUNT=infinity OMP_STACKSIZE=16k"),
        CHILD_OK);
}

TEST(a_library_refuses_what_it_cannot_undo)
{
    assert_int_equal(run_child("library", "OMP_THREAD_LIMIT=1"), CHILD_REFUSED);
    assert_int_equal(run_child("library", "OMP_THREAD_LIMIT=4"), CHILD_REFUSED);
}

TEST(a_library_undoes_what_it_can)
{
    assert_int_equal(run_child("library", "PATH=/bin"), CHILD_OK);
    assert_int_equal(run_child("library", "OMP_DYNAMIC=true"), CHILD_OK);
    assert_int_equal(run_child("library", "OMP_MAX_ACTIVE_LEVELS=0"), CHILD_OK);
    assert_int_equal(run_child("library", "OMP_NUM_THREADS=1 OMP_NESTED=true"), CHILD_OK);
    assert_int_equal(run_child("library", "ONEDNN_DEFAULT_FPMATH_MODE=BF16"), CHILD_OK);
}

TEST(lower_instruction_sets_are_named)
{
    assert_non_null(strstr(lvni_cpu_describe(), "oneDNN "));
    /* refused, as LVN_ERR_USAGE */
    assert_int_equal(run_child("library", "LEVIN_CPU_ISA=v9"), CHILD_WRONG);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        return child(argv);
    }
    return test_main(argc, argv);
}
