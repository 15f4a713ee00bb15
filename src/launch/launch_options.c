/* Reading the arguments of `levin launch` (launch_options.h). The option table reads all but three
 * things: the short forms -n -q -v -m -r -t, the options that may be given several times (--env,
 * --unset), and the program (launch_program.c). */
#include "launch/launch_options.h"

#include "core/alloc.h"
#include "launch/env_vars.h"
#include "launch/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static lvn_status check_nproc(const lvni_core_option *row, const lvni_core_value *value,
                              const char *origin)
{
    const char *t = value->text;
    if (strcmp(t, "auto") == 0 || strcmp(t, "gpu") == 0 || strcmp(t, "cpu") == 0) {
        return LVN_OK;
    }
    char *end;
    const long n = strtol(t, &end, 10);
    if (*t < '0' || *t > '9' || *end != '\0' || n < 1 || n > 4096) {
        return lvni_core_option_fail(row, value, origin,
                                     "give a number of processes from 1 to 4096, auto, gpu or cpu");
    }
    return LVN_OK;
}

static lvn_status check_port(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    const char *t = value->text;
    if (strcmp(t, "auto") == 0 || strcmp(t, "random") == 0) {
        return LVN_OK;
    }
    char *end;
    const long n = strtol(t, &end, 10);
    if (*t < '0' || *t > '9' || *end != '\0' || n < 1 || n > 65535) {
        return lvni_core_option_fail(row, value, origin,
                                     "give a port from 1 to 65535, auto or random");
    }
    return LVN_OK;
}

static lvn_status check_pattern(const lvni_core_option *row, const lvni_core_value *value,
                                const char *origin)
{
    (void)origin;
    return lvni_launch_pattern_check(row->name, value->text);
}

static const lvni_core_option what_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "a YAML file with keys of this table"},
    {.name = "nproc",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .check = check_nproc,
     .help = "processes on this node (-n): a number; gpu: the visible GPUs; cpu: the CPUs of the "
             "affinity mask; auto: the number of devices, else 1"},
    LVNI_OPTION_ALIAS("nproc_per_node", "nproc"),
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .help = "all (-1), a number, or a list such as [0,1]: those of CUDA_VISIBLE_DEVICES, counted "
             "from 0"},
    {.name = "gpus", .type = LVNI_OPT_STRING, .help = "the old name of devices; gpus=0 is the CPU"},
    {.name = "accelerator",
     .type = LVNI_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|gpu|cpu|sim",
     .flags = LVNI_OPT_OPEN,
     .spellings = "cuda=gpu",
     .help = "what the devices are; NAME: those of a backend that the program loads"},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .choices = "single|dp|ddp|ddp2|sharded|balance",
     .spellings = "none=single",
     .help = "dp and ddp2 are one process per node, which owns all its devices; all others one "
             "process per device"},
    LVNI_OPTION_ALIAS("backend", "strategy"),
    {.name = "allow_shared_device",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "the list may name a device twice"},
    {.name = "nodes",
     .type = LVNI_OPT_STRING,
     .fallback = "1",
     .check = lvni_launch_torchrun_check_nodes,
     .help = "nodes of the run; more than 1 outside of Slurm: the same command on each node, with "
             "node_rank, master_addr and master_port"},
    LVNI_OPTION_ALIAS("nnodes", "nodes"),
    LVNI_OPTION_ALIAS("num_nodes", "nodes"),
    {.name = "node_rank",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 65535),
     .help = "which node this is, from 0"},
    {.name = "master_addr", .type = LVNI_OPT_STRING, .help = "host name or address of node 0"},
    {.name = "master_port",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .check = check_port,
     .help = "MASTER_PORT of the processes; auto: a free one on one node; random: a free one of "
             "12000 to 31999"},
    {.name = "run_id",
     .type = LVNI_OPT_STRING,
     .help = "names the run, the same on all nodes; unset: drawn, over several nodes made from "
             "address, port and program"},
    {.name = "rdzv_timeout",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .range = LVNI_ABOVE(0),
     .help = "how long ranks wait for each other at the start"},
    {.name = "standalone",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "torchrun's: one node that finds its own port, as one node always does here"},
    {.name = "rdzv_backend",
     .type = LVNI_OPT_CHOICE,
     .fallback = "static",
     .choices = "static|c10d",
     .help = "torchrun's: what rdzv_endpoint's port is; several nodes need node_rank with both"},
    {.name = "rdzv_endpoint",
     .type = LVNI_OPT_STRING,
     .check = lvni_launch_torchrun_check_endpoint,
     .help = "torchrun's HOST:PORT: master_addr and master_port in one"},
    {.name = "role",
     .type = LVNI_OPT_STRING,
     .fallback = "default",
     .help = "ROLE_NAME of the processes"},
    {.name = "module",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "the script is the name of a Python module (-m)"},
    {.name = "no_python",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "the script is a program that runs without Python, as after --"},
};

