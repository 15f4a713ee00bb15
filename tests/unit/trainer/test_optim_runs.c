/* Runs with groups of parameters, LARS and averaged weights: the same bits on every layout and
 * after resuming; what is frozen stays; what validation and exported models see. */
#include "trainer_support.h"

#include "kernels/kernels.h"
#include "log/run_log.h"
#include "tensor/ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char out[] = "/tmp/levin-optim-XXXXXX";
static char last[96];

static const char *const freeze[] = {"conv1", "norm1.bias"}, *const scale[] = {"head=10",
                                                                               "conv3=0.1"};

static setting settings(int lanes)
{
    return (setting){.cls = lvni_nn_zoo_find("cnn"),
                     .batch_size = 16,
                     .micro_batches = 4,
                     .lanes = lanes,
                     .optim = {.kind = LVNI_OPTIM_LARS,
                               .lr = 1,
                               .momentum = 0.9,
                               .weight_decay = 0.01,
                               .trust_coefficient = 0.01,
                               .nesterov = true},
                     .rules = {.decay_of = LVNI_DECAY_MATRICES,
                               .freeze = freeze,
                               .n_freeze = 2,
                               .lr_scale = scale,
                               .n_lr_scale = 2},
                     .ema = {.decay = 0.9, .warmup = true},
                     .schedule = {.kind = LVNI_SCHEDULE_MULTISTEP,
                                  .warmup_steps = 2,
                                  .gamma = 0.1,
                                  .milestone = {4},
                                  .n_milestones = 1},
                     .out = out};
}

TEST(layouts_do_not_matter)
{
    memory data;
    memory_init(&data, 40, 8); /* steps of 16, 16, 8 */
    uint64_t first = 0;
    for (int lanes = 1; lanes <= 4; lanes++) {
        bench b;
        const setting s = settings(lanes);
        bench_open(&b, &data, &s);
        lvni_tensor_ctx_get()->team = lanes; /* of the update */
        bench_steps(&b, 5);
        const uint64_t hash = bench_hash(&b);
        first = lanes == 1 ? hash : first;
        assert_true(hash == first);
        bench_close(&b);
    }
    setting s = settings(1); /* each part is seen by the hash */
    s.rules.n_freeze = 1;
    uint64_t seen_hash[3];
    for (int i = 0; i < 3; i++) {
        bench b;
        bench_open(&b, &data, &s);
        bench_steps(&b, 5);
        seen_hash[i] = bench_hash(&b);
        assert_true(seen_hash[i] != first && (i == 0 || seen_hash[i] != seen_hash[i - 1]));
        bench_close(&b);
        s.rules.n_lr_scale = i == 0 ? 0 : s.rules.n_lr_scale;
        s.ema.decay = i == 1 ? 0.2 : s.ema.decay; /* below the warm-up of these few steps */
    }
}

static void assert_shape(const bench *b, int slot, const char *name, const int64_t want[4])
{
    int64_t shape[LVN_MAX_NDIM];
    int i = 0;
    while (strcmp(b->model->parameters[i].name, name) != 0) {
        i++;
    }
    const int64_t at = lvni_optim_state(b->trainer->engine->optim, slot, i, shape);
    assert_int_equal(at >= 0, want != NULL);
    if (want != NULL) {
        const int axes = b->model->parameters[i].tensor->ndim;
        assert_memory_equal(shape, want, (size_t)axes * sizeof *shape);
    }
}

/* Of a convolution (O, H, W, I) they are H x W, PyTorch's last two axes. */
TEST(matrices_of_adafactor_are_those_of_pytorch)
{
    memory data;
    bench b;
    const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                       .batch_size = 4,
                       .micro_batches = 1,
                       .lanes = 1,
                       .optim = {.kind = LVNI_OPTIM_ADAFACTOR}};
    memory_init(&data, 4, 8);
    bench_open(&b, &data, &s);
    enum { ROW_VAR, COL_VAR, VARIANCE };
    assert_shape(&b, ROW_VAR, "conv2.weight", (const int64_t[]){64, 3, 1, 32});
    assert_shape(&b, COL_VAR, "conv2.weight", (const int64_t[]){64, 1, 3, 32});
    assert_shape(&b, VARIANCE, "conv2.weight", NULL);
    assert_shape(&b, ROW_VAR, "norm2.bias", NULL);
    assert_shape(&b, VARIANCE, "norm2.bias", (const int64_t[]){64, 0, 0, 0});
    bench_close(&b);
}

