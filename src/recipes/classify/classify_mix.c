/* mixup and CutMix (classify_mix.h). */
#include "recipes/classify/classify_mix.h"

#include "autograd/tape.h"
#include "core/math.h"
#include "core/rng.h"
#include "nn/step_metrics.h"
#include "tensor/device.h"

#include <string.h>

enum { DRAW_KIND, DRAW_PARTNER, DRAW_BOX, DRAW_GAMMA, DRAWS_PER_GAMMA = 3 };

static lvni_core_rng stream(uint64_t seed, uint32_t step, uint32_t micro_batch, uint32_t c)
{
    return (lvni_core_rng){lvni_core_rng_make_key(seed, lvni_core_rng_purpose("mix")), step,
                           micro_batch, c};
}

/* In [0, 1). */
static double uniform(const lvni_core_rng *rng, uint64_t element)
{
    return (double)lvni_core_rng_u32(rng, element) * 0x1p-32;
}

static double log_uniform(const lvni_core_rng *rng, uint64_t element)
{
    return lvni_core_log(((double)lvni_core_rng_u32(rng, element) + 0.5) * 0x1p-32);
}

/* The logarithm of a Gamma(alpha, 1) variate: Marsaglia and Tsang 2000, "A simple method for
 * generating gamma variables"; below 1 that of alpha + 1 times u^(1 / alpha). The logarithm, since
 * small alphas give numbers below all that a double holds. */
static double log_gamma_variate(double alpha, uint64_t seed, uint32_t step, uint32_t micro_batch,
                                uint32_t c)
{
    const lvni_core_rng normals = stream(seed, step, micro_batch, c),
                        uniforms = stream(seed, step, micro_batch, c + 1),
                        boosts = stream(seed, step, micro_batch, c + 2);
    const double boost = alpha < 1.0 ? log_uniform(&boosts, 0) / alpha : 0.0;
    const double d = (alpha < 1.0 ? alpha + 1.0 : alpha) - 1.0 / 3.0,
                 slope = 1.0 / lvni_core_sqrt(9.0 * d);
    for (uint64_t attempt = 0;; attempt++) { /* 19 of 20 attempts succeed */
        const double x = lvni_core_rng_normal(&normals, attempt), root = 1.0 + slope * x,
                     v = root * root * root;
        if (v > 0.0 &&
            log_uniform(&uniforms, attempt) < 0.5 * x * x + d - d * v + d * lvni_core_log(v)) {
            return lvni_core_log(d * v) + boost;
        }
    }
}

/* Beta(alpha, alpha) = g1 / (g1 + g2). */
static double beta_variate(double alpha, uint64_t seed, uint32_t step, uint32_t micro_batch)
{
    const double first = log_gamma_variate(alpha, seed, step, micro_batch, DRAW_GAMMA);
    const double second =
        log_gamma_variate(alpha, seed, step, micro_batch, DRAW_GAMMA + DRAWS_PER_GAMMA);
    const double difference = second - first;
    return difference > 700.0
               ? 0.0
               : 1.0 / (1.0 + lvni_core_exp(difference < -700.0 ? -700.0 : difference));
}

static int clamp_int(int x, int high)
{
    return x < 0 ? 0 : x > high ? high : x;
}

/* A box of 1 - lambda of the area around a point anywhere; what lies outside of the image is cut
 * off, and lambda follows. */
static void draw_box(const lvni_core_rng *rng, int width, int height, lvn_mix_attr *d)
{
    const double side = lvni_core_sqrt(1.0 - d->lambda);
    const int w = (int)(width * side), h = (int)(height * side);
    const int x = (int)(uniform(rng, 0) * width), y = (int)(uniform(rng, 1) * height);
    d->x0 = clamp_int(x - w / 2, width);
    d->x1 = clamp_int(x - w / 2 + w, width);
    d->y0 = clamp_int(y - h / 2, height);
    d->y1 = clamp_int(y - h / 2 + h, height);
    d->lambda = 1.0 - (double)(d->x1 - d->x0) * (d->y1 - d->y0) / ((double)width * height);
}

