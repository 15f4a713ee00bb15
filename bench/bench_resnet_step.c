/* A training step of ResNet-50 (batch 16, 224 x 224) and ResNet-18 (batch 64, 64 x 64), sgd with
 * momentum, against PyTorch's in both of its layouts (bench_duel.h).
 *
 * usage: bench_resnet_step [NET [PRECISION [TURNS [WGRAD_THREADS]]]], run by `make bench` */
#include "bench_duel.h"
#include "bench_resnet.h"
#include "bench_support.h"

static bench_noise noise;

static lvn_status open_resnet(const bench_duel *d, lvni_nn_model **model, lvn_dataset **data)
{
    LVN_TRY(bench_noise_open(&noise, d->side, d->batch, BENCH_CLASSES));
    *data = &noise.base;
    return bench_resnet_build(d->net, d->side, model);
}

static void close_noise(lvn_dataset *data)
{
    (void)data;
    bench_noise_close(&noise);
}

#define DUEL(net_, precision_, side_, batch_, text, line_, tolerance)                              \
    {                                                                                              \
        .net = net_, .precision = precision_, .about = text, .script = "resnet_step.py",           \
        .arg = net_, .variants = bench_layouts, .side = side_, .batch = batch_,                    \
        .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.001, .momentum = 0.9}, .line = line_,            \
        .loss_tolerance = tolerance, .open = open_resnet, .close = close_noise                     \
    }

static const bench_duel duels[] = {
    DUEL("resnet50", "32-true", 224, 16, "batch 16 of 224 x 224", 1.15, 1e-3),
    DUEL("resnet50", "bf16-mixed", 224, 16, "batch 16 of 224 x 224", 1.3, 0.1),
    DUEL("resnet18", "32-true", 64, 64, "batch 64 of 64 x 64", 1.15, 1e-3),
    DUEL("resnet18", "bf16-mixed", 64, 64, "batch 64 of 64 x 64", 1.3, 0.1)};

int main(int argc, char **argv)
{
    return bench_duel_main(argc, argv, "resnet_step", duels, sizeof duels / sizeof *duels);
}
