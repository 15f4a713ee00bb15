/* Rows of the batch plan, and how they become what plan/ takes. Those of the optimizer:
 * optim_options.c. */
#include "run/options.h"

#include "core/str.h"
#include "kernels/kernels.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "trainer/scaler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_BATCH = 32 }; /* samples, where neither of the two keys is given */

/* Counts that the batch plan keeps in an int. */
#define A_COUNT LVNI_BETWEEN(1, 2147483647)

static lvn_status check_pins(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    for (size_t i = 0; i < value->n; i++) {
        if (lvni_core_pin_entries_read(NULL, value->strings[i]) != LVN_OK) {
            return lvni_core_option_fail(row, value, origin,
                                         "expected backend.name=value, of "
                                         "letters, digits and . _ - + : / on both sides");
        }
    }
    return LVN_OK;
}

/* A whole number at *at, which moves behind it. */
static bool parse_count(const char **at, int64_t least, int64_t *out)
{
    const size_t digits = strspn(*at, "0123456789");
    *out = digits > 0 && digits <= 10 ? strtoll(*at, NULL, 10) : -1;
    *at += digits;
    return *out >= least && *out <= INT32_MAX;
}

/* "4", or "0:1,2:4": epochs that ascend, from each on a number of batches. Room for
 * LVNI_PLAN_FACTORS - 1; *n 0: one number, *most, which is the largest in any case. */
static bool parse_accumulation(const char *text, lvni_plan_factor *factor, int *n, int *most)
{
    int64_t epoch, count;
    *n = *most = 0;
    if (strchr(text, ':') == NULL) {
        const bool good = parse_count(&text, 1, &count) && *text == '\0';
        *most = good ? (int)count : 0;
        return good;
    }
    for (bool more = true; more; text += more) {
        if (*n == LVNI_PLAN_FACTORS - 1 || !parse_count(&text, 0, &epoch) || *text++ != ':' ||
            !parse_count(&text, 1, &count) || count > LVNI_PLAN_MAX_MICRO_BATCHES ||
            (*n > 0 && epoch <= factor[*n - 1].epoch)) {
            return false;
        }
        factor[(*n)++] = (lvni_plan_factor){.epoch = epoch, .factor = (int)count};
        *most = (int)count > *most ? (int)count : *most;
        more = *text == ',';
    }
    return *text == '\0';
}

static lvn_status check_accumulation(const lvni_core_option *row, const lvni_core_value *value,
                                     const char *origin)
{
    lvni_plan_factor factor[LVNI_PLAN_FACTORS];
    int n, most;
    return parse_accumulation(value->text, factor, &n, &most)
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected a whole number from 1 to 2147483647, or numbers "
                                       "by the epoch as in 0:1,2:4, epochs from 0 and ascending");
}

