/* test_dinov2_golden FILE: DINOv2 with the weights, views and masks of make_dinov2_golden.py: each
 * loss with both ways to centre the teacher, the masks of a step, the gradients of one, and twenty
 * steps by the recipe's own keys are those of lightly-train in double precision, the teacher's
 * weights and the centres included. */
#include "group_sync_support.h"
#include "golden_support.h"
#include "pretrain_steps.h"

#include "recipes/pretrain/pretrain_dino.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 5, PADDING = 2, GRID = 8, CROPS = 32, SIDE = 56, LOCAL_SIDE = 28 };
enum { RUN_SEED = 4 }; /* of trainer_support.c */
static const int patches[ROWS] = {0, 3, 1, 0, 4, 2};
static const double TEMP = 0.2, STUDENT_TEMP = 0.1;

static lvni_ckpt_st_file *file;

static uint64_t seed(void)
{
    return (uint64_t)golden_number(file, "seed");
}

/* ---- losses ---- */

typedef struct loss_case {
    const char *name, *gradient, *numbers; /* in the file; of the input that has one */
    int64_t views;                         /* of that input; 0: rows are patches */
    lvn_tensor *(*f)(lvn_tensor *const *in, bool sinkhorn);
} loss_case;

static struct {
    lvn_dtype dtype;
    bool sinkhorn;
    const loss_case *is;
    int first[4]; /* crops, or samples: where micro-batches begin */
    lvn_tensor *center, *temperature;
} now;

static lvn_tensor *log_probabilities(lvn_tensor *x)
{
    return lvn_log_softmax(lvn_mul_scalar(x, 1.0 / STUDENT_TEMP));
}

static lvn_tensor *aim(lvn_tensor *rows, bool sinkhorn, lvn_tensor *counts)
{
    rows = lvn_detach(rows);
    /* of any rows; the shift that follows from it changes nothing */
    lvn_tensor *bound = lvn_add_scalar(lvn_zeros(now.dtype, 1, (const int64_t[]){1}), 12.0);
    return sinkhorn ? lvni_pretrain_sinkhorn(rows, bound, now.temperature, counts)
                    : lvn_softmax(lvn_div(lvn_sub(rows, now.center), now.temperature));
}

/* Inputs: teacher (n, 2, K), the student's views. */
static lvn_tensor *aim_of_views(lvn_tensor *const *in, bool sinkhorn)
{
    lvn_tensor *rows = lvn_reshape(in[0], 2, (const int64_t[]){-1, COLUMNS});
    return lvni_pretrain_by_sample(aim(rows, sinkhorn, NULL), lvn_size(in[0], 0));
}

static lvn_tensor *alone(lvn_tensor *const *in, bool sinkhorn)
{
    lvn_tensor *out[2];
    lvni_pretrain_dino_losses(aim_of_views(in, sinkhorn), log_probabilities(in[1]), NULL, out);
    assert_null(out[1]);
    return out[0];
}

/* Beside three small views. */
static lvn_tensor *large(lvn_tensor *const *in, bool sinkhorn)
{
    lvn_tensor *out[2];
    lvni_pretrain_dino_losses(aim_of_views(in, sinkhorn), log_probabilities(in[1]),
                              lvn_zeros(now.dtype, LVN_SHAPE(lvn_size(in[0], 0), 3, COLUMNS)), out);
    return out[0];
}

static lvn_tensor *small(lvn_tensor *const *in, bool sinkhorn)
{
    lvn_tensor *out[2], *views = aim_of_views(in, sinkhorn);
    lvni_pretrain_dino_losses(views, views, log_probabilities(in[1]), out);
    return out[1];
}

/* Inputs: the teacher's patches (m, K), the student's, weights and counts (m, 1). */
static lvn_tensor *masked(lvn_tensor *const *in, bool sinkhorn)
{
    return lvni_pretrain_ibot_loss(aim(in[0], sinkhorn, in[3]), log_probabilities(in[1]),
                                   lvn_detach(in[2]), 1);
}

