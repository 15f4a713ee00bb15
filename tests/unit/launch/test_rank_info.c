/* Finding the rank, as rows: an environment, and the record made of it; or the error. */
#include "core/alloc.h"
#include "launch/rank_info.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Environments are variables between blanks, later ones winning; "S:" stands for "SLURM_", '~' for
 * a blank in a value. */
#define CYCLIC                                                                                     \
    "S:JOB_ID=7 S:STEP_ID=1 S:PROCID=1 S:LOCALID=0 S:NODEID=1 S:STEP_NUM_TASKS=4 "                 \
    "S:STEP_NUM_NODES=2 S:STEP_TASKS_PER_NODE=2(x2) "                                              \
    "S:STEP_NODELIST=n[08-09] S:NTASKS=4 S:JOB_NODELIST=n[08-09] "
#define BLOCK CYCLIC "S:JOB_ID=1 S:STEP_ID=0 S:PROCID=2 S:LOCALID=0 S:NODEID=1 "
#define ARBITRARY                                                                                  \
    "S:JOB_ID=7 S:STEP_ID=3 S:STEP_NUM_TASKS=3 S:STEP_NUM_NODES=2 S:STEP_TASKS_PER_NODE=1,2 "      \
    "S:STEP_NODELIST=n[08-09] "                                                                    \
    "S:DISTRIBUTION=arbitrary "
#define BATCH                                                                                      \
    "S:JOB_ID=1 S:PROCID=0 S:LOCALID=0 S:NODEID=0 S:NTASKS=4 S:NTASKS_PER_NODE=2 "                 \
    "S:TASKS_PER_NODE=2(x2) "                                                                      \
    "S:JOB_NODELIST=n[08-09] S:JOB_NUM_NODES=2 "
#define ARRAY "S:ARRAY_JOB_ID=8 S:ARRAY_TASK_ID=3 S:JOB_ID=9 S:PROCID=0 S:LOCALID=0 S:NODEID=0 "
#define ONE_TASK                                                                                   \
    "S:JOB_ID=2 S:STEP_ID=0 S:PROCID=0 S:LOCALID=0 S:NODEID=0 S:STEP_NUM_TASKS=1 "                 \
    "S:STEP_NUM_NODES=1 S:STEP_TASKS_PER_NODE=1 S:STEP_NODELIST=n08 "
#define OMPI                                                                                       \
    "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "                  \
    "OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_NODE_RANK=1 "
#define LEVIN                                                                                      \
    "LEVIN_RANK=3 LEVIN_WORLD_SIZE=4 LEVIN_LOCAL_RANK=1 LEVIN_LOCAL_WORLD_SIZE=2 "                 \
    "LEVIN_NODE_RANK=1 LEVIN_NNODES=2 "

enum { VARIABLES = 64, BYTES = 4096 };

typedef struct environment {
    char bytes[BYTES];
    char *list[VARIABLES + 1];
} environment;

/* The last of two settings of a name wins. */
static void set(environment *e, int *n, char *variable)
{
    const size_t name = strcspn(variable, "=") + 1;
    for (char *p = variable; *p != '\0'; p++) {
        *p = *p == '~' ? ' ' : *p;
    }
    for (int i = 0; i < *n; i++) {
        if (strncmp(e->list[i], variable, name) == 0) {
            e->list[i] = variable;
            return;
        }
    }
    assert_true(*n < VARIABLES);
    e->list[(*n)++] = variable;
    e->list[*n] = NULL;
}

static void make_environment(environment *e, const char *text)
{
    size_t used = 0;
    int n = 0;
    e->list[0] = NULL;
    while (*text != '\0') {
        const size_t len = strcspn(text, " ");
        const bool slurm = strncmp(text, "S:", 2) == 0;
        assert_true(used + len + 8 < BYTES);
        char *variable = e->bytes + used;
        snprintf(variable, BYTES - used, "%s%.*s", slurm ? "SLURM_" : "", (int)(len - 2 * slurm),
                 text + 2 * slurm);
        used += strlen(variable) + 1;
        set(e, &n, variable);
        text += len + (text[len] == ' ');
    }
}

/* "key=value" of the printed record must be a line of it. */
static void has_line(const char *record, const char *line, const char *env)
{
    char with_ends[512];
    snprintf(with_ends, sizeof with_ends, "\n%s\n", line);
    if (strncmp(record, with_ends + 1, strlen(with_ends) - 1) != 0 &&
        strstr(record, with_ends) == NULL) {
        fail_msg("%s\nno line '%s' in\n%s", env, line, record);
    }
}

