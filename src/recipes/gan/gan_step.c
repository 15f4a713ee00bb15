/* What a step of rcGAN computes (gan.h). In the phase critic the Wasserstein loss with gradient
 * penalty (Gulrajani et al. 2017, algorithm 1) and a small pull of its scores to zero (Karras et
 * al. 2018, appendix A.1); in the phase generator, with the critic as it is then, the adversarial
 * term, the distance of the mean of n_train samples from the truth, and a reward for the samples'
 * standard deviation (Bendel, Ahmad & Schniter 2023, equations 9 to 12). After a validation the
 * weight of that reward moves so that the mean of n_valid samples is as much better than one of
 * them as that of samples of the posterior is. */
#include "recipes/gan/gan.h"
#include "recipes/gan/gan_control.h"
#include "recipes/gan/gan_preview.h"

#include "core/math.h"
#include "log/run_log.h"

#include <math.h>
#include <stdio.h>

enum { CRITIC, GENERATOR }; /* phases */

typedef struct gan {
    lvn_module base;
    const lvni_gan_settings *settings;
    lvn_module *critic, *generator;
    lvn_buffer *std_mult;    /* (1) */
    lvn_buffer *is_good;     /* (1): 1 after a validation whose gain was near its target */
    lvn_buffer *psnr_diff;   /* (1): how much of that gain was missing, dB */
    lvn_buffer *same;        /* (1): validations in a row in which samples were all the same */
    lvn_buffer *validations; /* (1): of the run so far */
    const lvn_number *w_adv;
} gan;

static const gan *gan_of(const lvn_module *module)
{
    return (const gan *)module;
}

static lvn_status gan_build(lvn_module *module, lvn_builder *b)
{
    gan *m = (gan *)module;
    const lvni_gan_settings *s = m->settings = lvn_builder_arguments(b);
    const int64_t one = 1;
    m->critic = lvni_nn_rcgan_critic(b, "critic", &s->sizes);
    m->generator = lvni_nn_rcgan_generator(b, "generator", &s->sizes);
    m->std_mult = lvn_builder_buffer(b, "std_mult", 1, &one, s->std_mult_init, 0.0);
    m->is_good = lvn_builder_buffer(b, LVNI_GAN_IS_GOOD, 1, &one, 0.0, 0.0);
    m->psnr_diff = lvn_builder_buffer(b, LVNI_GAN_PSNR_DIFF, 1, &one, 0.0, 0.0);
    m->same = lvn_builder_buffer(b, "same", 1, &one, 0.0, 0.0);
    m->validations = lvn_builder_buffer(b, "validations", 1, &one, 0.0, 0.0);
    m->w_adv = lvn_builder_number(b, "w_adv", .curve = LVN_CURVE_STAIRS, .from = s->adv[0].value,
                                  .stair = s->adv, .n_stairs = s->n_adv);
    return lvn_builder_status(b);
}

/* ---- samples ---- */

/* Channels are real parts, then as many imaginary ones: (N, H, W, 2C) -> (N, C, H, W, 2). */
static lvn_tensor *as_complex(lvn_tensor *x)
{
    const int64_t n = lvn_size(x, 0), h = lvn_size(x, 1), w = lvn_size(x, 2), c = lvn_size(x, 3);
    return lvn_permute(lvn_reshape(x, LVN_SHAPE(n, h, w, 2, c / 2)), (const int[]){0, 4, 1, 2, 3},
                       5);
}

static lvn_tensor *as_channels(lvn_tensor *z)
{
    const int64_t n = lvn_size(z, 0), c = lvn_size(z, 1), h = lvn_size(z, 2), w = lvn_size(z, 3);
    return lvn_reshape(lvn_permute(z, (const int[]){0, 2, 3, 4, 1}, 5), LVN_SHAPE(n, h, w, 2 * c));
}

/* The columns of k-space that were measured are those of y: with F orthonormal
 * g + F^-1(mask (F y - F g)). */
static lvn_tensor *keep_measured(lvn_tensor *g, const lvn_batch *batch)
{
    const int64_t n = batch->size, width = lvn_size(g, 2);
    lvn_tensor *mask = lvn_reshape(batch->field[LVNI_GAN_MASK], LVN_SHAPE(n, 1, 1, width, 1));
    lvn_tensor *rest = lvn_fft2(as_complex(lvn_sub(batch->field[LVNI_GAN_Y], g)),
                                .norm = LVN_FFT_ORTHO, .centered = true);
    lvn_tensor *missing = lvn_ifft2(lvn_mul(rest, mask), .norm = LVN_FFT_ORTHO, .centered = true);
    return lvn_add(g, as_channels(missing));
}

