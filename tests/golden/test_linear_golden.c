/* test_linear_golden FILE: the linear classifier on features against lightly's, in double precision
 * (make_linear_golden.py), and what of a row counts as right. */
#include "golden_support.h"
#include "pretrain_steps.h"
#include "recipes/pretrain/pretrain.h"

#include <math.h>
#include <string.h>

enum { IMAGES = 43, COLUMNS = 7, LABELS = 6, EPOCHS = 5, SEED = 3 };

static lvni_ckpt_st_file *file;

typedef struct found {
    double losses[EPOCHS];
    int n;
} found;

static lvn_status note(void *user, int64_t epoch, double loss)
{
    found *f = user;
    assert_int_equal(epoch, f->n);
    f->losses[f->n++] = loss;
    return LVN_OK;
}

static float feature[IMAGES * COLUMNS];
static int64_t label[IMAGES];

static lvni_pretrain_probe_images make_images(void)
{
    lvn_tensor *t = golden_tensor((uint64_t)golden_number(file, "seed"), "features", 2,
                                  (const int64_t[]){IMAGES, COLUMNS});
    for (int i = 0; i < IMAGES * COLUMNS; i++) {
        const float x = ((const float *)lvn_const_data(t))[i] / 2.0f;
        feature[i] = x * (float)(i % COLUMNS + 1) + 1.0f;
    }
    for (int i = 0; i < IMAGES; i++) {
        label[i] = i * 5 % LABELS;
    }
    lvn_release(t);
    return (lvni_pretrain_probe_images){
        .feature = feature, .label = label, .n = IMAGES, .dim = COLUMNS, .classes = LABELS};
}

static void compare(const char *prefix, const char *name, const double *have, int64_t n)
{
    int64_t length;
    const double *want = golden_values(file, prefix, name, &length);
    assert_int_equal(length, n);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(have[i] - want[i]) <= 2e-5 * (1.0 + fabs(want[i])))) {
            fail_msg("%s%s %d: %.9g, lightly %.9g", prefix, name, (int)i, have[i], want[i]);
        }
    }
}

static void compare_tensor(const char *prefix, const char *name, const lvn_tensor *t)
{
    double have[LABELS * COLUMNS];
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        have[i] = (double)((const float *)lvn_const_data(t))[i];
    }
    compare(prefix, name, have, lvn_numel(t));
}

static void run(const char *prefix, int64_t batch, double lr, bool standardizes)
{
    const lvni_pretrain_probe_images images = make_images();
    lvn_tensor *weight = lvn_tensor_create(LVN_F32, LVN_SHAPE(LABELS, COLUMNS)),
               *bias = lvn_tensor_create(LVN_F32, LVN_SHAPE(LABELS));
    found f = {.n = 0};
    const lvni_pretrain_probe_options o = {.epochs = EPOCHS,
                                           .batch_size = batch,
                                           .lr = lr,
                                           .momentum = 0.9,
                                           .seed = SEED,
                                           .epoch = note,
                                           .user = &f};
    lvni_pretrain_probe_count count;
    if (standardizes) {
        lvni_pretrain_probe_standardize(&images, feature, IMAGES);
    }
    assert_int_equal(lvni_pretrain_probe_train(&images, &o, weight, bias), LVN_OK);
    assert_int_equal(f.n, EPOCHS);
    compare(prefix, "losses", f.losses, EPOCHS);
    compare_tensor(prefix, "weight", weight);
    compare_tensor(prefix, "bias", bias);
    assert_int_equal(lvni_pretrain_probe_measure(&images, weight, bias, &count), LVN_OK);
    assert_int_equal(count.n, IMAGES);
    compare(prefix, "top",
            (const double[]){(double)count.first / IMAGES, (double)count.five / IMAGES}, 2);
    lvn_release(weight);
    lvn_release(bias);
}

TEST(features_as_they_are)
{
    run("raw/", 8, 3.0, false);
}

TEST(features_with_mean_0_and_deviation_1)
{
    run("standardized/", 16, 0.5, true);
}

/* Momentum and decay as PyTorch's SGD has them: two steps of one image and one feature by hand. */
TEST(decay_joins_the_gradient)
{
    const float one = 1.0f;
    const int64_t first = 0;
    const lvni_pretrain_probe_images images = {
        .feature = &one, .label = &first, .n = 1, .dim = 1, .classes = 2};
    const lvni_pretrain_probe_options o = {
        .epochs = 2, .batch_size = 9, .lr = 256.0, .momentum = 0.5, .weight_decay = 0.25};
    lvn_tensor *weight = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 1)),
               *bias = lvn_tensor_create(LVN_F32, LVN_SHAPE(2));
    /* Rates are 1 and, in the last step, 0.001; the first gradient is (p - 1, p) with p = 1/2, and
     * both weights, of 1, add a quarter of themselves. */
    ((float *)lvn_data(weight))[0] = 1.0f;
    ((float *)lvn_data(weight))[1] = 1.0f;
    assert_int_equal(lvni_pretrain_probe_train(&images, &o, weight, bias), LVN_OK);
    const float *w = lvn_const_data(weight), *b = lvn_const_data(bias);
    assert_true(fabsf(w[0] - (1.0f + 0.5f - 0.25f)) < 2e-3f);
    assert_true(fabsf(w[1] - (1.0f - 0.5f - 0.25f)) < 2e-3f);
    assert_true(fabsf(b[0] - 0.5f) < 2e-3f && fabsf(b[1] + 0.5f) < 2e-3f);
    lvn_release(weight);
    lvn_release(bias);
}

TEST(of_equal_numbers_the_first_counts)
{
    const double value[] = {1.0, 3.0, 3.0, 2.0};
    assert_true(lvni_pretrain_is_among(value, 4, 1, 1));
    assert_false(lvni_pretrain_is_among(value, 4, 2, 1));
    assert_true(lvni_pretrain_is_among(value, 4, 2, 2));
    assert_false(lvni_pretrain_is_among(value, 4, 0, 3));
    assert_true(lvni_pretrain_is_among(value, 4, 0, 5));
    const double lost[] = {NAN, 1.0};
    assert_false(lvni_pretrain_is_among(lost, 2, 0, 1));
    assert_false(lvni_pretrain_is_among(lost, 2, 0, 5));
}

int main(int argc, char **argv)
{
    return pretrain_golden_main(argc, argv, &file);
}
