/* Threads that load data, and the mode of a run, as rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "launch/rank_resources.h"

#include <stdio.h>
#include <string.h>

static void warned(const lvni_core_notices *n, int warning, const char *reports)
{
    char head[40];
    snprintf(head, sizeof head, "levin: warning W%d: ", warning);
    const char *text = lvni_core_str_text(&n->warnings);
    if (warning == 0) {
        assert_string_equal(text, "");
    } else if (strncmp(text, head, strlen(head)) != 0 ||
               (reports != NULL && strstr(text, reports) == NULL)) {
        fail_msg("W%d (%s) expected: '%s'", warning, reports != NULL ? reports : "", text);
    }
    assert_int_equal(n->n_warnings, warning != 0);
}

static void workers(void **state)
{
    (void)state;
    static const struct {
        lvni_launch_source source;
        bool job;
        int cpus_per_task, cpus_on_node, cpus, ranks, asked, want, warning;
        const char *reports;
        bool bound;
    } rows[] = {
        /* Slurm, as asked for */
        {LVNI_SOURCE_SLURM, true, 12, 0, 12, 1, -1, 11, 0, NULL, false},
        /* the mask is not the task's */
        {LVNI_SOURCE_SLURM, true, 12, 0, 64, 4, -1, 11, 0, NULL, false},
        {LVNI_SOURCE_SLURM, true, 16, 0, 16, 1, -1, 15, 0, NULL, false},
        {LVNI_SOURCE_SLURM, true, 1, 0, 1, 1, -1, 0, 0, NULL, false},
        {LVNI_SOURCE_SLURM, true, 12, 0, 1, 1, -1, 0, 208,
         "SLURM_CPUS_PER_TASK=12, but this task may use 1:", false},
        {LVNI_SOURCE_SLURM, true, 12, 0, 6, 1, -1, 5, 208, "SRUN_CPUS_PER_TASK", false},
        {LVNI_SOURCE_SLURM, true, 12, 0, 12, 1, 12, 12, 209,
         "workers (12) must be smaller than cpus-per-task (12)", false},
        {LVNI_SOURCE_SLURM, true, 12, 24, 12, 2, 11, 11, 0, NULL, false},
        {LVNI_SOURCE_SINGLE, true, 4, 0, 4, 1, -1, 3, 0, NULL, false}, /* the shell of a job */
        /* Slurm, nothing said */
        {LVNI_SOURCE_SLURM, true, 0, 0, 6, 4, -1, 5, 0, NULL, false},
        {LVNI_SOURCE_SLURM, true, 0, 0, 64, 4, -1, 8, 0, NULL, false},
        {LVNI_SOURCE_SLURM, true, 0, 8, 2, 4, 3, 3, 202,
         "3 workers x 4 ranks are more than the 8 processors", false},
        {LVNI_SOURCE_SLURM, true, 0, 0, 2, 4, 3, 3, 0, NULL, false}, /* nothing to compare with */
        /* elsewhere */
        {LVNI_SOURCE_SINGLE, false, 0, 0, 8, 1, -1, 7, 0, NULL, false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 8, 3, -1, 1, 0, NULL, false},
        {LVNI_SOURCE_SINGLE, false, 0, 0, 16, 1, -1, 8, 0, NULL, false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 4, 4, -1, 0, 0, NULL, false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 2, 4, -1, 0, 0, NULL, false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 8, 2, 8, 8, 202,
         "8 workers x 2 ranks are more than the 8 processors of this node", false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 8, 2, 4, 4, 0, NULL, false},
        {LVNI_SOURCE_SINGLE, false, 0, 0, 8, 1, 9, 9, 202, "9 workers x 1 rank are", false},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 4, 2, -1, 3, 0, NULL, true}, /* bound to its own four */
        {LVNI_SOURCE_LEVIN, false, 0, 0, 4, 2, 4, 4, 0, NULL, true},
        {LVNI_SOURCE_LEVIN, false, 0, 0, 4, 2, 5, 5, 202, "the 8 processors", true},
        /* levin launch in a step of one task: its ranks share the 12 */
        {LVNI_SOURCE_LEVIN, true, 12, 0, 12, 4, -1, 2, 0, NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_core_notices n = {.error = 0};
        lvni_launch_rank_info info = {.source = rows[i].source, .local_world = rows[i].ranks};
        info.slurm = (lvni_launch_slurm_job){.job = rows[i].job,
                                             .cpus_per_task = rows[i].cpus_per_task,
                                             .cpus_on_node = rows[i].cpus_on_node};
        const lvni_launch_workers_request request = {
            .asked = rows[i].asked, .cpus = rows[i].cpus, .bound = rows[i].bound};
        const int got = lvni_launch_workers_choose(&info, &request, &n);
        if (got != rows[i].want) {
            fail_msg("row %zu: %d workers, %d expected", i, got, rows[i].want);
        }
        warned(&n, rows[i].warning, rows[i].reports);
        lvni_core_notices_free(&n);
    }
}

