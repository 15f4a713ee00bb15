#include "pretrain_steps.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "run/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCH = PRETRAIN_BATCH,
    SIDE = PRETRAIN_SIDE,
    LOCAL_SIDE = PRETRAIN_LOCAL_SIDE,
    STEPS = PRETRAIN_STEPS,
    SQUARE = 8,
    VIEWS = 2
};
static const double LOSSES = 1e-4; /* relative to the largest, as all here */

/* ---- data ---- */

static int views_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const pretrain_views *v = (const pretrain_views *)(const void *)dataset;
    out[0] = (lvn_field){
        .name = "image", .dtype = LVN_F32, .ndim = 4, .shape = {v->n, v->side, v->side, 3}};
    out[1] = (lvn_field){.name = "image2",
                         .dtype = LVN_F32,
                         .ndim = 4,
                         .shape = {v->n_local, v->local_side, v->local_side, 3}};
    return v->n_local > 0 ? 2 : 1;
}

static int64_t views_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return BATCH;
}

/* The image's squares, and a quarter of the view's own noise. */
static void draw_views(const pretrain_views *v, int64_t sample, int n, int side, const float *noise,
                       float *out)
{
    for (int64_t e = 0; e < (int64_t)n * side * side * 3; e++) {
        const int64_t c = e % 3, x = e / 3 % side, y = e / 3 / side % side;
        const int64_t squares = v->side / SQUARE,
                      at = (sample * squares + y / SQUARE) * squares + x / SQUARE;
        out[e] = LVNI_CF32(v->image)[at * 3 + c] + 0.25f * noise[e];
    }
}

static void draw(const pretrain_views *v, int64_t step, int64_t sample, float *large, float *small)
{
    const int64_t of = step * BATCH + sample, n = (int64_t)v->n * v->side * v->side * 3,
                  n_small = (int64_t)v->n_local * v->local_side * v->local_side * 3;
    draw_views(v, sample, v->n, v->side, LVNI_CF32(v->noise) + of * n, large);
    if (n_small > 0) {
        draw_views(v, sample, v->n_local, v->local_side, LVNI_CF32(v->local) + of * n_small, small);
    }
}

static lvn_status views_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    const pretrain_views *v = (const pretrain_views *)(const void *)dataset;
    draw(v, key->epoch % STEPS, key->sample, field[0], v->n_local > 0 ? field[1] : NULL);
    return LVN_OK;
}

static const lvn_dataset_class views_class = {
    .name = "views", .fields = views_fields, .length = views_length, .get = views_get};

void pretrain_views_open(pretrain_views *v, uint64_t seed)
{
    const int64_t squares = v->side / SQUARE, large[] = {STEPS, BATCH, v->n, v->side, v->side, 3},
                  small[] = {STEPS, BATCH, v->n_local, v->local_side, v->local_side, 3};
    memory_init(&v->base, BATCH, v->side);
    v->base.base = (lvn_dataset){.cls = &views_class};
    v->image = golden_tensor(seed, "images", 4, (const int64_t[]){BATCH, squares, squares, 3});
    v->noise = golden_tensor(seed, "views", 6, large);
    v->local = v->n_local == 0 ? NULL : golden_tensor(seed, "local views", 6, small);
}

void pretrain_views_close(pretrain_views *v)
{
    lvn_release(v->image);
    lvn_release(v->noise);
    lvn_release(v->local);
}

/* ---- a micro-batch ---- */

