/* Rows of the optimizer, its schedule, parameter groups and averages, and how they become what
 * optim/ takes. */
#include "recipes/options.h"

#include "core/json_read.h"

#include <jansson.h>
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
     .choices = "sgd|adam|adamw|lars",
     .fallback = "adamw",
     .help = "Optimizer; lars gives every tensor a rate of its own, for large batches."},
    LVNI_OPTION_ALIAS("optim", "optim.name"),
    LVNI_OPTION_ALIAS("lr", "optim.lr"),
    LVNI_OPTION_ALIAS("learning_rate", "optim.lr"),
    LVNI_OPTION_ALIAS("weight_decay", "optim.weight_decay"),
    {.name = "optim.lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.001",
     .range = LVNI_AT_LEAST(0),
     .help = "Learning rate."},
    {.name = "optim.momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.9",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .needs = "optim.name=sgd|lars",
     .help = "Momentum (sgd, lars)."},
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
     .needs = "optim.name=lars",
     .help = "Step of a tensor as a part of its norm, before optim.lr (lars)."},
    {.name = "optim.weight_decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.01",
     .range = LVNI_AT_LEAST(0),
     .help = "Weight decay; decoupled for adamw, part of the gradient for the others."},
    {.name = "optim.decay_norm_bias",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .needs = "optim.weight_decay",
     .help = "false: no weight decay for parameters of one axis, that is biases and norms."},
    {.name = "freeze",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Parameters that are not trained, as patterns over names: [conv1,layer1.*.bias]; "
             "running statistics are still updated."},
    {.name = "lr_scale",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Factors on optim.lr, as PATTERN=FACTOR: [head=10,layer1.*=0.1]; the last that "
             "matches a parameter counts."},
    {.name = "optim.betas",
     .type = LVNI_OPT_FLOAT_LIST,
     .fallback = "[0.9,0.999]",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .count = 2,
     .needs = "optim.name=adam|adamw",
     .help = "Decay of the first and second moment (adam, adamw)."},
    {.name = "optim.eps",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1e-8",
     .range = LVNI_ABOVE(0),
     .needs = "optim.name=adam|adamw",
     .help = "Added to the denominator (adam, adamw)."},
    {.name = "gradient_clip_val",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Largest 2-norm of a step's gradient; 0: no clipping."},
    {.name = "scheduler.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "constant|step|multistep|cosine|linear",
     .fallback = "constant",
     .help = "How the learning rate changes; cosine, linear: to scheduler.end_factor at the end of "
             "the run."},
    LVNI_OPTION_ALIAS("scheduler", "scheduler.name"),
    {.name = "scheduler.warmup_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Steps in which the learning rate rises to optim.lr."},
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
     .needs = "scheduler.name=step|multistep",
     .help = "What scheduler.step_size and scheduler.milestones count."},
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
     .needs = "scheduler.name=step|multistep",
     .help = "Factor of each fall (step, multistep)."},
    {.name = "scheduler.end_factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .needs = "scheduler.name=cosine|linear",
     .help = "Learning rate at the end of the run as a part of optim.lr (cosine, linear)."},
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
const lvni_core_option_table lvni_recipes_optim_table = LVNI_OPTION_TABLE("optimizer", optim_rows);

/* As the rows' choices. */
static const lvni_optim_kind optimizers[] = {LVNI_OPTIM_SGD, LVNI_OPTIM_ADAM, LVNI_OPTIM_ADAMW,
                                             LVNI_OPTIM_LARS};
static const lvni_optim_schedule_kind schedules[] = {LVNI_SCHEDULE_CONSTANT, LVNI_SCHEDULE_STEP,
                                                     LVNI_SCHEDULE_MULTISTEP, LVNI_SCHEDULE_COSINE,
                                                     LVNI_SCHEDULE_LINEAR};

