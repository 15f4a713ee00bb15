/* A model's parameters as the optimizer sees them (trainer.h). */
#include "core/alloc.h"
#include "trainer/trainer.h"

lvn_status lvni_trainer_parameters(const lvni_nn_model *m, const lvni_optim_rules *rules,
                                   lvni_optim_parameter **out)
{
    *out = NULL;
    lvni_optim_parameter *p =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)m->n_parameters, sizeof *p);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        p[i] = (lvni_optim_parameter){.name = m->parameters[i].name,
                                      .begin = m->offset[i],
                                      .n = m->parameters[i].numel,
                                      .ndim = m->parameters[i].tensor->ndim};
    }
    lvn_status s = lvni_optim_rules_apply(rules, p, m->n_parameters);
    if (s == LVN_OK) {
        s = lvni_optim_phases_apply(m->root->cls->phases, p, m->n_parameters);
    }
    if (s != LVN_OK) {
        lvni_core_free(p);
        return s;
    }
    *out = p;
    return LVN_OK;
}
