/* Parameters and buffers of the phases of a step (phases.h). */
#include "trainer/phases.h"

#include "kernels/flat.h"

int lvni_trainer_phases_count(const lvni_nn_model *m)
{
    return lvni_optim_count_phases(m->root->cls->phases);
}

const char *lvni_trainer_phases_name(const lvni_nn_model *m, int phase)
{
    return lvni_trainer_phases_count(m) > 1 ? m->root->cls->phases[phase] : "";
}

void lvni_trainer_phases_describe(const lvni_nn_model *m, lvni_core_str *out)
{
    for (int phase = 0; phase < lvni_trainer_phases_count(m); phase++) {
        long long n = 0;
        for (int i = 0; i < m->n_parameters; i++) {
            n += m->parameters[i].phase == phase ? m->parameters[i].numel : 0;
        }
        lvni_core_str_printf(out, phase == 0 ? "%s (%lld parameter%s)" : ", %s (%lld)",
                             lvni_trainer_phases_name(m, phase), n, lvni_core_plural(n, "", "s"));
    }
}

void lvni_trainer_phases_assign(lvni_nn_model *m, const lvni_optim_parameter *parameter)
{
    for (int i = 0; i < m->n_parameters; i++) {
        m->parameters[i].phase = parameter[i].frozen ? -1 : parameter[i].phase;
        m->parameters[i].thaw = parameter[i].thaw;
        m->parameters[i].tensor->requires_grad = !parameter[i].frozen;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        lvn_buffer *b = m->buffers[i];
        const bool follows = b->rule == LVNI_RULE_FOLLOW;
        const int phase =
            lvni_optim_find_phase(m->root->cls->phases, 0, follows ? b->follow.name : b->name);
        b->phase = follows && phase < 0 ? 0 : phase; /* once in a step */
    }
}

void lvni_trainer_phases_begin(lvni_nn_model *m, int phase, int64_t step)
{
    int64_t begin = m->n_weights, end = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        const bool trained = m->parameters[i].phase == phase;
        m->parameters[i].tensor->requires_grad = trained && step >= m->parameters[i].thaw;
        begin = trained && m->offset[i] < begin ? m->offset[i] : begin;
        end = trained ? m->offset[i + 1] : end;
    }
    const int64_t whole = (end + LVNI_FLAT_BLOCK - 1) / LVNI_FLAT_BLOCK * LVNI_FLAT_BLOCK;
    m->trained_begin = begin / LVNI_FLAT_BLOCK * LVNI_FLAT_BLOCK;
    m->trained_end = whole < m->n_weights ? whole : m->n_weights;
}

void lvni_trainer_phases_touch(const lvni_nn_model *m, int phase)
{
    for (int i = 0; i < m->n_parameters; i++) {
        m->parameters[i].tensor->version += m->parameters[i].phase == phase ? 1 : 0;
    }
}

lvn_status lvni_trainer_phases_check_validation(const lvn_module_class *cls)
{
    if (cls->phases != NULL && cls->validation_step == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the module class %s has phases and a validation set, but no validation_step: a "
                 "phase's training_step alone validates nothing; "
                 "write one, or leave the validation set out",
                 cls->name);
    }
    return LVN_OK;
}