static const lvni_core_option end_rows[] = {
    {.name = "max_restarts",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000000),
     .help = "after a failure start all again, this many times; in the batch script of a Slurm "
             "allocation on the nodes that are left"},
    {.name = "min_ranks",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1, 1000000),
     .help = "where nodes of a Slurm allocation are lost: with fewer ranks than this a restart "
             "makes no sense (exit code 76)"},
    {.name = "crash_loop",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "5",
     .range = LVNI_AT_LEAST(0),
     .help =
         "two attempts in a row that fail this soon after their start end the restarts; 0: never"},
    {.name = "grace",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "10",
     .range = LVNI_BETWEEN(0, 1e6),
     .help = "between SIGTERM and SIGKILL"},
    {.name = "stop_grace",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .flags = LVNI_OPT_AUTO,
     .fallback = "auto",
     .range = LVNI_BETWEEN(0, 1e6),
     .help = "the same where the launcher itself gets the signal, until the first rank has ended "
             "(levin train gives its ranks all the time they need to save); auto: grace"},
    {.name = "timeout",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1e9),
     .help = "end everything after this time, with exit code 124; 0: never"},
    {.name = "straggler_timeout",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1e9),
     .help = "a rank that ended with 0 this long before the others do is a failure; 0: never"},
    {.name = "srun",
     .type = LVNI_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|always|never",
     .help = "in a Slurm allocation, outside of a step: start the program with srun; auto: where "
             "several tasks or nodes were allocated"},
    {.name = "dry_run",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "print what each rank would get, start nothing"},
};

static const lvni_core_option io_rows[] = {
    {.name = "run_dir",
     .type = LVNI_OPT_PATH,
     .help = "where logs/ and errors/ go; unset: levin-runs/RUN_ID"},
    {.name = "log_dir",
     .type = LVNI_OPT_PATH,
     .help = "a folder of several runs: run_dir is log_dir/RUN_ID, unless it is given"},
    {.name = "keep_logs",
     .type = LVNI_OPT_CHOICE,
     .fallback = "always",
     .choices = "always|failure|started|never",
     .help =
         "failure: what was written into the run directory goes when all ranks ended well, or at a "
         "signal of yours, and the directory with it; started: it goes when they refused to begin; "
         "never: it goes at the end"},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .check = check_pattern,
     .help = "file of each rank's standard output, and of its standard error without error=; %r "
             "rank, %l local rank, %n node, %w ranks, %h host, %j run, %a attempt, %p process"},
    {.name = "error",
     .type = LVNI_OPT_PATH,
     .check = check_pattern,
     .help = "file of each rank's standard error, as output"},
    {.name = "output_append_shared",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "several ranks may write into one file"},
    {.name = "tee",
     .type = LVNI_OPT_STRING,
     .fallback = "true",
     .check = lvni_launch_torchrun_check_streams,
     .help = "output goes to the files and to the terminal (-t); torchrun's 0 to 3 and 0:3,1:2 "
             "are taken, and all streams go to both; false: redirect"},
    {.name = "redirects",
     .type = LVNI_OPT_STRING,
     .check = lvni_launch_torchrun_check_streams,
     .help = "streams that go to the files only (-r): 1 standard output, 2 standard error, "
             "3 both, or by local rank as in 0:3,1:2"},
    {.name = "redirect",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "output goes to the files only"},
    {.name = "show",
     .type = LVNI_OPT_STRING,
     .fallback = "all",
     .help = "ranks whose output reaches the terminal: 0, 0,3-5, none"},
    {.name = "prefix",
     .type = LVNI_OPT_STRING,
     .check = check_pattern,
     .help = "in front of every line on the terminal; unset: `[%r] ` with several processes"},
    {.name = "no_prefix",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "nothing in front of lines"},
    {.name = "pty",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "rank 0 writes to a terminal where the launcher does: progress lines and colours"},
    {.name = "tail",
     .type = LVNI_OPT_INT,
     .unit = "lines",
     .fallback = "20",
     .range = LVNI_BETWEEN(0, 10000),
     .help = "of a failed rank's standard error, repeated in the report"},
    {.name = "stdin",
     .type = LVNI_OPT_CHOICE,
     .choices = "none|rank0|all",
     .help = "who reads standard input; unset: rank0 with one process, else none"},
    {.name = "quiet", .type = LVNI_OPT_BOOL, .fallback = "false", .help = "no warnings (-q)"},
    {.name = "strict",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "warnings are errors: nothing is started"},
    {.name = "verbose",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "print what is started where (-v)"},
};

