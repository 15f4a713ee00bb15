/* Tasks against devices, the device of a rank, its loader threads and the mode of a run, as rows: a
 * record, what is visible, what was asked for. */
#include "launch/rank_resources.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { VARIABLES = 16, BYTES = 512 };

typedef struct row {
    lvni_launch_source source;
    int local_rank, local_world, nnodes;
    int visible;
    const char *spec;
    const char *env; /* variables between blanks */
    int index;       /* wanted; -2: not looked at */
    int error, warning;
    const char *reports[4];
    lvni_launch_accelerator accelerator;
    bool threads, shared;
} row;

static void split(const char *text, char bytes[BYTES], char *list[VARIABLES + 1])
{
    int n = 0;
    snprintf(bytes, BYTES, "%s", text != NULL ? text : "");
    for (char *p = strtok(bytes, " "); p != NULL && n < VARIABLES; p = strtok(NULL, " ")) {
        list[n++] = p;
    }
    list[n] = NULL;
}

static void check(const row *r, size_t number)
{
    char bytes[BYTES], *env[VARIABLES + 1];
    lvni_launch_visible v = {.n = 0};
    lvni_launch_device_choice c = {.n = 0};
    lvni_core_notices n = {.error = 0};
    int index = -2;
    split(r->env, bytes, env);
    lvni_launch_rank_info info = {.source = r->source,
                                  .local_rank = r->local_rank,
                                  .local_world = r->local_world,
                                  .nnodes = r->nnodes};
    info.from[LVNI_RANK_INFO_LOCAL_WORLD] =
        r->source == LVNI_SOURCE_SLURM ? "SLURM_STEP_TASKS_PER_NODE" : NULL;
    const lvni_launch_device_request request = {.key = "devices",
                                                .spec = r->spec,
                                                .accelerator = r->accelerator,
                                                .allow_shared = r->shared,
                                                .launched = r->source != LVNI_SOURCE_SINGLE,
                                                .env = env};
    assert_int_equal(lvni_launch_visible_make(NULL, r->visible, NULL, &v), LVN_OK);
    assert_int_equal(lvni_launch_device_choose(&request, &v, &n, &c), LVN_OK);
    const lvni_launch_rank_info_devices devices = {.choice = &c,
                                                   .visible = &v,
                                                   .key = "devices",
                                                   .origin = "command line",
                                                   .threads = r->threads,
                                                   .allow_shared = r->shared,
                                                   .host = "n08"};
    lvn_status s = lvni_launch_rank_info_check_devices(&info, env, &devices, &n);
    if (s == LVN_OK) {
        s = lvni_launch_rank_info_device(&info, env, &devices, &n, &index);
    }
    if ((s == LVN_OK) != (r->error == 0) || n.error != r->error ||
        (r->error == 0 && r->index != index)) {
        fail_msg("row %zu: device %d, %s", number, index, lvni_core_str_text(&n.text));
    }
    char head[40];
    snprintf(head, sizeof head, "levin: warning W%d: ", r->warning);
    if (n.n_warnings != (r->warning != 0) ||
        (r->warning != 0 && strncmp(lvni_core_str_text(&n.warnings), head, strlen(head)) != 0)) {
        fail_msg("row %zu: W%d expected: %s", number, r->warning, lvni_core_str_text(&n.warnings));
    }
    for (int i = 0; i < 4 && r->reports[i] != NULL; i++) {
        if (strstr(lvni_core_str_text(r->error != 0 ? &n.text : &n.warnings), r->reports[i]) ==
            NULL) {
            fail_msg("row %zu: no '%s' in\n%s%s", number, r->reports[i],
                     lvni_core_str_text(&n.text), lvni_core_str_text(&n.warnings));
        }
    }
    assert_int_equal(lvni_core_notices_exit(&n), r->error == 0     ? LVNI_EXIT_OK
                                                 : r->error == 106 ? LVNI_EXIT_RESOURCE
                                                                   : LVNI_EXIT_USAGE);
    lvni_core_notices_free(&n);
    lvni_launch_device_choice_free(&c);
    lvni_launch_visible_free(&v);
}

#define SLURM LVNI_SOURCE_SLURM
#define SIM .accelerator = LVNI_ACCELERATOR_SIM

