/* Which ops have second derivatives (second.def). Called by `levin ops`. */
#ifndef LEVIN_OPS_SECOND_H
#define LEVIN_OPS_SECOND_H

#include "kernels/kernels.h"

bool lvni_ops_has_second(lvni_kernels_op op);

#endif
