/* test_pretrain_golden FILE: SimCLR with the weights and views of make_pretrain_golden.py: the
 * loss, the gradients of a step, and twenty steps by the recipe's own keys with each optimizer are
 * those of lightly and lightly-train in double precision, in one micro-batch and in several. */
#include "group_sync_support.h"
#include "golden_support.h"
#include "pretrain_steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 5, VIEWS = 2 };
static const double LEAST = 1e-2; /* a bias in front of a norm has no gradient except rounding */

static lvni_ckpt_st_file *file;

static uint64_t seed(void)
{
    return (uint64_t)golden_number(file, "seed");
}

/* ---- the loss ---- */

static double temperature; /* of the running formula */

/* A micro-batch's share of the mean over all rows. */
static lvn_tensor *share(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    lvn_tensor *accuracy;
    (void)all;
    (void)micro_batch;
    lvn_tensor *loss = lvni_pretrain_nt_xent(
        lvni_pretrain_unit_rows(in[0]), lvni_pretrain_unit_rows(in[1]), temperature, &accuracy);
    return lvn_mul_scalar(loss, (double)lvn_size(in[0], 0) / ROWS);
}

/* The rows of a view, cut into micro-batches; compares their gradients with the file. */
static void fill(micro_batches *s, int view, lvn_dtype dtype, const int *rows)
{
    lvn_tensor *whole =
        golden_tensor(seed(), view == 0 ? "first" : "second", 2, (const int64_t[]){ROWS, COLUMNS});
    for (int i = 0, at = 0; i < s->n; at += rows[i] * COLUMNS, i++) {
        lvn_tensor *t = micro_batches_input(s, i, view, dtype, LVN_SHAPE(rows[i], COLUMNS));
        for (int64_t e = 0; e < lvn_numel(t); e++) {
            const float x = LVNI_CF32(whole)[at + e];
            if (dtype == LVN_F64) {
                ((double *)t->data)[e] = (double)x;
            } else {
                LVNI_F32(t)[e] = x;
            }
        }
    }
    lvn_release(whole);
}

static void compare_loss(micro_batches *s, double tolerance)
{
    char prefix[32], what[64];
    int64_t n;
    double loss = 0.0;
    snprintf(prefix, sizeof prefix, "loss/%g/", temperature);
    for (int i = 0; i < s->n; i++) {
        loss += s->loss[i];
    }
    const double want = *golden_values(file, prefix, "loss", &n);
    if (!(fabs(loss - want) <= tolerance * want)) {
        fail_msg("%s in %d: %.15g, lightly %.15g", prefix, s->n, loss, want);
    }
    for (int view = 0; view < VIEWS; view++) {
        const double *g = golden_values(file, prefix, view == 0 ? "first" : "second", &n);
        const double most = tolerance * golden_largest(g, n);
        for (int i = 0; i < s->n; i++) {
            snprintf(what, sizeof what, "%sview %d, %d of %d", prefix, view, i, s->n);
            g = golden_compare_input(s->in[i][view], g, 0, most, what);
        }
    }
}

TEST(the_loss_is_that_of_all_rows)
{
    static const struct {
        int n, rows[3];
    } cut[] = {{1, {6}}, {2, {3, 3}}, {2, {4, 2}}, {3, {1, 2, 3}}};
    for (int k = 0; k < 16; k++) {
        const lvn_dtype dtype = k % 2 == 0 ? LVN_F64 : LVN_F32;
        const int c = k / 4;
        micro_batches s;
        temperature = k / 2 % 2 == 0 ? 0.1 : 0.5;
        micro_batches_open(&s, cut[c].n, share);
        s.plain = true;
        fill(&s, 0, dtype, cut[c].rows);
        fill(&s, 1, dtype, cut[c].rows);
        if (micro_batches_run(&s, true) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        compare_loss(&s, dtype == LVN_F64 ? 1e-10 : 1e-5);
        micro_batches_close(&s);
    }
}

/* ---- networks ---- */

static lvni_pretrain_settings network(int layers, bool norm, int embed_dim)
{
    return (lvni_pretrain_settings){.model = "resnet18",
                                    .backbone = {.image_size = PRETRAIN_SIDE, .n_classes = 1000},
                                    .embed_dim = embed_dim,
                                    .hidden_dim = 24,
                                    .output_dim = 16,
                                    .num_layers = layers,
                                    .batch_norm = norm,
                                    .temperature = 0.1};
}

static void compare_step(const lvni_pretrain_settings *s, const char *name)
{
    lvni_nn_model *m;
    lvni_nn_set *set;
    char prefix[48];
    double worst = 0.0;
    int64_t n;
    assert_int_equal(lvni_nn_model_build_empty(&lvni_pretrain_simclr, s, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    golden_fill(m, seed(), "bn2");
    snprintf(prefix, sizeof prefix, "head/%s/", name);
    const double want = *golden_values(file, prefix, "loss", &n),
                 loss = pretrain_micro_batch(m, set, seed(),
                                             (pretrain_views){.n = 2, .side = PRETRAIN_SIDE}, NULL);
    if (!(fabs(loss - want) <= 1e-5 * want)) {
        fail_msg("%s: loss %.9g, lightly %.9g", name, loss, want);
    }
    for (int64_t i = 0; i < m->n_weights; i++) { /* sums over the samples, there a mean */
        set->data[i] /= (float)PRETRAIN_BATCH;
    }
    snprintf(prefix, sizeof prefix, "head/%s/grad/", name);
    assert_int_equal(golden_compare_gradients(file, prefix, set, LEAST, &worst), m->n_parameters);
    print_message("  %s: largest relative difference of gradients %.1e\n", name, worst);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

TEST(a_step_with_each_head)
{
    static const struct {
        const char *name;
        int layers;
        bool norm;
        int embed_dim;
    } row[] = {{"default", 2, true, 0},
               {"three", 3, true, 0},
               {"plain", 2, false, 0},
               {"embedding", 2, true, 20}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const lvni_pretrain_settings s = network(row[i].layers, row[i].norm, row[i].embed_dim);
        compare_step(&s, row[i].name);
    }
}

/* ---- twenty steps ---- */

static const char *const small[] = {"model=resnet18", "data=none", "max_epochs=20",
                                    "method_args.hidden_dim=24", "method_args.output_dim=16"};

static void run_steps(const char *name, int n, const char *const *more, int parts, double tolerance)
{
    const char *arguments[16] = {0};
    memcpy(arguments, small, sizeof small);
    memcpy(arguments + sizeof small / sizeof *small, more, (size_t)n * sizeof *more);
    pretrain_steps_compare(&(pretrain_steps){.file = file,
                                             .name = name,
                                             .arguments = arguments,
                                             .images = 100,
                                             .parts = parts,
                                             .tolerance = tolerance});
}

TEST(twenty_steps_of_sgd)
{
    run_steps("sgd", 1, (const char *const[]){"method=simclr"}, 1, 1e-3);
    run_steps("sgd", 1, (const char *const[]){"optim=sgd"}, 3, 1e-3);
}

/* Elements whose gradient is near 0 move by its sign, and by trust ratios that follow it. */
TEST(twenty_steps_of_adamw)
{
    run_steps("adamw", 2, (const char *const[]){"optim=adamw", "optim_args.eps=1e-3"}, 1, 5e-3);
}

TEST(twenty_steps_of_lars)
{
    run_steps("lars", 3,
              (const char *const[]){"optim=lars", "optim_args.momentum=0.9",
                                    "optim_args.weight_decay=1e-4"},
              1, 5e-3);
}

int main(int argc, char **argv)
{
    return pretrain_golden_main(argc, argv, &file);
}
