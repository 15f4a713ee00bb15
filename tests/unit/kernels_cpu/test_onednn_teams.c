/* Which implementations of oneDNN give other bits with another team, and which wrong numbers, over
 * drawn shapes and with scratch memory full of NaN or 1e30. As a test: for LEVIN_TEST_SECONDS (4)
 * with the seed LEVIN_TEST_SEED (another each day), that no op does so in the way levin runs it.
 *
 * test_onednn_teams --survey SECONDS [SEED]: what oneDNN does when it is left alone, one line per
 * operation and implementation: from it the table in onednn_version.c is written (run it for every
 * new version, and for LEVIN_CPU_ISA=v3). */
#include "core/machine.h"
#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_weights.h"
#include "onednn_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int teams[] = {1, 2, 3, 4, 8, 16};
enum { TEAMS = sizeof teams / sizeof *teams, MOST_PRODUCTS = 8000000 };

static lvni_check_generator drawn = {.most = MOST_PRODUCTS};

static int draw(int n)
{
    return lvni_check_draw_below(&drawn, n);
}

static void print_conv(const conv_case *c, char *text, size_t size)
{
    snprintf(text, size, "{%d, %d, %d, %d, %d, %d, %d, %d, %d, %d}", c->n, c->h, c->w, c->i, c->o,
             c->k, c->stride, c->padding, c->dilation, c->groups);
}

static void print_product(const lvni_check_product *p, char *text, size_t size)
{
    snprintf(text, size, "(%d, %d, %d)%s%s", (int)p->m, (int)p->n, (int)p->k,
             p->trans_a ? " a transposed" : "", p->trans_b ? " b transposed" : "");
}

/* What scratch memory holds in run t of a shape; 0: what the one before left. */
static float old_contents(int t)
{
    return t == 0 ? NAN : t == 1 ? 1e30f : 0.0f;
}

/* ---- as levin runs them ---- */

static void check_conv(const conv_case *c)
{
    conv_data d = conv_data_make(c);
    const int fixed = teams[draw(5)];
    uint64_t y = 0, dx = 0, dw = 0;
    for (int t = 0; t < TEAMS; t++) {
        lvn_tensor *const out[3] = {d.y, d.dx, d.dw};
        for (int k = 0; k < 3; k++) {
            fill_bytes(out[k], 0xff);
            lvni_kernels_scratch_spoil(old_contents(t));
            const lvn_status s = k == 0   ? run_forward_fixed(&d, teams[t], fixed)
                                 : k == 1 ? run_grad_input_fixed(&d, teams[t], fixed)
                                          : run_grad_weight(&d, teams[t], fixed);
            const double error = s == LVN_OK && t < 2 ? error_of(&d, out[k]) : 0;
            assert_int_equal(s, LVN_OK); /* no shape is refused */
            if (error > 1) {
                char text[96];
                print_conv(c, text, sizeof text);
                fail_msg("the %s of %s in %s is off by %.3g times what rounding explains",
                         k == 0   ? "forward convolution"
                         : k == 1 ? "input gradient"
                                  : "weight gradient",
                         text, support_type == LVN_F32 ? "f32" : "bf16", error);
            }
        }
        if (t == 0) {
            y = hash_of(d.y);
            dx = hash_of(d.dx);
            dw = hash_of(d.dw);
        } else if (y != hash_of(d.y) || dx != hash_of(d.dx) || dw != hash_of(d.dw)) {
            char text[96];
            print_conv(c, text, sizeof text);
            fail_msg("the %s of %s in %s has other bits with %d threads than with 1",
                     y != hash_of(d.y)     ? "forward convolution"
                     : dx != hash_of(d.dx) ? "input gradient"
                                           : "weight gradient",
                     text, support_type == LVN_F32 ? "f32" : "bf16", teams[t]);
        }
    }
    conv_data_free(&d);
}

