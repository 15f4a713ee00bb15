/* The classes that a run was trained on: a resumed run has no others. Called by fit.c. */
#ifndef LEVIN_RECIPES_SAVED_CLASSES_H
#define LEVIN_RECIPES_SAVED_CLASSES_H

#include "ckpt/checkpoint.h"

/* card: of the data as it is now (LVNI_CARD, exported.h). LVN_ERR_USAGE when the checkpoint's names
 * of classes are others, or stand in another order: labels would swap unnoticed. LVN_OK when one of
 * them does not have its classes. */
lvn_status lvni_recipes_check_saved_classes(const lvni_ckpt *ckpt, const char *card);

#endif
