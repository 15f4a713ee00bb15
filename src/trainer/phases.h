/* The phases of a step: which parameters and buffers each one trains (levin/nn.h defines
 * phases). Used by the step, the prediction of memory, and reports; a module without phases has one
 * of everything. */
#ifndef LEVIN_TRAINER_PHASES_H
#define LEVIN_TRAINER_PHASES_H

#include "core/str.h"
#include "nn/model.h"
#include "optim/groups.h"

int lvni_trainer_phases_count(const lvni_nn_model *model); /* 1 .. LVNI_PHASES */
/* As the class has it: "critic"; "" where there is one alone. */
const char *lvni_trainer_phases_name(const lvni_nn_model *model, int phase);
/* "critic (4417 parameters), generator (4482)": what each trains; after
 * lvni_trainer_phases_assign. */
void lvni_trainer_phases_describe(const lvni_nn_model *model, lvni_core_str *out);
/* Writes into parameters and buffers of the model which phase they have; all that train require
 * gradients. */
void lvni_trainer_phases_assign(lvni_nn_model *model, const lvni_optim_parameter *parameter);
/* Between micro-batches: from here on the tape records this phase's parameters alone, of them those
 * that are thawed by this step, and their part of the flat buffer is what is added up. */
void lvni_trainer_phases_begin(lvni_nn_model *model, int phase, int64_t step);
/* The phase's weights were changed: reordered copies of them are out of date. */
void lvni_trainer_phases_touch(const lvni_nn_model *model, int phase);
/* LVN_ERR_USAGE: phases, and a validation set, whose one pass the module does not define. */
lvn_status lvni_trainer_phases_check_validation(const lvn_module_class *cls);

#endif