lvn_tensor *lvni_gan_sample(const lvn_module *root, const lvn_batch *batch, const char *name)
{
    const gan *m = gan_of(root);
    const int64_t size = m->settings->sizes.im_size;
    lvn_tensor *both[] = {batch->field[LVNI_GAN_Y],
                          lvn_random_normal(NULL, name, batch->size, size, size, LVNI_RCGAN_NOISE)};
    lvn_tensor *g = lvn_forward(m->generator, lvn_concat(both, 2, 3));
    return m->settings->experience == LVNI_INVERSE_MRI && g != NULL ? keep_measured(g, batch) : g;
}

static const char *noise_name(char name[16], int i)
{
    snprintf(name, 16, "z%d", i);
    return name;
}

/* (N, H, W, out), (N, H, W, in) -> (N) */
static lvn_tensor *score(const gan *m, lvn_tensor *x, lvn_tensor *y)
{
    lvn_tensor *both[] = {x, y};
    return lvn_forward(m->critic, lvn_concat(both, 2, 3));
}

/* ---- the critic's phase ---- */

/* (N): the length of the slope of the critic's score along the image u. */
static lvn_tensor *slope_of(const gan *m, lvn_tensor *u, lvn_tensor *y)
{
    lvn_tensor *slope = lvn_grad(lvn_sum(score(m, u, y)), u, .create_graph = true);
    return lvn_norm_axis(lvn_flatten(slope, 1), 1);
}

static lvn_tensor *critic_step(const gan *m, const lvn_batch *batch, lvn_step *step)
{
    const lvni_gan_settings *s = m->settings;
    lvn_tensor *y = batch->field[LVNI_GAN_Y], *x = batch->field[LVNI_GAN_X];
    lvn_tensor *fake = lvn_detach(lvni_gan_sample(&m->base, batch, "z"));
    lvn_tensor *alpha = lvn_random_uniform(step, "alpha", batch->size, 1, 1, 1);
    lvn_tensor *slope = slope_of(m, lvn_require_grad(lvn_lerp(fake, x, alpha)), y);
    lvn_tensor *penalty = lvn_mean(lvn_square(lvn_add_scalar(slope, -1.0)));
    lvn_tensor *of_truth = score(m, x, y);
    lvn_tensor *distance = lvn_sub(lvn_mean(of_truth), lvn_mean(score(m, fake, y)));
    lvn_tensor *drift = lvn_mean(lvn_square(of_truth));
    lvn_tensor *loss = lvn_sub(
        lvn_add(lvn_mul_scalar(penalty, s->gp_weight), lvn_mul_scalar(drift, s->drift_weight)),
        distance);
    lvn_log(step, "d_wass", distance);
    lvn_log(step, "d_gp", penalty);
    lvn_log(step, "d_drift", drift);
    lvn_log(step, "gp_norm_mean", lvn_mean(slope));
    lvn_log(step, "d_loss", loss);
    return loss;
}

/* ---- the generator's phase ---- */

double lvni_gan_std_weight(int samples)
{
    return lvni_core_sqrt(2.0 / (3.14159265358979323846 * samples * (samples + 1)));
}

/* The sum over a micro-batch's measurements, or their mean, of the critic's mean score of their
 * samples. */
static lvn_tensor *adversarial(const gan *m, lvn_tensor *const *sample, const lvn_batch *batch)
{
    lvn_tensor *total = NULL;
    for (int p = 0; p < m->settings->n_train; p++) {
        lvn_tensor *part = lvn_mean(score(m, sample[p], batch->field[LVNI_GAN_Y]));
        total = total == NULL ? part : lvn_add(total, part);
    }
    const double weight =
        (m->settings->adv_mean ? 1.0 : (double)batch->size) / m->settings->n_train;
    return lvn_mul_scalar(total, weight);
}

static lvn_tensor *mean_of(lvn_tensor *const *sample, int n)
{
    lvn_tensor *total = sample[0];
    for (int p = 1; p < n; p++) {
        total = lvn_add(total, sample[p]);
    }
    return lvn_mul_scalar(total, 1.0 / n);
}