TEST(which_device)
{
    static const row rows[] = {
        /* the local rank */
        {SLURM, 0, 2, 1, .visible = 2, .index = 0},
        {SLURM, 1, 2, 1, .visible = 2, .index = 1},
        {SLURM, 1, 2, 1, .visible = 2, .spec = "2", .index = 1},
        {SLURM, 1, 2, 1, .visible = 2, .index = 1, SIM},
        {LVNI_SOURCE_TORCHRUN, 3, 4, 2, .visible = 4, .index = 3},
        {LVNI_SOURCE_LEVIN, 1, 2, 1, .visible = 2, .index = 1},
        {LVNI_SOURCE_SINGLE, 0, 1, 1, .visible = 2, .index = 0},
        {LVNI_SOURCE_SINGLE, 0, 1, 1, .visible = 4, .spec = "[2]", .index = 2},
        /* of the list */
        {LVNI_SOURCE_TORCHRUN, 1, 2, 1, .visible = 4, .spec = "[3,1]", .index = 1},
        {SLURM, 0, 2, 1, .visible = 4, .spec = "[3,1]", .index = 3, .warning = 201,
         .reports = {"what Slurm made visible"}},
        /* where its launcher could not hide the others */
        {LVNI_SOURCE_LEVIN, 1, 2, 1, .visible = 4, .spec = "3,1", .index = 1},
        /* each task is shown its own */
        {SLURM, 1, 2, 1, .visible = 1, .index = 0},
        {SLURM, 1, 2, 1, .visible = 1, .spec = "2", .index = 0},
        {SLURM, 3, 4, 1, .visible = 2, .index = 1, .shared = true},
        /* idle ones */
        {SLURM, 1, 2, 1, .visible = 4, .env = "SLURM_GPUS_ON_NODE=4", .index = 1, .warning = 207,
         .reports = {"devices 2,3 stay idle", "SLURM_GPUS_ON_NODE=4 but 2 tasks"}},
        {LVNI_SOURCE_TORCHRUN, 0, 1, 2, .visible = 2, .index = 0, .warning = 207,
         .reports = {"devices 1 stay idle: 2 are visible, but this node has 1 rank"}},
        {SLURM, 0, 1, 1, .visible = 2, .env = "SLURM_NTASKS_PER_NODE=2", .index = 0,
         .warning = 207},
        /* one process with all */
        {SLURM, 0, 1, 2, .visible = 4, .spec = "4", .index = 0, .threads = true},
        {SLURM, 0, 1, 2, .visible = 4, .index = 0, .threads = true},
        /* the CPU */
        {SLURM, 1, 2, 1, .visible = 0, .index = -1, .warning = 206,
         .reports = {"2 ranks run on the CPU, because no GPU is visible"}},
        {SLURM, 1, 2, 1, .visible = 0, .index = -1, .accelerator = LVNI_ACCELERATOR_CPU},
        {SLURM, 0, 1, 2, .visible = 0, .index = -1},
        {SLURM, 1, 2, 1, .visible = 0, .spec = "2", .index = -1,
         .accelerator = LVNI_ACCELERATOR_CPU},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check(&rows[i], i);
    }
}