lvn_mix_attr lvni_classify_mix_draw_one(const lvni_classify_mix *m, uint64_t seed, uint32_t step,
                                        uint32_t micro_batch, int width, int height)
{
    const lvni_core_rng kind = stream(seed, step, micro_batch, DRAW_KIND),
                        box = stream(seed, step, micro_batch, DRAW_BOX);
    const bool both = m->mixup_alpha > 0.0 && m->cutmix_alpha > 0.0;
    lvn_mix_attr d = {.cut = both ? uniform(&kind, 0) < 0.5 : m->cutmix_alpha > 0.0};
    d.lambda = beta_variate(d.cut ? m->cutmix_alpha : m->mixup_alpha, seed, step, micro_batch);
    if (d.cut) {
        draw_box(&box, width, height, &d);
    }
    return d;
}

void lvni_classify_mix_partners(uint64_t seed, uint32_t step, uint32_t micro_batch, int64_t n,
                                int64_t *partner)
{
    const lvni_core_rng rng = stream(seed, step, micro_batch, DRAW_PARTNER);
    lvni_core_rng_permute(&rng, n, partner);
}

/* ---- the training step ---- */

/* lambda a + (1 - lambda) b */
static lvn_tensor *blend(lvn_tensor *a, lvn_tensor *b, double lambda)
{
    return lvn_add(lvn_mul_scalar(a, lambda), lvn_mul_scalar(b, 1.0 - lambda));
}

/* The partners of the micro-batch's samples, in host memory. NULL: out of memory. */
static lvn_tensor *draw_partners(int64_t n)
{
    const lvni_tensor_position *at = &lvni_tensor_ctx_get()->at;
    lvn_tensor *partner = lvn_tensor_create(LVN_I64, LVN_SHAPE(n));
    if (partner != NULL) {
        lvni_classify_mix_partners(at->seed, at->step, at->micro_batch, n, lvn_data(partner));
    }
    return lvni_autograd_adopt(partner);
}

/* The micro-batch's images, each mixed with its partner, and the partners' labels. NULL: it
 * failed. */
static lvn_tensor *mixed_images(const lvn_mix_attr *draw, const lvn_batch *batch,
                                lvn_tensor **other)
{
    lvn_tensor *partner = draw_partners(batch->size);
    *other = lvn_index_select(batch->label, 0, partner);
    if (*other == NULL) {
        return NULL;
    }
    lvn_kernel_args args = {.in = {batch->image, partner}, .attr = draw};
    return lvni_autograd_op_run(LVNI_OP_mix_images, &args, 1);
}

static lvn_tensor *mixing_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvni_classify_mix *m = (const lvni_classify_mix *)(const void *)module->cls;
    const lvni_tensor_position *at = &lvni_tensor_ctx_get()->at;
    lvn_tensor *image = batch->image, *label = batch->label, *other = NULL;
    lvn_mix_attr d = {.lambda = 1.0};
    if (m->mixup_alpha > 0.0 || m->cutmix_alpha > 0.0) {
        d = lvni_classify_mix_draw_one(m, at->seed, at->step, at->micro_batch, (int)image->shape[2],
                                       (int)image->shape[1]);
        image = mixed_images(&d, batch, &other);
    }
    lvn_tensor *logits = lvn_forward(module, image);
    lvn_tensor *loss = lvni_classify_criterion_loss(&m->criterion, logits, label),
               *accuracy = lvn_accuracy(logits, label);
    if (other !=
        NULL) { /* the partners are a permutation: the weights of their labels have the same sum */
        loss = blend(loss, lvni_classify_criterion_loss(&m->criterion, logits, other), d.lambda);
        accuracy = blend(accuracy, lvn_accuracy(logits, other), d.lambda);
    }
    const double weight = lvni_classify_criterion_weight(&m->criterion, lvn_step_host(step)->label);
    lvn_log_weighted(step, "loss", loss, weight);
    lvn_log(step, "acc", accuracy);
    lvn_step_weigh(step, weight);
    return loss;
}

void lvni_classify_mix_init(lvni_classify_mix *m, const lvn_module_class *network,
                            double mixup_alpha, double cutmix_alpha)
{
    *m = (lvni_classify_mix){
        .cls = *network, .mixup_alpha = mixup_alpha, .cutmix_alpha = cutmix_alpha};
    m->cls.training_step = mixing_step;
    m->cls.validation_step =
        network->validation_step != NULL ? network->validation_step : network->training_step;
}
