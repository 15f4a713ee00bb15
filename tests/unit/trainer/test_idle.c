/* Parameters without a gradient are left alone by every optimizer, as in PyTorch: no decay, no
 * moments, no count of updates. Whether one of a step's micro-batches had a gradient is known to
 * all ranks, so the layout changes nothing. */
#include "rank_support.h"

#include "kernels/kernels.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MICRO_BATCHES = 5, STEPS = 7 };

/* used: in every micro-batch; sometimes: in micro-batch 3 of odd steps; beside: on the tape, and
 * not in the loss; never: not called. */
typedef struct lazy {
    lvn_module base;
    lvn_module *used, *sometimes, *beside, *never;
} lazy;

static lvn_status lazy_build(lvn_module *module, lvn_builder *b)
{
    lazy *m = (lazy *)module;
    m->beside = lvn_nn_linear(b, "beside", FEATURES, 7);
    m->used = lvn_nn_linear(b, "used", FEATURES, CLASSES);
    m->sometimes = lvn_nn_linear(b, "sometimes", FEATURES, CLASSES);
    m->never = lvn_nn_linear(b, "never", FEATURES, 9);
    return lvn_builder_status(b);
}

static lvn_tensor *lazy_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lazy *m = (const lazy *)module;
    lvn_tensor *x = lvn_forward(m->used, batch->image);
    lvn_log(step, "beside", lvn_mean(lvn_forward(m->beside, batch->image)));
    if (step->step % 2 == 1 && lvni_tensor_ctx_get()->at.micro_batch == 3) {
        x = lvn_add(x, lvn_forward(m->sometimes, batch->image));
    }
    lvn_tensor *loss = lvn_cross_entropy(x, batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class lazy_class = {
    .name = "lazy", .size = sizeof(lazy), .build = lazy_build, .training_step = lazy_step};
enum { BESIDE = 0, USED = 2, SOMETIMES = 4, NEVER = 6, PARAMETERS = 8 }; /* weight and bias each */

static const lvni_optim_options kinds[] = {
    {.kind = LVNI_OPTIM_SGD, .lr = 0.1, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true},
    {.kind = LVNI_OPTIM_ADAM,
     .lr = 0.1,
     .weight_decay = 0.1,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8},
    {.kind = LVNI_OPTIM_ADAMW,
     .lr = 0.1,
     .weight_decay = 0.1,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8},
    {.kind = LVNI_OPTIM_LARS,
     .lr = 0.1,
     .weight_decay = 0.1,
     .momentum = 0.9,
     .trust_coefficient = 0.1},
    {.kind = LVNI_OPTIM_RMSPROP,
     .lr = 0.1,
     .momentum = 0.9,
     .weight_decay = 0.1,
     .alpha = 0.9,
     .eps = 1e-8,
     .centered = true},
    {.kind = LVNI_OPTIM_LION, .lr = 0.1, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99},
    {.kind = LVNI_OPTIM_LAMB,
     .lr = 0.1,
     .weight_decay = 0.1,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-6},
    {.kind = LVNI_OPTIM_ADAFACTOR,
     .lr = 0.1,
     .weight_decay = 0.1,
     .beta2_decay = -0.8,
     .eps = 0x1p-23,
     .eps2 = 1e-3,
     .d = 1.0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static setting settings(int kind)
{
    return (setting){.cls = &lazy_class,
                     .batch_size = 20,
                     .micro_batches = MICRO_BATCHES,
                     .lanes = 1,
                     .optim = kinds[kind],
                     .ema = {.decay = 0.9}};
}

static bool same(const bench *b, int parameter, const float *a, const float *c)
{
    const int64_t at = b->model->offset[parameter];
    return memcmp(a + at, c + at, (size_t)b->model->parameters[parameter].numel * sizeof *a) == 0;
}

static void assert_state_is_zero(const lvni_optim *o, int slot, int parameter)
{
    int64_t shape[LVN_MAX_NDIM], n = 1;
    const int64_t at = lvni_optim_state(o, slot, parameter, shape);
    for (int i = 0; i < o->parameter[parameter].ndim; i++) {
        n *= shape[i];
    }
    for (int64_t e = 0; e < n && at >= 0; e++) {
        assert_true(o->slot[slot][at + e] == 0.0f);
    }
}

TEST(what_has_no_gradient_stays_to_the_bit)
{
    memory data;
    memory_init(&data, 60, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        bench b;
        const setting s = settings(kind);
        bench_open(&b, &data, &s);
        const size_t n = (size_t)b.model->n_weights;
        float *first = calloc(n, sizeof *first), *before = calloc(n, sizeof *before);
        if (first == NULL || before == NULL) {
            free(first);
            free(before);
            fail();
            return;
        }
        memcpy(first, b.model->weights, n * sizeof *first);
        for (int step = 0; step < STEPS; step++) {
            memcpy(before, b.model->weights, n * sizeof *before);
            bench_steps(&b, 1);
            for (int i = 0; i < PARAMETERS; i++) {
                const bool moves = i / 2 == USED / 2 || (i / 2 == SOMETIMES / 2 && step % 2 == 1);
                if (same(&b, i, before, b.model->weights) == moves) {
                    fail_msg("optimizer %d, step %d: %s", kind, step, b.model->parameters[i].name);
                }
            }
        }
        for (int i = 0; i < PARAMETERS; i++) {
            const int64_t missed = i / 2 == USED / 2        ? 0
                                   : i / 2 == SOMETIMES / 2 ? (STEPS + 1) / 2
                                                            : STEPS;
            assert_int_equal(b.trainer->engine->optim->missed[i], missed);
            for (int k = 0; k < b.trainer->engine->optim->n_slots && missed == STEPS; k++) {
                assert_state_is_zero(b.trainer->engine->optim, k, i);
            }
        }
        assert_true(same(&b, NEVER, first, b.trainer->engine->ema->value) &&
                    same(&b, BESIDE, first, b.trainer->engine->ema->value));
        free(first);
        free(before);
        bench_close(&b);
    }
}

TEST(the_layout_changes_nothing)
{
    memory data;
    memory_init(&data, 60, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        setting s = settings(kind);
        const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
        for (int lanes = 2; lanes <= MICRO_BATCHES; lanes++) {
            bench b;
            s.lanes = lanes;
            bench_open(&b, &data, &s);
            bench_steps(&b, STEPS);
            assert_true(bench_hash(&b) == want);
            bench_close(&b);
        }
        s.lanes = 1;
        s.bucket_bytes = 1;
        for (int world = 2; world <= MICRO_BATCHES; world++) {
            ranks_agree("idle parameters", &data, &s, world, STEPS, want);
        }
    }
}

/* Each parameter's own count of updates is part of the state. */
TEST(a_resumed_run_counts_on)
{
    char out[] = "/tmp/levin-idle-XXXXXX", path[96];
    memory data;
    bench b;
    memory_init(&data, 60, 0);
    assert_non_null(mkdtemp(out));
    setting s = settings(2); /* adamw */
    const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
    snprintf(path, sizeof path, "%s/checkpoints", out);
    assert_int_equal(mkdir(path, 0700), 0);
    s.out = out;
    bench_open(&b, &data, &s);
    bench_steps(&b, 4);
    assert_int_equal(bench_save(b.trainer, false), LVN_OK);
    bench_close(&b);
    bench_open(&b, &data, &s);
    snprintf(path, sizeof path, "%s/checkpoints/last.safetensors", out);
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(path, &ckpt), LVN_OK);
    assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_OK);
    lvni_ckpt_free(ckpt);
    assert_int_equal(b.trainer->engine->optim->missed[SOMETIMES], 2);
    assert_int_equal(b.trainer->engine->optim->missed[NEVER + 1], 4);
    bench_start_loader(&b);
    bench_steps(&b, STEPS - 4);
    assert_true(bench_hash(&b) == want);
    bench_close(&b);
    snprintf(path, sizeof path, "rm -r %s", out);
    assert_int_equal(system(path), 0);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