static const lvni_core_option batch_rows[] = {
    {.name = "batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_TUNED,
     .later_note = "levin tune batch-size with the same arguments finds one that fits: give its "
                   "answer, or leave the key out for the default",
     .help = "Samples over all devices before accumulation; unset: 32 unless batch_size_per_device "
             "is given."},
    {.name = "batch_size_per_device",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_RUN,
     .help = "The same, counted per device."},
    {.name = "eval_batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO,
     .help = "Chunk of evaluation and prediction."},
    {.name = "accumulate_grad_batches",
     .type = LVNI_OPT_STRING,
     .fallback = "1",
     .check = check_accumulation,
     .flags = LVNI_OPT_MAP,
     .help =
         "Batches whose gradients make one optimizer step; by the epoch, EPOCH:NUMBER,..., with "
         "epochs from 0: 0:1,2:4 is 4 from the third epoch on."},
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
    {.name = "pins",
     .type = LVNI_OPT_STRING_LIST,
     .check = check_pins,
     .help = "Choices that backends made by measuring, as backend.name=value; pins the bits of a "
             "run."},
    {.name = "autotune",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Before the first step rank 0 measures which of a GPU's algorithms are the quickest "
             "for each product and convolution of a step; all ranks compute with these, and "
             "resumed runs (pins). Without it: the first of the library's heuristic."},
    {.name = "bucket_bytes",
     .type = LVNI_OPT_INT,
     .unit = "bytes",
     .fallback = "4194304",
     .range = LVNI_BETWEEN(16384, 1099511627776),
     .flags = LVNI_OPT_LAYOUT,
     .help = "Gradients that several ranks add at once while the backward pass goes on; for speed "
             "alone."},
    {.name = "transport",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|shm|ucx|net|nccl",
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT,
     .help =
         "How ranks that are processes exchange gradients: memory that they share (shm; auto on "
         "one node), or messages over what UCX finds (ucx) or over TCP (net; auto unless there is "
         "InfiniBand or RoCE). Of several nodes: what goes between them. nccl: gradients are added "
         "between NVIDIA's GPUs, each of one rank; auto takes what the rest goes over."},
    {.name = "lanes",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 64),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_LAYOUT,
     .help = "Micro-batches that run at once; for speed alone."},
    {.name = "cuda_graph",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|on|off",
     .fallback = "auto",
     .flags = LVNI_OPT_LAYOUT,
     .help = "The step of a device is captured once and replayed; same bits. auto: where it works, "
             "except for models of users; on: an error names what cannot be captured."},
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
    {.name = "steps_per_epoch",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .range = A_COUNT,
     .help = "Steps of an epoch, where it is not one pass through the training set: pass follows "
             "pass, and every step is full."},
    LVNI_OPTION_ALIAS("sync_bn", "sync_batchnorm"),
    LVNI_OPTION_ALIAS("shards",
                      "micro_batches"), /* its earlier name: old checkpoints and scripts */
    LVNI_OPTION_ALIAS("accumulate_grad_batch", "accumulate_grad_batches"),
};
const lvni_core_option_table lvni_run_batch_options = LVNI_OPTION_TABLE("batch plan", batch_rows);

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

lvn_status lvni_run_check_precision(const lvni_core_config *c)
{
    const char *precision = lvni_core_config_str(c, "precision");
    const char *on = lvni_core_config_str(c, "accelerator");
    const bool of_cpu = strcmp(on, "cpu") == 0 || strcmp(on, "sim") == 0;
    if (lvni_trainer_precision_low(lvni_trainer_precision_of(precision)) == LVN_BF16 && of_cpu &&
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
    lvni_plan_factor factor[LVNI_PLAN_FACTORS];
    int n, most;
    (void)parse_accumulation(lvni_core_config_str(c, "accumulate_grad_batches"), factor, &n, &most);
    return kept ? lvni_core_config_int(c, "batch_size") * most : 0;
}

/* Devices of one node that work together as one see all of the node; batch norm keeps to a round of
 * the devices. */
static bool syncs_all(const lvni_core_config *c)
{
    const char *strategy = lvni_core_config_str(c, "strategy");
    return !lvni_core_config_bool(c, "sync_batchnorm") &&
           (strcmp(strategy, "dp") == 0 || strcmp(strategy, "ddp2") == 0);
}

lvni_core_pins lvni_run_read_pins(const lvni_core_config *c)
{
    lvni_core_pins pins = {0};
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        *lvni_core_pins_at(&pins, i) = (int)or_zero(c, lvni_core_pin_table[i].key);
    }
    return pins;
}

/* factor: room for LVNI_PLAN_FACTORS, as long as the options */
static lvni_plan_options plan_options(const lvni_core_config *c, const lvni_run_plan_data *data,
                                      const lvni_run_rank *rank, bool coupled,
                                      lvni_plan_factor *factor)
{
    int n_factors, most;
    (void)parse_accumulation(lvni_core_config_str(c, "accumulate_grad_batches"), factor, &n_factors,
                             &most);
    const bool no_batch = !lvni_core_config_is_set(c, "batch_size") &&
                          !lvni_core_config_is_set(c, "batch_size_per_device");
    const lvni_run_limit limit = lvni_run_read_limit(c, "limit_train_batches");
    return (lvni_plan_options){.n_samples = data->n_samples,
                               .limit_batches = limit.batches,
                               .limit_part = limit.part,
                               .stream = data->stream,
                               .n_streams = data->n_streams,
                               .steps_per_epoch = or_zero(c, "steps_per_epoch"),
                               .max_steps = lvni_core_config_int(c, "max_steps"),
                               .effective_batch = kept_batch(c),
                               .batch_size = no_batch ? USUAL_BATCH : or_zero(c, "batch_size"),
                               .batch_size_per_device = or_zero(c, "batch_size_per_device"),
                               .accumulate_grad_batches = most,
                               .factor = factor,
                               .n_factors = n_factors,
                               .devices = rank->world,
                               .rank = rank->rank,
                               .bounds = rank->bounds,
                               .staged = lvni_run_is_staged(c),
                               .micro_batches = (int)or_zero(c, "micro_batches"),
                               .group = (int)or_zero(c, "group"),
                               .pins = lvni_run_read_pins(c),
                               .lanes = (int)or_zero(c, "lanes"),
                               .cores = rank->cores,
                               .cores_all = rank->cores_all,
                               .eval_batch_size = or_zero(c, "eval_batch_size"),
                               .drop_last = lvni_core_config_bool(c, "drop_last"),
                               .coupled = coupled,
                               .group_all = syncs_all(c),
                               .group_nodes = rank->nodes};
}

