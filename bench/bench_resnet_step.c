/* A training step of ResNet-50 (batch 16, 224 x 224) and ResNet-18 (batch 64, 64 x 64), sgd with momentum, against PyTorch's in both of its
 * layouts (bench_duel.h).
 *
 * usage: bench_resnet_step [NET [PRECISION [TURNS]]], run by `make bench` */
#include "bench_duel.h"
#include "bench_support.h"

#include "nn/model.h"

#include <string.h>

enum { CLASSES = 1000 };

static const bench_variant layouts[BENCH_VARIANTS] = {{"channels_last, as installed", "channels_last", false},
                                                      {"contiguous, as installed", "contiguous", false},
                                                      {"channels_last, tuned", "channels_last", true},
                                                      {"contiguous, tuned", "contiguous", true}};

/* The last norm of each block starts at 0, so that blocks start as identities (Goyal et al. 2017, section 5.1). Without, rounding
 * grows so quickly over noise that not even PyTorch's two layouts agree: after two steps their losses are 0.04 apart. */
static void start_calm(lvni_model *m)
{
    for (int i = 0; i < m->n_parameters; i++) {
        const char *name = m->parameters[i].name;
        const char *last = strstr(name, m->root->cls == lvni_zoo_find("resnet50") ? ".bn3.weight" : ".bn2.weight");
        if (strncmp(name, "layer", 5) == 0 && last != NULL) {
            memset(m->parameters[i].tensor->data, 0, (size_t)m->parameters[i].numel * sizeof(float));
        }
    }
    lvni_model_touch(m);
}

static bench_noise noise;

static lvn_status open_resnet(const bench_duel *d, lvni_model **model, lvn_dataset **data)
{
    const lvni_zoo_arguments arguments = {.image_size = d->side, .n_classes = CLASSES};
    LVN_TRY(bench_noise_open(&noise, d->side, d->batch, CLASSES));
    *data = &noise.base;
    LVN_TRY(lvni_model_build(lvni_zoo_find(d->net), &arguments, 1, model));
    start_calm(*model);
    return LVN_OK;
}

static void close_noise(lvn_dataset *data)
{
    (void)data;
    bench_noise_close(&noise);
}

#define DUEL(net_, precision_, side_, batch_, text, line_, tolerance)                                                         \
    {.net = net_, .precision = precision_, .about = text, .script = "resnet_step.py", .word = net_, .variants = layouts,      \
     .side = side_, .batch = batch_, .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.001, .momentum = 0.9}, .line = line_,          \
     .loss_tolerance = tolerance, .open = open_resnet, .close = close_noise}

static const bench_duel duels[] = {DUEL("resnet50", "32-true", 224, 16, "batch 16 of 224 x 224", 1.15, 1e-3),
                                   DUEL("resnet50", "bf16-mixed", 224, 16, "batch 16 of 224 x 224", 1.3, 0.1),
                                   DUEL("resnet18", "32-true", 64, 64, "batch 64 of 64 x 64", 1.15, 1e-3),
                                   DUEL("resnet18", "bf16-mixed", 64, 64, "batch 64 of 64 x 64", 1.3, 0.1)};

int main(int argc, char **argv)
{
    return bench_duel_main(argc, argv, "resnet_step", duels, sizeof duels / sizeof *duels);
}
