/* Rows of the optimizer, its schedule, parameter groups and averages, and how they become what
 * optim/ takes; what the keys of schedules become: schedule_options.c. */
#include "run/options.h"

#include "core/str.h"

#include <stdlib.h>
#include <string.h>

static lvn_status check_milestones(const lvni_core_option *row, const lvni_core_value *value,
                                   const char *origin)
{
    if (value->n > LVNI_MILESTONES) {
        return lvni_core_option_fail(row, value, origin, "expected at most %d",
                                     (int)LVNI_MILESTONES);
    }
    for (size_t i = 1; i < value->n; i++) {
        if (value->ints[i] <= value->ints[i - 1]) {
            return lvni_core_option_fail(row, value, origin, "expected numbers in ascending order");
        }
    }
    return LVN_OK;
}

static const lvni_core_option optim_rows[] = {
    {.name = "optim.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "sgd|adam|adamw|lars|rmsprop|lion|lamb|adafactor",
     .fallback = "adamw",
     .flags = LVNI_OPT_AUTO_DEFAULT,
     .help = "Optimizer; auto: the default; lars (of those with weight decay) and lamb give every "
             "tensor a rate of its "
             "own, for large batches; the state of adafactor is a row and a column of each "
             "matrix."},
    LVNI_OPTION_ALIAS("optim", "optim.name"),
    LVNI_OPTION_ALIAS("lr", "optim.lr"),
    LVNI_OPTION_ALIAS("learning_rate", "optim.lr"),
    LVNI_OPTION_ALIAS("weight_decay", "optim.weight_decay"),
    {.name = "optim.lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.001",
     .range = LVNI_AT_LEAST(0),
     .help = "Learning rate (adafactor: 0.01 unless given, of the root mean square of a tensor)."},
    {.name = "optim.reference_batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_YIELDS,
     .help = "optim.lr is for steps of so many samples: of others it is multiplied by their ratio "
             "(optim.lr_scale_method). Unset: it does not depend on the batch."},
    {.name = "optim.lr_scale_method",
     .type = LVNI_OPT_CHOICE,
     .choices = "linear|sqrt",
     .fallback = "linear",
     .needs = "optim.reference_batch_size",
     .flags = LVNI_OPT_YIELDS,
     .help = "The learning rate is multiplied by samples of a step over "
             "optim.reference_batch_size, or by the square root of that."},
    {.name = "optim.momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.9",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .needs = "optim.name=sgd|lars|rmsprop",
     .help = "Momentum (sgd, lars, rmsprop); rmsprop has none unless it is given."},
    {.name = "optim.dampening",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .needs = "optim.name=sgd|lars&optim.momentum",
     .help = "Part of the gradient that the momentum leaves out (sgd, lars)."},
    {.name = "optim.nesterov",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Nesterov's momentum (sgd, lars)."},
    {.name = "optim.trust_coefficient",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.001",
     .range = LVNI_ABOVE(0),
     .needs = "optim.name=lars&optim.weight_decay",
     .help = "Step of a tensor with weight decay as a part of its norm, before optim.lr (lars)."},
    {.name = "optim.weight_decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.01",
     .range = LVNI_AT_LEAST(0),
     .help =
         "Weight decay; decoupled for adamw, lion, lamb and adafactor, part of the gradient for "
         "the others."},
    {.name = "optim.weight_decay_end",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_ON_IF_GIVEN,
     .help =
         "Weight decay at the end of the run, on the way of optim.weight_decay_schedule; 0, too. "
         "Not given: it does not move."},
    {.name = "optim.weight_decay_schedule",
     .type = LVNI_OPT_CHOICE,
     .choices = "cosine|linear",
     .fallback = "cosine",
     .needs = "optim.weight_decay_end",
     .help = "How weight decay goes from optim.weight_decay to optim.weight_decay_end."},
    {.name = "optim.decay_norm_bias",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .needs = "optim.weight_decay",
     .help = "false: no weight decay for parameters of one axis, that is biases and norms."},
    {.name = "optim.decay_of",
     .type = LVNI_OPT_CHOICE,
     .choices = "all|matrices|weights|not_norm_bias|not_norm_bias_scale",
     .flags = LVNI_OPT_AUTO,
     .needs = "optim.weight_decay",
     .help =
         "Parameters with weight decay: all; matrices: of several axes; weights: of these not "
         "biases, norms, tokens, position embeddings and layer scales either; not_norm_bias: "
         "all but those of norms and names that end in bias; not_norm_bias_scale: and not layer "
         "scales. auto: by optim.decay_norm_bias."},
    {.name = "freeze",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Parameters that are not trained, as patterns over names: [conv1,layer1.*.bias]; "
             "backbone: all but the last layer. Running statistics are still updated."},
    {.name = "freeze_until",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Parameters that are not trained at first, as PATTERN=STEPS or PATTERN=NUMBERepochs: "
             "[backbone=5epochs]."},
    {.name = "lr_zero_until",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Parameters whose learning rate and weight decay are 0 at first, while momentum and "
             "moments follow their gradients, as PATTERN=STEPS or PATTERN=NUMBERepochs: "
             "[head.last=1250]. With :PART:GROWTH behind it the rate is then PART of the run's and "
             "grows by this factor with each step or epoch, up to the run's: "
             "[backbone=20epochs:0.1:1.5]."},
    {.name = "optim.groups",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Groups with numbers of their own, as PATTERN:KEY=NUMBER with the keys lr, "
             "weight_decay, momentum, beta1 and beta2: [head:lr=0.01:weight_decay=0]."},
    {.name = "optim.phases",
     .type = LVNI_OPT_STRING_LIST,
     .help = "What phases of a step have of their own, as PHASE:KEY=VALUE with the keys lr, clip, "
             "scheduler, every, optimizer, beta1, beta2, momentum, eps and other numbers of "
             "optim.*: [critic:optimizer=adam:beta1=0,generator:every=5]."},
    {.name = "optim.layer_decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = {.used = true, .above = true, .min = 0, .max = 1},
     .help = "Factor on the learning rate for each block of the network behind a parameter's."},
    {.name = "lr_scale",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Factors on optim.lr, as PATTERN=FACTOR: [head=10,layer1.*=0.1]; the last that "
             "matches a parameter counts."},
    {.name = "optim.betas",
     .type = LVNI_OPT_FLOAT_LIST,
     .fallback = "[0.9,0.999]",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .count = 2,
     .needs = "optim.name=adam|adamw|lion|lamb",
     .help = "Decay of the first and second moment (adam, adamw, lamb); of the gradient in the "
             "step's sign "
             "and in the average (lion: [0.9,0.99] unless given)."},
    {.name = "optim.eps",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1e-8",
     .range = LVNI_ABOVE(0),
     .needs = "optim.name=adam|adamw|lars|rmsprop|lamb|adafactor",
     .help = "Added to the denominator (adam, adamw, lars, rmsprop; lamb: 1e-6 unless given); the "
             "least denominator (adafactor: 2^-23 unless given)."},
    {.name = "optim.eps2",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.001",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "optim.name=adafactor",
     .help = "Least root mean square of a tensor that its step is measured by (adafactor)."},
    {.name = "optim.beta2_decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "-0.8",
     .range = LVNI_BETWEEN(-1, 0),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "optim.name=adafactor",
     .help = "Update t goes t to this power of the way from the average of squares to the new ones "
             "(adafactor)."},
    {.name = "optim.d",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(1),
     .needs = "optim.name=adafactor",
     .help = "Largest root mean square of a tensor's step before the rate (adafactor)."},
    {.name = "optim.alpha",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.99",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .needs = "optim.name=rmsprop",
     .help = "Decay of the averages of gradients (rmsprop)."},
    {.name = "optim.centered",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .needs = "optim.name=rmsprop",
     .help = "Divide by the deviation of gradients from their average (rmsprop)."},
    {.name = "gradient_clip_val",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Largest 2-norm of a step's gradient, or with gradient_clip_algorithm=value largest "
             "absolute value of an element of it; 0: no clipping."},
    {.name = "gradient_clip_algorithm",
     .type = LVNI_OPT_CHOICE,
     .choices = "norm|value",
     .fallback = "norm",
     .needs = "gradient_clip_val|optim.phases",
     .help = "norm: all of the gradient is scaled; value: each element is clamped."},
    {.name = "scheduler.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "constant|step|multistep|cosine|linear|exponential|polynomial|restarts|onecycle|"
                "plateau",
     .fallback = "constant",
     .spellings = "false=constant|off=constant|no=constant",
     .help =
         "How the learning rate changes; cosine, linear, polynomial: to scheduler.end_factor at "
         "the end of the run."},
    LVNI_OPTION_ALIAS("scheduler", "scheduler.name"),
    {.name = "scheduler.warmup_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO,
     .help = "Steps in which the learning rate rises to optim.lr; auto: a tenth of the run's, and "
             "of max_epochs at most 10."},
    {.name = "scheduler.warmup_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 2147483647),
     .help = "The same in epochs; one of the two may be given."},
    {.name = "scheduler.interval",
     .type = LVNI_OPT_CHOICE,
     .choices = "epoch|step",
     .fallback = "epoch",
     .needs = "scheduler.name=step|multistep|exponential|restarts",
     .help = "What scheduler.step_size, scheduler.milestones and scheduler.period count, and "
             "exponential falls with."},
    {.name = "scheduler.step_size",
     .type = LVNI_OPT_INT,
     .fallback = "30",
     .range = LVNI_BETWEEN(1, 2147483647),
     .needs = "scheduler.name=step",
     .help = "Distance of the falls of the learning rate (step)."},
    {.name = "scheduler.milestones",
     .type = LVNI_OPT_INT_LIST,
     .range = LVNI_BETWEEN(1, 2147483647),
     .check = check_milestones,
     .needs = "scheduler.name=multistep",
     .help = "Where the learning rate falls (multistep): [30,60,80]."},
    {.name = "scheduler.gamma",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_ABOVE(0),
     .needs = "scheduler.name=step|multistep|exponential",
     .help = "Factor of each fall (step, multistep, exponential)."},
    {.name = "scheduler.end_factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .needs = "scheduler.name=cosine|linear|polynomial|restarts",
     .help = "Learning rate at the end of the run, or of a period, as a part of optim.lr (cosine, "
             "linear, polynomial, restarts)."},
    {.name = "scheduler.power",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_ABOVE(0),
     .needs = "scheduler.name=polynomial",
     .help = "Power of the part of the run that is left (polynomial)."},
    {.name = "scheduler.period",
     .type = LVNI_OPT_INT,
     .fallback = "10",
     .range = LVNI_BETWEEN(1, 2147483647),
     .needs = "scheduler.name=restarts",
     .help = "Length of the first period (restarts)."},
    {.name = "scheduler.period_factor",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1, 1000),
     .needs = "scheduler.name=restarts",
     .help = "Length of a period by that of the one before (restarts)."},
    {.name = "scheduler.pct_start",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.3",
     .range = LVNI_BETWEEN(0, 1),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "scheduler.name=onecycle",
     .help = "Part of the run in which the learning rate rises to optim.lr (onecycle)."},
    {.name = "scheduler.anneal",
     .type = LVNI_OPT_CHOICE,
     .choices = "cos|linear",
     .fallback = "cos",
     .needs = "scheduler.name=onecycle",
     .help = "How it rises and falls (onecycle)."},
    {.name = "scheduler.div_factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "25",
     .range = LVNI_AT_LEAST(1),
     .needs = "scheduler.name=onecycle",
     .help = "The run begins with optim.lr divided by this (onecycle)."},
    {.name = "scheduler.final_div_factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "10000",
     .range = LVNI_AT_LEAST(1),
     .needs = "scheduler.name=onecycle",
     .help = "It ends with the learning rate of its beginning divided by this (onecycle)."},
    {.name = "scheduler.three_phase",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .needs = "scheduler.name=onecycle",
     .help = "It falls as it rose, and then on (onecycle)."},
    {.name = "scheduler.cycle_momentum",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "scheduler.name=onecycle",
     .help = "optim.momentum, or the first of optim.betas, moves against the learning rate "
             "(onecycle)."},
    {.name = "scheduler.base_momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.85",
     .range = {.used = true, .above = true, .below = true, .min = 0, .max = 1},
     .needs = "scheduler.name=onecycle&scheduler.cycle_momentum",
     .help = "The least momentum (onecycle)."},
    {.name = "scheduler.max_momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.95",
     .range = {.used = true, .above = true, .below = true, .min = 0, .max = 1},
     .needs = "scheduler.name=onecycle&scheduler.cycle_momentum",
     .help = "The largest momentum (onecycle)."},
    {.name = "scheduler.monitor",
     .type = LVNI_OPT_STRING,
     .fallback = "val/loss",
     .needs = "scheduler.name=plateau",
     .help =
         "Metric of an epoch that the learning rate follows: val/NAME or train/NAME (plateau)."},
    {.name = "scheduler.mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|min|max",
     .fallback = "auto",
     .needs = "scheduler.name=plateau",
     .help =
         "What is better, less or more; auto: more of val/acc and other accuracies (acc, accuracy, "
         "f1, auc, psnr, ssim), less of all else (plateau)."},
    {.name = "scheduler.factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "scheduler.name=plateau",
     .help = "Factor of each fall (plateau)."},
    {.name = "scheduler.patience",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "10",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "scheduler.name=plateau",
     .help = "Epochs without improvement that pass before the learning rate falls (plateau)."},
    {.name = "scheduler.threshold",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.0001",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "scheduler.name=plateau",
     .help = "What an improvement is at least (plateau)."},
    {.name = "scheduler.threshold_mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "rel|abs",
     .fallback = "rel",
     .needs = "scheduler.name=plateau",
     .help = "scheduler.threshold is a part of the best value, or a difference (plateau)."},
    {.name = "scheduler.cooldown",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .needs = "scheduler.name=plateau",
     .help = "Epochs after a fall that are not counted (plateau)."},
    {.name = "scheduler.min_lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .needs = "scheduler.name=plateau",
     .help = "The least learning rate (plateau)."},
    {.name = "ema.decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .help = "Keep a moving average of weights and running statistics, which validation and "
             "exported models take; 0: none; often 0.999."},
    {.name = "ema.warmup",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .needs = "ema.decay",
     .help = "Decay after t updates is at most (1 + t) / (10 + t), so that the average follows a "
             "short run."},
    {.name = "use_ema",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .needs = "ema.decay",
     .help = "false: validation and exported models take the weights themselves."},
};
const lvni_core_option_table lvni_run_optim_table = LVNI_OPTION_TABLE("optimizer", optim_rows);

