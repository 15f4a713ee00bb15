/* test_pretrain_golden FILE: SimCLR with the weights and views of make_pretrain_golden.py: the
 * loss, the gradients of a step, and twenty steps by the recipe's own keys with each optimizer are
 * those of lightly and lightly-train in double precision, in one micro-batch and in several. */
#include "golden_support.h"
#include "group_sync_support.h"
#include "trainer_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "recipes/pretrain/pretrain.h"
#include "run/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 5, BATCH = 8, SIDE = 32, STEPS = 20, SQUARE = 8 };
enum { VIEWS = 2, PIXELS = SIDE * SIDE * 3, SAMPLE = VIEWS * PIXELS };
static const double LOSSES = 1e-4, /* relative to the largest, as all here */
    LEAST = 1e-2;                  /* a bias in front of a norm has no gradient except rounding */

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

static double get(const lvn_tensor *t, int64_t e)
{
    return t->dtype == LVN_F64 ? ((const double *)t->data)[e] : (double)LVNI_CF32(t)[e];
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
    char prefix[32];
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
        double most = 0.0;
        for (int64_t e = 0; e < n; e++) {
            most = fmax(most, fabs(g[e]));
        }
        for (int i = 0; i < s->n; i++) {
            const lvn_tensor *have = lvn_gradient(s->in[i][view]);
            assert_non_null(have);
            for (int64_t e = 0; e < lvn_numel(have); e++, g++) {
                if (!(fabs(get(have, e) - *g) <= tolerance * most)) {
                    fail_msg("%s in %d, micro-batch %d, view %d, element %d: %.15g, lightly %.15g",
                             prefix, s->n, i, view, (int)e, get(have, e), *g);
                }
            }
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

/* ---- data ---- */

/* Of each step its own views; an epoch has one step. */
typedef struct views {
    memory base; /* first */
    lvn_tensor *image, *noise;
} views;

static int views_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] =
        (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 4, .shape = {VIEWS, SIDE, SIDE, 3}};
    return 1;
}

static int64_t views_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return BATCH;
}

static void draw(const views *v, int64_t step, int64_t sample, float *out)
{
    const float *noise = LVNI_CF32(v->noise) + (step * BATCH + sample) * SAMPLE;
    for (int64_t e = 0; e < SAMPLE; e++) {
        const int64_t c = e % 3, x = e / 3 % SIDE, y = e / 3 / SIDE % SIDE;
        const int64_t at = (sample * (SIDE / SQUARE) + y / SQUARE) * (SIDE / SQUARE) + x / SQUARE;
        out[e] = LVNI_CF32(v->image)[at * 3 + c] + 0.25f * noise[e];
    }
}

static lvn_status views_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    draw((const views *)(const void *)dataset, key->epoch % STEPS, key->sample, field[0]);
    return LVN_OK;
}

static const lvn_dataset_class views_class = {
    .name = "views", .fields = views_fields, .length = views_length, .get = views_get};

static void views_open(views *v)
{
    memory_init(&v->base, BATCH, SIDE);
    v->base.base = (lvn_dataset){.cls = &views_class};
    v->image = golden_tensor(seed(), "images", 4,
                             (const int64_t[]){BATCH, SIDE / SQUARE, SIDE / SQUARE, 3});
    v->noise =
        golden_tensor(seed(), "views", 6, (const int64_t[]){STEPS, BATCH, VIEWS, SIDE, SIDE, 3});
}

static void views_close(views *v)
{
    lvn_release(v->image);
    lvn_release(v->noise);
}

/* ---- networks ---- */

static lvni_pretrain_settings network(int layers, bool norm, int embed_dim)
{
    return (lvni_pretrain_settings){.model = "resnet18",
                                    .backbone = {.image_size = SIDE, .n_classes = 1000},
                                    .embed_dim = embed_dim,
                                    .hidden_dim = 24,
                                    .output_dim = 16,
                                    .num_layers = layers,
                                    .batch_norm = norm,
                                    .temperature = 0.1};
}

