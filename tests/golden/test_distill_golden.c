/* test_distill_golden FILE: distillation with the weights and views of make_distill_golden.py: the
 * losses and their gradients, and twenty steps of versions 1 to 3 by the recipe's own keys are
 * those of lightly-train in double precision. */
#include "group_sync_support.h"
#include "golden_support.h"
#include "pretrain_steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 5, PLACES = 4, LONG = 10, SHORT = 4, NEXT = 3 };

static lvni_ckpt_st_file *file;

static uint64_t seed(void)
{
    return (uint64_t)golden_number(file, "seed");
}

/* Rows from `row` on of the numbers `name`, (ROWS, places, COLUMNS). */
static void fill(lvn_tensor *t, const char *name, int64_t row, int64_t places)
{
    const int64_t shape[] = {ROWS, places, COLUMNS};
    lvn_tensor *whole = golden_tensor(seed(), name, 3, shape);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        golden_set(t, e, (double)LVNI_CF32(whole)[row * places * COLUMNS + e]);
    }
    lvn_release(whole);
}

static void compare(const micro_batches *s, int input, const char *prefix, const char *loss_name,
                    double tolerance)
{
    char what[64];
    int64_t n;
    const double want = *golden_values(file, prefix, loss_name, &n),
                 *g = golden_values(file, prefix, "student", &n),
                 most = tolerance * golden_largest(g, n);
    double loss = 0.0;
    for (int i = 0; i < s->n; i++) {
        snprintf(what, sizeof what, "%s, %d of %d", prefix, i, s->n);
        g = golden_compare_input(s->in[i][input], g, 0, most, what);
        loss += s->loss[i];
    }
    if (!(fabs(loss - want) <= tolerance * want)) {
        fail_msg("%s in %d: %.15g, lightly-train %.15g", prefix, s->n, loss, want);
    }
}

/* ---- the global loss ---- */

static lvn_tensor *queue, *next; /* of the running case */

static lvn_tensor *share_global(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    lvn_tensor *of_teacher = lvn_detach(in[0]);
    lvn_tensor *loss = lvni_pretrain_distill_global(of_teacher, in[1], lvn_group_gather(of_teacher),
                                                    queue, next, 0.07);
    return lvn_mul_scalar(loss, (double)lvn_size(in[0], 0) / ROWS);
}

/* The file's queue has the newest row first; ours the oldest one at NEXT, and newer ones behind. */
static void make_queue(lvn_dtype dtype, int64_t size)
{
    lvn_tensor *values = golden_tensor(seed(), "queue", 2, (const int64_t[]){LONG, COLUMNS});
    queue = lvn_tensor_create(dtype, 2, (const int64_t[]){size, COLUMNS});
    next = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){1});
    assert_non_null(queue);
    assert_non_null(next);
    LVNI_F32(next)[0] = NEXT;
    for (int64_t k = 0; k < size; k++) {
        for (int64_t c = 0; c < COLUMNS; c++) {
            golden_set(queue, (NEXT + k) % size * COLUMNS + c,
                       (double)LVNI_CF32(values)[(size - 1 - k) * COLUMNS + c]);
        }
    }
    lvn_release(values);
}

static void compare_global(const char *name, int64_t size, lvn_dtype dtype, int n, const int *rows)
{
    micro_batches s;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "loss/%s/", name);
    make_queue(dtype, size);
    micro_batches_open(&s, n, share_global);
    s.plain = true;
    for (int i = 0, row = 0; i < n; row += rows[i], i++) {
        fill(micro_batches_input(&s, i, 0, dtype, LVN_SHAPE(rows[i], COLUMNS)), "teacher", row, 1);
        fill(micro_batches_input(&s, i, 1, dtype, LVN_SHAPE(rows[i], COLUMNS)), "student", row, 1);
    }
    if (micro_batches_run(&s, true) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    compare(&s, 1, prefix, "global", dtype == LVN_F64 ? 1e-10 : 1e-5);
    micro_batches_close(&s);
    lvn_release(queue);
    lvn_release(next);
}