TEST(mistakes)
{
    static const row rows[] = {
        {SLURM, 0, 1, 1, .visible = 2, .spec = "2", .env = "SLURM_STEP_TASKS_PER_NODE=1",
         .error = 103,
         .reports = {"1 task on this node, but 2 devices", "found: SLURM_STEP_TASKS_PER_NODE=1",
                     "devices asks for 2 (command line)", "#SBATCH --ntasks-per-node=2"}},
        {SLURM, 0, 1, 1, .visible = 4, .env = "SLURM_GPUS_ON_NODE=4", .error = 103,
         .reports = {"1 task on this node, but 4 devices", "devices is auto, and 4 are visible",
                     "SLURM_GPUS_ON_NODE=4", "or devices=1 (--devices 1)"}},
        {SLURM, 0, 2, 1, .visible = 4, .spec = "4", .error = 103,
         .reports = {"2 tasks on this node, but 4 devices", "#SBATCH --ntasks-per-node=4"}},
        {SLURM, 0, 1, 1, .visible = 0, .spec = "2", .error = 103,
         .accelerator = LVNI_ACCELERATOR_CPU},
        {SLURM, 0, 1, 1, .visible = 4, .error = 103, SIM},
        {LVNI_SOURCE_TORCHRUN, 0, 2, 1, .visible = 4, .spec = "4", .error = 103,
         .reports = {"2 ranks on this node (source torchrun)", "start 4 processes on each node"}},
        {SLURM, 0, 2, 1, .visible = 4, .threads = true, .error = 103,
         .reports = {"one process holds all devices", "#SBATCH --ntasks-per-node=1",
                     "strategy=ddp"}},
        {SLURM, 0, 1, 1, .visible = 2, .spec = "2",
         .env = "SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=2 SLURM_STEP_TASKS_PER_NODE=1", .error = 104,
         .reports = {"--ntasks=1 won over --ntasks-per-node=2", "found: SLURM_NTASKS=1\n",
                     "found: SLURM_NTASKS_PER_NODE=2\n", "fix: remove --ntasks (-n)"}},
        /* 4 is not below 2 x 2 */
        {SLURM, 0, 1, 2, .visible = 2, .spec = "2", .env = "SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2",
         .error = 103},
        {SLURM, 1, 4, 1, .visible = 2, .env = "CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2",
         .error = 106,
         .reports = {"4 tasks on node n08, but only 2 GPUs are visible", "CUDA_VISIBLE_DEVICES=0,1",
                     "SLURM_JOB_GPUS is not set", "--gpus-per-node=4"}},
        {SLURM, 1, 4, 1, .visible = 2, .error = 106, SIM, .reports = {"only 2 simulated devices"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check(&rows[i], i);
    }
}

/* One task of a node with four devices is a mistake, except where other nodes have more tasks. */
TEST(one_task_of_uneven_nodes)
{
    lvni_launch_visible v = {.n = 0};
    lvni_launch_device_choice c = {.n = 0};
    const lvni_launch_device_request request = {
        .key = "devices", .spec = "auto", .accelerator = LVNI_ACCELERATOR_SIM, .launched = true};
    lvni_core_notices n = {.error = 0};
    assert_int_equal(lvni_launch_visible_make(NULL, 4, NULL, &v), LVN_OK);
    assert_int_equal(lvni_launch_device_choose(&request, &v, &n, &c), LVN_OK);
    assert_int_equal(c.n, 4);
    const lvni_launch_rank_info_devices devices = {.choice = &c, .visible = &v, .key = "devices"};
    for (int world = 2; world <= 3; world++) {
        const lvni_launch_rank_info info = {.source = LVNI_SOURCE_SLURM,
                                            .world = world,
                                            .rank = world - 1,
                                            .nnodes = 2,
                                            .node_rank = 1,
                                            .local_world = 1};
        assert_int_equal(lvni_launch_rank_info_check_devices(&info, NULL, &devices, &n),
                         world == 2 ? LVN_ERR_USAGE : LVN_OK);
        assert_int_equal(n.error, world == 2 ? 103 : 0);
        lvni_core_notices_free(&n);
        n = (lvni_core_notices){.error = 0};
    }
    lvni_launch_device_choice_free(&c);
    lvni_launch_visible_free(&v);
}

/* For a rank that learns its place on the node only when the ranks meet, the list is compared
 * then. */
TEST(a_list_of_another_length)
{
    lvni_launch_visible v = {.n = 0};
    lvni_launch_device_choice c = {.n = 0};
    lvni_core_notices n = {.error = 0};
    int index;
    const lvni_launch_device_request request = {.key = "devices", .spec = "0,2,3"};
    const lvni_launch_rank_info info = {
        .source = LVNI_SOURCE_PMI, .local_rank = 1, .local_world = 2};
    assert_int_equal(lvni_launch_visible_make(NULL, 4, NULL, &v), LVN_OK);
    assert_int_equal(lvni_launch_device_choose(&request, &v, &n, &c), LVN_OK);
    const lvni_launch_rank_info_devices devices = {.choice = &c, .visible = &v, .key = "devices"};
    assert_int_equal(lvni_launch_rank_info_device(&info, NULL, &devices, &n, &index),
                     LVN_ERR_NOT_FOUND);
    assert_int_equal(n.error, 106);
    assert_non_null(
        strstr(lvni_core_str_text(&n.text), "devices lists 3 devices, but this node has 2 tasks"));
    lvni_core_notices_free(&n);
    lvni_launch_device_choice_free(&c);
    lvni_launch_visible_free(&v);
}

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

TEST(workers)
{
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
        /* Slurm, num_workers not given */
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

TEST(modes)
{
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
                lvni_launch_run_mode_threads(LVNI_MODE_DDP2) &&
                lvni_launch_run_mode_threads(LVNI_MODE_BALANCE));
    assert_false(lvni_launch_run_mode_threads(LVNI_MODE_DDP) ||
                 lvni_launch_run_mode_threads(LVNI_MODE_SINGLE) ||
                 lvni_launch_run_mode_threads(LVNI_MODE_SHARDED));
}