static const lvni_core_option environment_rows[] = {
    {.name = "bind",
     .type = LVNI_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|none|cores|numa",
     .help = "which cores a rank may use; cores: an equal part each; numa: of the node of its GPU; "
             "auto: numa with GPUs, else cores, none where cores are too few"},
    {.name = "omp",
     .type = LVNI_OPT_INT,
     .flags = LVNI_OPT_AUTO,
     .fallback = "auto",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "OMP_NUM_THREADS; auto: the cores of a rank, unless it is set"},
    {.name = "env",
     .type = LVNI_OPT_STRING,
     .help = "K=V for every process, may be repeated; V may hold %r %l %n %w"},
    {.name = "env_file", .type = LVNI_OPT_PATH, .help = "lines K=V for every process"},
    {.name = "unset",
     .type = LVNI_OPT_STRING,
     .help = "a variable that no process gets, may be repeated"},
    {.name = "nccl_debug", .type = LVNI_OPT_STRING, .help = "NCCL_DEBUG"},
    {.name = "ifname",
     .type = LVNI_OPT_STRING,
     .help = "NCCL_SOCKET_IFNAME: beginnings of network interfaces"},
    {.name = "debug",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "NCCL_DEBUG=INFO, and as verbose"},
};

static const lvni_core_option_table what_table = LVNI_OPTION_TABLE("processes", what_rows),
                                    end_table = LVNI_OPTION_TABLE("failure and end", end_rows),
                                    io_table = LVNI_OPTION_TABLE("input and output", io_rows),
                                    environment_table =
                                        LVNI_OPTION_TABLE("environment", environment_rows);
const lvni_core_option_table *const lvni_launch_keys[] = {&what_table, &end_table, &io_table,
                                                          &environment_table, NULL};

/* ---- arguments that the table does not read ---- */

/* Is args[*i] `--name V`, `--name=V` or `name=V`? Then *value is V, and *i moves to its last
 * argument. */
static lvn_status repeated(int n, const char *const *args, int *i, const char *name, bool *is,
                           const char **value)
{
    const char *arg = args[*i];
    const bool dashes = strncmp(arg, "--", 2) == 0;
    const char *key = dashes ? arg + 2 : arg;
    const size_t length = strlen(name);
    *is =
        strncmp(key, name, length) == 0 && (key[length] == '=' || (key[length] == '\0' && dashes));
    if (*is && key[length] == '=') {
        *value = key + length + 1;
    } else if (*is) {
        if (*i + 1 >= n) {
            LVN_FAIL(LVN_ERR_USAGE, "`%s` needs a value", arg);
        }
        *value = args[++*i];
    }
    return LVN_OK;
}

static lvn_status check_variable(const char *option, const char *text, bool with_value)
{
    const char *equals = strchr(text, '=');
    if (with_value ? equals == NULL || equals == text : text[0] == '\0' || equals != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%s `%.80s`: give %s", option, text,
                 with_value ? "NAME=VALUE" : "the name of a variable");
    }
    return LVN_OK;
}

