/* A linear classifier on features that stay as they are (pretrain.h): SGD with momentum and a
 * cosine, on the cpu. Its ops have the bits of the model's pins, so the same features give the same
 * classifier on any number of cores. Called by `eval linear`, with the features of all ranks. */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "data/sampler.h"
#include "optim/schedule.h"

#include <levin/ops.h>
#include <math.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void lvni_pretrain_probe_standardize(const lvni_pretrain_probe_images *images, float *feature,
                                     int64_t n)
{
    const int64_t dim = images->dim;
    for (int64_t d = 0; d < dim; d++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < images->n; i++) {
            sum += (double)images->feature[i * dim + d];
        }
        const double mean = sum / (double)images->n;
        for (int64_t i = 0; i < images->n; i++) {
            const double x = (double)images->feature[i * dim + d] - mean;
            squares += x * x;
        }
        const double deviation = lvni_core_sqrt(squares / (double)images->n);
        for (int64_t i = 0; i < n; i++) {
            float *x = &feature[i * dim + d];
            *x = (float)(((double)*x - mean) / (deviation > 0.0 ? deviation : 1.0));
        }
    }
}

/* What the steps share. */
typedef struct probe {
    const lvni_pretrain_probe_images *images;
    const lvni_pretrain_probe_options *options;
    lvni_optim_schedule rate;
    int64_t batch, steps; /* images of a step, steps of an epoch */
    lvn_tensor *x, *label;
    lvn_tensor *parameter[2]; /* the caller's */
    float *velocity[2];
    uint32_t *order;
} probe;

static lvn_status make(probe *p)
{
    const int64_t dim = p->images->dim;
    p->x = lvn_tensor_create(LVN_F32, LVN_SHAPE(p->batch, dim));
    p->label = lvn_tensor_create(LVN_I64, LVN_SHAPE(p->batch));
    p->order = lvni_core_calloc(LVNI_TAG_DATA, (size_t)p->images->n, sizeof *p->order);
    for (int i = 0; i < 2; i++) {
        lvn_require_grad(p->parameter[i]);
        p->velocity[i] = lvni_core_calloc(LVNI_TAG_DATA, (size_t)lvn_numel(p->parameter[i]),
                                          sizeof *p->velocity[i]);
    }
    return p->x == NULL || p->label == NULL || p->order == NULL || p->velocity[0] == NULL ||
                   p->velocity[1] == NULL
               ? LVN_ERR_MEMORY
               : LVN_OK;
}

static void take_batch(const probe *p, int64_t step)
{
    const int64_t dim = p->images->dim;
    for (int64_t i = 0; i < p->batch; i++) {
        const int64_t at = p->order[step * p->batch + i];
        memcpy((float *)lvn_data(p->x) + i * dim, p->images->feature + at * dim,
               (size_t)dim * sizeof(float));
        ((int64_t *)lvn_data(p->label))[i] = p->images->label[at];
    }
}

/* PyTorch's SGD: the learning rate stands outside of the momentum. */
static void update(const probe *p, int which, double lr)
{
    lvn_tensor *t = p->parameter[which];
    const float *g = lvn_const_data(lvn_gradient(t));
    float *w = lvn_data(t), *v = p->velocity[which];
    const float momentum = (float)p->options->momentum, decay = (float)p->options->weight_decay;
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        v[i] = momentum * v[i] + (g[i] + decay * w[i]);
        w[i] -= (float)lr * v[i];
    }
    lvn_zero_grad(t);
}

static lvn_status run_step(const probe *p, double lr, double *loss)
{
    LVN_TRY(lvn_scope_open());
    lvn_tensor *mean =
        lvn_cross_entropy(lvn_linear(p->x, p->parameter[0], p->parameter[1]), p->label);
    *loss = lvn_item(mean);
    lvn_status s = lvn_backward(mean);
    for (int i = 0; i < 2 && s == LVN_OK; i++) {
        update(p, i, lr);
    }
    const lvn_status closed = lvn_scope_close();
    return s == LVN_OK ? closed : s;
}

static lvn_status run_epoch(const probe *p, int64_t epoch, double *loss)
{
    const double factor = (double)p->batch / 256.0;
    double sum = 0.0, one;
    lvni_data_sampler_order(p->options->seed, (uint32_t)epoch, (uint32_t)p->images->n, p->order);
    for (int64_t i = 0; i < p->steps; i++) {
        const double part = lvni_optim_schedule_factor(&p->rate, epoch * p->steps + i);
        take_batch(p, i);
        LVN_TRY(run_step(p, p->options->lr * factor * part, &one));
        sum += one;
    }
    *loss = sum / (double)p->steps;
    return LVN_OK;
}

