/* A command's configuration: the arguments over defaults, files, and the run that is resumed; and
 * the rows of the keys that do not depend on the recipe, for training (names are those of today's
 * Lightning trainer) and for the use of a trained model. */
#include "run/options.h"

#include "core/alloc.h"
#include "core/option_list.h"
#include "core/vfs.h"
#include "log/loggers.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- training ---- */

/* 0 would be a run that does nothing and leaves no checkpoint. */
static lvn_status check_limit(const lvni_core_option *row, const lvni_core_value *value,
                              const char *origin)
{
    return value->i != 0 ? LVN_OK
                         : lvni_core_option_fail(row, value, origin,
                                                 "expected at least 1, or -1 for no limit");
}

static lvn_status check_rdzv(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    return strcmp(value->text, "tcp") == 0 ||
                   (strncmp(value->text, "file:", 5) == 0 && value->text[5] != '\0')
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin, "expected tcp or file:DIR");
}

static lvn_status check_logger(const lvni_core_option *row, const lvni_core_value *value,
                               const char *origin)
{
    for (size_t i = 0; i < value->n; i++) {
        if (!lvni_log_loggers_known(value->strings[i])) {
            return lvni_core_option_fail(row, value, origin,
                                         "`%s` is not a logger: csv, tensorboard, exec:COMMAND and "
                                         "none are; metrics.jsonl is always written",
                                         value->strings[i]);
        }
    }
    return LVN_OK;
}

int lvni_run_read_shares(const char *text, double *out, int room)
{
    int n = 0;
    const char *at = text + (*text == '[');
    for (char *end;; at = end + 1) {
        const long share = strtol(at, &end, 10);
        if (end == at || share < 1 || share > LVNI_PLAN_MAX_MICRO_BATCHES) {
            return -1;
        }
        if (n < room) {
            out[n] = (double)share;
        }
        n++;
        if (*end != ',') {
            const bool closed = *text == '[' ? strcmp(end, "]") == 0 : *end == '\0';
            return closed ? n : -1;
        }
    }
}

static lvn_status check_balance(const lvni_core_option *row, const lvni_core_value *value,
                                const char *origin)
{
    return strcmp(value->text, "off") == 0 || strcmp(value->text, "auto") == 0 ||
                   lvni_run_read_shares(value->text, NULL, 0) > 0
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected auto, off or a share for each rank, as in [3,1]");
}

/* Those that compute the same here. Those that divide the weights, too, are answered. */
#define STRATEGIES_OF_OTHERS                                                                       \
    "none=single|single_device=single|ddp_spawn=ddp|ddp_fork=ddp|ddp_notebook=ddp|"                \
    "ddp_find_unused_parameters_true=ddp|ddp_find_unused_parameters_false=ddp|"                    \
    "ddp_sharded=sharded|deepspeed=sharded|deepspeed_stage_1=sharded|deepspeed_stage_2=sharded"