static const loss_case cases[] = {{"alone", "large", "student", 2, alone},
                                  {"large", "large", "student", 2, large},
                                  {"small", "small", "local", 3, small},
                                  {"masked", "own", "own patches", 0, masked}};

/* A micro-batch's share of the mean over all samples, or crops. */
static lvn_tensor *share(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    const double n = now.first[micro_batch + 1] - now.first[micro_batch];
    return lvn_mul_scalar(now.is->f(in, now.sinkhorn), (now.is->views > 0 ? n : 1.0) / ROWS);
}

/* Numbers `name` from `begin` on, and zeros behind `n`. */
static void fill(lvn_tensor *t, const char *name, int64_t all, int64_t begin, int64_t n)
{
    lvn_tensor *whole = golden_tensor(seed(), name, 1, &all);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        golden_set(t, e, e < n ? (double)LVNI_CF32(whole)[begin + e] : 0.0);
    }
    lvn_release(whole);
}

static int count_patches(int from, int to)
{
    int n = 0;
    for (int crop = from; crop < to; crop++) {
        n += patches[crop];
    }
    return n;
}

/* Of the masked patches of crops `from` on; the last rows do not count. */
static void fill_patches(micro_batches *s, int i, int from, int to)
{
    const int64_t begin = (int64_t)count_patches(0, from) * COLUMNS, n = count_patches(from, to),
                  all = (int64_t)count_patches(0, ROWS) * COLUMNS;
    for (int k = 0; k < 2; k++) {
        lvn_tensor *t = micro_batches_input(s, i, k, now.dtype, LVN_SHAPE(n + PADDING, COLUMNS));
        fill(t, k == 0 ? "patches" : "own patches", all, begin, n * COLUMNS);
    }
    lvn_tensor *weight = micro_batches_input(s, i, 2, now.dtype, LVN_SHAPE(n + PADDING, 1)),
               *counts = micro_batches_input(s, i, 3, now.dtype, LVN_SHAPE(n + PADDING, 1));
    int64_t row = 0;
    for (int crop = from; crop < to; crop++) {
        for (int p = 0; p < patches[crop]; p++, row++) {
            golden_set(weight, row, 1.0 / patches[crop]);
            golden_set(counts, row, 1.0);
        }
    }
    for (; row < n + PADDING; row++) {
        golden_set(weight, row, 0.0);
        golden_set(counts, row, 0.0);
    }
}

static void fill_views(micro_batches *s, int i, int from, int to)
{
    const int64_t n = to - from, of = 2 * COLUMNS, own = now.is->views * COLUMNS;
    fill(micro_batches_input(s, i, 0, now.dtype, LVN_SHAPE(n, 2, COLUMNS)), "teacher", ROWS * of,
         from * of, n * of);
    fill(micro_batches_input(s, i, 1, now.dtype, LVN_SHAPE(n, now.is->views, COLUMNS)),
         now.is->numbers, ROWS * own, from * own, n * own);
}

/* The gradient of the second input in all micro-batches against the file's, which lacks rows that
 * do not count. */
static void compare_gradient(const micro_batches *s, const char *prefix, double tolerance)
{
    char what[64];
    int64_t n;
    const double *g = golden_values(file, prefix, now.is->gradient, &n);
    const double most = tolerance * golden_largest(g, n);
    for (int i = 0; i < s->n; i++) {
        snprintf(what, sizeof what, "%s, %d of %d", prefix, i, s->n);
        g = golden_compare_input(s->in[i][1], g, now.is->views > 0 ? 0 : PADDING * COLUMNS, most,
                                 what);
    }
}