static lvn_tensor *generator_step(const gan *m, const lvn_batch *batch, lvn_step *step)
{
    const lvni_gan_settings *s = m->settings;
    lvn_tensor *sample[LVNI_GAN_SAMPLES] = {NULL};
    const int over_samples = 0;
    char name[16];
    for (int p = 0; p < s->n_train; p++) {
        sample[p] = lvni_gan_sample(&m->base, batch, noise_name(name, p));
    }
    const double w_adv = lvn_number_value(m->w_adv, step);
    lvn_tensor *adv = lvn_mul_scalar(adversarial(m, sample, batch), -w_adv);
    lvn_tensor *l1 =
        lvn_mean(lvn_abs(lvn_sub(mean_of(sample, s->n_train), batch->field[LVNI_GAN_X])));
    lvn_tensor *spread =
        lvn_mean(lvn_std_axes(lvn_stack(sample, s->n_train, 0), &over_samples, 1, false, 1));
    lvn_tensor *reward = lvn_mul(lvn_mul_scalar(spread, lvni_gan_std_weight(s->n_train)),
                                 lvn_buffer_value(m->std_mult));
    lvn_tensor *loss = lvn_sub(lvn_add(adv, l1), reward);
    lvn_log(step, "g_adv", adv);
    lvn_log(step, "g_l1", l1);
    lvn_log(step, "g_std", spread);
    lvn_log(step, "g_loss", loss);
    lvn_log(step, "std_mult", lvn_buffer_value(m->std_mult));
    lvn_log(step, "w_adv", lvn_add_scalar(lvn_zeros(LVN_F32, 1, (const int64_t[]){1}), w_adv));
    return loss;
}

static lvn_tensor *gan_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const gan *m = gan_of(module);
    return step->phase == CRITIC ? critic_step(m, batch, step) : generator_step(m, batch, step);
}

/* ---- validation ---- */

/* Of normalised images, in the units of the data; of MRI the coils' images become one, weighted by
 * the conjugate sensitivities, and its magnitude is taken. */
static lvn_tensor *in_units(const gan *m, lvn_tensor *x, const lvn_batch *batch)
{
    const int64_t n = batch->size;
    lvn_tensor *std = lvn_reshape(batch->field[LVNI_GAN_STD], LVN_SHAPE(n, 1, 1, 1)),
               *mean = lvn_reshape(batch->field[LVNI_GAN_MEAN], LVN_SHAPE(n, 1, 1, 1));
    x = lvn_add(lvn_mul(x, std), mean);
    if (m->settings->experience != LVNI_INVERSE_MRI) {
        return x;
    }
    const int coils = 3;
    const int64_t half = lvn_size(x, 3) / 2;
    lvn_tensor *maps = batch->field[LVNI_GAN_MAPS];
    lvn_tensor *re = lvn_slice(x, 3, 0, half), *im = lvn_slice(x, 3, half, LVN_END);
    lvn_tensor *map_re = lvn_slice(maps, 3, 0, half), *map_im = lvn_slice(maps, 3, half, LVN_END);
    lvn_tensor *real =
                   lvn_sum_axes(lvn_add(lvn_mul(map_re, re), lvn_mul(map_im, im)), &coils, 1, true),
               *imag =
                   lvn_sum_axes(lvn_sub(lvn_mul(map_re, im), lvn_mul(map_im, re)), &coils, 1, true);
    return lvn_sqrt(lvn_add(lvn_square(real), lvn_square(imag)));
}

/* (N): 10 log10(range^2 / mean squared error), the range that of the truth. */
static lvn_tensor *psnr(lvn_tensor *x, lvn_tensor *truth)
{
    lvn_tensor *flat = lvn_flatten(truth, 1);
    lvn_tensor *range = lvn_sub(lvn_max_axis(flat, 1, false), lvn_min_axis(flat, 1, false));
    const int pixels = 1;
    lvn_tensor *error =
        lvn_mean_axes(lvn_square(lvn_sub(lvn_flatten(x, 1), flat)), &pixels, 1, false);
    return lvn_mul_scalar(lvn_log_e(lvn_div(lvn_square(range), error)), 10.0 / 2.302585092994046);
}

/* (N): 1 where x is finite, else 0. */
static lvn_tensor *is_number(lvn_tensor *x)
{
    lvn_tensor *one = lvn_masked_fill(x, lvn_lt_scalar(lvn_abs(x), (double)INFINITY), 1.0);
    return lvn_masked_fill(one, lvn_ne_scalar(one, 1.0), 0.0);
}

/* Means over the measurements that have both numbers: a constant truth has none, and one such item
 * would take the gain, and with it std_mult's rule, from all others. */
static void log_psnr(lvn_step *step, lvn_tensor *one, lvn_tensor *of_mean)
{
    lvn_tensor *has = lvn_mul(is_number(one), is_number(of_mean));
    lvn_tensor *n = lvn_sum(has), *least_1 = lvn_clamp(n, 1.0, (double)lvn_numel(has));
    lvn_tensor *none = lvn_lt_scalar(has, 0.5);
    lvn_log_weighted_by(step, "psnr_1", lvn_div(lvn_sum(lvn_masked_fill(one, none, 0.0)), least_1),
                        n);
    lvn_log_weighted_by(step, "psnr_p",
                        lvn_div(lvn_sum(lvn_masked_fill(of_mean, none, 0.0)), least_1), n);
    lvn_log(step, "psnr_left_out", lvn_add_scalar(lvn_neg(lvn_mean(has)), 1.0));
}