typedef struct row {
    const char *env;
    const char *want; /* lines of the record, blanks between them */
    int warning;      /* the number of the only one; 0: none */
    lvni_launch_rank_info_options options;
} row;

static void check_row(const row *r)
{
    environment e;
    lvni_core_notices n = {.error = 0};
    lvni_launch_rank_info info;
    lvni_core_str record = {.len = 0};
    make_environment(&e, r->env);
    if (lvni_launch_rank_info_detect(e.list, &r->options, &n, &info) != LVN_OK) {
        fail_msg("%s\n%s%s", r->env, lvni_core_str_text(&n.text),
                 n.error == 0 ? lvn_last_error()->message : "");
        return;
    }
    lvni_launch_rank_info_print(&info, &record);
    for (const char *p = r->want; *p != '\0';) {
        char line[256];
        const size_t len = strcspn(p, " ");
        snprintf(line, sizeof line, "%.*s", (int)len, p);
        has_line(lvni_core_str_text(&record), line, r->env);
        p += len + (p[len] == ' ');
    }
    char warning[40];
    snprintf(warning, sizeof warning, "levin: warning W%d: ", r->warning);
    if ((n.n_warnings > 0) != (r->warning > 0) ||
        (r->warning > 0 &&
         strncmp(lvni_core_str_text(&n.warnings), warning, strlen(warning)) != 0)) {
        fail_msg("%s\nwarnings: %s", r->env, lvni_core_str_text(&n.warnings));
    }
    lvni_core_str_free(&record);
    lvni_core_notices_free(&n);
    lvni_launch_rank_info_free(&info);
}

#define ROW(variables, lines, ...)                                                                 \
    {                                                                                              \
        .env = (variables), .want = (lines), __VA_ARGS__                                           \
    }
#define CHECK_ALL(rows)                                                                            \
    for (size_t i_ = 0; i_ < sizeof(rows) / sizeof *(rows); i_++) {                                \
        check_row(&(rows)[i_]);                                                                    \
    }

TEST(slurm_steps)
{
    static const row rows[] = {
        ROW(CYCLIC, "source=slurm rank=1 world=4 local_rank=0 local_world=2 node_rank=1 nnodes=2 "
                    "master_addr=n08 master_port=15108 store_host=no "
                    "hosts=n[08-09] rdzv=tcp restart=0 job_key=slurm:-:7.1.0 requeue_id=7 "
                    "from.rank=SLURM_PROCID from.world=SLURM_STEP_NUM_TASKS "
                    "from.master_addr=SLURM_STEP_NODELIST"),
        ROW(BLOCK, "rank=2 local_rank=0 node_rank=1 master_port=15001 "
                   "master_ports=15001,16238,17475,18712,19949,21186,22423,23660"),
        ROW(ARBITRARY "S:PROCID=0 S:LOCALID=0 S:NODEID=1",
            "world=3 master_addr=n08 master_port=15310 rank=0 local_world=2 store_host=no"),
        ROW(ARBITRARY "S:PROCID=1 S:LOCALID=0 S:NODEID=0",
            "world=3 master_addr=n08 master_port=15310 rank=1 local_world=1 store_host=yes"),
        ROW(ARBITRARY "S:PROCID=2 S:LOCALID=1 S:NODEID=1",
            "world=3 master_addr=n08 master_port=15310 rank=2 local_rank=1 store_host=no"),
        ROW("S:JOB_ID=7 S:STEP_ID=0 S:PROCID=0 S:LOCALID=0 S:NODEID=0 S:NTASKS=1 "
            "S:JOB_NODELIST=n[08-09] S:JOB_NUM_NODES=2 S:STEP_NODELIST=n09 "
            "S:STEP_NUM_NODES=1 S:STEP_NUM_TASKS=1 S:STEP_TASKS_PER_NODE=1",
            "source=slurm world=1 nnodes=1 hosts=n09 rdzv=none store_host=yes"),
        ROW("S:JOB_NAME=interactive S:JOB_ID=6 S:STEP_ID=0 S:PROCID=1 S:LOCALID=1 S:NODEID=0 "
            "S:STEP_NUM_TASKS=2 S:STEP_NUM_NODES=1 "
            "S:STEP_TASKS_PER_NODE=2 S:STEP_NODELIST=n08",
            "source=slurm rank=1 world=2"),
        ROW(BLOCK "MASTER_PORT=29400 MASTER_ADDR=n08 WORLD_SIZE=4",
            "source=slurm master_port=29400 master_ports=29400 master_addr=n08"),
        ROW(ARRAY "S:STEP_ID=0 S:STEP_NUM_TASKS=1 S:STEP_NUM_NODES=1 S:STEP_TASKS_PER_NODE=1 "
                  "S:STEP_NODELIST=n08",
            "source=slurm requeue_id=8_3 master_port=15009"),
        ROW(ARRAY, "source=single requeue_id=8_3 rank=0 world=1"),
        ROW(BLOCK "S:RESTART_COUNT=1",
            "restart=1 master_port=16010 job_key=slurm:-:1.0.1 requeue_id=1"),
        ROW("S:HET_SIZE=2 S:JOB_ID=14 S:STEP_ID=0 S:PROCID=2 S:LOCALID=1 S:NODEID=1 "
            "S:STEP_NUM_TASKS=3 S:STEP_NUM_NODES=2 S:STEP_TASKS_PER_NODE=1,2 "
            "S:STEP_NODELIST=n[08-09] S:JOB_ID_HET_GROUP_0=14",
            "rank=2 world=3 local_rank=1 local_world=2 node_rank=1 nnodes=2 requeue_id=14"),
        ROW("S:JOBID=7 S:STEPID=2 S:PROCID=1 S:LOCALID=1 S:NODEID=0 S:NPROCS=2 S:NNODES=1 "
            "S:NODELIST=a S:CLUSTER_NAME=c1",
            "source=slurm rank=1 world=2 local_world=2 hosts=a job_key=slurm:c1:7.2.0 "
            "from.world=SLURM_NPROCS"),
        ROW("S:JOB_ID=7 S:STEP_ID=2 S:PROCID=3 S:LOCALID=1 S:NODEID=1 S:NTASKS=4 "
            "S:STEP_NODELIST=n[1-2]",
            "local_world=2 nnodes=2 store_host=no"),
        ROW(CYCLIC "LEVIN_MASTER_ADDR=10.1.1.1 MASTER_ADDR=n08",
            "master_addr=10.1.1.1 from.master_addr=LEVIN_MASTER_ADDR"),
        ROW(CYCLIC, "master_addr=boss master_port=777",
            .options = {.master_addr = "boss", .master_port = 777}, .warning = 205),
        ROW(CYCLIC, "rdzv=file master_addr=n08", .options = {.rdzv = "file:/shared"}),
        ROW(CYCLIC, "nnodes=2", .options = {.nodes = 2}),
        ROW(CYCLIC "LEVIN_RUN_ID=abc", "run_id=abc"),
    };
    CHECK_ALL(rows);
}