/* As the rows' choices. */
static const lvni_optim_kind optimizers[] = {LVNI_OPTIM_SGD,  LVNI_OPTIM_ADAM,     LVNI_OPTIM_ADAMW,
                                             LVNI_OPTIM_LARS, LVNI_OPTIM_RMSPROP,  LVNI_OPTIM_LION,
                                             LVNI_OPTIM_LAMB, LVNI_OPTIM_ADAFACTOR};

/* Where papers and PyTorch begin from other numbers than the rows do. */
static const struct {
    const char *optimizer, *key, *value;
} own_defaults[] = {
    {"rmsprop", "optim.momentum", "0"}, {"lion", "optim.betas", "[0.9,0.99]"},
    {"lamb", "optim.eps", "1e-6"},      {"adafactor", "optim.eps", "1.1920928955078125e-7"},
    {"adafactor", "optim.lr", "0.01"},
};

lvn_status lvni_run_resolve_optim(lvni_core_config *c)
{
    for (size_t i = 0; i < sizeof own_defaults / sizeof *own_defaults; i++) {
        const char *key = own_defaults[i].key;
        if (strcmp(lvni_core_config_str(c, "optim.name"), own_defaults[i].optimizer) == 0 &&
            lvni_core_config_layer(c, key) == LVNI_LAYER_DEFAULT) {
            LVN_TRY(lvni_core_config_set(c, key, own_defaults[i].value, "resolved at start"));
        }
    }
    return LVN_OK;
}

