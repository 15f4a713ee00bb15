/* The rows of the keys that do not depend on the recipe. Names are those of today's Lightning
 * trainer. */
#include "recipes/train_options.h"

#include "kernels/kernels.h"
#include "trainer/scaler.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { USUAL_BATCH = 32 }; /* samples, where neither of the two keys is given */

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

/* Counts that the batch plan keeps in an int. */
#define A_COUNT LVNI_BETWEEN(1, 2147483647)

static const lvni_core_option run_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys; the command line wins.",
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
    {.name = "weights",
     .type = LVNI_OPT_PATH,
     .help = "Start from the weights of a safetensors file with the names of torchvision or timm, "
             "an exported model, a checkpoint, a run directory (its last checkpoint), or a folder "
             "with model.safetensors."},
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
     .check = check_limit,
     .help = "Passes over the training set; -1: no limit."},
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
     .choices = "stop|skip",
     .fallback = "stop",
     .help = "What an unreadable sample does: stop the run, or be omitted and counted."},
    {.name = "precision",
     .type = LVNI_OPT_CHOICE,
     .choices = "32-true|bf16-mixed|16-mixed|bf16-true",
     .fallback = "32-true",
     .spellings = "32=32-true|bf16=bf16-mixed|16=16-mixed",
     .help = "Number format of products and activations; weights and sums stay f32, except "
             "under bf16-true, where weights are bf16 numbers, too. 16-mixed "
             "scales the loss."},
    {.name = "accelerator",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|cpu|gpu|sim",
     .fallback = "auto",
     .spellings = "cuda=gpu",
     .help = "Kind of device; auto: cpu, as this build has no GPU backend yet; sim: a pretend "
             "accelerator, which LEVIN_SIM_DEVICES=1 and "
             "LEVIN_SIM_MEMORY=2GiB in the environment make."},
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT,
     .help = "How many devices, or which (2, [0,2], -1: all); auto: all that this process may use, "
             "on the CPU one."},
    {.name = "allow_shared_device",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_LAYOUT,
     .help = "Ranks may share a device: one may stand in the list twice ([0,0])."},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|single|dp|ddp|ddp2|sharded|balance",
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT,
     .spellings = "none=single",
     .later = "sharded|balance",
     .later_note = "strategy=sharded and strategy=balance come with a later version; use ddp or dp",
     .help = "How devices share the work: ddp (a process each, the default), dp (threads of one "
             "process); ddp2 is dp on each node."},
    {.name = "peer_timeout_s",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "10",
     .range = LVNI_AT_LEAST(0.5),
     .flags = LVNI_OPT_LAYOUT,
     .help = "A rank that is not heard of for so long counts as lost."},
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
     .flags = LVNI_OPT_LATER,
     .later_note = "several nodes come with a later version (num_nodes=1)",
     .help = "Machines in the run."},
    {.name = "deterministic",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .flags = LVNI_OPT_LATER,
     .later_note = "the CPU has no faster way that would give up sameness (deterministic=true)",
     .help = "The same bits on every layout."},
    {.name = "checkpoint.every_n_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Save checkpoints/last also every so many steps; 0: after each epoch and at the end."},
    {.name = "log_every_n_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "10",
     .range = LVNI_AT_LEAST(1),
     .help = "Distance of the lines in metrics.jsonl; an epoch's last step is always logged."},
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
const lvni_core_option_table lvni_recipes_run_options = LVNI_OPTION_TABLE("run", run_rows);

static const lvni_core_option batch_rows[] = {
    {.name = "batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO,
     .help = "Samples over all devices before accumulation; auto: 32 unless batch_size_per_device "
             "is given."},
    {.name = "batch_size_per_device",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO,
     .help = "The same, counted per device."},
    {.name = "eval_batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO,
     .help = "Chunk of evaluation and prediction."},
    {.name = "accumulate_grad_batches",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = A_COUNT,
     .help = "Batches whose gradients make one optimizer step."},
    {.name = "micro_batches",
     .type = LVNI_OPT_INT,
     .range = A_COUNT,
     .flags = LVNI_OPT_AUTO,
     .help = "Parts of an effective batch: the unit of forward, backward and batch norm; pins the "
             "bits of a run."},
    {.name = "group",
     .type = LVNI_OPT_INT,
     .range = A_COUNT,
     .flags = LVNI_OPT_AUTO,
     .help = "Consecutive micro-batches that may see each other's values; pins the bits of a run."},
    {.name = "wgrad_threads",
     .type = LVNI_OPT_INT,
     .unit = "threads",
     .range = LVNI_BETWEEN(1, 16),
     .flags = LVNI_OPT_AUTO,
     .help = "Virtual team of the kernels whose sums depend on it; pins the bits of a run."},
    {.name = "bucket_bytes",
     .type = LVNI_OPT_INT,
     .unit = "bytes",
     .fallback = "4194304",
     .range = LVNI_BETWEEN(16384, 1099511627776),
     .flags = LVNI_OPT_LAYOUT,
     .help = "Gradients that several ranks add at once while the backward pass goes on; for speed "
             "alone."},
    {.name = "lanes",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 64),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_LAYOUT,
     .help = "Micro-batches that run at once; for speed alone."},
    {.name = "sync_batchnorm",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help =
         "Batch norm over the samples of a whole group of micro-batches (group) instead of each "
         "micro-batch's own."},
    {.name = "drop_last",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Leave out the short last step of an epoch."},
    LVNI_OPTION_ALIAS("sync_bn", "sync_batchnorm"),
    LVNI_OPTION_ALIAS("shards",
                      "micro_batches"), /* its earlier name: old checkpoints and scripts */
    LVNI_OPTION_ALIAS("accumulate_grad_batch", "accumulate_grad_batches"),
};
const lvni_core_option_table lvni_recipes_batch_options =
    LVNI_OPTION_TABLE("batch plan", batch_rows);

