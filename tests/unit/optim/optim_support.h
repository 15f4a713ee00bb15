/* Settings that the tests of optimizers share. */
#ifndef LEVIN_TESTS_OPTIM_SUPPORT_H
#define LEVIN_TESTS_OPTIM_SUPPORT_H

#include "optim/optim.h"

/* Adam or AdamW as PyTorch has them, with weight decay. */
#define ADAM_OPTIONS(adam)                                                                         \
    {                                                                                              \
        .kind = (adam), .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 \
    }

#endif
