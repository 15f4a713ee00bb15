/* The transport of one rank: self.c has its calls, self_reduction.c the gradient of a step. */
#ifndef LEVIN_DIST_SELF_SELF_IMPL_H
#define LEVIN_DIST_SELF_SELF_IMPL_H

#include "dist/transport.h"

lvn_status lvni_self_reduction_create(lvni_dist_comm *comm,
                                      const lvni_dist_reduction_options *options, int sets,
                                      lvni_dist_reduction **out);

#endif