static const lvni_core_option run_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys; the command line takes precedence.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "out",
     .type = LVNI_OPT_PATH,
     .help = "Run directory to make; unset: out/<recipe>-<number>.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "overwrite",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Replace the run in a directory that exists; other files in it stay.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "resume",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Continue the run in `out` from its newest valid checkpoint, with its configuration.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "resume_epoch",
     .type = LVNI_OPT_INT,
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_NOT_SAVED,
     .needs = "resume",
     .help = "Resume from the kept checkpoint of this epoch (checkpoint.save_top_k), by the number "
             "in its name, in place of the newest."},
    {.name = "recipe",
     .type = LVNI_OPT_STRING,
     .help = "Name of the recipe, recorded by the run; another recipe does not take its "
             "configuration."},
    {.name = "weights",
     .type = LVNI_OPT_PATH,
     .help = "Start from the weights of a safetensors file or one of torch.save (.pt, .pth, .ckpt) "
             "with the names of torchvision or timm, an exported model, a checkpoint, a run "
             "directory (its last checkpoint; for another model the one it exported), or a folder "
             "with model.safetensors or an index of several files."},
    LVNI_RUN_WEIGHTS_KEY_ROW,
    {.name = "reset_head",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "With weights=: the last layer is drawn again, as for classes other than those of the "
             "file."},
    {.name = "seed",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Seed of every random number of the run."},
    {.name = "max_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "20",
     .range = LVNI_BETWEEN(-1, 2147483647),
     .flags = LVNI_OPT_AUTO_DEFAULT,
     .help = "Passes over the training set; -1: no limit, which is the default with max_steps or "
             "max_time; 0: none, and the model is saved and exported as it begins; auto: the "
             "default."},
    {.name = "max_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "-1",
     .range = LVNI_BETWEEN(-1, 2147483647),
     .check = check_limit,
     .help = "Optimizer steps; -1: no limit."},
    {.name = "num_workers",
     .type = LVNI_OPT_INT,
     .unit = "threads",
     .range = {.used = true, .min = 0, .max = 256},
     .flags = LVNI_OPT_AUTO | LVNI_OPT_LAYOUT,
     .help = "Threads that load and decode samples, of each rank; 0: none of their own; auto: one "
             "for each of its cores but one, 8 at most; under Slurm "
             "those of --cpus-per-task but one."},
    {.name = "on_error",
     .type = LVNI_OPT_CHOICE,
     .flags = LVNI_OPT_RUN,
     .choices = "stop|skip",
     .fallback = "stop",
     .help =
         "What an unreadable sample does: stop the run, or be omitted and counted. A photo whose "
         "header was right is omitted in either case, unless many are unreadable."},
    {.name = "precision",
     .type = LVNI_OPT_CHOICE,
     .choices = "32-true|bf16-mixed|16-mixed|bf16-true|auto",
     .fallback = "32-true",
     .spellings = "32=32-true|bf16=bf16-mixed|16=16-mixed",
     .help = "Number format of products and activations; weights and sums stay f32, except "
             "under bf16-true, where weights are bf16 numbers, too. 16-mixed "
             "scales the loss. auto: bf16-mixed on a GPU, else 32-true."},
    {.name = "tf32",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help =
         "f32 products on NVIDIA GPUs round their factors to TF32, 10 bits of fraction: several "
         "times as fast. Other devices take them as they are."},
    {.name = "accelerator",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|cpu|gpu|sim",
     .fallback = "auto",
     .flags = LVNI_OPT_OPEN | LVNI_OPT_RUN,
     .help = "Kind of device; auto: the GPU where there is one that works, else the CPU; gpu: "
             "NVIDIA GPUs (cuda); sim: a simulated "
             "accelerator, which LEVIN_SIM_DEVICES=1 and "
             "LEVIN_SIM_MEMORY=2GiB in the environment make; NAME: the backend "
             "levin_backend_NAME.so beside levin or in a folder of LEVIN_BACKEND_PATH."},
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT | LVNI_OPT_TEXT_LIST,
     .help = "How many devices, or which (2, [0,2], -1: all); auto: all that this process may use, "
             "on the CPU one."},
    {.name = "allow_shared_device",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_LAYOUT,
     .help = "Ranks may share a device: the list may name one twice ([0,0])."},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|single|dp|ddp|ddp2|sharded|balance",
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT,
     .spellings = STRATEGIES_OF_OTHERS,
     .help = "How devices share the work: ddp (a process each, the default), dp (threads of one "
             "process); ddp2 is dp on each node, and ddp between nodes; sharded is ddp where each "
             "rank has a part of the optimizer's state; balance gives each device a stage of the "
             "model (threads of one process)."},
    {.name = "balance.cuts",
     .type = LVNI_OPT_STRING_LIST,
     .flags = LVNI_OPT_LAYOUT,
     .needs = "strategy=balance",
     .help = "strategy=balance: the modules with which the second stage, the third, ... begin "
             "([layer2.1,layer3.4]); unset: the slowest stage takes as little as it can."},
    {.name = "sharded_stage",
     .type = LVNI_OPT_CHOICE,
     .choices = "1|2",
     .fallback = "2",
     .flags = LVNI_OPT_LAYOUT,
     .help = "strategy=sharded: a rank gets the gradient of its part of the weights (2), or of all "
             "(1: half as many bytes more)."},
    {.name = "balance_ranks",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_RUN,
     .fallback = "off",
     .check = check_balance,
     .help = "Micro-batches of each rank: off: equally many; auto: ranks on faster devices get "
             "more, measured at the start and kept when as many ranks resume; [3,1]: in these "
             "proportions. Results do not depend on it."},
    {.name = "same_hardware",
     .type = LVNI_OPT_CHOICE,
     .flags = LVNI_OPT_RUN,
     .choices = "warn|require",
     .fallback = "warn",
     .help = "Ranks, or a resumed run, whose bits may differ, as they have other processors, "
             "devices or versions of libraries: a warning, or the end before the beginning."},
    {.name = "data_changed",
     .type = LVNI_OPT_CHOICE,
     .flags = LVNI_OPT_RUN | LVNI_OPT_YIELDS,
     .choices = "warn|error",
     .fallback = "warn",
     .help = "A resumed run whose files have other sizes, first 4 KiB or labels than when its "
             "checkpoint was written, under the same names: a warning, or the end before the "
             "beginning."},
    {.name = "memory_check",
     .type = LVNI_OPT_CHOICE,
     .flags = LVNI_OPT_RUN | LVNI_OPT_YIELDS,
     .choices = "refuse|warn",
     .spellings = "none=warn|off=warn|false=warn",
     .fallback = "refuse",
     .help = "A run that is estimated to take over a fifth more host memory than there is: refused "
             "before it begins, or only warned of, as one that takes a little more."},
    {.name = "peer_timeout_s",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "10",
     .range = LVNI_AT_LEAST(0.5),
     .flags = LVNI_OPT_LAYOUT,
     .help = "A rank that is not heard of for so long counts as lost."},
    {.name = "collective_timeout",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "600",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_LAYOUT,
     .help = "A run whose ranks wait for each other for so long ends with code 76, and an error "
             "that lists which ranks have entered the collective and where the others are; 0: "
             "never."},
    {.name = "rdzv",
     .type = LVNI_OPT_STRING,
     .fallback = "tcp",
     .flags = LVNI_OPT_NOT_SAVED,
     .check = check_rdzv,
     .help = "How ranks that others have started (srun, mpirun, torchrun) find each other: tcp, at "
             "an address they are given; file:DIR, by a file in a "
             "directory that all of them see."},
    {.name = "max_restarts",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000000),
     .flags = LVNI_OPT_LAYOUT,
     .help = "Where this command starts its ranks (ddp): when one fails all start again and go on "
             "from the last checkpoint, this many times; two failures in a row within 5 s of "
             "the start, with nothing new saved, are the last."},
    {.name = "num_nodes",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_LAYOUT | LVNI_OPT_NOT_SAVED,
     .help = "Nodes of the run, where it is to be checked: those of its ranks are counted."},
    {.name = "deterministic",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .flags = LVNI_OPT_ALWAYS,
     .later_note = "a run is always deterministic, and its speed has that in it; leave it out",
     .help = "The same bits on every layout."},
    {.name = "log_every_n_steps",
     .type = LVNI_OPT_INT,
     .flags = LVNI_OPT_RUN,
     .unit = "steps",
     .fallback = "10",
     .range = LVNI_AT_LEAST(1),
     .help = "Distance of the lines in metrics.jsonl; an epoch's last step is always logged."},
    {.name = "peak_flops",
     .type = LVNI_OPT_FLOAT,
     .flags = LVNI_OPT_RUN,
     .unit = "1/s",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Floating-point operations that a device can do in a second at this precision (on the "
             "CPU: that the cores of a rank can); with it metrics.jsonl has throughput/mfu."},
    {.name = "logger",
     .type = LVNI_OPT_STRING_LIST,
     .flags = LVNI_OPT_RUN,
     .check = check_logger,
     .help = "Where the lines of metrics.jsonl go, too: csv (metrics.csv, as Lightning writes it), "
             "tensorboard (or true: event files), exec:COMMAND (a program that reads JSON lines; "
             "docs/logging.md); one or a list; none or false: nowhere."},
    {.name = "log_histograms",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_RUN,
     .fallback = "false",
     .needs = "logger",
     .help = "With each checkpoint a histogram of each parameter, for loggers that have those."},
    {.name = "profiler",
     .type = LVNI_OPT_CHOICE,
     .flags = LVNI_OPT_RUN,
     .choices = "none|simple",
     .fallback = "none",
     .help = "simple: at the end a table of where rank 0's time went: data, forward, backward, "
             "exchange, optimizer, logging, validation, checkpoints."},
    {.name = "report",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_RUN | LVNI_OPT_YIELDS,
     .fallback = "false",
     .help = "Write report.html into the run directory at the end, as `levin report` does "
             "(docs/report.md)."},
    {.name = "quiet",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Print nothing but errors and warnings of the training; those of the start, which "
             "have a number (W202), are not printed.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "verbose",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Print all that is known at the start: epoch, work of this rank, memory, version "
             "(train.log always has it).",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "strict",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Warnings with a number (W202) are errors: the run ends before it begins.",
     .flags = LVNI_OPT_NOT_SAVED},
    LVNI_OPTION_ALIAS("gpus", "devices"),
    LVNI_OPTION_ALIAS("num_gpus", "devices"),
    LVNI_OPTION_ALIAS("distributed_backend", "strategy"),
    LVNI_OPTION_ALIAS("nb_gpu_nodes", "num_nodes"),
    LVNI_OPTION_ALIAS("max_nb_epochs", "max_epochs"),
    LVNI_OPTION_ALIAS("epochs", "max_epochs"),
    LVNI_OPTION_ALIAS("steps", "max_steps"),
};
const lvni_core_option_table lvni_run_options = LVNI_OPTION_TABLE("run", run_rows);