/* As it would be typed. */
static const char *default_of(const char *optimizer, const char *key)
{
    for (size_t i = 0; i < sizeof own_defaults / sizeof *own_defaults; i++) {
        if (strcmp(own_defaults[i].optimizer, optimizer) == 0 &&
            strcmp(own_defaults[i].key, key) == 0) {
            return own_defaults[i].value;
        }
    }
    size_t row = 0;
    while (strcmp(optim_rows[row].name, key) != 0) {
        row++;
    }
    return optim_rows[row].fallback;
}

static double default_number(const char *optimizer, const char *key)
{
    return lvni_core_strtod(default_of(optimizer, key), NULL);
}

bool lvni_run_default_optim(const char *name, size_t n, lvni_optim_options *o)
{
    size_t i = 0;
    const size_t kinds = sizeof optimizers / sizeof *optimizers;
    while (i < kinds && (strlen(lvni_optim_name(optimizers[i])) != n ||
                         memcmp(lvni_optim_name(optimizers[i]), name, n) != 0)) {
        i++;
    }
    if (i == kinds) {
        return false;
    }
    const char *full = lvni_optim_name(optimizers[i]);
    char *second;
    *o = (lvni_optim_options){.kind = optimizers[i],
                              .momentum = default_number(full, "optim.momentum"),
                              .dampening = default_number(full, "optim.dampening"),
                              .trust_coefficient = default_number(full, "optim.trust_coefficient"),
                              .beta1 =
                                  lvni_core_strtod(default_of(full, "optim.betas") + 1, &second),
                              .eps = default_number(full, "optim.eps"),
                              .alpha = default_number(full, "optim.alpha"),
                              .beta2_decay = default_number(full, "optim.beta2_decay"),
                              .eps2 = default_number(full, "optim.eps2"),
                              .d = default_number(full, "optim.d")};
    o->beta2 = lvni_core_strtod(second + 1, NULL);
    return true;
}