TEST(shells_and_allocations)
{
    static const row rows[] = {
        ROW(ONE_TASK "S:JOB_NAME=bash", "source=single rank=0 world=1 requeue_id=2"),
        ROW(ONE_TASK "S:JOB_NAME=train", "source=slurm"),
        ROW(ONE_TASK "S:JOB_NAME=train S:PTY_PORT=40001", "source=single"),
        ROW(ONE_TASK "S:JOB_NAME=train S:PTY_WIN_COL=80", "source=single"),
        ROW(ONE_TASK "S:JOB_NAME=train S:STEP_ID=4294967290", "source=single"),
        ROW(ONE_TASK "S:JOB_NAME=bash LEVIN_INTERACTIVE=0", "source=slurm"),
        ROW(ONE_TASK "S:JOB_NAME=train LEVIN_INTERACTIVE=1", "source=single"),
        ROW(ONE_TASK "S:JOB_NAME=bash LEVIN_ENV=slurm", "source=slurm"),
        ROW("S:JOB_NAME=interactive S:JOB_ID=6 S:NTASKS=2", "source=single world=1",
            .warning = 210),
        ROW("S:JOB_NAME=interactive S:JOB_ID=6 S:NTASKS=2", "source=single world=1",
            .options = {.launcher = true}),
        ROW("S:JOB_ID=6 S:PROCID=0 S:NTASKS=1 S:JOB_NUM_NODES=1 S:TASKS_PER_NODE=1 "
            "S:RESTART_COUNT=2",
            "source=single requeue_id=6 restart=2 job_key=slurm:-:6.-.2"),
        ROW(BATCH, "source=slurm-batch rank=0 world=1", .options = {.launcher = true}),
    };
    CHECK_ALL(rows);
}