const char *lvni_run_key_name(const lvni_core_config *config, const char *name)
{
    char moved[64];
    snprintf(moved, sizeof moved, LVNI_RUN_YIELDED "%.48s", name);
    return lvni_core_config_has(config, moved) ? lvni_core_config_row(config, moved)->name : name;
}

/* ---- predict and eval ---- */

static const lvni_core_option use_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model",
     .type = LVNI_OPT_PATH,
     .help = "Run directory or exported .safetensors file."},
    {.name = "checkpoint",
     .type = LVNI_OPT_CHOICE,
     .choices = "best|last",
     .help =
         "Which model of a run directory; unset: best (by checkpoint.monitor of its training)."},
    {.name = "eval_batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .fallback = "64",
     .range = LVNI_AT_LEAST(1),
     .help = "Chunk of prediction."},
    {.name = "lanes",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 64),
     .flags = LVNI_OPT_AUTO,
     .help = "Chunks that run at once; auto: one per core."},
    {.name = "num_workers",
     .type = LVNI_OPT_INT,
     .unit = "threads",
     .range = {.used = true, .min = 0, .max = 256},
     .flags = LVNI_OPT_AUTO,
     .help = "Threads that decode."},
    {.name = "tf32", .type = LVNI_OPT_BOOL, .fallback = "false", .help = "As in training."},
    {.name = "accelerator",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|cpu|gpu|sim",
     .fallback = "auto",
     .flags = LVNI_OPT_OPEN,
     .help = "Kind of device, as in training."},
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .help = "How many devices share the work, or which (2, [0,2], -1: all); auto: one, or as many "
             "as ranks were started. The results are the same."},
    {.name = "allow_shared_device",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Ranks may share a device, as in training."},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|single|dp|ddp|ddp2|sharded|balance",
     .fallback = "auto",
     .spellings = STRATEGIES_OF_OTHERS,
     .later = "balance",
     .later_note = "strategy=balance comes with a later version; use ddp or dp",
     .help = "As in training: ddp (a process for each device, the default), dp (threads of one "
             "process)."},
    {.name = "peer_timeout_s",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "10",
     .range = LVNI_AT_LEAST(0.5),
     .help = "A rank that is not heard of for so long counts as lost."},
    {.name = "collective_timeout",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "600",
     .range = LVNI_AT_LEAST(0),
     .help = "A run whose ranks wait for each other for so long ends with code 76, and an error "
             "that lists which ranks have entered the collective and where the others are; 0: "
             "never."},
    {.name = "strict",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Warnings with a number (W202) are errors, as in training."},
    {.name = "on_error",
     .type = LVNI_OPT_CHOICE,
     .choices = "stop|skip",
     .fallback = "stop",
     .help = "What an unreadable sample does; unless it is given, what the model's run did."},
    {.name = "use_ema",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "false: of a run with ema.decay, the weights themselves and not their average; needs "
             "the run directory or a checkpoint."},
    {.name = "json",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Results as JSON on stdout: eval one object, predict a line for each sample (or in "
             "output=FILE.jsonl)."},
    LVNI_OPTION_ALIAS("gpus", "devices"),
    LVNI_OPTION_ALIAS("num_gpus", "devices"),
    LVNI_OPTION_ALIAS("distributed_backend", "strategy"),
};
const lvni_core_option_table lvni_run_inference_options =
    LVNI_OPTION_TABLE("model in use", use_rows);

/* ---- reading ---- */

/* Ranks that their launcher has restarted, and those of a requeued job: the run that an earlier
 * attempt began is resumed, from its last checkpoint if there is one. That attempt went back to
 * resume_epoch; going back again would undo what it has trained since. */
static lvn_status resume_restarted(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out");
    if (out == NULL || !lvni_run_dir_is_of_attempt_before(out)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_config_set(c, "overwrite", "false", "started again"));
    LVN_TRY(lvni_core_config_set(c, "resume_epoch", "auto", "started again"));
    return lvni_core_config_set(c, "resume", "true", "started again");
}

static lvn_status load_saved(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out");
    LVN_TRY(resume_restarted(c));
    if (!lvni_core_config_bool(c, "resume")) {
        return LVN_OK;
    }
    if (out == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true needs out=DIR, the run to continue");
    }
    /* before a missing data= is reported, which the run's configuration would have */
    LVN_TRY(lvni_run_dir_check_run(out));
    char *saved = lvni_run_path_join(out, "config.yaml");
    if (saved == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = lvni_core_path_exists(saved)
                             ? lvni_core_config_load_file(c, LVNI_LAYER_SAVED, saved)
                             : LVN_OK;
    lvni_core_free(saved);
    return s;
}

/* Arguments without effect are errors, lines of a file warnings. */
static lvn_status check_needs(const lvni_core_config *c)
{
    lvni_core_str warnings = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_config_check_needs(c, &warnings));
    for (char *line = warnings.data, *end; line != NULL && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        *end = '\0';
        lvni_log_line(LVNI_LOG_WARNING, "%s", line);
    }
done:
    lvni_core_str_free(&warnings);
    return s;
}

/* A run directory may come from elsewhere: a program is started by the command line or a file that
 * the user names. */
static lvn_status leave_out_saved_programs(lvni_core_config *c)
{
    size_t n;
    const char *const *names = lvni_core_config_str_list(c, "logger", &n);
    lvni_core_str others = {0};
    bool any = false;
    if (lvni_core_config_layer(c, "logger") != LVNI_LAYER_SAVED) {
        return LVN_OK;
    }
    lvni_core_str_char(&others, '[');
    for (size_t i = 0; i < n; i++) {
        const bool program = strncmp(names[i], "exec:", 5) == 0;
        any = any || program;
        if (!program) {
            lvni_core_str_printf(&others, "%s%s", others.len > 1 ? "," : "", names[i]);
        } else {
            lvni_log_line(LVNI_LOG_WARNING,
                          "logger=%s of the saved configuration is not started: give logger= again",
                          names[i]);
        }
    }
    lvni_core_str_char(&others, ']');
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&others));
    if (any) {
        s = lvni_core_config_set(c, "logger", others.len > 2 ? lvni_core_str_text(&others) : "none",
                                 "resume");
    }
