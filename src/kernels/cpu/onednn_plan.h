/* Between the parts of the door to oneDNN: onednn_plan.c describes operations, onednn_api.c makes
 * them, onednn_run.c runs them. Only these include it. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_PLAN_H
#define LEVIN_KERNELS_CPU_ONEDNN_PLAN_H

#include "kernels/cpu/onednn_version.h"

/* Leave the function with the error recorded when oneDNN refuses `call`. */
#define LVNI_DNN(call, what)                                                                       \
    do {                                                                                           \
        const lvn_status dnn_s_ = lvni_cpu_dnn_check((call), what, __LINE__);                      \
        if (dnn_s_ != LVN_OK) {                                                                    \
            return dnn_s_;                                                                         \
        }                                                                                          \
    } while (0)

lvn_status lvni_cpu_dnn_check(dnnl_status_t s, const char *what, int line);
lvn_status lvni_cpu_dnn_engine(dnnl_engine_t *out); /* of the calling thread's context */

lvn_status lvni_cpu_dnn_make_attr(dnnl_primitive_attr_t *attr); /* the caller destroys it */
/* What oneDNN would run with the thread's current OpenMP setting, and the plain layout of the
 * weights (NULL: not asked for). The caller destroys both. */
lvn_status lvni_cpu_dnn_plan(const lvni_cpu_dnn_work *work, dnnl_primitive_desc_t *pd,
                             lvni_cpu_dnn_desc *plain);
const char *lvni_cpu_dnn_pd_name(const_dnnl_primitive_desc_t pd);

#endif