static lvn_tensor *gan_validation(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const gan *m = gan_of(module);
    const int n = m->settings->n_valid;
    char name[16];
    lvn_tensor *first = NULL, *total = NULL;
    for (int p = 0; p < n; p++) {
        lvn_tensor *sample = lvni_gan_sample(module, batch, noise_name(name, p));
        first = p == 0 ? sample : first;
        total = p == 0 ? sample : lvn_add(total, sample);
    }
    lvn_tensor *mean = lvn_mul_scalar(total, 1.0 / n);
    lvn_tensor *truth = in_units(m, batch->field[LVNI_GAN_X], batch),
               *mean_on_device = in_units(m, mean, batch);
    lvn_tensor *loss = lvn_mean(lvn_abs(lvn_sub(mean, batch->field[LVNI_GAN_X])));
    lvn_log(step, "loss", loss);
    log_psnr(step, psnr(in_units(m, first, batch), truth), psnr(mean_on_device, truth));
    lvni_gan_preview_take(m->settings->preview, batch, truth, mean_on_device);
    return loss;
}

/* ---- after it ---- */

static double number_of(const lvn_buffer *buffer)
{
    float value = 0.0f;
    lvn_tensor *host = lvn_to_device(lvn_buffer_value(buffer), LVN_CPU);
    if (host != NULL) {
        value = *(const float *)host->data;
    }
    lvn_release(host);
    return (double)value;
}

int64_t lvni_gan_validations(const lvn_module *module)
{
    return (int64_t)number_of(gan_of(module)->validations);
}

static lvn_status write_number(const lvn_buffer *buffer, double value)
{
    const float number = (float)value;
    return lvn_buffer_write(buffer, &number, 1);
}

/* Once in a training. */
static void warn_left_out(const lvni_gan_settings *s, double share)
{
    if (share > 0.0 && s->warned != NULL && !*s->warned) {
        *s->warned = true;
        lvni_log_line(LVNI_LOG_WARNING,
                      "the PSNR of the validation leaves out %.3g %% of its measurements: their "
                      "truth is constant, or their error is 0 or not finite",
                      100.0 * share);
    }
}

/* Which epoch is best: of acceptable ones the sharpest mean, else the one that is nearest. No
 * PSNR of f32 is as low as -1000 dB. */
static double score_of(const lvni_gan_control *now, double psnr_p)
{
    return now->is_good ? psnr_p : -1000.0 - fabs(now->d);
}

static lvn_status gan_validated(const lvn_module *module, lvn_step *step)
{
    const gan *m = gan_of(module);
    const lvni_gan_settings *s = m->settings;
    const lvni_gan_rule rule = {
        .target = s->psnr_target, .step = s->std_mult_step, .tolerance = s->psnr_tol};
    lvni_gan_control now = {.std_mult = number_of(m->std_mult),
                            .same_count = (int)number_of(m->same)};
    const double psnr_p = lvn_step_mean(step, "psnr_p");
    lvni_gan_control_update(&now, &rule, lvn_step_mean(step, "psnr_1"), psnr_p);
    warn_left_out(s, lvn_step_mean(step, "psnr_left_out"));
    if (lvni_gan_control_ignores_noise(&now)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "samples do not depend on the noise: the mean of num_z_valid=%d has had the "
                      "error of one since %d validations",
                      s->n_valid, now.same_count);
    }
    LVN_TRY(write_number(m->std_mult, now.std_mult));
    LVN_TRY(write_number(m->is_good, now.is_good ? 1.0 : 0.0));
    /* of a checkpoint, whose numbers are finite: 0 and not acceptable is not known */
    LVN_TRY(write_number(m->psnr_diff, isfinite(now.d) ? now.d : 0.0));
    LVN_TRY(write_number(m->same, now.same_count));
    LVN_TRY(write_number(m->validations, number_of(m->validations) + 1.0));
    lvn_log_number(step, "std_mult", now.std_mult);
    lvn_log_number(step, "psnr_diff", now.d);
    lvn_log_number(step, "is_good", now.is_good ? 1.0 : 0.0);
    lvn_log_number(step, "score", score_of(&now, psnr_p));
    return LVN_OK;
}

static const char *const phases[] = {"critic", "generator", NULL};

const lvn_module_class lvni_gan_class = {.name = "rcgan",
                                         .size = sizeof(gan),
                                         .build = gan_build,
                                         .training_step = gan_step,
                                         .validation_step = gan_validation,
                                         .phases = phases,
                                         .validated = gan_validated};