/* What models of users do on the host in a step is not known. */
lvni_trainer_graph_mode lvni_run_read_graph(const lvni_core_config *c, bool own)
{
    const lvni_trainer_graph_mode mode =
        lvni_trainer_graph_mode_of(lvni_core_config_str(c, "cuda_graph"));
    return mode == LVNI_GRAPH_AUTO && !own ? LVNI_GRAPH_OFF : mode;
}

/* More samples than any effective batch, so that all that depends on their number fits. */
lvn_status lvni_run_check_plan(const lvni_core_config *c, const lvni_run_rank *rank)
{
    lvni_plan plan;
    const lvni_run_plan_data most = {.n_samples = UINT32_MAX};
    lvni_plan_factor factor[LVNI_PLAN_FACTORS];
    const lvni_plan_options o = plan_options(c, &most, rank, false, factor);
    return lvni_plan_make(&o, &plan);
}

lvn_status lvni_run_count_steps(lvni_core_config *c, int64_t samples, const lvni_run_rank *rank,
                                lvni_plan *plan, int64_t *steps)
{
    lvni_run_rank estimate;
    lvni_plan_factor factor[LVNI_PLAN_FACTORS];
    const lvni_run_plan_data data = {.n_samples = samples};
    if (rank == NULL) {
        LVN_TRY(lvni_run_ranks_estimate(c, &estimate));
    }
    const lvni_plan_options o =
        plan_options(c, &data, rank == NULL ? &estimate : rank, false, factor);
    LVN_TRY(lvni_plan_make(&o, plan));
    *steps = lvni_run_horizon(c, plan);
    return LVN_OK;
}

/* Keys that count with the steps of every epoch. */
static lvn_status check_even_epochs(const lvni_core_config *c)
{
    const char *accumulation = lvni_core_config_str(c, "accumulate_grad_batches");
    size_t n;
    static const char *const keys[] = {"freeze_until", "lr_zero_until"};
    for (int k = 0; k < 2; k++) {
        const char *const *until = lvni_core_config_str_list(c, keys[k], &n);
        for (size_t i = 0; i < n; i++) {
            const char *value = strrchr(until[i], '=');
            if (value != NULL && strstr(value, "epoch") != NULL) {
                LVN_FAIL(LVN_ERR_USAGE,
                         "%s=%s counts epochs, which have different numbers of steps with "
                         "accumulate_grad_batches=%s: give steps",
                         keys[k], until[i], accumulation);
            }
        }
    }
    const char *interval = lvni_core_config_str(c, "val_check_interval");
    if (strcmp(interval, "1.0") != 0 && strpbrk(interval, ":smhd") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "val_check_interval=%s is counted in steps of an epoch, and "
                 "accumulate_grad_batches=%s makes epochs with different numbers of them: leave "
                 "one of the two out",
                 interval, accumulation);
    }
    return LVN_OK;
}