static void check_product(const lvni_check_product *p)
{
    const int64_t as[] = {p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k},
                  bs[] = {p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n}, ys[] = {p->m, p->n};
    lvn_tensor *a = filled(1, 2, as), *b = filled(2, 2, bs), *y = filled(3, 2, ys);
    const int fixed = teams[draw(5)];
    uint64_t first = 0;
    for (int t = 0; t < TEAMS; t++) {
        fill_bytes(y, 0xff);
        lvni_kernels_scratch_spoil(old_contents(t));
        assert_int_equal(run_matmul(a, b, y, p->trans_a, p->trans_b, teams[t], fixed), LVN_OK);
        first = t == 0 ? hash_of(y) : first;
        assert_true(t > 0 || error_of_product(a, b, y, p->trans_a, p->trans_b) < 1);
        if (first != hash_of(y)) {
            char text[96];
            print_product(p, text, sizeof text);
            fail_msg("the product %s in %s has other bits with %d threads than with 1", text,
                     support_type == LVN_F32 ? "f32" : "bf16", teams[t]);
        }
    }
    lvn_release(a);
    lvn_release(b);
    lvn_release(y);
}

/* Found by the survey: kernels of oneDNN let old scratch memory into these. */
TEST(known_shapes_are_right)
{
    static const conv_case known[] = {
        {3, 31, 1, 53, 16, 7, 2, 3, 1, 1},   {2, 41, 2, 51, 47, 7, 3, 3, 1, 1},
        {8, 61, 7, 53, 21, 2, 3, 0, 1, 1},   {4, 5, 6, 56, 32, 3, 1, 2, 2, 1},
        {1, 17, 3, 48, 1024, 3, 3, 1, 1, 1}, {3, 14, 1, 258, 66, 5, 2, 4, 2, 6},
        {2, 14, 1, 16, 23, 3, 2, 1, 1, 1},   {3, 44, 8, 50, 46, 3, 2, 1, 1, 1},
        {6, 38, 5, 256, 96, 2, 3, 0, 1, 1}};
    if (!lvni_cpu_has_bf16()) {
        print_message("skipped: no bf16 kernels on %s\n", lvni_cpu_describe());
        skip();
    }
    support_type = LVN_BF16;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        check_conv(&known[i]);
    }
    support_type = LVN_F32;
}

/* Threads of oneDNN's kernels write into each other's memory here: most on AVX2. */
TEST(strided_pixels_have_one_result)
{
    static const conv_case c = {7, 6, 12, 6, 1024, 1, 2, 0, 1, 1};
    conv_data d = conv_data_make(&c);
    uint64_t first = 0;
    for (int run = 0; run < 60; run++) {
        fill_bytes(d.dw, 0xff);
        lvni_kernels_scratch_spoil(old_contents(run % 2)); /* so threads begin at other times */
        assert_int_equal(run_grad_weight(&d, 1 + run % 4, 2 + run / 30), LVN_OK);
        first = run == 30 ? 0 : first;
        first = first == 0 ? hash_of(d.dw) : first;
        assert_true(first == hash_of(d.dw));
    }
    assert_true(error_of(&d, d.dw) < 1);
    conv_data_free(&d);
}

static double seconds_of_test(void)
{
    const char *given = getenv("LEVIN_TEST_SECONDS");
    return given == NULL ? 4 : strtod(given, NULL);
}