done:
    lvni_core_str_free(&others);
    return s;
}

/* Before all that a new run would need is reported as missing. */
static lvn_status check_resume_epoch(const lvni_core_config *c)
{
    static const char key[] = "resume_epoch";
    if (!lvni_core_config_has(c, key) || !lvni_core_config_is_set(c, key) ||
        lvni_core_config_layer(c, key) != LVNI_LAYER_ARGUMENTS ||
        lvni_core_config_is_on(c, "resume") || lvni_core_config_int(c, key) == 0) {
        return LVN_OK; /* 0: no epoch, as rcGAN's default without --resume */
    }
    LVN_FAIL(LVN_ERR_USAGE, "%s=%lld needs resume=true and out=DIR, the run to continue  (%s)", key,
             (long long)lvni_core_config_int(c, key), lvni_core_config_origin(c, key));
}

/* Of ranks that are processes the first one reports what all of them read. */
static bool is_other_rank(void)
{
    const lvni_launch_rank_info_options o = {.launcher = true};
    lvni_core_notices notices = {0};
    lvni_launch_rank_info info;
    const bool known =
        lvni_launch_rank_info_detect(lvni_run_environment(), &o, &notices, &info) == LVN_OK;
    const bool other = known && info.rank > 0;
    if (known) {
        lvni_launch_rank_info_free(&info);
    } else {
        lvn_clear_error(); /* the start itself reports it */
    }
    lvni_core_notices_free(&notices);
    return other;
}