double pretrain_micro_batch(const lvni_nn_model *m, lvni_nn_set *set, uint64_t seed,
                            pretrain_views v, const double *number)
{
    const int n_local = v.n_local, side = v.side, local_side = v.local_side;
    lvni_trainer_micro_batch_job *job = LVNI_NEW(LVNI_TAG_MODEL, lvni_trainer_micro_batch_job);
    lvni_trainer_dry_group *group; /* of this micro-batch alone */
    lvn_tensor *large = lvn_tensor_create(LVN_F32, 5, (const int64_t[]){BATCH, v.n, side, side, 3});
    lvn_tensor *small =
        lvn_tensor_create(LVN_F32, 5, (const int64_t[]){BATCH, n_local, local_side, local_side, 3});
    const lvni_data_loader_batch b = {.batch = {.size = BATCH,
                                                .n_fields = n_local > 0 ? 2 : 1,
                                                .image = large,
                                                .field = {large, small}}};
    lvni_trainer_pass pass = {.model = m, .seed = 1, .loss_factor = 1.0};
    if (job == NULL || large == NULL || small == NULL) {
        fail();
        return (double)NAN;
    }
    for (int i = 0; number != NULL && i < m->n_numbers; i++) {
        pass.number[i] = number[i];
    }
    assert_int_equal(lvni_trainer_dry_group_create(1, &group), LVN_OK);
    pretrain_views_open(&v, seed);
    for (int i = 0; i < BATCH; i++) {
        draw(&v, 0, i, LVNI_F32(large) + (ptrdiff_t)i * v.n * side * side * 3,
             LVNI_F32(small) + (ptrdiff_t)i * n_local * local_side * local_side * 3);
    }
    pretrain_views_close(&v);
    job->batch = &b;
    job->set = set;
    lvni_tensor_ctx_get()->group = lvni_trainer_dry_group_get(group, 1);
    if (lvni_trainer_run_micro_batch(&pass, job) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_tensor_ctx_get()->group = NULL;
    const double loss = lvn_step_mean(&job->step.now, "loss");
    lvni_trainer_dry_group_destroy(group);
    lvn_release(large);
    lvn_release(small);
    lvni_core_free(job);
    return loss;
}

/* ---- steps ---- */

/* What the recipe makes of these arguments. The configuration is the caller's. */
static lvni_core_config *read(const pretrain_steps *p, setting *s, lvni_pretrain_settings *network)
{
    lvni_core_config *c;
    lvni_plan plan;
    const lvni_plan_options o = {
        .n_samples = BATCH, .batch_size = BATCH, .lanes = 1, .cores = 1, .max_steps = STEPS};
    const lvni_pretrain_scale scale = {.images = p->images, .batch = BATCH, .steps = STEPS};
    int n = 0;
    while (p->arguments[n] != NULL) {
        n++;
    }
    assert_int_equal(lvni_core_config_create(lvni_pretrain_recipe.keys, &c), LVN_OK);
    assert_int_equal(lvni_core_config_load_job(c, lvni_pretrain_recipe.defaults.job), LVN_OK);
    assert_int_equal(lvni_core_config_load_arguments(c, n, p->arguments), LVN_OK);
    assert_int_equal(lvni_pretrain_recipe.defaults.prepare(c), LVN_OK);
    const lvni_pretrain_method *m = lvni_pretrain_method_find(lvni_core_config_str(c, "method"));
    assert_int_equal(m->resolve(c, &scale), LVN_OK);
    lvni_pretrain_read_settings(c, network);
    network->backbone.image_size = p->side > 0 ? p->side : SIDE;
    network->distill.taught = network->distill.teacher != NULL;
    s->cls = m->cls;
    assert_int_equal(lvni_run_resolve_optim(c), LVN_OK);
    assert_int_equal(lvni_plan_make(&o, &plan), LVN_OK);
    assert_int_equal(lvni_run_read_optim(c, &s->optim), LVN_OK);
    assert_int_equal(lvni_run_read_schedule(c, &plan, &s->schedule), LVN_OK);
    assert_int_equal(
        lvni_run_read_decay(c, s->schedule.total_steps, &s->optim.weight_decay, &s->weight_decay),
        LVN_OK);
    s->clip = lvni_core_config_float(c, "gradient_clip_val");
    lvni_run_read_rules(c, &plan, &s->rules);
    return c;
}

/* What became of the weights, against the file: `change` has a place for the largest twice. */
static void compare_change(const pretrain_steps *s, const char *prefix, const char *name,
                           const lvni_nn_parameter *layout, const lvn_tensor *now,
                           const float *before, double *worst)
{
    const int64_t numel = lvn_numel(now);
    int64_t n;
    float *change = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)numel * 2 * sizeof *change);
    assert_non_null(change);
    float *raw = change + numel;
    for (int64_t e = 0; e < numel; e++) {
        raw[e] = LVNI_CF32(now)[e] - before[e];
    }
    if (layout != NULL) {
        lvni_nn_parameter_to_file(layout, raw, change);
    }
    golden_compare_row_within(golden_values(s->file, prefix, name, &n),
                              layout != NULL ? change : raw, numel, s->tolerance, name, 0.0, worst);
    lvni_core_free(change);
}