TEST(bits_do_not_depend_on_the_team)
{
    const char *given = getenv("LEVIN_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) / 86400;
    const uint64_t end = lvni_core_now_ns() + (uint64_t)(seconds_of_test() * 1e9);
    int n = 0;
    drawn.narrow = getenv("LEVIN_TEST_NARROW") != NULL;
    print_message("LEVIN_TEST_SEED=%llu\n", (unsigned long long)seed);
    drawn.state = seed;
    while (lvni_core_now_ns() < end) {
        support_type = lvni_cpu_has_bf16() && draw(2) == 0 ? LVN_BF16 : LVN_F32;
        drawn.narrow = drawn.narrow || (n % 4 == 3 && support_type == LVN_BF16);
        const conv_case c = lvni_check_draw_conv(&drawn);
        const lvni_check_product p = lvni_check_draw_product(&drawn);
        drawn.narrow = getenv("LEVIN_TEST_NARROW") != NULL;
        check_conv(&c);
        check_product(&p);
        n++;
    }
    print_message("%d convolutions and products\n", n);
    assert_true(n > 0);
}

/* ---- as oneDNN runs them ---- */

typedef struct finding {
    char name[160];
    int shapes, depend;
    int others;   /* of which another team has another implementation */
    int unstable; /* that give other bits with other contents of scratch memory */
    int wrong;
    char example[96];
} finding;

static finding findings[128];
static int n_findings;

static void note(const char *name, bool depends, bool other, bool unstable, double error,
                 const char *shape)
{
    int k = 0;
    while (k < n_findings && strcmp(findings[k].name, name) != 0) {
        k++;
    }
    if (k == (int)(sizeof findings / sizeof *findings)) {
        return;
    }
    finding *f = &findings[k];
    if (k == n_findings) {
        n_findings++;
        snprintf(f->name, sizeof f->name, "%s", name);
    }
    if ((depends || unstable) && f->depend + f->unstable == 0) {
        snprintf(f->example, sizeof f->example, "%s", shape);
    }
    f->shapes++;
    f->depend += depends;
    f->others += other;
    f->unstable += unstable;
    f->wrong += error > 1;
    if (error > 1) {
        printf("wrong by %.3g: %s %s\n", error, name, shape);
    }
    if ((depends || unstable) && getenv("LEVIN_TEST_ALL") != NULL) {
        printf("%s %s\n", name, shape);
    }
}

typedef struct survey_job {
    const lvni_cpu_dnn_work *work;
    const char *op, *shape;
    const void **data; /* data[1] is filled here */
    const lvn_tensor *w;
    lvn_tensor *out;
    double (*error)(const void *of, const lvn_tensor *out);
    const void *of;
} survey_job;

static bool run_once(const survey_job *j, const lvni_cpu_dnn_found *f, bool with_nan)
{
    fill_bytes(j->out, 0xff);
    lvni_kernels_scratch_spoil(old_contents(with_nan ? 0 : 1));
    const lvn_status s = j->out == j->w ? lvni_cpu_dnn_run_to_weights(f, j->data, j->out->data)
                                        : lvni_cpu_dnn_run_with_weights(f, j->data, j->w);
    lvni_kernels_scratch_spoil(0.0f);
    return s == LVN_OK;
}

/* Runs it with each team. */
static void survey_work(const survey_job *j)
{
    char first[128] = "", name[128], text[160];
    uint64_t hash = 0;
    bool depends = false, other = false, unstable = false;
    double error = 0;
    for (int t = 0; t < TEAMS; t++) {
        lvni_cpu_dnn_prim prim;
        lvni_cpu_dnn_found f = {.prim = &prim, .team = teams[t]};
        const int before = lvni_cpu_omp_enter(teams[t]);
        bool ran = lvni_cpu_dnn_stream(&f.stream) == LVN_OK &&
                   lvni_cpu_dnn_implementation(j->work, name) == LVN_OK &&
                   lvni_cpu_dnn_create(j->work, &prim) == LVN_OK && prim.primitive != NULL;
        if (ran) {
            ran = run_once(j, &f, true);
            const uint64_t once = hash_of(j->out);
            const double e = j->error(j->of, j->out);
            error = e > error ? e : error;
            ran = ran && run_once(j, &f, false);
            unstable = unstable || once != hash_of(j->out);
            lvni_cpu_dnn_prim_destroy(&prim);
        }
        lvni_cpu_omp_leave(before);
        if (!ran) {
            return;
        }
        if (t == 0) {
            snprintf(first, sizeof first, "%s", name);
            hash = hash_of(j->out);
        } else if (strcmp(first, name) != 0) {
            other = true;
        } else {
            depends = depends || hash != hash_of(j->out);
        }
    }
    snprintf(text, sizeof text, "%-17s %-4s %s", j->op, j->work->low != 0 ? "bf16" : "f32", first);
    note(text, depends, other, unstable, error, j->shape);
}

static double conv_error(const void *of, const lvn_tensor *out)
{
    return error_of(of, out);
}

typedef struct product_data {
    const lvni_check_product *p;
    const lvn_tensor *a, *b;
} product_data;

static double product_error(const void *of, const lvn_tensor *out)
{
    const product_data *d = of;
    return error_of_product(d->a, d->b, out, d->p->trans_a, d->p->trans_b);
}

static void survey_conv(const conv_case *c)
{
    conv_data d = conv_data_make(c);
    char text[96];
    print_conv(c, text, sizeof text);
    lvni_cpu_dnn_work work;
    memset(&work, 0, sizeof work);
    work.low = support_type == LVN_BF16;
    work.shape.conv = (lvni_cpu_dnn_conv_shape){.n = c->n,
                                                .ih = c->h,
                                                .iw = c->w,
                                                .ic = c->i,
                                                .oh = d.y->shape[1],
                                                .ow = d.y->shape[2],
                                                .oc = c->o,
                                                .kh = c->k,
                                                .kw = c->k,
                                                .stride = {c->stride, c->stride},
                                                .padding = {c->padding, c->padding},
                                                .dilation = {c->dilation, c->dilation},
                                                .groups = c->groups};
    const void *weight[LVNI_DNN_MAX_ARGS] = {d.x->data, NULL, d.dy->data};
    const void *input[LVNI_DNN_MAX_ARGS] = {d.dy->data, NULL, d.dx->data};
    const void *forward[LVNI_DNN_MAX_ARGS] = {d.x->data, NULL, d.y->data};
    const survey_job jobs[] = {
        {&work, "conv_grad_weight", text, weight, d.dw, d.dw, conv_error, &d},
        {&work, "conv_grad_input", text, input, d.w, d.dx, conv_error, &d},
        {&work, "conv_forward", text, forward, d.w, d.y, conv_error, &d}};
    static const lvni_cpu_dnn_op ops[] = {LVNI_DNN_CONV_GRAD_WEIGHT, LVNI_DNN_CONV_GRAD_INPUT,
                                          LVNI_DNN_CONV_FORWARD};
    for (int i = 0; i < 3; i++) {
        work.op = ops[i];
        work.wide_w = ops[i] != LVNI_DNN_CONV_GRAD_WEIGHT && work.low;
        survey_work(&jobs[i]);
    }
    conv_data_free(&d);
}

static void survey_product(const lvni_check_product *p)
{
    const int64_t as[] = {p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k},
                  bs[] = {p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n}, ys[] = {p->m, p->n};
    lvn_tensor *a = filled(1, 2, as), *b = filled(2, 2, bs), *y = filled(3, 2, ys);
    char text[96];
    print_product(p, text, sizeof text);
    lvni_cpu_dnn_work work;
    memset(&work, 0, sizeof work);
    work.op = LVNI_DNN_MATMUL;
    work.low = support_type == LVN_BF16;
    work.shape.matmul = (lvni_cpu_dnn_matmul_shape){
        .batch = 1, .m = p->m, .n = p->n, .k = p->k, .trans_a = p->trans_a, .trans_b = p->trans_b};
    const void *data[LVNI_DNN_MAX_ARGS] = {a->data, NULL, y->data};
    const product_data of = {p, a, b};
    const survey_job job = {
        &work, p->trans_a ? "product, a trans." : "product", text, data, b, y, product_error, &of};
    survey_work(&job);
    lvn_release(a);
    lvn_release(b);
    lvn_release(y);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const finding *)a)->name, ((const finding *)b)->name);
}