static void modes(void **state)
{
    (void)state;
    static const struct {
        int devices, nodes;
        lvni_launch_run_mode asked, want;
        bool warns;
    } rows[] = {
        {1, 1, LVNI_MODE_AUTO, LVNI_MODE_SINGLE, false},
        {1, 1, LVNI_MODE_SINGLE, LVNI_MODE_SINGLE, false},
        {1, 1, LVNI_MODE_DP, LVNI_MODE_DP, false},
        {1, 1, LVNI_MODE_DDP, LVNI_MODE_DDP, false},
        {1, 1, LVNI_MODE_DDP2, LVNI_MODE_DDP2, false},
        {1, 2, LVNI_MODE_AUTO, LVNI_MODE_DDP, false},
        {1, 2, LVNI_MODE_SINGLE, LVNI_MODE_DDP, true},
        {1, 2, LVNI_MODE_DP, LVNI_MODE_DDP, true},
        {1, 2, LVNI_MODE_DDP, LVNI_MODE_DDP, false},
        {1, 2, LVNI_MODE_DDP2, LVNI_MODE_DDP2, false},
        {4, 1, LVNI_MODE_AUTO, LVNI_MODE_DDP, false},
        {4, 1, LVNI_MODE_SINGLE, LVNI_MODE_DDP, true},
        {4, 1, LVNI_MODE_DP, LVNI_MODE_DP, false},
        {4, 1, LVNI_MODE_DDP, LVNI_MODE_DDP, false},
        {4, 1, LVNI_MODE_DDP2, LVNI_MODE_DDP2, false},
        {4, 2, LVNI_MODE_AUTO, LVNI_MODE_DDP, false},
        {4, 2, LVNI_MODE_SINGLE, LVNI_MODE_DDP, true},
        {4, 2, LVNI_MODE_DP, LVNI_MODE_DDP, true},
        {4, 2, LVNI_MODE_DDP2, LVNI_MODE_DDP2, false},
        {4, 2, LVNI_MODE_SHARDED, LVNI_MODE_SHARDED, false},
        {4, 1, LVNI_MODE_BALANCE, LVNI_MODE_BALANCE, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_core_notices n = {.error = 0};
        assert_int_equal(
            lvni_launch_run_mode_choose(rows[i].asked, rows[i].devices, rows[i].nodes, &n),
            rows[i].want);
        warned(&n, rows[i].warns ? 211 : 0, "switched to ddp");
        lvni_core_notices_free(&n);
    }
    assert_true(lvni_launch_run_mode_threads(LVNI_MODE_DP) &&
                lvni_launch_run_mode_threads(LVNI_MODE_DDP2));
    assert_false(lvni_launch_run_mode_threads(LVNI_MODE_DDP) ||
                 lvni_launch_run_mode_threads(LVNI_MODE_SINGLE) ||
                 lvni_launch_run_mode_threads(LVNI_MODE_SHARDED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(workers), cmocka_unit_test(modes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