/* Into o->env, o->unset, and the rest, which the table reads. */
static lvn_status sort_args(int n, const char *const *args, lvni_launch_options *o,
                            const char **rest, int *n_rest)
{
    for (int i = 0; i < n; i++) {
        const char *value = "";
        bool is;
        LVN_TRY(repeated(n, args, &i, "env", &is, &value));
        if (is) {
            LVN_TRY(check_variable("--env", value, true));
            o->env[o->n_env++] = value;
            continue;
        }
        LVN_TRY(repeated(n, args, &i, "unset", &is, &value));
        if (is) {
            LVN_TRY(check_variable("--unset", value, false));
            o->unset[o->n_unset++] = value;
            continue;
        }
        rest[(*n_rest)++] = lvni_launch_short_form(args[i]);
    }
    return LVN_OK;
}

static lvn_status load(int n, const char *const *args, lvni_launch_options *o)
{
    const char **rest = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + 1, sizeof *rest);
    o->env = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + 1, sizeof *o->env);
    o->unset = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + 1, sizeof *o->unset);
    int n_rest = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, rest == NULL || o->env == NULL || o->unset == NULL
                         ? LVN_ERR_MEMORY
                         : sort_args(n, args, o, rest, &n_rest));
    LVNI_TRY_DONE(s, lvni_core_config_load_arguments(o->config, n_rest, rest));
    s = lvni_core_config_finish(o->config);
done:
    lvni_core_free(rest);
    return s;
}

static void take_texts(lvni_launch_options *o)
{
    const lvni_core_config *c = o->config;
    o->gpus = lvni_core_config_is_set(c, "gpus");
    o->nproc = lvni_core_config_str(c, "nproc");
    o->devices = lvni_core_config_str(c, o->gpus ? "gpus" : "devices");
    o->accelerator = lvni_core_config_str(c, "accelerator");
    o->strategy = lvni_core_config_str(c, "strategy");
    o->master_addr = lvni_core_config_str(c, "master_addr");
    o->master_port = lvni_core_config_str(c, "master_port");
    o->run_id = lvni_core_config_str(c, "run_id");
    o->run_dir = lvni_core_config_str(c, "run_dir");
    o->log_dir = lvni_core_config_str(c, "log_dir");
    o->role = lvni_core_config_str(c, "role");
    o->redirects = lvni_core_config_str(c, "redirects");
    const char *keep = lvni_core_config_str(c, "keep_logs");
    o->keep_logs = strcmp(keep, "always") == 0    ? LVNI_KEEP_ALWAYS
                   : strcmp(keep, "failure") == 0 ? LVNI_KEEP_FAILURE
                   : strcmp(keep, "never") == 0   ? LVNI_KEEP_NEVER
                                                  : LVNI_KEEP_STARTED;
    o->prefix = lvni_core_config_bool(c, "no_prefix") ? "" : lvni_core_config_str(c, "prefix");
    o->output = lvni_core_config_str(c, "output");
    o->error = lvni_core_config_str(c, "error");
    o->show = lvni_core_config_str(c, "show");
    o->env_file = lvni_core_config_str(c, "env_file");
    o->pty = lvni_core_config_bool(c, "pty");
    o->debug = lvni_core_config_bool(c, "debug");
    o->nccl_debug = lvni_core_config_is_set(c, "nccl_debug") ? lvni_core_config_str(c, "nccl_debug")
                    : o->debug                               ? "INFO"
                                                             : NULL;
    o->ifname = lvni_core_config_str(c, "ifname");
    if (lvni_core_config_is_set(c, "env")) {
        /* only a file gives these two to the table; they come before the arguments */
        o->env[o->n_env++] = lvni_core_config_str(c, "env");
    }
    if (lvni_core_config_is_set(c, "unset")) {
        o->unset[o->n_unset++] = lvni_core_config_str(c, "unset");
    }
}

