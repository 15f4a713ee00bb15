/* The oneDNN kernels compute the formulas: against plain loops in f64, over strides,
 * paddings, dilations, groups, odd channels, single rows, and sizes of zero. */
#include "kernels/kernels.h"
#include "onednn_support.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static const conv_case cases[] = {
    /* n, h, w, i, o, k, stride, padding, dilation, groups */
    {2, 9, 7, 3, 8, 3, 1, 1, 1, 1},   {1, 8, 8, 16, 32, 3, 2, 1, 1, 1},
    {2, 6, 6, 32, 16, 1, 1, 0, 1, 1}, {1, 17, 19, 3, 16, 7, 2, 3, 1, 1},
    {3, 7, 5, 5, 17, 3, 1, 1, 1, 1},  {2, 10, 10, 8, 12, 3, 1, 2, 2, 1},
    {2, 8, 8, 16, 32, 3, 1, 1, 1, 4}, {1, 9, 9, 24, 24, 3, 2, 1, 1, 24},
    {2, 8, 8, 6, 4, 1, 2, 0, 1, 2},   {1, 3, 3, 4, 4, 3, 1, 0, 1, 1},
    {5, 4, 4, 64, 2, 3, 1, 1, 1, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Calls visit(sum slot of y, of x, of w) for every product of the convolution. */
static void each_product(const conv_case *c, const lvn_tensor *y,
                         void (*visit)(void *, int64_t, int64_t, int64_t), void *job)
{
    const int64_t oh = y->shape[1], ow = y->shape[2], ig = c->i / c->groups, og = c->o / c->groups;
    for (int64_t p = 0; p < c->n * oh * ow * c->o; p++) {
        const int64_t o = p % c->o, q = p / c->o % ow, r = p / c->o / ow % oh,
                      n = p / c->o / ow / oh;
        for (int64_t t = 0; t < c->k * c->k * ig; t++) {
            const int64_t i = t % ig, kx = t / ig % c->k, ky = t / ig / c->k;
            const int64_t iy = r * c->stride - c->padding + ky * c->dilation;
            const int64_t ix = q * c->stride - c->padding + kx * c->dilation;
            if (iy >= 0 && iy < c->h && ix >= 0 && ix < c->w) {
                visit(job, p, ((n * c->h + iy) * c->w + ix) * c->i + o / og * ig + i,
                      o * c->k * c->k * ig + t);
            }
        }
    }
}

typedef struct truth {
    const conv_data *d;
    double y[1 << 15], dx[1 << 15], dw[1 << 15]; /* the largest case has 12,288 elements */
} truth;

static void add_product(void *job, int64_t y, int64_t x, int64_t w)
{
    truth *t = job;
    t->y[y] += (double)LVNI_CF32(t->d->x)[x] * (double)LVNI_CF32(t->d->w)[w];
    t->dx[x] += (double)LVNI_CF32(t->d->dy)[y] * (double)LVNI_CF32(t->d->w)[w];
    t->dw[w] += (double)LVNI_CF32(t->d->dy)[y] * (double)LVNI_CF32(t->d->x)[x];
}

/* Sums of up to some hundred products below 1: 2e-5 is ample, and a wrong term is off by tenths. */
static void assert_close(const lvn_tensor *t, const double *expected, const char *what,
                         size_t case_no)
{
    const int64_t n = lvn_numel(t);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)LVNI_CF32(t)[i] - expected[i]) <= 2e-5 * (1 + fabs(expected[i])))) {
            fail_msg("case %zu: %s[%lld] is %.9g, should be %.9g", case_no, what, (long long)i,
                     (double)LVNI_CF32(t)[i], expected[i]);
        }
    }
}

