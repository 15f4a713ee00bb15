/* What of method_args.* is not given and follows from the data and the run's length, and the rules
 * that it sets for the optimizer (pretrain.h). dinov2's is in pretrain_dinov2_keys.c. */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/str.h"
#include "log/run_log.h"

#include <math.h>
#include <string.h>

lvn_status lvni_pretrain_set_number(lvni_core_config *c, const char *key, double value)
{
    lvni_core_str text = {0};
    lvni_core_str_double(&text, value);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_config_set(c, key, lvni_core_str_text(&text), "method's default");
    }
    lvni_core_str_free(&text);
    return s;
}

/* Where it is not given. */
lvn_status lvni_pretrain_resolve(lvni_core_config *c, const char *key, double value)
{
    return lvni_core_config_is_set(c, key) ? LVN_OK : lvni_pretrain_set_number(c, key, value);
}

lvn_status lvni_pretrain_resolve_simclr(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    (void)scale;
    return lvni_pretrain_resolve(c, "method_args.output_dim", 128.0);
}

/* Along a line from (0, from) to (1, to), not beyond its ends, with so many digits. */
static double between(double part, double from, double to, double digits)
{
    const double t = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
    return rint((from + (to - from) * t) * digits) / digits;
}

static int64_t dino_outputs(int64_t images)
{
    static const struct {
        int64_t images, outputs;
    } below[] = {{20000, 1024}, {50000, 2048}, {100000, 4096}, {200000, 16384}, {500000, 32768}};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (images < below[i].images) {
            return below[i].outputs;
        }
    }
    return 65536;
}

/* `usual` steps, and at most a part of the run. */
static int64_t limited(const lvni_core_config *c, int64_t usual, int64_t steps, double part)
{
    const bool whole = lvni_core_config_bool(c, "exact") || steps == INT64_MAX;
    const double most = part * (double)steps;
    return whole || (double)usual <= most ? usual : (int64_t)most;
}

/* Between the sizes of a small set and of ImageNet, as LightlyTrain has them. */
static lvn_status resolve_by_images(lvni_core_config *c, int64_t images)
{
    const double part = ((double)images - 20000.0) / 980000.0;
    LVN_TRY(lvni_pretrain_resolve(c, "method_args.output_dim", (double)dino_outputs(images)));
    LVN_TRY(lvni_pretrain_resolve(c, "method_args.teacher_temp", between(part, 0.02, 0.07, 100.0)));
    const double temp = lvni_core_config_float(c, "method_args.teacher_temp"),
                 first = between((temp - 0.02) / 0.05, 0.02, 0.04, 100.0);
    LVN_TRY(
        lvni_pretrain_resolve(c, "method_args.warmup_teacher_temp", first < temp ? first : temp));
    return lvni_pretrain_resolve(c, "method_args.momentum_start",
                                 between(part, 0.99, 0.996, 1000.0));
}

static void report_limited(const lvni_core_config *c, const char *key, int64_t usual, double part)
{
    const int64_t is = lvni_core_config_int(c, key);
    if (is < usual) {
        lvni_log_line(LVNI_LOG_INFO,
                      "%s=%lld: %g %% of the run, which is too short for the usual %lld "
                      "(exact=true: those)",
                      key, (long long)is, 100.0 * part, (long long)usual);
    }
}

lvn_status lvni_pretrain_resolve_limited(lvni_core_config *c, const char *key, int64_t usual,
                                         const lvni_pretrain_scale *scale, double part)
{
    if (lvni_core_config_is_set(c, key)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_pretrain_set_number(c, key, (double)limited(c, usual, scale->steps, part)));
    report_limited(c, key, usual, part);
    return LVN_OK;
}

lvn_status lvni_pretrain_add_rule(lvni_core_config *c, const char *list, const char *pattern,
                                  double number, const char *of)
{
    const size_t length = strlen(pattern);
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    size_t n;
    const char *const *given = lvni_core_config_str_list(c, list, &n);
    lvni_core_str_append(&text, "[");
    for (size_t i = 0; i < n; i++) {
        if (strncmp(given[i], pattern, length) == 0 && given[i][length] == '=') {
            goto done;
        }
        lvni_core_str_printf(&text, "%s,", given[i]);
    }
    lvni_core_str_printf(&text, "%s=", pattern);
    lvni_core_str_double(&text, number);
    lvni_core_str_append(&text, "]");
    s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_config_set(c, list, lvni_core_str_text(&text), of);
    }
done:
    lvni_core_str_free(&text);
    return s;
}

/* The last layer's rate is 0 at first. */
static lvn_status hold_last_layer(lvni_core_config *c)
{
    static const char key[] = "method_args.student_freeze_last_layer_steps";
    const int64_t steps = lvni_core_config_int(c, key);
    return steps == 0 ? LVN_OK
                      : lvni_pretrain_add_rule(c, "lr_zero_until", LVNI_PRETRAIN_LAST_LAYER,
                                               (double)steps, key);
}

lvn_status lvni_pretrain_resolve_warmup(lvni_core_config *c, double steps)
{
    const bool rises = strcmp(lvni_core_config_str(c, "scheduler.name"), "onecycle") == 0;
    return lvni_core_config_int(c, "scheduler.warmup_epochs") != 0
               ? LVN_OK
               : lvni_pretrain_resolve(c, "scheduler.warmup_steps", rises ? 0.0 : steps);
}

lvn_status lvni_pretrain_resolve_dino(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    LVN_TRY(resolve_by_images(c, scale->images));
    LVN_TRY(lvni_pretrain_resolve_limited(
        c, "method_args.warmup_teacher_temp_steps", 37500, scale,
        lvni_core_config_float(c, "method_args.warmup_teacher_temp_max_steps_fraction")));
    LVN_TRY(lvni_pretrain_resolve_limited(c, "method_args.student_freeze_last_layer_steps", 1250,
                                          scale, 0.3));
    LVN_TRY(hold_last_layer(c));
    const double part = lvni_core_config_float(c, "method_args.warmup_max_steps_fraction"),
                 usual = (double)lvni_core_config_int(c, "method_args.warmup_steps"),
                 most = floor(part * (double)scale->steps);
    return lvni_pretrain_resolve_warmup(c,
                                        scale->steps == INT64_MAX || usual <= most ? usual : most);
}

lvn_status lvni_pretrain_resolve_distillation(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    static const struct {
        int64_t images, queue;
    } below[] = {{50, 16},    {100, 32},    {250, 64},     {500, 128},   {1000, 256},
                 {2000, 512}, {4000, 1024}, {10000, 2048}, {20000, 4096}};
    static const char key[] = "method_args.queue_size", blocks[] = "method_args.n_teacher_blocks";
    const char *teacher = lvni_core_config_str(c, "method_args.teacher");
    /* only what the method has: config.yaml is read again, where other keys are mistakes */
    if (strcmp(lvni_core_config_str(c, "method"), "distillationv2") == 0) {
        return lvni_pretrain_resolve(
            c, blocks, teacher != NULL && lvni_nn_zoo_is_transformer(teacher) ? 2.0 : 1.0);
    }
    if (lvni_core_config_is_set(c, key) && lvni_core_config_int(c, key) >= scale->images) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%lld: the queue must be smaller than the set of images, which has %lld  (%s)",
                 key, (long long)lvni_core_config_int(c, key), (long long)scale->images,
                 lvni_core_config_origin(c, key));
    }
    double queue = 8192.0;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (scale->images < below[i].images) {
            queue = (double)below[i].queue;
            break;
        }
    }
    return lvni_pretrain_resolve(c, key, queue);
}
