/* Networks that only the comparison with PyTorch needs: parts of nn/ that no classifier of the zoo
 * has. */
#ifndef TESTS_GOLDEN_NETS_H
#define TESTS_GOLDEN_NETS_H

#include <levin/nn.h>

/* Of the zoo, or "unet", "unet_bilinear", "flatten" as make_goldens.py has them; the test fails for
 * others. */
const lvn_module_class *golden_class(const char *name);

#endif