lvn_status lvni_recipes_read_optim(const lvni_core_config *c, lvni_optim_options *o)
{
    size_t n;
    const double *betas = lvni_core_config_float_list(c, "optim.betas", &n);
    *o = (lvni_optim_options){.kind = optimizers[lvni_core_config_choice(c, "optim.name")],
                              .lr = lvni_core_config_float(c, "optim.lr"),
                              .weight_decay = lvni_core_config_float(c, "optim.weight_decay"),
                              .momentum = lvni_core_config_float(c, "optim.momentum"),
                              .dampening = lvni_core_config_float(c, "optim.dampening"),
                              .nesterov = lvni_core_config_bool(c, "optim.nesterov"),
                              .trust_coefficient =
                                  lvni_core_config_float(c, "optim.trust_coefficient"),
                              .beta1 = betas[0],
                              .beta2 = betas[1],
                              .eps = lvni_core_config_float(c, "optim.eps")};
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

void lvni_recipes_read_rules(const lvni_core_config *c, lvni_optim_rules *r)
{
    *r = (lvni_optim_rules){.no_decay_1d = !lvni_core_config_bool(c, "optim.decay_norm_bias")};
    r->freeze = lvni_core_config_str_list(c, "freeze", &r->n_freeze);
    r->lr_scale = lvni_core_config_str_list(c, "lr_scale", &r->n_lr_scale);
}

void lvni_recipes_read_ema(const lvni_core_config *c, lvni_optim_ema_options *e)
{
    *e = (lvni_optim_ema_options){.decay = lvni_core_config_float(c, "ema.decay"),
                                  .warmup = lvni_core_config_bool(c, "ema.warmup")};
}

/* Steps of the whole run; INT64_MAX: no end. */
static int64_t horizon(int64_t epochs, int64_t steps, int64_t steps_per_epoch)
{
    const int64_t total = epochs >= 0 ? epochs * steps_per_epoch : INT64_MAX;
    return steps >= 0 && steps < total ? steps : total;
}

static bool ends_with_the_run(lvni_optim_schedule_kind kind)
{
    return kind == LVNI_SCHEDULE_COSINE || kind == LVNI_SCHEDULE_LINEAR;
}

static lvn_status check_length(const lvni_core_config *c, const lvni_optim_schedule *s)
{
    const char *name = lvni_core_config_str(c, "scheduler.name");
    if (!ends_with_the_run(s->kind)) { /* a warm-up may be longer than a short run */
        return LVN_OK;
    }
    if (s->total_steps == INT64_MAX) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=%s ends with the run, and with max_epochs=-1 max_steps=-1 the run has "
                 "no end: give max_epochs or max_steps",
                 name);
    }
    if (s->warmup_steps > 0 && s->warmup_steps >= s->total_steps) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler.warmup_steps=%lld leaves nothing of the run's %lld step%s: give fewer, "
                 "or a larger max_epochs or max_steps",
                 (long long)s->warmup_steps, (long long)s->total_steps,
                 lvni_core_plural(s->total_steps, "", "s"));
    }
    return LVN_OK;
}

static lvn_status read_warmup(const lvni_core_config *c, int64_t steps_per_epoch, int64_t *steps)
{
    const int64_t epochs = lvni_core_config_int(c, "scheduler.warmup_epochs");
    *steps = lvni_core_config_int(c, "scheduler.warmup_steps");
    if (*steps > 0 && epochs > 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "scheduler.warmup_steps=%lld and scheduler.warmup_epochs=%lld: give one of the two",
            (long long)*steps, (long long)epochs);
    }
    *steps = epochs > 0 ? epochs * steps_per_epoch : *steps;
    return LVN_OK;
}

lvn_status lvni_recipes_read_schedule(const lvni_core_config *c, const lvni_plan *plan,
                                      lvni_optim_schedule *s)
{
    const int64_t per_epoch = plan->steps_per_epoch;
    const int64_t unit =
        strcmp(lvni_core_config_str(c, "scheduler.interval"), "epoch") == 0 ? per_epoch : 1;
    *s = (lvni_optim_schedule){.kind = schedules[lvni_core_config_choice(c, "scheduler.name")],
                               .total_steps =
                                   horizon(lvni_core_config_int(c, "max_epochs"),
                                           lvni_core_config_int(c, "max_steps"), per_epoch),
                               .end_factor = lvni_core_config_float(c, "scheduler.end_factor"),
                               .gamma = lvni_core_config_float(c, "scheduler.gamma"),
                               .step_size = lvni_core_config_int(c, "scheduler.step_size") * unit};
    size_t n;
    const int64_t *milestones = lvni_core_config_int_list(c, "scheduler.milestones", &n);
    for (size_t i = 0; i < n; i++) {
        s->milestone[s->n_milestones++] = milestones[i] * unit;
    }
    if (s->kind == LVNI_SCHEDULE_MULTISTEP && n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "scheduler=multistep needs scheduler.milestones: the epochs after "
                                "which the learning rate falls, as in [30,60,80]");
    }
    LVN_TRY(read_warmup(c, per_epoch, &s->warmup_steps));
    return check_length(c, s);
}

static int64_t number_of(const json_t *saved, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(saved, name);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

int64_t lvni_recipes_saved_schedule_end(const char *config_json, const lvni_plan *plan)
{
    json_t *saved = lvni_core_json_try(config_json, LVNI_JSON_INNER);
    const char *name = json_string_value(json_object_get(saved, "scheduler.name"));
    const int64_t batch =
        number_of(saved, "batch_size", number_of(saved, "batch_size_per_device", 0)) *
        number_of(saved, "accumulate_grad_batches", 1);
    int64_t end = 0;
    if (name != NULL && (strcmp(name, "cosine") == 0 || strcmp(name, "linear") == 0) && batch > 0) {
        const bool drop = json_is_true(json_object_get(saved, "drop_last"));
        const int64_t n = plan->n_samples, pass = n / batch + (n % batch != 0 && !drop ? 1 : 0),
                      here = plan->cycles ? plan->steps_per_epoch : pass;
        const int64_t per_epoch = number_of(saved, "steps_per_epoch", here);
        end = horizon(number_of(saved, "max_epochs", -1), number_of(saved, "max_steps", -1),
                      per_epoch);
    }
    json_decref(saved);
    return end;
}