/* An epoch's loss is that before its last update, which may be the one that overflows. */
static bool is_finite(const probe *p, double loss)
{
    for (int which = 0; which < 2; which++) {
        const float *w = lvn_const_data(p->parameter[which]);
        for (int64_t i = 0; i < lvn_numel(p->parameter[which]); i++) {
            if (!isfinite(w[i])) {
                return false;
            }
        }
    }
    return isfinite(loss);
}

static lvn_status check_epoch(const probe *p, int64_t epoch, double loss)
{
    const lvni_pretrain_probe_options *o = p->options;
    if (!is_finite(p, loss)) {
        LVN_FAIL(LVN_ERR_NON_FINITE,
                 "the linear classifier diverges in epoch %lld of %lld (loss %g) with lr=%g and "
                 "weight_decay=%g: give a smaller lr%s",
                 (long long)epoch + 1, (long long)o->epochs, lvni_core_unsigned_nan(loss), o->lr,
                 o->weight_decay, o->weight_decay > 0.0 ? " or weight_decay" : "");
    }
    return LVN_OK;
}

lvn_status lvni_pretrain_probe_train(const lvni_pretrain_probe_images *images,
                                     const lvni_pretrain_probe_options *o, lvn_tensor *weight,
                                     lvn_tensor *bias)
{
    probe p = {.images = images,
               .options = o,
               .batch = least(o->batch_size, images->n),
               .parameter = {weight, bias}};
    lvn_status s;
    p.steps = images->n / p.batch;
    p.rate = (lvni_optim_schedule){
        .kind = LVNI_SCHEDULE_COSINE, .end_factor = 0.001, .total_steps = o->epochs * p.steps};
    LVNI_TRY_DONE(s, make(&p));
    for (int64_t e = 0; e < o->epochs; e++) {
        double loss;
        LVNI_TRY_DONE(s, run_epoch(&p, e, &loss));
        LVNI_TRY_DONE(s, check_epoch(&p, e, loss));
        LVNI_TRY_DONE(s, o->epoch != NULL ? o->epoch(o->user, e, loss) : LVN_OK);
    }
done:
    lvn_release(p.x);
    lvn_release(p.label);
    lvni_core_free(p.order);
    lvni_core_free(p.velocity[0]);
    lvni_core_free(p.velocity[1]);
    return s;
}

/* ---- how many it gets right ---- */

enum { CHUNK = 256 };

static lvn_status measure_chunk(const lvni_pretrain_probe_images *images, int64_t from, int64_t n,
                                lvn_tensor *const parameter[2], double *row,
                                lvni_pretrain_probe_count *out)
{
    const int64_t dim = images->dim, classes = images->classes;
    lvn_status s = LVN_OK;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(n, dim));
    if (x == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(lvn_data(x), images->feature + from * dim, (size_t)(n * dim) * sizeof(float));
    LVNI_TRY_DONE(s, lvn_scope_open());
    const float *logits = lvn_const_data(lvn_linear(x, parameter[0], parameter[1]));
    for (int64_t i = 0; i < n && logits != NULL; i++) {
        for (int64_t c = 0; c < classes; c++) {
            row[c] = (double)logits[i * classes + c];
        }
        out->n++;
        out->first += lvni_pretrain_is_among(row, classes, images->label[from + i], 1);
        out->five += lvni_pretrain_is_among(row, classes, images->label[from + i], 5);
    }
    s = lvn_scope_close();
done:
    lvn_release(x);
    return s;
}

lvn_status lvni_pretrain_probe_measure(const lvni_pretrain_probe_images *images, lvn_tensor *weight,
                                       lvn_tensor *bias, lvni_pretrain_probe_count *out)
{
    lvn_tensor *const parameter[2] = {weight, bias};
    double *row = lvni_core_calloc(LVNI_TAG_DATA, (size_t)images->classes, sizeof *row);
    lvn_status s = row == NULL ? LVN_ERR_MEMORY : LVN_OK;
    *out = (lvni_pretrain_probe_count){0};
    for (int64_t i = 0; i < images->n && s == LVN_OK; i += CHUNK) {
        s = measure_chunk(images, i, least(CHUNK, images->n - i), parameter, row, out);
    }
    lvni_core_free(row);
    return s;
}