static void take_numbers(lvni_launch_options *o)
{
    const lvni_core_config *c = o->config;
    o->nodes = lvni_launch_torchrun_nodes(lvni_core_config_str(c, "nodes"));
    o->nodes_given = lvni_core_config_layer(c, "nodes") != LVNI_LAYER_DEFAULT;
    o->node_rank = (int)lvni_core_config_int(c, "node_rank");
    o->node_rank_given = lvni_core_config_layer(c, "node_rank") != LVNI_LAYER_DEFAULT;
    o->allow_shared_device = lvni_core_config_bool(c, "allow_shared_device");
    o->rdzv_timeout_s =
        lvni_core_config_is_set(c, "rdzv_timeout") ? lvni_core_config_float(c, "rdzv_timeout") : 0;
    o->max_restarts = (int)lvni_core_config_int(c, "max_restarts");
    o->min_ranks = (int)lvni_core_config_int(c, "min_ranks");
    o->crash_loop_s = lvni_core_config_float(c, "crash_loop");
    o->grace_s = lvni_core_config_float(c, "grace");
    o->stop_grace_s = lvni_core_config_is_set(c, "stop_grace")
                          ? lvni_core_config_float(c, "stop_grace")
                          : o->grace_s;
    o->timeout_s = lvni_core_config_float(c, "timeout");
    o->straggler_timeout_s = lvni_core_config_float(c, "straggler_timeout");
    const char *tee = lvni_core_config_str(c, "tee");
    const bool no_tee = lvni_core_option_choice_index("false|no|off", tee, strlen(tee)) >= 0;
    o->redirect = lvni_core_config_bool(c, "redirect") || no_tee;
    o->append_shared = lvni_core_config_bool(c, "output_append_shared");
    o->tail = (int)lvni_core_config_int(c, "tail");
    o->standard_input = lvni_core_config_choice(c, "stdin");
    o->bind = (lvni_launch_bind)lvni_core_config_choice(c, "bind");
    o->omp = lvni_core_config_is_set(c, "omp") ? (int)lvni_core_config_int(c, "omp") : 0;
    o->srun = (lvni_launch_srun)lvni_core_config_choice(c, "srun");
    o->dry_run = lvni_core_config_bool(c, "dry_run");
    o->quiet = lvni_core_config_bool(c, "quiet");
    o->strict = lvni_core_config_bool(c, "strict");
    o->strict_given = lvni_core_config_switch(c, "strict") >= 0;
    o->verbose = lvni_core_config_bool(c, "verbose") || o->debug;
}

/* ---- all of them ---- */

static lvn_status create_config(lvni_core_config **out)
{
    LVN_TRY(lvni_core_config_create(lvni_launch_keys, out));
    lvni_core_config_set_help(*out, "levin help launch");
    return LVN_OK;
}

int lvni_launch_own_arguments(int n, const char *const *args)
{
    lvni_core_config *config;
    lvni_launch_program_place place = {.n_options = n, .first = n};
    if (create_config(&config) == LVN_OK) {
        lvni_launch_program_find(config, n, args, &place);
        lvni_core_config_destroy(config);
    }
    return place.first < n ? place.n_options : n; /* without a program all are */
}

/* torchrun's PET_NNODES and others, as Kubeflow sets them. A command that became its own launcher
 * has given all options, and they are not among them. */
static lvn_status load_variables(lvni_core_config *config, char *const *environment)
{
    return lvni_launch_env_raw(environment, "LEVIN_HANDED_OVER") != NULL
               ? LVN_OK
               : lvni_core_config_load_variables(config, "PET_", environment);
}

lvn_status lvni_launch_options_read(int n, const char *const *args, char *const *environment,
                                    lvni_launch_options *out)
{
    *out = (lvni_launch_options){0};
    LVN_TRY(create_config(&out->config));
    LVN_TRY(load_variables(out->config, environment));
    lvni_launch_program_place place;
    lvni_launch_program_find(out->config, n, args, &place);
    LVN_TRY(load(place.n_options, args, out));
    LVN_TRY(lvni_launch_program_take(out, &place, n, args)); /* other mistakes come first */
    take_texts(out);
    take_numbers(out);
    if (out->gpus && lvni_core_config_is_set(out->config, "devices")) {
        LVN_FAIL(LVN_ERR_USAGE, "devices and gpus are two names of one thing: give one of them");
    }
    return lvni_launch_torchrun_rendezvous(out);
}

void lvni_launch_options_free(lvni_launch_options *o)
{
    lvni_core_config_destroy(o->config);
    lvni_core_free(o->env);
    lvni_core_free(o->unset);
    lvni_core_free(o->env_lines);
    lvni_core_free(o->own_program);
    *o = (lvni_launch_options){0};
}