TEST(launchers)
{
    static const row rows[] = {
        ROW("", "source=single rank=0 world=1 local_rank=0 local_world=1 node_rank=0 nnodes=1 "
                "rdzv=none job_key=single store_host=no master_port="),
        ROW("RANK= WORLD_SIZE=2 LOCAL_RANK=0", "source=single"),
        ROW("WORLD_SIZE=8", "source=single world=1"),
        ROW("LOCAL_RANK=0", "source=single"),
        ROW("RANK=0 WORLD_SIZE=1", "source=single"),
        ROW("RANK=1", "source=single", .options = {.source = "single"}),
        /* the launcher sets its own */
        ROW("RANK=1", "source=single", .options = {.launcher = true}),
        ROW(BLOCK "RANK=1", "source=slurm rank=2"),
        /* as Kubeflow sets them, without LOCAL_RANK; a step's own numbers come first */
        ROW("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=2000",
            "source=torchrun rank=1 world=2 local_rank=unknown nnodes=unknown rdzv=tcp "
            "master_addr=a master_port=2000"),
        ROW("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=2000", "source=torchrun rank=1",
            .options = {.source = "torchrun"}),
        ROW(BLOCK "RANK=1 WORLD_SIZE=4", "source=slurm rank=2 world=4"),
        ROW("PET_NNODES=2 PET_NPROC_PER_NODE=auto", "source=single", .warning = 210),
        ROW("PET_NNODES=1 PET_NPROC_PER_NODE=auto", "source=single"),
        ROW("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4 "
            "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500",
            "source=torchrun rank=3 world=8 local_rank=1 local_world=2 node_rank=1 nnodes=4 "
            "master_addr=10.0.0.1 master_port=29500 store_host=no rdzv=tcp"),
        ROW("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4 "
            "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
            "TORCHELASTIC_USE_AGENT_STORE=True",
            "master_ports=29501,29502,29503,29504,29505,29506,29507,29508"),
        ROW("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_PORT=65533 "
            "TORCHELASTIC_USE_AGENT_STORE=True",
            "master_ports=65534,65535,15000,15001,15002,15003,15004,15005 store_host=yes"),
        ROW("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=2 "
            "TORCHELASTIC_RUN_ID=x",
            "nnodes=1 node_rank=0 master_addr=127.0.0.1 master_port=29500 restart=2 run_id=x "
            "job_key=torchrun:x@127.0.0.1:29500.2",
            .warning = 204),
        ROW("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 NODE_RANK=1 MASTER_ADDR=a MASTER_PORT=1234",
            "local_world=unknown node_rank=1 nnodes=unknown"),
        ROW(BLOCK
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=x MASTER_ADDR=a MASTER_PORT=2000",
            "source=torchrun rank=0 world=2"),
        /* exported from the step's own */
        ROW(BLOCK "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=2000",
            "source=torchrun rank=2"),
        ROW(BLOCK "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 WORLD_SIZE=4", "source=slurm rank=2",
            .options = {.source = "slurm"}),
        ROW(OMPI "S:JOB_ID=9 S:STEP_ID=0 S:PROCID=1 S:LOCALID=0 S:NODEID=1 S:NTASKS=2 "
                 "S:STEP_NUM_TASKS=2",
            "source=ompi rank=5 world=8 local_rank=1 local_world=4 node_rank=unknown "
            "nnodes=unknown rdzv=file store_host=no requeue_id=9"),
        ROW(OMPI "OMPI_COMM_WORLD_LOCAL_SIZE=8 MASTER_PORT=2000",
            "nnodes=1 node_rank=0 master_addr=127.0.0.1 rdzv=tcp master_port=2000"),
        ROW(OMPI "OMPI_COMM_WORLD_LOCAL_SIZE=8", "nnodes=1 master_port=29500", .warning = 204),
        ROW("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
            "source=pmi rank=2 world=4 local_rank=0 local_world=2 nnodes=unknown"),
        ROW("PMI_RANK=2 PMI_SIZE=4", "source=pmi local_rank=unknown local_world=unknown"),
        ROW("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 " BLOCK,
            "source=pmi rank=2 world=4"),
        ROW("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=1 "
            "MV2_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=2000",
            "source=mvapich2 rank=1 world=2 local_rank=1 local_world=2"),
        ROW("PALS_RANKID=1 PMI_RANK=0 PMI_SIZE=4 PALS_LOCAL_RANKID=0 PALS_NODEID=1 PALS_APID=q",
            "source=pals rank=1 node_rank=1 run_id=q"),
        ROW("JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=1 "
            "JSM_NAMESPACE_LOCAL_SIZE=2 LSB_JOBID=77",
            "source=jsm run_id=77"),
        ROW("FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=3 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f "
            "MASTER_PORT=2000",
            "source=flux local_rank=3 local_world=4 nnodes=1 node_rank=0 run_id=f"),
        ROW(LEVIN "LEVIN_MASTER_ADDR=10.0.0.2 LEVIN_MASTER_PORT=4000 LEVIN_RUN_ID=00ff "
                  "LEVIN_RESTART_COUNT=1 RANK=0 WORLD_SIZE=9 LOCAL_RANK=0",
            "source=levin rank=3 world=4 local_rank=1 local_world=2 node_rank=1 nnodes=2 "
            "master_addr=10.0.0.2 master_port=4000 run_id=00ff restart=1 "
            "job_key=levin:00ff@10.0.0.2:4000.1 rdzv=tcp"),
        ROW(LEVIN "LEVIN_RANK=0 LEVIN_LOCAL_RANK=0 LEVIN_NODE_RANK=0 LEVIN_MASTER_ADDR=127.0.0.1 "
                  "LEVIN_MASTER_PORT=4000 LEVIN_STORE_FD=7",
            "source=levin rank=0 rdzv=fd store_host=yes"),
        ROW(LEVIN "LEVIN_RANK=0 LEVIN_LOCAL_RANK=0 LEVIN_NODE_RANK=0 LEVIN_MASTER_ADDR=127.0.0.1 "
                  "LEVIN_MASTER_PORT=4000 LEVIN_STORE_FD=7 LEVIN_RDZV=file:/shared",
            "rdzv=fd"), /* all ranks of a launcher get its address and port */
        ROW(LEVIN "LEVIN_MASTER_ADDR=127.0.0.1 LEVIN_MASTER_PORT=4000 LEVIN_RDZV=file:/shared",
            "rank=3 rdzv=tcp master_addr=127.0.0.1 master_port=4000"),
        ROW(LEVIN "LEVIN_RANK=0 LEVIN_LOCAL_RANK=0 LEVIN_NODE_RANK=0 LEVIN_MASTER_ADDR=127.0.0.1 "
                  "LEVIN_MASTER_PORT=4000 LEVIN_STORE_FD=7",
            "rdzv=file", .options = {.rdzv = "file:/shared"}),
        ROW("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_WORLD_SIZE=2 GROUP_RANK=0 "
            "LEVIN_RDZV=file:/shared",
            "rdzv=file"),
        ROW(BLOCK "LEVIN_RDZV=file:/shared", "rdzv=tcp", .options = {.rdzv = "tcp"}),
        ROW(LEVIN "LEVIN_ENV=single", "source=single world=1"),
        ROW(LEVIN "LEVIN_MASTER_ADDR=a LEVIN_MASTER_PORT=4000", "source=levin",
            .options = {.source = "auto"}),
    };
    CHECK_ALL(rows);
}

