/* Model cards: what a trained model keeps in its file beside the tensors, so that it can be opened
 * again (exported.h has the file and the part of the card that all have). The general card holds
 * the keys of the training, of which the recipe's open makes the same network, and the recipe's
 * facts: texts with names. */
#ifndef LEVIN_RUN_CARD_H
#define LEVIN_RUN_CARD_H

#include "core/config.h"
#include "core/str.h"

#include <jansson.h>
#include <levin/recipe.h>

struct lvni_run_card;
struct lvni_run_exported;

/* How a recipe's part of the card is written and read. `own` is what open left in own_card of a
 * training, or read in `own` of the exported model. */
typedef struct lvni_run_card_format {
    const char *key; /* in the metadata of files */
    /* Appends the members, each with a comma in front. */
    void (*write)(const struct lvni_run_card *card, const void *own, lvni_core_str *out);
    /* e->own; and for open, which follows, what it needs in e->job. */
    lvn_status (*read)(struct lvni_run_exported *e, const json_t *json);
    void (*free)(void *own);
    /* Errors of a resume: the card of the checkpoint at `path`, and that of now. NULL: none. */
    lvn_status (*compare)(const char *path, const json_t *saved, const json_t *now);
} lvni_run_card_format;

/* {"config": {KEY: VALUE, ...}, "card": {FACT: TEXT, ...}}; the second of recipes that have facts.
 * own: the job, whose keys and facts are written. A command with a trained model may give the keys
 * of recipe->own, too: they stand in front of those of the training. */
extern const lvni_run_card_format lvni_run_general_card;

/* Facts (levin/recipe.h: lvn_card_set, lvn_card_text). */
struct lvn_card {
    int n;
    char **name, **value;
};
void lvni_run_facts_free(lvn_card *facts); /* what they hold */

/* A number of a file in an int, whatever it is. */
int lvni_run_card_int(const json_t *number);

#endif