static void compare_changes(const pretrain_steps *s, const lvni_nn_model *m, const float *before)
{
    char prefix[48], name[256];
    double worst = 0.0;
    snprintf(prefix, sizeof prefix, "steps/%s/grad/", s->name);
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        compare_change(s, prefix, p->name, p, p->tensor, before + m->offset[i], &worst);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        snprintf(name, sizeof name, "%s%s", prefix, b->name);
        if (lvni_ckpt_st_find(s->file, name) != NULL) {
            compare_change(s, prefix, b->name, b->file.tensor != NULL ? &b->file : NULL, b->tensor,
                           before + b->value_offset, &worst);
        }
    }
    print_message("  %s in %d: largest relative difference of changes %.1e\n", s->name, s->parts,
                  worst);
}

void pretrain_fill(lvni_nn_model *m, uint64_t seed)
{
    golden_fill(m, seed, "bn2");
    for (int i = 0; i < m->n_buffers; i++) {
        const char *name = m->buffers[i]->name;
        if (strcmp(name, "center") == 0 || strncmp(name, "patch_", 6) == 0 ||
            strncmp(name, "teacher_queue", 13) == 0) {
            memset(m->buffers[i]->tensor->data, 0, (size_t)m->buffers[i]->numel * sizeof(float));
        }
    }
}

static void step_and_compare(const pretrain_steps *s, const bench *b)
{
    char prefix[48];
    int64_t n;
    snprintf(prefix, sizeof prefix, "steps/%s/", s->name);
    const double *losses = golden_values(s->file, prefix, "losses", &n),
                 *rates = golden_values(s->file, prefix, "rates", &n);
    for (int step = 0; step < STEPS; step++) {
        lvni_trainer_step_result r;
        if (lvni_trainer_step(b->trainer, &r) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        b->trainer->at.epoch++;
        b->trainer->at.step_in_epoch = 0;
        const double loss = lvni_trainer_metric_mean(&r.metrics, "loss");
        if (!(fabs(loss - losses[step]) <= LOSSES * losses[0])) {
            fail_msg("%s in %d, step %d: loss %.9g, lightly %.9g", s->name, s->parts, step, loss,
                     losses[step]);
        }
        if (!(fabs(r.lr - rates[step]) <= 1e-12)) {
            fail_msg("%s, step %d: rate %.15g, lightly-train %.15g", s->name, step, r.lr,
                     rates[step]);
        }
    }
}

void pretrain_steps_compare(const pretrain_steps *s)
{
    const uint64_t seed = (uint64_t)golden_number(s->file, "seed");
    lvni_pretrain_settings network;
    setting how = {.arguments = &network,
                   .batch_size = BATCH,
                   .micro_batches = s->parts,
                   .lanes = s->parts,
                   .sync = true};
    pretrain_views v = {.n = s->n > 0 ? s->n : VIEWS,
                        .side = s->side > 0 ? s->side : SIDE,
                        .n_local = s->n_local,
                        .local_side = s->local_side > 0 ? s->local_side : LOCAL_SIDE};
    bench b;
    pretrain_views_open(&v, seed);
    lvni_core_config *c = read(s, &how, &network);
    bench_open(&b, &v.base, &how);
    pretrain_fill(b.model, seed);
    const size_t bytes = (size_t)b.model->n_values * sizeof(float);
    float *before = lvni_core_alloc(LVNI_TAG_MODEL, bytes);
    assert_non_null(before);
    memcpy(before, b.model->weights, bytes);
    step_and_compare(s, &b);
    compare_changes(s, b.model, before);
    lvni_core_free(before);
    bench_close(&b);
    lvni_core_config_destroy(c);
    pretrain_views_close(&v);
}

int pretrain_golden_main(int argc, char **argv, lvni_ckpt_st_file **file)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    if (lvni_cpu_start() != LVN_OK || lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(*file);
    return failed;
}