/* Until they thaw, parameters stay, and then Adam begins with them as with new ones. */
TEST(frozen_at_first)
{
    memory data;
    memory_init(&data, 40, 8);
    static const char *const until[] = {"conv1=3"};
    setting s = settings(2);
    s.rules = (lvni_optim_rules){.freeze_until = until, .n_freeze_until = 1};
    s.optim = (lvni_optim_options){
        .kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    bench b;
    bench_open(&b, &data, &s);
    const lvni_nn_model *m = b.model;
    int conv1 = -1;
    for (int i = 0; i < m->n_parameters; i++) {
        conv1 = strcmp(m->parameters[i].name, "conv1.weight") == 0 ? i : conv1;
    }
    assert_true(conv1 >= 0);
    const int64_t n = m->parameters[conv1].numel;
    float *before = calloc((size_t)n, sizeof *before);
    assert_non_null(before);
    memcpy(before, m->weights + m->offset[conv1], (size_t)n * sizeof *before);
    bench_steps(&b, 3);
    assert_memory_equal(before, m->weights + m->offset[conv1], (size_t)n * sizeof *before);
    assert_int_equal(b.trainer->engine->optim->missed[conv1], 3);
    bench_steps(&b, 1);
    assert_memory_not_equal(before, m->weights + m->offset[conv1], (size_t)n * sizeof *before);
    for (int64_t i = 0; i < n; i++) { /* Adam's first step is the rate, whatever the gradient */
        const double moved = fabs((double)(m->weights[m->offset[conv1] + i] - before[i])),
                     rate = s.optim.lr; /* the warm-up is over, the milestone not reached */
        assert_true(moved <= rate * 1.001);
    }
    assert_int_equal(b.trainer->engine->optim->missed[conv1], 3);
    free(before);
    bench_close(&b);
}

/* Decay on a cosine, a rate that is 0 at first, and factors on rates. */
static setting scheduled(int lanes, lvni_optim_kind kind)
{
    static const char *const until[] = {"head=3"};
    setting s = settings(lanes);
    s.optim.kind = kind;
    s.optim.beta1 = 0.9;
    s.optim.beta2 = 0.999;
    s.optim.eps = 1e-8;
    s.optim.lr = 0.01;
    s.optim.nesterov = false;
    s.optim.weight_decay = 0.4;
    s.weight_decay = (lvni_optim_curve){LVNI_CURVE_COSINE, 0.04, 0.4, 6};
    s.rules = (lvni_optim_rules){.decay_of = LVNI_DECAY_WEIGHTS,
                                 .lr_scale = scale,
                                 .n_lr_scale = 2,
                                 .lr_zero_until = until,
                                 .n_lr_zero_until = 1};
    return s;
}

/* Until then the head's weights stay, and its moments do not: its first step is not one of new
 * moments. */
TEST(held_at_first)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = scheduled(2, LVNI_OPTIM_ADAMW);
    bench b;
    bench_open(&b, &data, &s);
    const lvni_nn_model *m = b.model;
    const int head = m->n_parameters - 2;
    assert_string_equal(m->parameters[head].name, "head.weight");
    const int64_t n = m->parameters[head].numel, at = m->offset[head];
    const lvni_optim *o = b.trainer->engine->optim;
    float before[8192];
    assert_in_range(n, 1, 8192);
    memcpy(before, m->weights + at, (size_t)n * sizeof *before);
    for (int t = 0; t < 3; t++) {
        const float moment = o->slot[0][at];
        bench_steps(&b, 1);
        assert_memory_equal(before, m->weights + at, (size_t)n * sizeof *before);
        assert_true(o->slot[0][at] != moment);
    }
    assert_int_equal(o->missed[head], 0);
    bench_steps(&b, 1);
    assert_memory_not_equal(before, m->weights + at, (size_t)n * sizeof *before);
    bench_close(&b);
}