lvn_status lvni_run_make_plan(lvni_core_config *c, const lvni_run_plan_data *data,
                              const lvni_run_rank *rank, bool coupled, lvni_plan *out)
{
    lvni_plan_factor factor[LVNI_PLAN_FACTORS];
    const lvni_plan_options o = plan_options(c, data, rank, coupled, factor);
    size_t n;
    const char *const *pins = lvni_core_config_str_list(c, "pins", &n);
    for (size_t i = 0; i < n; i++) {
        LVN_TRY(lvni_core_pin_entries_read(rank->pins, pins[i]));
    }
    LVN_TRY(lvni_plan_make(&o, out));
    LVN_TRY(out->n_factors > 1 ? check_even_epochs(c) : LVN_OK);
    out->pins.entries = rank->pins;
    LVN_TRY(resolve(c, "batch_size", out->effective_batch / out->accumulate));
    LVN_TRY(resolve(c, "micro_batches", out->micro_batches));
    LVN_TRY(resolve(c, "group", out->group));
    /* of max_steps, which may be another when the run is resumed */
    LVN_TRY(data->n_samples == LVNI_PLAN_ENDLESS
                ? resolve(c, "steps_per_epoch", out->steps_per_epoch)
                : LVN_OK);
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        LVN_TRY(resolve(c, lvni_core_pin_table[i].key, lvni_core_pins_get(&out->pins, i)));
    }
    return resolve(c, "eval_batch_size", out->eval_batch_size);
}

int lvni_run_sharded_stage(const lvni_core_config *c)
{
    const bool sharded = strcmp(lvni_core_config_str(c, "strategy"), "sharded") == 0;
    return !sharded ? 0 : strcmp(lvni_core_config_str(c, "sharded_stage"), "1") == 0 ? 1 : 2;
}

/* ---- notes ---- */

/* On the screen once: a rank whose launcher read the same arguments keeps it in its file. */
static void report_note(const char *text)
{
    const bool shown = lvni_launch_env_get(lvni_run_environment(), "LEVIN_NOTES_SHOWN") != NULL;
    (shown ? lvni_log_file_line : lvni_log_line)(LVNI_LOG_INFO, "%s", text);
}

/* Lightning's scripts count a batch per device, and batch_size here is of all. */
static void report_batch(const lvni_core_config *c)
{
    char text[256];
    const lvni_core_layer layer = lvni_core_config_layer(c, "batch_size");
    const char *spelled = lvni_core_config_spelled(c, "devices"),
               *devices = lvni_core_config_str(c, "devices");
    const bool nodes = lvni_core_config_layer(c, "num_nodes") != LVNI_LAYER_DEFAULT &&
                       lvni_core_config_int(c, "num_nodes") > 1,
               gpus = strcmp(spelled, "devices") != 0 && devices != NULL &&
                      strcmp(devices, "0") != 0 && strcmp(devices, "1") != 0;
    if (lvni_core_config_has(c, "training.num_gpus")) {
        return; /* Lightning Pose counts the batch of all devices */
    }
    if ((layer == LVNI_LAYER_FILE || layer == LVNI_LAYER_ARGUMENTS) && (nodes || gpus) &&
        lvni_core_config_is_set(c, "batch_size")) {
        snprintf(text, sizeof text,
                 "note: batch_size=%lld is of all devices together; a batch per device, as "
                 "Lightning's loaders count, is batch_size_per_device=%lld",
                 (long long)lvni_core_config_int(c, "batch_size"),
                 (long long)lvni_core_config_int(c, "batch_size"));
        report_note(text);
    }
}

/* A recipe of before a key of levin's has that key, so what it was started with goes on. */
static void report_moved(const lvni_core_config *c)
{
    for (size_t i = 0; i < lvni_run_options.n; i++) {
        const char *name = lvni_run_options.rows[i].name, *moved = lvni_run_key_name(c, name);
        if (moved != name) {
            char text[160];
            snprintf(text, sizeof text,
                     "note: the key %s is the recipe's own; levin's of that name is %s here", name,
                     moved);
            report_note(text);
        }
    }
}

/* Keys of other trainers that have no effect here. */
void lvni_run_report_notes(const lvni_core_config *c)
{
    for (const char *line = lvni_core_config_notes(c); *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        lvni_core_str one = {0};
        lvni_core_str_printf(&one, "%.*s", (int)n, line);
        report_note(lvni_core_str_text(&one));
        lvni_core_str_free(&one);
        line += n + (line[n] == '\n' ? 1 : 0);
    }
    report_moved(c);
    if (lvni_core_config_has(c, "batch_size") && lvni_core_config_has(c, "devices") &&
        lvni_core_config_has(c, "num_nodes") && !lvni_core_config_has(c, "num_z_train")) {
        report_batch(c); /* files of gan count per device */
    }
}