int lvni_recipes_usable_cores(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

static int64_t or_zero(const lvni_core_config *c, const char *name)
{
    return lvni_core_config_is_set(c, name) ? lvni_core_config_int(c, name) : 0;
}

static lvn_status resolve(lvni_core_config *c, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return lvni_core_config_is_set(c, name)
               ? LVN_OK
               : lvni_core_config_set(c, name, text, "resolved at start");
}

lvn_status lvni_recipes_check_precision(const lvni_core_config *c)
{
    const char *precision = lvni_core_config_str(c, "precision");
    if (lvni_trainer_precision_low(lvni_trainer_precision_of(precision)) == LVN_BF16 &&
        !lvni_cpu_has_bf16()) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "precision=%s: this CPU (%s) has no bf16 products; use precision=32-true",
                 precision, lvni_cpu_describe());
    }
    return LVN_OK;
}

/* A resumed run keeps its effective batch whatever the number of devices: batch_size is written
 * back at the first start. */
static int64_t kept_batch(const lvni_core_config *c)
{
    const bool kept = lvni_core_config_bool(c, "resume") &&
                      lvni_core_config_is_set(c, "batch_size") &&
                      lvni_core_config_is_set(c, "batch_size_per_device") &&
                      lvni_core_config_layer(c, "batch_size_per_device") == LVNI_LAYER_SAVED;
    return kept ? lvni_core_config_int(c, "batch_size") *
                      lvni_core_config_int(c, "accumulate_grad_batches")
                : 0;
}

/* Devices of one node that work together as one see all of the node; batch norm keeps to a round of
 * the devices. */
static bool syncs_all(const lvni_core_config *c)
{
    const char *strategy = lvni_core_config_str(c, "strategy");
    return !lvni_core_config_bool(c, "sync_batchnorm") &&
           (strcmp(strategy, "dp") == 0 || strcmp(strategy, "ddp2") == 0);
}

static lvni_plan_options plan_options(const lvni_core_config *c, int64_t n_samples,
                                      const lvni_recipes_rank *rank, bool coupled)
{
    const bool no_batch = !lvni_core_config_is_set(c, "batch_size") &&
                          !lvni_core_config_is_set(c, "batch_size_per_device");
    return (lvni_plan_options){.n_samples = n_samples,
                               .effective_batch = kept_batch(c),
                               .batch_size = no_batch ? USUAL_BATCH : or_zero(c, "batch_size"),
                               .batch_size_per_device = or_zero(c, "batch_size_per_device"),
                               .accumulate_grad_batches =
                                   (int)lvni_core_config_int(c, "accumulate_grad_batches"),
                               .devices = rank->world,
                               .rank = rank->rank,
                               .micro_batches = (int)or_zero(c, "micro_batches"),
                               .group = (int)or_zero(c, "group"),
                               .wgrad_threads = (int)or_zero(c, "wgrad_threads"),
                               .lanes = (int)or_zero(c, "lanes"),
                               .cores = rank->cores,
                               .cores_all = rank->cores_all,
                               .eval_batch_size = or_zero(c, "eval_batch_size"),
                               .drop_last = lvni_core_config_bool(c, "drop_last"),
                               .coupled = coupled,
                               .group_all = syncs_all(c)};
}

/* More samples than any effective batch, so that all that depends on their number fits. */
lvn_status lvni_recipes_check_plan(const lvni_core_config *c, const lvni_recipes_rank *rank)
{
    lvni_plan plan;
    const lvni_plan_options o = plan_options(c, UINT32_MAX, rank, false);
    return lvni_plan_make(&o, &plan);
}

lvn_status lvni_recipes_make_plan(lvni_core_config *c, int64_t n_samples,
                                  const lvni_recipes_rank *rank, bool coupled, lvni_plan *out)
{
    const lvni_plan_options o = plan_options(c, n_samples, rank, coupled);
    LVN_TRY(lvni_plan_make(&o, out));
    LVN_TRY(resolve(c, "batch_size", out->effective_batch / out->accumulate));
    LVN_TRY(resolve(c, "micro_batches", out->micro_batches));
    LVN_TRY(resolve(c, "group", out->group));
    LVN_TRY(resolve(c, "wgrad_threads", out->wgrad_threads));
    return resolve(c, "eval_batch_size", out->eval_batch_size);
}