static void load(lvni_ckpt **ckpt)
{
    if (lvni_ckpt_load(last, ckpt) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

/* After two steps, while the head is held, and after four. */
TEST(schedules_of_groups_resume)
{
    static const lvni_optim_kind kinds[] = {LVNI_OPTIM_SGD, LVNI_OPTIM_ADAMW, LVNI_OPTIM_LARS};
    memory data;
    memory_init(&data, 40, 8);
    for (int i = 0; i < 6; i++) {
        const setting one = scheduled(1, kinds[i / 2]), two = scheduled(3, kinds[i / 2]);
        bench b, c;
        bench_open(&b, &data, &one);
        bench_steps(&b, i % 2 == 0 ? 2 : 4);
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        lvni_ckpt *ckpt;
        load(&ckpt);
        bench_open(&c, &data, &two);
        assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
        lvni_ckpt_free(ckpt);
        bench_start_loader(&c);
        bench_steps(&b, i % 2 == 0 ? 4 : 2);
        bench_steps(&c, i % 2 == 0 ? 4 : 2);
        assert_true(bench_hash(&c) == bench_hash(&b));
        bench_close(&b);
        bench_close(&c);
    }
}

TEST(resumed_is_the_same)
{
    memory data;
    memory_init(&data, 40, 8);
    bench b, c;
    const setting one = settings(1), two = settings(2);
    bench_open(&b, &data, &one);
    bench_steps(&b, 2);
    assert_int_equal(bench_save(b.trainer, false), LVN_OK);
    lvni_ckpt *ckpt;
    load(&ckpt);
    bench_open(&c, &data, &two);
    assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
    assert_true(bench_hash(&c) == bench_hash(&b));
    const lvni_ckpt_st_tensor *mean =
        lvni_ckpt_st_find(ckpt->file, "trainer/ema/norm2.running_mean");
    assert_non_null(mean); /* the average has running statistics, its own ones */
    assert_memory_not_equal(
        mean->data, lvni_ckpt_st_find(ckpt->file, "model/norm2.running_mean")->data, mean->bytes);
    lvni_ckpt_free(ckpt);
    bench_start_loader(&c);
    bench_steps(&b, 4);
    bench_steps(&c, 4);
    assert_true(bench_hash(&c) == bench_hash(&b));
    bench_close(&b);
    bench_close(&c);
}

TEST(a_run_with_an_average_is_not_one_without)
{
    memory data;
    memory_init(&data, 40, 8);
    for (int with = 0; with < 2; with++) {
        setting s = settings(1);
        s.ema.decay = with == 1 ? 0.9 : 0.0;
        bench b;
        bench_open(&b, &data, &s);
        bench_steps(&b, 1);
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        bench_close(&b);
        s.ema.decay = with == 1 ? 0.0 : 0.9;
        bench_open(&b, &data, &s);
        lvni_ckpt *ckpt;
        load(&ckpt);
        assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, "give ema.decay as it was"));
        lvni_ckpt_free(ckpt);
        bench_close(&b);
    }
}