TEST(convolutions_equal_loops)
{
    static truth t;
    for (size_t k = 0; k < CASES; k++) {
        const conv_case *c = &cases[k];
        conv_data d = conv_data_make(c);
        assert_true(lvn_numel(d.x) <= 1 << 15 && lvn_numel(d.y) <= 1 << 15 &&
                    lvn_numel(d.w) <= 1 << 15);
        memset(&t, 0, sizeof t);
        t.d = &d;
        each_product(c, d.y, add_product, &t);
        assert_int_equal(run_forward(&d, 2, false), LVN_OK);
        assert_close(d.y, t.y, "y", k);
        assert_int_equal(run_grad_input(&d, 2), LVN_OK);
        assert_close(d.dx, t.dx, "dx", k);
        assert_int_equal(run_grad_weight(&d, 1, 2), LVN_OK);
        assert_close(d.dw, t.dw, "dw", k);
        double db[64] = {0};
        for (int64_t i = 0; i < lvn_numel(d.dy); i++) {
            db[i % c->o] += (double)LVNI_CF32(d.dy)[i];
        }
        assert_close(d.db, db, "db", k);
        for (int64_t i = 0; i < lvn_numel(d.y); i++) {
            t.y[i] += (double)LVNI_CF32(d.b)[i % c->o];
        }
        assert_int_equal(run_forward(&d, 1, true), LVN_OK);
        assert_close(d.y, t.y, "y with bias", k);
        conv_data_free(&d);
    }
}

/* Images 30 to 59 of t against all of `half`. */
static void assert_second_half(const lvn_tensor *t, const lvn_tensor *half, const char *what)
{
    const int64_t n = lvn_numel(half);
    assert_int_equal(lvn_numel(t), 2 * n);
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)LVNI_CF32(t)[n + i], b = (double)LVNI_CF32(half)[i];
        if (!(fabs(a - b) <= 1e-4 * (1 + fabs(b)))) {
            fail_msg("%s[%lld] is %.9g in a batch of 60 and %.9g in one of 30", what, (long long)i,
                     a, b);
        }
    }
}

/* Columns are made for 56 images of this shape at a time: the second block's images get their own
 * results. */
TEST(images_beyond_a_block_are_not_forgotten)
{
    conv_data all = conv_data_make(&(conv_case){60, 8, 8, 512, 32, 3, 2, 1, 1, 1});
    conv_data half = conv_data_make(&(conv_case){30, 8, 8, 512, 32, 3, 2, 1, 1, 1});
    memcpy(half.x->data, LVNI_F32(all.x) + lvn_numel(half.x),
           (size_t)lvn_numel(half.x) * sizeof(float));
    memcpy(half.dy->data, LVNI_F32(all.dy) + lvn_numel(half.dy),
           (size_t)lvn_numel(half.dy) * sizeof(float));
    conv_data *each[] = {&all, &half};
    for (int i = 0; i < 2; i++) {
        fill(each[i]->y, 99);
        fill(each[i]->dx, 99);
        assert_int_equal(run_forward(each[i], 2, true), LVN_OK);
        assert_int_equal(run_grad_input(each[i], 2), LVN_OK);
    }
    assert_second_half(all.y, half.y, "y");
    assert_second_half(all.dx, half.dx, "dx");
    conv_data_free(&all);
    conv_data_free(&half);
}

/* w as a parameter, whose copies are shared, gives the bits it gives alone: y of x, dx of dy. */
static void assert_shared_copies_are_right(lvn_status (*forward)(const lvn_kernel_args *),
                                           lvn_status (*backward)(const lvn_kernel_args *),
                                           lvn_tensor *x, lvn_tensor *w, lvn_tensor *y,
                                           const lvn_conv_attr *attr)
{
    lvn_tensor *dx = lvn_tensor_create(x->dtype, x->ndim, x->shape);
    uint64_t seen[2][2];
    for (int shared = 0; shared < 2; shared++) {
        w->param = shared - 1;
        assert_int_equal(forward(&(lvn_kernel_args){.in = {x, w}, .out = {y}, .attr = attr}),
                         LVN_OK);
        seen[shared][0] = hash_of(y);
        assert_int_equal(backward(&(lvn_kernel_args){.in = {y, w}, .out = {dx}, .attr = attr}),
                         LVN_OK);
        seen[shared][1] = hash_of(dx);
    }
    assert_true(seen[0][0] == seen[1][0]);
    assert_true(seen[0][1] == seen[1][1]);
    lvn_release(dx);
}