static lvn_status load_all(lvni_core_config *c, const lvni_run_defaults *of, int n,
                           const char *const *args)
{
    LVN_TRY(lvni_core_config_load_job(c, of->job));
    LVN_TRY(lvni_core_config_load_arguments(c, n, args));
    LVN_TRY(check_resume_epoch(c));
    LVN_TRY(of->prepare != NULL ? of->prepare(c) : LVN_OK);
    LVN_TRY(lvni_core_config_check(c));
    if (lvni_core_config_has(c, "resume")) {
        LVN_TRY(load_saved(c));
    }
    LVN_TRY(lvni_core_config_finish(c));
    LVN_TRY(lvni_run_resolve_monitors(c));
    LVN_TRY(lvni_core_config_has(c, "logger") ? leave_out_saved_programs(c) : LVN_OK);
    LVN_TRY(check_needs(c));
    if (!is_other_rank()) {
        lvni_run_report_notes(c);
    }
    LVN_TRY(lvni_core_config_has(c, "max_time") ? lvni_run_resolve_end(c) : LVN_OK);
    LVN_TRY(lvni_core_config_has(c, "fast_dev_run") ? lvni_run_resolve_dev_run(c) : LVN_OK);
    return lvni_core_config_has(c, "accelerator") ? lvni_run_accelerator_resolve(c) : LVN_OK;
}

lvn_status lvni_run_read_config(lvni_core_option_list tables, const char *help,
                                const lvni_run_defaults *of, int n, const char *const *args,
                                lvni_core_config **out)
{
    *out = NULL;
    lvni_core_config *c;
    LVN_TRY(lvni_core_config_create(tables, &c));
    lvni_core_config_set_help(c, help);
    lvni_core_config_collect(c);
    const lvn_status s = load_all(c, of, n, args);
    if (s != LVN_OK) {
        lvni_core_config_destroy(c);
        return s;
    }
    *out = c;
    return LVN_OK;
}