typedef struct mistake {
    const char *env;
    int error;
    const char *reports[9]; /* and NULL */
    bool everyone;          /* each rank prints it, whatever its number */
    lvni_launch_rank_info_options options;
} mistake;

#define MISTAKE(variables, code, ...)                                                              \
    {                                                                                              \
        .env = (variables), .error = (code), .reports = __VA_ARGS__                                \
    }

static void check_mistake(const mistake *m)
{
    environment e;
    lvni_core_notices n = {.error = 0};
    lvni_launch_rank_info info = {.rank = 77};
    make_environment(&e, m->env);
    assert_int_equal(lvni_launch_rank_info_detect(e.list, &m->options, &n, &info), LVN_ERR_USAGE);
    if (n.error != m->error || lvni_core_notices_exit(&n) != LVNI_EXIT_USAGE || info.rank != 77) {
        fail_msg("%s\nE%d expected: %s", m->env, m->error, lvni_core_str_text(&n.text));
    }
    for (int i = 0; m->reports[i] != NULL; i++) {
        if (strstr(lvni_core_str_text(&n.text), m->reports[i]) == NULL) {
            fail_msg("%s\nno '%s' in\n%s", m->env, m->reports[i], lvni_core_str_text(&n.text));
        }
    }
    lvni_core_notices_free(&n);
}