/* Square weights: forward and backward choose the same layout, of the matrix and of its
 * transpose. */
TEST(square_parameters_are_not_mixed_up)
{
    static const lvn_dtype types[] = {LVN_F32, LVN_BF16};
    const int64_t rows[] = {32, 64}, square[] = {64, 64}, images[] = {2, 4, 4, 64},
                  window[] = {64, 1, 1, 64}, small[] = {2, 3, 3, 32}, nine[] = {288, 3, 3, 32},
                  many[] = {2, 3, 3, 288};
    const lvn_conv_attr point = {
        .stride = {1, 1}, .dilation = {1, 1}, .groups = 1, .in_h = 4, .in_w = 4, .kernel = {1, 1}};
    const lvn_conv_attr around = {.stride = {1, 1},
                                  .padding = {1, 1},
                                  .dilation = {1, 1},
                                  .groups = 1,
                                  .in_h = 3,
                                  .in_w = 3,
                                  .kernel = {3, 3}};
    for (int t = 0; t < (lvni_cpu_has_bf16() ? 2 : 1); t++) {
        support_type = types[t];
        lvn_tensor *x = filled(1, 2, rows), *y = filled(2, 2, rows), *image = filled(3, 4, images),
                   *result = filled(4, 4, images), *few = filled(5, 4, small),
                   *wide = filled(6, 4, many);
        support_type = LVN_F32;
        lvn_tensor *w = filled(7, 2, square), *w1 = filled(8, 4, window), *w9 = filled(9, 4, nine);
        assert_shared_copies_are_right(lvni_cpu_linear, lvni_cpu_linear_grad_input, x, w, y, NULL);
        assert_shared_copies_are_right(lvni_cpu_conv2d, lvni_cpu_conv2d_grad_input, image, w1,
                                       result, &point);
        assert_shared_copies_are_right(lvni_cpu_conv2d, lvni_cpu_conv2d_grad_input, few, w9, wide,
                                       &around);
        lvn_tensor *all[] = {x, y, image, result, few, wide, w, w1, w9};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            lvn_release(all[i]);
        }
    }
}

TEST(products_equal_loops)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 10, 128},  {5, 10, 128},
                                       {33, 17, 65}, {128, 10, 32}, {64, 48, 300}};
    static double y[128 * 64];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t m = sizes[k][0], n = sizes[k][1], depth = sizes[k][2], ys[] = {m, n};
        lvn_tensor *out = lvn_tensor_create(LVN_F32, 2, ys);
        for (int form = 0; form < 4; form++) {
            const bool ta = (form & 1) != 0, tb = (form & 2) != 0;
            const int64_t as[] = {ta ? depth : m, ta ? m : depth},
                          bs[] = {tb ? n : depth, tb ? depth : n};
            lvn_tensor *a = filled(1, 2, as), *b = filled(2, 2, bs);
            for (int64_t p = 0; p < m * n; p++) {
                y[p] = 0;
                for (int64_t i = 0; i < depth; i++) {
                    const int64_t r = p / n, c = p % n;
                    y[p] += (double)LVNI_CF32(a)[ta ? i * m + r : r * depth + i] *
                            (double)LVNI_CF32(b)[tb ? c * depth + i : i * n + c];
                }
            }
            assert_int_equal(run_matmul(a, b, out, ta, tb, 2, 2), LVN_OK);
            assert_close(out, y, "product", k * 4 + (size_t)form);
            lvn_release(a);
            lvn_release(b);
        }
        lvn_release(out);
    }
}