bool lvni_run_clips_value(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "gradient_clip_algorithm"), "value") == 0;
}

lvn_status lvni_run_read_optim(const lvni_core_config *c, lvni_optim_options *o)
{
    size_t n;
    const double *betas = lvni_core_config_float_list(c, "optim.betas", &n);
    *o = (lvni_optim_options){
        .kind = optimizers[lvni_core_config_choice(c, "optim.name")],
        .lr = lvni_core_config_float(c, "optim.lr"),
        .weight_decay = lvni_core_config_float(c, "optim.weight_decay"),
        .momentum = lvni_core_config_float(c, "optim.momentum"),
        .dampening = lvni_core_config_float(c, "optim.dampening"),
        .nesterov = lvni_core_config_bool(c, "optim.nesterov"),
        .trust_coefficient = lvni_core_config_float(c, "optim.trust_coefficient"),
        .beta1 = betas[0],
        .beta2 = betas[1],
        .eps = lvni_core_config_float(c, "optim.eps"),
        .alpha = lvni_core_config_float(c, "optim.alpha"),
        .beta2_decay = lvni_core_config_float(c, "optim.beta2_decay"),
        .eps2 = lvni_core_config_float(c, "optim.eps2"),
        .d = lvni_core_config_float(c, "optim.d"),
        .centered = lvni_core_config_bool(c, "optim.centered"),
        .clip_value =
            lvni_run_clips_value(c) ? lvni_core_config_float(c, "gradient_clip_val") : 0.0};
    const bool sgd = o->kind == LVNI_OPTIM_SGD || o->kind == LVNI_OPTIM_LARS;
    if (o->nesterov && !sgd) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.nesterov=true is for optim=sgd and optim=lars, not for optim=%s",
                 lvni_core_config_str(c, "optim.name"));
    }
    if (o->nesterov && (!(o->momentum > 0.0) || o->dampening > 0.0)) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "optim.nesterov=true needs optim.momentum above 0 and optim.dampening=0, not %g and %g",
            o->momentum, o->dampening);
    }
    return LVN_OK;
}