TEST(mistakes)
{
    static const char *const args[] = {"levin", "train", "classify", "config=c.yaml"};
    static const mistake rows[] = {
        {BATCH,
         101,
         {"levin: error E101: srun was not used: only one process is running, 4 were allocated",
          "  found: SLURM_NTASKS=4\n", "  found: SLURM_STEP_ID is not set\n",
          "  fix: srun levin train classify config=c.yaml\n", "levin launch --"},
         .options = {.n_args = 4, .args = args}},
        {"S:JOB_ID=1 S:PROCID=0 S:TASKS_PER_NODE=1(x2) S:JOB_NUM_NODES=2",
         101,
         {"only one process is running, 2 were allocated"},
         .options = {.n_args = 4, .args = args}},
        {"S:JOB_ID=1 S:PROCID=0 S:NTASKS=1 S:JOB_NUM_NODES=1 S:HET_SIZE=2 S:NTASKS_HET_GROUP_0=1 "
         "S:NTASKS_HET_GROUP_1=2",
         101,
         {"3 were allocated", "srun --het-group=0-1 levin train"},
         .options = {.n_args = 4, .args = args}},
        MISTAKE(BLOCK "WORLD_SIZE=8", 108,
                {"WORLD_SIZE=8", "4 tasks", "2 nodes x 2 tasks = 4", "drop the export"}),
        MISTAKE(ARBITRARY "S:PROCID=0 S:LOCALID=0 S:NODEID=1 WORLD_SIZE=4", 108,
                {"3 tasks on 2 nodes"}),
        MISTAKE(BLOCK "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", 107,
                {"RANK=0", "WORLD_SIZE=2", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4",
                 "unset RANK WORLD_SIZE LOCAL_RANK", "or LEVIN_ENV=slurm"}),
        MISTAKE(BLOCK "S:STEP_TASKS_PER_NODE=2(x3)", 102,
                {"add up to 6 on 3 nodes", "4 tasks on 2 nodes",
                 "tasks per node 2,2,2: 3 nodes, 6 tasks", "hosts n[08-09]: 2 hosts",
                 "rank=2 (SLURM_PROCID) world=4 (", "node_rank=1 (SLURM_NODEID) nnodes=2",
                 "fix: one of these"}),
        MISTAKE(BLOCK "S:STEP_NODELIST=n[08-10]", 102, {"2 nodes, but its list has 3 hosts"}),
        MISTAKE(BLOCK "S:NODEID=2", 102, {"there is no node 2"}),
        MISTAKE(BLOCK "S:LOCALID=2", 102, {"local rank 2 of 2"}),
        MISTAKE(BLOCK "S:PROCID=4", 102, {"rank 4 is not below the number of ranks, 4"}),
        MISTAKE(BLOCK "S:STEP_TASKS_PER_NODE=2(x0)", 102, {"SLURM_STEP_TASKS_PER_NODE='2(x0)'"}),
        MISTAKE(BLOCK "S:STEP_TASKS_PER_NODE=2(3)", 102, {"'2(3)'"}),
        MISTAKE("S:JOB_ID=7 S:STEP_ID=2 S:PROCID=1 S:LOCALID=1 S:NODEID=0 S:NTASKS=3 "
                "S:STEP_NODELIST=n[1-2]",
                102, {"3 tasks cannot be spread evenly over 2 nodes"}),
        MISTAKE(BLOCK "S:STEP_NODELIST=n[08-09", 112,
                {"column 2: this bracket is not closed", "n[08-09\n"}),
        MISTAKE("S:JOB_ID=7 S:STEP_ID=2 S:PROCID=1 S:NODEID=0 S:NTASKS=3", 100,
                {"SLURM_LOCALID is not set"}),
        MISTAKE("RANK=abc WORLD_SIZE=2 LOCAL_RANK=0", 100, {"RANK='abc'", "decimal digits"}),
        MISTAKE("RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0", 100, {"RANK='-1'"}),
        MISTAKE("RANK=+1 WORLD_SIZE=2 LOCAL_RANK=0", 100, {"RANK='+1'"}),
        MISTAKE("RANK=1~ WORLD_SIZE=2 LOCAL_RANK=0", 100, {"RANK='1 '"}),
        MISTAKE("RANK=2147483648 WORLD_SIZE=2 LOCAL_RANK=0", 100, {"at most 2147483647"}),
        MISTAKE("RANK=2 WORLD_SIZE=2 LOCAL_RANK=0", 102, {"rank 2 is not below"}),
        MISTAKE("RANK=0 WORLD_SIZE=0 LOCAL_RANK=0", 102, {"rank 0 is not below"}),
        MISTAKE("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 GROUP_RANK=3 GROUP_WORLD_SIZE=2", 102,
                {"node 3 of 2"}),
        MISTAKE("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 GROUP_RANK=2", 102,
                {"node 2 of 2", "nnodes=unknown"}),
        MISTAKE("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", 102,
                {"local rank 2 of 2", "local_world=unknown"}),
        MISTAKE("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", 102,
                {"local rank 0 of 3 does not fit into 2 ranks"}),
        MISTAKE(
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_WORLD_SIZE=2 GROUP_RANK=0",
            109,
            {"source torchrun", "MASTER_ADDR is not set",
             "fix: MASTER_ADDR=HOST (levin launch --master-addr HOST)"}),
        {OMPI, 109, {"source ompi", "LEVIN_RDZV=file:DIR"}, .options = {.rdzv = "tcp"}},
        MISTAKE(OMPI "LEVIN_RDZV=tcp", 109, {"source ompi"}),
        MISTAKE(OMPI "LEVIN_RDZV=udp", 100,
                {"LEVIN_RDZV='udp' is neither tcp nor file:DIR", "fix: LEVIN_RDZV=file:DIR"}),
        {OMPI, 100, {"rdzv='file:' is neither"}, .options = {.rdzv = "file:"}},
        MISTAKE(BLOCK "MASTER_PORT=99999", 100, {"MASTER_PORT='99999'", "1 to 65535"}),
        MISTAKE(BLOCK "MASTER_PORT=0", 100, {"MASTER_PORT='0'"}),
        MISTAKE("LEVIN_ENV=slurm", 100,
                {"LEVIN_ENV=slurm", "SLURM_JOB_ID is not set", "SLURM_STEP_ID is not set",
                 "SLURM_PROCID is not set"}),
        {"RANK=1 LEVIN_ENV=slurm",
         100,
         {"--env-source=torchrun", "WORLD_SIZE is not set"},
         .options = {.source = "torchrun"}},
        MISTAKE("RANK=1", 100, {"RANK=1", "WORLD_SIZE is not set", "unset RANK"}),
        MISTAKE("RANK=1 WORLD_SIZE=2", 109, {"source torchrun", "MASTER_ADDR is not set"}),
        MISTAKE("LEVIN_ENV=mpi", 100, {"LEVIN_ENV='mpi'", "auto, levin, torchrun, ompi"}),
        MISTAKE(ONE_TASK "LEVIN_INTERACTIVE=yes", 100, {"LEVIN_INTERACTIVE='yes'"}),
        {CYCLIC,
         119,
         {"3 nodes are asked for, but the ranks run on 2", "num_nodes=3", "SLURM_STEP_NUM_NODES=2"},
         .options = {.nodes = 3}},
        {LEVIN "LEVIN_MASTER_ADDR=a", 119, {"LEVIN_NNODES=2"}, .options = {.nodes = 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_mistake(&rows[i]);
    }
}

/* Rank 0 prints for all, and each for itself where the others cannot know. */
TEST(rank_info_prints)
{
    static const struct {
        const char *env;
        bool prints;
    } rows[] = {
        {BLOCK "WORLD_SIZE=8", false},
        {ARBITRARY "S:PROCID=0 S:LOCALID=0 S:NODEID=1 WORLD_SIZE=8", true},
        {BLOCK "S:LOCALID=2", true},
        {BLOCK "S:STEP_NODELIST=n[", false},
        {"RANK=x WORLD_SIZE=2 LOCAL_RANK=0", true},
        {BATCH, true},
        {BLOCK, false}, /* nothing is wrong */
    };
    const lvni_launch_rank_info_options options = {.n_args = 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        environment e;
        lvni_core_notices n = {.error = 0};
        lvni_launch_rank_info info = {.rank = 0};
        make_environment(&e, rows[i].env);
        if (lvni_launch_rank_info_detect(e.list, &options, &n, &info) == LVN_OK) {
            lvni_launch_rank_info_free(&info);
        }
        if (lvni_core_notices_should_print(&n) != rows[i].prints) {
            fail_msg("%s", rows[i].env);
        }
        lvni_core_notices_free(&n);
    }
}

TEST(long_command_lines_are_cut)
{
    static const char *const args[] = {"levin", "train", "classify",
                                       "data=/a/very/long/path/a/very/long/path/a/very/long/path/"
                                       "a/very/long/path/a/very/long/path/a/very/long/path"};
    const lvni_launch_rank_info_options options = {.n_args = 4, .args = args};
    environment e;
    lvni_core_notices n = {.error = 0};
    lvni_launch_rank_info info;
    make_environment(&e, BATCH);
    assert_int_equal(lvni_launch_rank_info_detect(e.list, &options, &n, &info), LVN_ERR_USAGE);
    const char *fix = strstr(lvni_core_str_text(&n.text), "  fix: srun ");
    if (fix == NULL) {
        fail();
        return;
    }
    assert_int_equal(strcspn(fix, "\n"), strlen("  fix: srun ") + 120 + 3);
    lvni_core_notices_free(&n);
}

TEST(the_other_forms)
{
    environment e;
    lvni_core_notices n = {.error = 0};
    lvni_launch_rank_info info;
    lvni_core_str json = {.len = 0}, exports = {.len = 0};
    const lvni_launch_rank_info_options options = {.n_args = 0};
    make_environment(&e, BLOCK "MASTER_ADDR=it's");
    assert_int_equal(lvni_launch_rank_info_detect(e.list, &options, &n, &info), LVN_OK);
    lvni_launch_rank_info_print_json(&info, &json);
    lvni_launch_rank_info_print_export(&info, &exports);
    assert_non_null(
        strstr(lvni_core_str_text(&json), "{\"source\": \"slurm\", \"rank\": 2, \"world\": 4,"));
    assert_non_null(strstr(lvni_core_str_text(&json), "\"hosts\": [\"n08\", \"n09\"]"));
    assert_non_null(strstr(lvni_core_str_text(&json), "\"master_ports\": [15001, 16238,"));
    assert_non_null(strstr(lvni_core_str_text(&json), "\"store_host\": false"));
    assert_string_equal(lvni_core_str_text(&exports),
                        "export RANK=2\nexport WORLD_SIZE=4\nexport LOCAL_RANK=0\nexport "
                        "LOCAL_WORLD_SIZE=2\nexport GROUP_RANK=1\n"
                        "export NODE_RANK=1\nexport GROUP_WORLD_SIZE=2\nexport "
                        "MASTER_ADDR='it'\\''s'\nexport MASTER_PORT=15001\n");
    lvni_launch_rank_info_free(&info);
    lvni_core_str_clear(&json);
    lvni_core_str_clear(&exports);
    make_environment(&e, OMPI);
    assert_int_equal(lvni_launch_rank_info_detect(e.list, &options, &n, &info), LVN_OK);
    assert_string_equal(lvni_launch_rank_info_route(&info), "");
    lvni_launch_rank_info_print_json(&info, &json);
    lvni_launch_rank_info_print_export(&info, &exports);
    assert_non_null(strstr(lvni_core_str_text(&json), "\"node_rank\": null"));
    assert_null(strstr(lvni_core_str_text(&exports), "NODE_RANK"));
    assert_null(strstr(lvni_core_str_text(&exports), "MASTER"));
    lvni_launch_rank_info_free(&info);
    lvni_core_str_free(&json);
    lvni_core_str_free(&exports);
    lvni_core_notices_free(&n);
}

/* Ranks of one node need no resolver. */
TEST(where_ranks_connect)
{
    static const char *const rows[][2] = {
        {BLOCK, "n08"},
        {"S:JOB_ID=7 S:STEP_ID=2 S:PROCID=1 S:LOCALID=1 S:NODEID=0 S:NTASKS=2 S:STEP_NODELIST=n08",
         "127.0.0.1"},
        {"S:JOB_ID=7 S:STEP_ID=2 S:PROCID=1 S:LOCALID=1 S:NODEID=0 S:NTASKS=2 S:STEP_NODELIST=n08 "
         "MASTER_ADDR=n08",
         "n08"},
    };
    const lvni_launch_rank_info_options options = {.n_args = 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        environment e;
        lvni_core_notices n = {.error = 0};
        lvni_launch_rank_info info;
        make_environment(&e, rows[i][0]);
        assert_int_equal(lvni_launch_rank_info_detect(e.list, &options, &n, &info), LVN_OK);
        assert_string_equal(info.master_addr, "n08");
        assert_string_equal(lvni_launch_rank_info_route(&info), rows[i][1]);
        lvni_launch_rank_info_free(&info);
        lvni_core_notices_free(&n);
    }
}

TEST(out_of_memory)
{
    const lvni_core_alloc_stats before = lvni_core_alloc_get_total();
    static const char *const texts[] = {BLOCK, BATCH, "LEVIN_ENV=slurm",
                                        BLOCK "S:STEP_TASKS_PER_NODE=2(x3)"};
    const lvni_launch_rank_info_options options = {.n_args = 0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        environment e;
        make_environment(&e, texts[i]);
        for (int k = 1;; k++) {
            lvni_core_notices n = {.error = 0};
            lvni_launch_rank_info info;
            assert_true(k < 100);
            lvni_core_alloc_fail_at(k);
            const lvn_status s = lvni_launch_rank_info_detect(e.list, &options, &n, &info);
            const bool failed = lvni_core_alloc_fail_at(0) == 0;
            assert_true(s == LVN_OK || s == LVN_ERR_USAGE || s == LVN_ERR_MEMORY);
            assert_true(!failed || s != LVN_OK);
            if (s == LVN_OK) {
                lvni_launch_rank_info_free(&info);
            }
            lvni_core_notices_free(&n);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, before.live_bytes);
            if (!failed) {
                break;
            }
        }
    }
}