/* x (2, 3), w (2, 3), b (2) by hand; then the gradients of w and b for dy = ((1, 10), (100,
 * 1000)). */
TEST(linear_by_hand)
{
    float xs[] = {1, 2, 3, 4, 5, 6}, ws[] = {1, 0, -1, 2, 1, 0}, bs[] = {10, 20},
          dys[] = {1, 10, 100, 1000};
    const int64_t s23[] = {2, 3}, s22[] = {2, 2}, s2[] = {2};
    lvn_tensor *x = lvn_tensor_wrap(xs, LVN_F32, 2, s23), *w = lvn_tensor_wrap(ws, LVN_F32, 2, s23),
               *b = lvn_tensor_wrap(bs, LVN_F32, 1, s2),
               *dy = lvn_tensor_wrap(dys, LVN_F32, 2, s22), *y = lvn_tensor_create(LVN_F32, 2, s22),
               *dw = lvn_tensor_create(LVN_F32, 2, s23), *db = lvn_tensor_create(LVN_F32, 1, s2);
    assert_int_equal(lvni_cpu_linear(&(lvn_kernel_args){.in = {x, w, b}, .out = {y}}), LVN_OK);
    assert_memory_equal(y->data, ((const float[]){8, 24, 8, 33}), 16);
    assert_int_equal(lvni_cpu_linear(&(lvn_kernel_args){.in = {x, w}, .out = {y}}), LVN_OK);
    assert_memory_equal(y->data, ((const float[]){-2, 4, -2, 13}), 16);
    assert_int_equal(
        lvni_cpu_linear_grad_weight(&(lvn_kernel_args){.in = {dy, x}, .out = {dw, db}}), LVN_OK);
    assert_memory_equal(dw->data, ((const float[]){401, 502, 603, 4010, 5020, 6030}), 24);
    assert_memory_equal(db->data, ((const float[]){101, 1010}), 8);
    lvn_tensor *all[] = {x, w, b, dy, y, dw, db};
    for (size_t i = 0; i < 7; i++) {
        lvn_release(all[i]);
    }
}

/* An empty batch: results over nothing are zero, results of no elements are left alone. */
TEST(empty_batches_are_fine)
{
    const int64_t x0[] = {0, 3}, y0[] = {0, 2}, s23[] = {2, 3}, s2[] = {2};
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, x0), *dy = lvn_tensor_create(LVN_F32, 2, y0),
               *dw = filled(1, 2, s23), *db = filled(2, 1, s2), *w = filled(3, 2, s23),
               *y = lvn_tensor_create(LVN_F32, 2, y0);
    assert_int_equal(lvni_cpu_linear(&(lvn_kernel_args){.in = {x, w}, .out = {y}}), LVN_OK);
    assert_int_equal(
        lvni_cpu_linear_grad_weight(&(lvn_kernel_args){.in = {dy, x}, .out = {dw, db}}), LVN_OK);
    assert_memory_equal(dw->data, ((const float[6]){0}), 24);
    assert_memory_equal(db->data, ((const float[2]){0}), 8);
    lvn_tensor *all[] = {x, dy, dw, db, w, y};
    for (size_t i = 0; i < 6; i++) {
        lvn_release(all[i]);
    }
    conv_data d = conv_data_make(&(conv_case){0, 8, 8, 3, 4, 3, 1, 1, 1, 1});
    assert_int_equal(run_forward(&d, 2, true), LVN_OK);
    assert_int_equal(run_grad_input(&d, 2), LVN_OK);
    assert_int_equal(run_grad_weight(&d, 2, 2), LVN_OK);
    assert_memory_equal(d.dw->data, ((const float[4 * 3 * 3 * 3]){0}), 4 * 3 * 3 * 3 * 4);
    assert_memory_equal(d.db->data, ((const float[4]){0}), 16);
    conv_data_free(&d);
}