static const lvni_nn_parameter *parameter(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return &m->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

/* Weights do not move, gradients are not computed and have no part in the norm; running statistics
 * below go on. */
TEST(frozen_stays)
{
    memory data;
    memory_init(&data, 40, 8);
    static const char *const body[] = {"*conv*", "norm*"};
    setting s = settings(1);
    s.rules = (lvni_optim_rules){.freeze = body, .n_freeze = 2};
    bench b;
    bench_open(&b, &data, &s);
    const lvni_nn_model *m = b.model;
    const lvni_nn_parameter *conv = parameter(m, "conv2.weight"),
                            *head = parameter(m, "head.weight");
    float *conv_before = malloc((size_t)conv->numel * sizeof(float)),
          *head_before = malloc((size_t)head->numel * sizeof(float));
    memcpy(conv_before, conv->tensor->data, (size_t)conv->numel * sizeof(float));
    memcpy(head_before, head->tensor->data, (size_t)head->numel * sizeof(float));
    const float mean_before = *LVNI_CF32(m->buffers[0]->tensor);
    const lvni_trainer_engine *e = b.trainer->engine;
    const int sets = lvni_plan_sets(&e->o.plan);
    for (int i = 0; i < sets; i++) { /* values that a gradient would overwrite */
        lvni_trainer_gradient_sync_set(e->gradient_sync, i)->data[m->offset[conv->tensor->param]] =
            7.0f;
    }
    bench_steps(&b, 3);
    assert_memory_equal(conv->tensor->data, conv_before, (size_t)conv->numel * sizeof(float));
    assert_memory_not_equal(head->tensor->data, head_before, (size_t)head->numel * sizeof(float));
    assert_true(*LVNI_CF32(m->buffers[0]->tensor) != mean_before);
    for (int i = 0; i < sets; i++) {
        const float g = lvni_trainer_gradient_sync_set(e->gradient_sync, i)
                            ->data[m->offset[conv->tensor->param]];
        assert_true(g == 0.0f || g == 7.0f); /* 7: a set that had no turn */
    }
    free(conv_before);
    free(head_before);
    bench_close(&b);
}

/* ---- where the average is used ---- */

static float seen_weight[2];
static bench *watched;

static lvn_status note_export(void *user, const char *name, const float *values, int64_t step)
{
    (void)user;
    assert_true(step > 0);
    seen_weight[0] = strcmp(name, "last") == 0 || strcmp(name, "best") == 0 ? values[0] : -1.0f;
    return LVN_OK;
}

static lvn_tensor *noting_validation(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    if (!lvn_is_training()) {
        seen_weight[1] = *LVNI_CF32(watched->model->parameters[0].tensor);
    }
    return softmax_regression.training_step(m, batch, step);
}

TEST(validation_and_export_see_the_average)
{
    memory data, val;
    memory_init(&data, 40, 0);
    memory_init(&val, 12, 0);
    lvn_module_class cls = softmax_regression;
    cls.validation_step = noting_validation;
    for (int use = 0; use < 2; use++) {
        bench b;
        const setting s = {.cls = &cls,
                           .batch_size = 16,
                           .micro_batches = 4,
                           .lanes = 1,
                           .ema = {.decay = 0.9},
                           .out = out};
        bench_open(&b, &data, &s);
        watched = &b;
        lvni_trainer *t = b.trainer;
        lvni_data_loader_destroy(t->loader);
        t->loader = NULL;
        t->o.use_ema = use == 1;
        t->o.val = &val.base;
        t->o.max_epochs = 1;
        t->o.export_model = note_export;
        assert_int_equal(lvni_trainer_fit(t), LVN_OK);
        const float own = b.model->weights[0], average = t->engine->ema->value[0];
        assert_true(own != average && *LVNI_CF32(b.model->parameters[0].tensor) == own);
        assert_true(seen_weight[0] == (use == 1 ? average : own) &&
                    seen_weight[1] == seen_weight[0]);
        bench_close(&b);
    }
}

TEST(pattern_mistakes_are_reported)
{
    memory data;
    memory_init(&data, 40, 8);
    bench b;
    const setting s = settings(1);
    bench_open(&b, &data, &s);
    static const char *const typo[] = {"conv9.weight"};
    const lvni_optim_rules rules = {.freeze = typo, .n_freeze = 1};
    lvni_optim_parameter *p;
    assert_int_equal(lvni_trainer_parameters(b.model, &rules, &p), LVN_ERR_USAGE);
    assert_null(p);
    assert_non_null(strstr(lvn_last_error()->message, "the nearest name is conv1.weight"));
    bench_close(&b);
}

int main(int argc, char **argv)
{
    lvni_log_set_quiet(true);
    if (mkdtemp(out) == NULL || lvni_cpu_start() != LVN_OK) {
        return 1;
    }
    char folder[64];
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    mkdir(folder, 0777);
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    const int failed = test_main(argc, argv);
    char metrics[64], best[96];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    snprintf(best, sizeof best, "%s/best.safetensors", folder);
    unlink(metrics);
    unlink(best);
    unlink(last);
    rmdir(folder);
    rmdir(out);
    return failed;
}