void lvni_run_read_rules(const lvni_core_config *c, const lvni_plan *plan, lvni_optim_rules *r)
{
    static const lvni_optim_decay_of choices[] = {LVNI_DECAY_ALL, LVNI_DECAY_MATRICES,
                                                  LVNI_DECAY_WEIGHTS, LVNI_DECAY_NOT_NORM_BIAS,
                                                  LVNI_DECAY_NOT_NORM_BIAS_SCALE};
    const bool given = lvni_core_config_is_set(c, "optim.decay_of"),
               norm_bias = lvni_core_config_bool(c, "optim.decay_norm_bias");
    *r =
        (lvni_optim_rules){.decay_of = given ? choices[lvni_core_config_choice(c, "optim.decay_of")]
                                       : norm_bias ? LVNI_DECAY_ALL
                                                   : LVNI_DECAY_MATRICES};
    r->freeze = lvni_core_config_str_list(c, "freeze", &r->n_freeze);
    r->lr_scale = lvni_core_config_str_list(c, "lr_scale", &r->n_lr_scale);
    r->groups = lvni_core_config_str_list(c, "optim.groups", &r->n_groups);
    r->lr = lvni_core_config_float(c, "optim.lr");
    r->weight_decay = lvni_core_config_float(c, "optim.weight_decay");
    r->layer_decay = lvni_core_config_float(c, "optim.layer_decay");
    r->freeze_until = lvni_core_config_str_list(c, "freeze_until", &r->n_freeze_until);
    r->lr_zero_until = lvni_core_config_str_list(c, "lr_zero_until", &r->n_lr_zero_until);
    /* the recipe's own key, where that decides */
    const char *origin = lvni_core_config_origin(c, "lr_zero_until");
    const bool of_recipe = lvni_core_config_layer(c, "lr_zero_until") == LVNI_LAYER_RESOLVED;
    r->held_by = of_recipe && strchr(origin, '=') != NULL ? origin : NULL;
    r->steps_per_epoch = plan->steps_per_epoch;
}

void lvni_run_read_ema(const lvni_core_config *c, lvni_optim_ema_options *e)
{
    *e = (lvni_optim_ema_options){.decay = lvni_core_config_float(c, "ema.decay"),
                                  .warmup = lvni_core_config_bool(c, "ema.warmup")};
}