/* Forward and backward of the views of step 0. Return the loss. */
static double run_micro_batch(const lvni_nn_model *m, lvni_nn_set *set)
{
    lvni_trainer_micro_batch_job *job = LVNI_NEW(LVNI_TAG_MODEL, lvni_trainer_micro_batch_job);
    lvni_trainer_dry_group *group; /* of this micro-batch alone */
    lvn_tensor *image =
        lvn_tensor_create(LVN_F32, 5, (const int64_t[]){BATCH, VIEWS, SIDE, SIDE, 3});
    const lvni_data_loader_batch b = {
        .batch = {.size = BATCH, .n_fields = 1, .image = image, .field = {image}}};
    const lvni_trainer_pass pass = {.model = m, .seed = 1, .loss_factor = 1.0};
    views v;
    if (job == NULL || image == NULL) {
        fail();
        return (double)NAN;
    }
    assert_int_equal(lvni_trainer_dry_group_create(1, &group), LVN_OK);
    views_open(&v);
    for (int i = 0; i < BATCH; i++) {
        draw(&v, 0, i, LVNI_F32(image) + (ptrdiff_t)i * SAMPLE);
    }
    views_close(&v);
    job->batch = &b;
    job->set = set;
    lvni_tensor_ctx_get()->group = lvni_trainer_dry_group_get(group, 1);
    if (lvni_trainer_run_micro_batch(&pass, job) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_tensor_ctx_get()->group = NULL;
    const double loss = lvn_step_mean(&job->step.now, "loss");
    lvni_trainer_dry_group_destroy(group);
    lvn_release(image);
    lvni_core_free(job);
    return loss;
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
    const double want = *golden_values(file, prefix, "loss", &n), loss = run_micro_batch(m, set);
    if (!(fabs(loss - want) <= 1e-5 * want)) {
        fail_msg("%s: loss %.9g, lightly %.9g", name, loss, want);
    }
    for (int64_t i = 0; i < m->n_weights; i++) { /* sums over the samples, there a mean */
        set->data[i] /= (float)BATCH;
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

/* What the recipe makes of these arguments. The configuration is the caller's. */
static lvni_core_config *read(const char *const arguments[4], setting *s)
{
    lvni_core_config *c;
    lvni_plan plan;
    const lvni_plan_options o = {.n_samples = BATCH, .batch_size = BATCH, .lanes = 1, .cores = 1};
    assert_int_equal(lvni_core_config_create(lvni_pretrain_recipe.keys, &c), LVN_OK);
    assert_int_equal(lvni_core_config_load_job(c, lvni_pretrain_recipe.defaults.job), LVN_OK);
    int n = 0;
    while (n < 4 && arguments[n] != NULL) {
        n++;
    }
    assert_int_equal(lvni_core_config_load_arguments(c, n, arguments), LVN_OK);
    assert_int_equal(lvni_pretrain_recipe.defaults.prepare(c), LVN_OK);
    assert_int_equal(lvni_run_resolve_optim(c), LVN_OK);
    assert_int_equal(lvni_plan_make(&o, &plan), LVN_OK);
    assert_int_equal(lvni_run_read_optim(c, &s->optim), LVN_OK);
    assert_int_equal(lvni_run_read_schedule(c, &plan, &s->schedule), LVN_OK);
    lvni_run_read_rules(c, &plan, &s->rules);
    return c;
}

/* What became of the weights, against the file. */
static void compare_changes(const bench *b, const float *before, const char *prefix,
                            double tolerance)
{
    double worst = 0.0;
    for (int i = 0; i < b->model->n_parameters; i++) {
        const lvni_nn_parameter *p = &b->model->parameters[i];
        const int64_t at = b->model->offset[i];
        int64_t n;
        float *change = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)p->numel * 2 * sizeof *change);
        assert_non_null(change);
        float *raw = change + p->numel;
        for (int64_t e = 0; e < p->numel; e++) {
            raw[e] = b->model->weights[at + e] - before[at + e];
        }
        lvni_nn_parameter_to_file(p, raw, change);
        golden_compare_row_within(golden_values(file, prefix, p->name, &n), change, p->numel,
                                  tolerance, p->name, 0.0, &worst);
        lvni_core_free(change);
    }
    print_message("  %s: largest relative difference of changes %.1e\n", prefix, worst);
}

/* tolerance: of changes of weights. */
static void run_steps(const char *name, const char *const arguments[4], int parts, double tolerance)
{
    const lvni_pretrain_settings network_of_steps = network(2, true, 0);
    setting s = {.cls = &lvni_pretrain_simclr,
                 .arguments = &network_of_steps,
                 .batch_size = BATCH,
                 .micro_batches = parts,
                 .lanes = parts,
                 .sync = true};
    views v;
    bench b;
    char prefix[48];
    int64_t n;
    views_open(&v);
    lvni_core_config *c = read(arguments, &s);
    bench_open(&b, &v.base, &s);
    golden_fill(b.model, seed(), "bn2");
    const size_t bytes = (size_t)b.model->n_weights * sizeof(float);
    float *before = lvni_core_alloc(LVNI_TAG_MODEL, bytes);
    assert_non_null(before);
    memcpy(before, b.model->weights, bytes);
    snprintf(prefix, sizeof prefix, "steps/%s/", name);
    const double *losses = golden_values(file, prefix, "losses", &n),
                 *rates = golden_values(file, prefix, "rates", &n);
    for (int step = 0; step < STEPS; step++) {
        lvni_trainer_step_result r;
        if (lvni_trainer_step(b.trainer, &r) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        b.trainer->at.epoch++;
        b.trainer->at.step_in_epoch = 0;
        const double loss = lvni_trainer_metric_mean(&r.metrics, "loss");
        if (!(fabs(loss - losses[step]) <= LOSSES * losses[0])) {
            fail_msg("%s in %d, step %d: loss %.9g, lightly %.9g", name, parts, step, loss,
                     losses[step]);
        }
        if (!(fabs(r.lr - rates[step]) <= 1e-12)) {
            fail_msg("%s, step %d: rate %.15g, lightly-train %.15g", name, step, r.lr, rates[step]);
        }
    }
    snprintf(prefix, sizeof prefix, "steps/%s/grad/", name);
    compare_changes(&b, before, prefix, tolerance);
    lvni_core_free(before);
    bench_close(&b);
    lvni_core_config_destroy(c);
    views_close(&v);
}

TEST(twenty_steps_of_sgd)
{
    run_steps("sgd", (const char *const[4]){"max_epochs=20"}, 1, 1e-3);
    run_steps("sgd", (const char *const[4]){"max_epochs=20", "optim=sgd"}, 3, 1e-3);
}

/* Elements whose gradient is near 0 move by its sign, and by trust ratios that follow it. */
TEST(twenty_steps_of_adamw)
{
    run_steps("adamw",
              (const char *const[4]){"max_epochs=20", "optim=adamw", "optim_args.eps=1e-3"}, 1,
              5e-3);
}

TEST(twenty_steps_of_lars)
{
    run_steps("lars",
              (const char *const[4]){"max_epochs=20", "optim=lars", "optim_args.momentum=0.9",
                                     "optim_args.weight_decay=1e-4"},
              1, 5e-3);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_pretrain_golden FILE\n");
        return 2;
    }
    if (lvni_cpu_start() != LVN_OK || lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(file);
    return failed;
}
