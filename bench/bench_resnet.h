/* The ResNets that are compared with PyTorch's. */
#ifndef LEVIN_BENCH_RESNET_H
#define LEVIN_BENCH_RESNET_H

#include "nn/model.h"

enum { BENCH_CLASSES = 1000 };

/* "resnet18", "resnet50" with the weights of seed 1, whose blocks start as identities. */
lvn_status bench_resnet_build(const char *net, int side, lvni_nn_model **model);

#endif