static int survey(double seconds, uint64_t seed)
{
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 77;
    }
    printf("%s\n", lvni_cpu_describe());
    drawn.narrow = getenv("LEVIN_TEST_NARROW") != NULL;
    drawn.state = seed;
    const uint64_t end = lvni_core_now_ns() + (uint64_t)(seconds * 1e9);
    while (lvni_core_now_ns() < end) {
        support_type = lvni_cpu_has_bf16() && draw(2) == 0 ? LVN_BF16 : LVN_F32;
        const conv_case c = lvni_check_draw_conv(&drawn);
        const lvni_check_product p = lvni_check_draw_product(&drawn);
        survey_conv(&c);
        if (drawn.narrow) {
            continue;
        }
        survey_product(&p);
    }
    qsort(findings, (size_t)n_findings, sizeof *findings, by_name);
    for (int k = 0; k < n_findings; k++) {
        const finding *f = &findings[k];
        printf("%-98s %5d shapes, %4d depend, %3d others, %3d unstable  %s\n", f->name, f->shapes,
               f->depend, f->others, f->unstable, f->example);
    }
    return 0;
}

BEFORE_ALL()
{
    return start_kernels(state);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--survey") == 0) {
        return survey(strtod(argv[2], NULL), argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
    }
    return test_main(argc, argv);
}
