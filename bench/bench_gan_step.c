/* A training step of rcGAN, its critic's phase with the gradient penalty and its generator's with
 * two samples of each measurement, against PyTorch's in both of its layouts (bench_duel.h).
 *
 * usage: bench_gan_step [NET [PRECISION [TURNS [WGRAD_THREADS]]]], run by `make bench` */
#include "bench_duel.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "recipes/gan/gan.h"

#include <string.h>

enum { CHANNELS = 2 };

/* ---- measurements and truths: normal numbers, made once ---- */

typedef struct maps {
    lvn_dataset base;
    int64_t side, samples;
    float *number; /* of y and x of sample i from i on: they overlap */
} maps;

static const maps *maps_of(const lvn_dataset *dataset)
{
    return (const maps *)(const void *)dataset;
}

static int maps_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const int64_t side = maps_of(dataset)->side;
    static const char *const name[] = {"y", "x", "mean", "std"};
    for (int f = 0; f < 4; f++) {
        out[f] = f < 2 ? (lvn_field){name[f], LVN_F32, 3, {side, side, CHANNELS}}
                       : (lvn_field){name[f], LVN_F32, 1, {1}};
    }
    return 4;
}

static int64_t maps_length(const lvn_dataset *dataset)
{
    return maps_of(dataset)->samples;
}

static lvn_status maps_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const maps *m = maps_of(dataset);
    const size_t n = (size_t)(m->side * m->side * CHANNELS);
    memcpy(field[LVNI_GAN_Y], m->number + key->sample, n * sizeof(float));
    memcpy(field[LVNI_GAN_X], m->number + n + key->sample, n * sizeof(float));
    *(float *)field[LVNI_GAN_MEAN] = 0.0f;
    *(float *)field[LVNI_GAN_STD] = 1.0f;
    return LVN_OK;
}

static const lvn_dataset_class maps_class = {
    .name = "maps", .fields = maps_fields, .length = maps_length, .get = maps_get};

/* ---- the networks ---- */

static lvn_status open_gan(const bench_duel *d, lvni_nn_model **model, lvn_dataset **data)
{
    static maps m;
    static lvni_gan_settings s;
    const bool small = strcmp(d->net, "gan64") == 0;
    m = (maps){.base = {.cls = &maps_class}, .side = d->side, .samples = d->batch};
    s = (lvni_gan_settings){.sizes = {.in_chans = CHANNELS,
                                      .out_chans = CHANNELS,
                                      .im_size = d->side,
                                      .gen_channels = small ? 16 : 32,
                                      .gen_levels = 4,
                                      .disc_channels = small ? 8 : 16,
                                      .disc_stages = small ? 4 : 5},
                            .n_train = 2,
                            .n_valid = 8,
                            .gp_weight = 10.0,
                            .drift_weight = 0.001,
                            .adv = {{0, 0.01}},
                            .n_adv = 1,
                            .std_mult_init = 1.0};
    const size_t n = (size_t)(2 * d->side * d->side * CHANNELS + d->batch);
    m.number = lvni_core_alloc(LVNI_TAG_DATA, n * sizeof *m.number);
    if (m.number == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(1, lvni_core_rng_purpose("maps"))};
    for (size_t i = 0; i < n; i++) {
        m.number[i] = (float)lvni_core_rng_normal(&rng, i);
    }
    *data = &m.base;
    return lvni_nn_model_build(&lvni_gan_class, &s, 1, model);
}

static void close_maps(lvn_dataset *data)
{
    lvni_core_free(maps_of(data)->number);
}

/* script_sizes: side, base widths of both, stages. Adam as rcGAN has it, with a smaller rate: with
 * beta_1 = 0 each number moves by the rate at first, where its gradient is rounding, too: PyTorch's
 * own two layouts are 0.015 apart after five steps. */
#define DUEL(net_, side_, batch_, script_sizes, text)                                              \
    {                                                                                              \
        .net = net_, .precision = "32-true", .about = text, .script = "gan_step.py",               \
        .arg = script_sizes, .variants = bench_layouts, .side = side_, .batch = batch_,            \
        .optim = {.kind = LVNI_OPTIM_ADAM, .lr = 1e-4, .beta2 = 0.99, .eps = 1e-8}, .line = 1.2,   \
        .memory_line = 0.8, .losses = {"d_loss", "g_loss"}, .loss_tolerance = 0.05,                \
        .open = open_gan, .close = close_maps                                                      \
    }

static const bench_duel duels[] = {
    DUEL("gan64", 64, 8, "64,16,8,4", "batch 8 of 64 x 64, widths 16 and 8"),
    DUEL("gan128", 128, 4, "128,32,16,5", "batch 4 of 128 x 128, widths 32 and 16")};

int main(int argc, char **argv)
{
    return bench_duel_main(argc, argv, "gan_step", duels, sizeof duels / sizeof *duels);
}
