/* What other libraries call the tensors of our networks, and tensors that only other networks have.
 * Called by weights.c. */
#ifndef LEVIN_RECIPES_WEIGHT_NAMES_H
#define LEVIN_RECIPES_WEIGHT_NAMES_H

#include <stdbool.h>

enum {
    LVNI_NAMING_OWN, /* torchvision's: those of the model */
    LVNI_NAMING_TIMM,
    LVNI_NAMING_OLD, /* torchvision's first files of vision transformers */
    LVNI_NAMINGS,
    LVNI_WEIGHT_NAME = 320
};

const char *lvni_recipes_naming_label(int naming); /* "timm"; "" for OWN */
/* The name of one of the model's tensors, or of what its name begins with up to a dot. */
void lvni_recipes_naming_translate(int naming, const char *name, char out[LVNI_WEIGHT_NAME]);
/* "squeeze and excitation" for a name that only networks with it have; NULL: none. */
const char *lvni_recipes_naming_foreign(const char *name);
/* timm's config.json calls the network so; can its tensors fit `model` by name and be another
 * network all the same (anti-aliasing has no weights)? */
bool lvni_recipes_naming_is_network(const char *model, const char *architecture);

#endif