TEST(the_queue_has_the_whole_step)
{
    static const struct {
        int n, rows[3];
    } cut[] = {{1, {6}}, {2, {4, 2}}, {3, {1, 2, 3}}};
    for (int c = 0; c < 3; c++) {
        for (int wide = 0; wide < 2; wide++) {
            const lvn_dtype dtype = wide ? LVN_F64 : LVN_F32;
            compare_global("long", LONG, dtype, cut[c].n, cut[c].rows);
            compare_global("short", SHORT, dtype, cut[c].n, cut[c].rows);
        }
    }
}

/* ---- the local loss ---- */

static lvn_tensor *share_local(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvni_pretrain_distill_local(lvn_detach(in[0]), in[1], 0.1);
}

TEST(the_loss_within_an_image)
{
    for (int wide = 0; wide < 2; wide++) {
        const lvn_dtype dtype = wide ? LVN_F64 : LVN_F32;
        micro_batches s;
        micro_batches_open(&s, 1, share_local);
        s.plain = true;
        fill(micro_batches_input(&s, 0, 0, dtype, LVN_SHAPE(ROWS, PLACES, COLUMNS)), "places", 0,
             PLACES);
        fill(micro_batches_input(&s, 0, 1, dtype, LVN_SHAPE(ROWS, PLACES, COLUMNS)), "own places",
             0, PLACES);
        assert_int_equal(micro_batches_run(&s, true), LVN_OK);
        compare(&s, 1, "loss/map/", "local", wide ? 1e-10 : 1e-5);
        micro_batches_close(&s);
    }
}

static lvn_tensor *share_same(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    lvn_tensor *x = in[0];
    lvn_tensor *map = lvn_reshape(x, 3, (const int64_t[]){3, 2, COLUMNS});
    return lvn_add(lvni_pretrain_distill_global(lvn_detach(x), x, lvn_group_gather(lvn_detach(x)),
                                                queue, next, 0.07),
                   lvni_pretrain_distill_local(lvn_detach(map), map, 0.07));
}

TEST(a_student_that_sees_the_same_has_no_loss)
{
    micro_batches s;
    make_queue(LVN_F32, LONG);
    micro_batches_open(&s, 1, share_same);
    s.plain = true;
    fill(micro_batches_input(&s, 0, 0, LVN_F32, LVN_SHAPE(ROWS, COLUMNS)), "teacher", 0, 1);
    assert_int_equal(micro_batches_run(&s, false), LVN_OK);
    assert_true(fabs(s.loss[0]) <= 1e-6);
    micro_batches_close(&s);
    lvn_release(queue);
    lvn_release(next);
}

/* ---- twenty steps ---- */

/* tolerance: more than PyTorch's own f32 is from its f64 after twenty steps. */
static void run_steps(const char *name, int side, double tolerance, const char *const *arguments)
{
    pretrain_steps_compare(&(pretrain_steps){.file = file,
                                             .name = name,
                                             .arguments = arguments,
                                             .images = 49, /* a queue of 16 */
                                             .n = 1,
                                             .side = side,
                                             .parts = 1,
                                             .tolerance = tolerance});
}

TEST(twenty_steps_of_version_3)
{
    run_steps("adamw", 64, 3e-2,
              (const char *const[]){"method=distillation", "model=resnet18", "data=none",
                                    "max_epochs=20", "method_args.teacher=resnet18",
                                    "method_args.teacher_weights=none", "optim_args.eps=1e-3",
                                    NULL});
}

TEST(twenty_steps_of_version_1)
{
    run_steps("first", 64, 1e-2,
              (const char *const[]){"method=distillationv1", "model=resnet18", "data=none",
                                    "max_epochs=20", "method_args.teacher=resnet18",
                                    "method_args.teacher_weights=none", NULL});
}

/* The last two blocks of a transformer, and a head of two layers. */
TEST(twenty_steps_of_version_2)
{
    run_steps("second", 56, 2e-2,
              (const char *const[]){"method=distillationv2", "model=resnet18", "data=none",
                                    "max_epochs=20", "method_args.teacher=_vittest14",
                                    "method_args.teacher_weights=none",
                                    "method_args.n_projection_layers=2",
                                    "method_args.projection_hidden_dim=24", "optim.lr=2", NULL});
}

int main(int argc, char **argv)
{
    return pretrain_golden_main(argc, argv, &file);
}