static void compare_loss(int n, const int *rows)
{
    const double tolerance = now.dtype == LVN_F64 ? 1e-10 : 1e-5;
    char prefix[48];
    micro_batches s;
    int64_t count;
    double loss = 0.0;
    snprintf(prefix, sizeof prefix, "loss/%s/%s/", now.sinkhorn ? "sinkhorn" : "softmax",
             now.is->name);
    micro_batches_open(&s, n, share);
    s.plain = true;
    now.first[0] = 0;
    for (int i = 0; i < n; i++) {
        now.first[i + 1] = now.first[i] + rows[i];
        (now.is->views > 0 ? fill_views : fill_patches)(&s, i, now.first[i], now.first[i + 1]);
    }
    if (micro_batches_run(&s, true) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    for (int i = 0; i < n; i++) {
        loss += s.loss[i];
    }
    const double want = *golden_values(file, prefix, "loss", &count);
    if (!(fabs(loss - want) <= tolerance * want)) {
        fail_msg("%s in %d: %.15g, lightly-train %.15g", prefix, n, loss, want);
    }
    compare_gradient(&s, prefix, tolerance);
    micro_batches_close(&s);
}

TEST(losses_of_class_tokens_and_of_masked_patches)
{
    static const struct {
        int n, rows[3];
    } cut[] = {{1, {6}}, {2, {4, 2}}, {3, {1, 2, 3}}};
    static const int64_t one = 1, columns = COLUMNS;
    lvn_tensor *center = golden_tensor(seed(), "center", 1, &columns);
    for (int wide = 0; wide < 2; wide++) {
        now.dtype = wide ? LVN_F64 : LVN_F32;
        now.center = lvn_tensor_create(now.dtype, 1, &columns);
        now.temperature = lvn_tensor_create(now.dtype, 1, &one);
        assert_non_null(now.center);
        assert_non_null(now.temperature);
        golden_set(now.temperature, 0, TEMP);
        for (int64_t e = 0; e < COLUMNS; e++) { /* as the script has it, in f32 */
            golden_set(now.center, e, (double)(0.1f * LVNI_CF32(center)[e]));
        }
        for (int k = 0; k < 24; k++) {
            now.is = &cases[k % 4];
            now.sinkhorn = k / 4 % 2 == 1;
            compare_loss(cut[k / 8].n, cut[k / 8].rows);
        }
        lvn_release(now.center);
        lvn_release(now.temperature);
    }
    lvn_release(center);
}

static lvn_tensor *koleo(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    lvn_tensor *loss[2];
    for (int v = 0; v < 2; v++) {
        loss[v] = lvni_pretrain_koleo_loss(
            lvn_reshape(lvn_slice(in[1], 1, v, v + 1), 2, (const int64_t[]){-1, COLUMNS}));
    }
    return lvn_add(loss[0], loss[1]);
}

TEST(class_tokens_are_kept_apart)
{
    static const loss_case is = {"koleo", "rows", "student", 2, NULL};
    for (int wide = 0; wide < 2; wide++) {
        micro_batches s;
        int64_t n;
        now.dtype = wide ? LVN_F64 : LVN_F32;
        now.is = &is;
        micro_batches_open(&s, 1, koleo);
        s.plain = true;
        fill_views(&s, 0, 0, ROWS);
        assert_int_equal(micro_batches_run(&s, true), LVN_OK);
        const double want = *golden_values(file, "loss/koleo/", "loss", &n),
                     tolerance = wide ? 1e-10 : 1e-5;
        if (!(fabs(s.loss[0] - want) <= tolerance * fabs(want))) {
            fail_msg("%.15g, lightly %.15g", s.loss[0], want);
        }
        compare_gradient(&s, "loss/koleo/", tolerance);
        micro_batches_close(&s);
    }
}

/* ---- masks ---- */

static void compare_masks(uint32_t step, int parts, const int64_t *begin)
{
    static const lvni_pretrain_masking masking = {
        .height = GRID, .width = GRID, .probability = 0.5, .ratio = {0.1, 0.5}};
    bool mask[CROPS * GRID * GRID];
    int64_t order[CROPS], n;
    char name[16];
    snprintf(name, sizeof name, "%d", (int)step);
    for (int i = 0; i < parts; i++) {
        const lvni_pretrain_crops crops = {
            .seed = RUN_SEED, .step = step, .first = begin[i], .n = begin[i + 1] - begin[i]};
        lvni_pretrain_masks_draw(&masking, &crops, order, mask + begin[i] * GRID * GRID);
    }
    const double *want = golden_values(file, "masks/", name, &n);
    assert_int_equal(n, CROPS * GRID * GRID);
    for (int64_t e = 0; e < n; e++) {
        if (mask[e] != (want[e] != 0.0)) {
            fail_msg("step %d: crop %d, patch %d", (int)step, (int)(e / (GRID * GRID)),
                     (int)(e % (GRID * GRID)));
        }
    }
}

TEST(masks_follow_from_seed_step_and_the_place_in_it)
{
    compare_masks(0, 1, (const int64_t[]){0, CROPS});
    compare_masks(7, 3, (const int64_t[]){0, 5, 6, CROPS});
}

/* Of crops of 16 x 16 patches: how many have a mask, and what part of them it hides. */
TEST(masks_of_many_steps)
{
    enum { STEPS = 200, LARGE = 16, PATCHES = LARGE * LARGE, MASKED = CROPS / 2 };
    static const lvni_pretrain_masking masking = {
        .height = LARGE, .width = LARGE, .probability = 0.5, .ratio = {0.1, 0.5}};
    static bool mask[CROPS * PATCHES];
    int64_t order[CROPS], often[CROPS] = {0};
    double sum = 0.0, least = 1.0, most = 0.0;
    for (int step = 0; step < STEPS; step++) {
        const lvni_pretrain_crops crops = {.seed = RUN_SEED, .step = (uint32_t)step, .n = CROPS};
        lvni_pretrain_masks_draw(&masking, &crops, order, mask);
        int with = 0, all = 0;
        for (int i = 0; i < CROPS; i++) {
            int n = 0;
            for (int p = 0; p < PATCHES; p++) {
                n += mask[i * PATCHES + p] ? 1 : 0;
            }
            with += n > 0 ? 1 : 0;
            often[i] += n > 0 ? 1 : 0;
            all += n;
            sum += (double)n / PATCHES;
            least = n > 0 ? fmin(least, (double)n / PATCHES) : least;
            most = fmax(most, (double)n / PATCHES);
        }
        assert_int_equal(with, MASKED);
        assert_true(all <= lvni_pretrain_masks_most(&masking, &crops));
    }
    for (int i = 0; i < CROPS; i++) { /* deviation 7 */
        assert_true(often[i] > STEPS / 2 - 30 && often[i] < STEPS / 2 + 30);
    }
    print_message("  parts %.3f to %.3f, mean %.4f\n", least, most, sum / (STEPS * MASKED));
    assert_true(most <= 0.5 && most > 0.45 && least > 0.05 && least < 0.12);
    assert_true(fabs(sum / (STEPS * MASKED) - 0.296) < 0.01); /* a patch or so is left over */
}

/* ---- a step ---- */

static void compare_step(const char *name, bool separate, bool sinkhorn, double probability)
{
    const lvni_pretrain_settings network = {
        .model = "_vittest14",
        .backbone = {.image_size = SIDE, .masked = true},
        .hidden_dim = 24,
        .output_dim = 16,
        .dino = {.bottleneck_dim = 12,
                 .student_temp = 0.1,
                 .warmup_teacher_temp = 0.05,
                 .teacher_temp = 0.05,
                 .center_momentum = 0.9,
                 .momentum_start = 0.992,
                 .momentum_end = 1.0},
        .dinov2 = {.ibot_separate_head = separate,
                   .sinkhorn_knopp = sinkhorn,
                   .ibot_bottleneck_dim = 12,
                   .dino_loss_weight = 1.0,
                   .ibot_loss_weight = 1.0,
                   .koleo_loss_weight = separate || sinkhorn ? 0.0 : 0.1,
                   .mask_probability = probability,
                   .mask_ratio_min = 0.1,
                   .mask_ratio_max = 0.5}};
    const double number[] = {0.05, 0.992};
    lvni_nn_model *m;
    lvni_nn_set *g;
    char prefix[48];
    double worst = 0.0;
    int64_t n;
    assert_int_equal(lvni_nn_model_build_empty(&lvni_pretrain_dinov2, &network, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &g), LVN_OK);
    pretrain_fill(m, seed());
    snprintf(prefix, sizeof prefix, "step/%s/", name);
    const double want = *golden_values(file, prefix, "loss", &n),
                 loss = pretrain_micro_batch(
                     m, g, seed(),
                     (pretrain_views){.n = 2, .side = SIDE, .n_local = 2, .local_side = LOCAL_SIDE},
                     number);
    if (!(fabs(loss - want) <= 1e-5 * want)) {
        fail_msg("%s: loss %.9g, lightly-train %.9g", name, loss, want);
    }
    for (int64_t i = 0; i < m->n_weights; i++) { /* sums over the samples, there a mean */
        g->data[i] /= (float)PRETRAIN_BATCH;
    }
    snprintf(prefix, sizeof prefix, "step/%s/grad/", name);
    assert_int_equal(golden_compare_gradients(file, prefix, g, 0.0, &worst), m->n_parameters);
    print_message("  %s: largest relative difference of gradients %.1e\n", name, worst);
    lvni_nn_set_destroy(g);
    lvni_nn_model_destroy(m);
}

TEST(a_step_with_each_head_and_center)
{
    compare_step("softmax", false, false, 0.5);
    compare_step("apart", true, false, 0.8);
    compare_step("sinkhorn", false, true, 0.5);
}

/* ---- twenty steps ---- */

static void run_steps(const char *name, const char *const *more, int n, int parts)
{
    const char *arguments[20] = {"method=dinov2",
                                 "model=dinov2/_vittest14",
                                 "data=none",
                                 "max_epochs=20",
                                 "model.drop_path=0",
                                 "optim_args.eps=1e-3",
                                 "method_args.hidden_dim=24",
                                 "method_args.output_dim=16",
                                 "method_args.dino_bottleneck_dim=12",
                                 "method_args.warmup_steps=5"};
    memcpy(arguments + 10, more, (size_t)n * sizeof *more);
    pretrain_steps_compare(&(pretrain_steps){.file = file,
                                             .name = name,
                                             .arguments = arguments,
                                             .images = PRETRAIN_BATCH,
                                             .side = SIDE,
                                             .n_local = 2,
                                             .local_side = LOCAL_SIDE,
                                             .parts = parts,
                                             .tolerance = 1e-3});
}

TEST(twenty_steps)
{
    run_steps("softmax", (const char *const[]){"method_args.koleo_loss_weight=0.1"}, 1, 1);
}

/* Without KoLeo, which is of a micro-batch, they are cut. */
TEST(twenty_steps_in_micro_batches)
{
    run_steps("apart",
              (const char *const[]){
                  "method_args.ibot_separate_head=true", "method_args.ibot_bottleneck_dim=12",
                  "method_args.koleo_loss_weight=0", "method_args.mask_probability=0.8"},
              4, 3);
}

TEST(twenty_steps_of_sinkhorn_knopp_in_micro_batches)
{
    run_steps("sinkhorn",
              (const char *const[]){"method_args.center_method=sinkhorn_knopp",
                                    "method_args.koleo_loss_weight=0"},
              2, 3);
}

int main(int argc, char **argv)
{
    return pretrain_golden_main(argc, argv, &file);
}
