/* A recipe of your own in a shared object: what `levin train` takes in place of the name of a
 * recipe, with every key, layout, resume and output that levin's own have.
 *
 *     levin cc mine.c                                       makes mine.so
 *     levin train ./mine.so data=photos depth=3             trains it
 *     levin eval ./mine.so model=out/mine-1                 its metrics on the validation's data
 *     levin predict ./mine.so model=out/mine-1 data=new     a line for each sample
 *     levin export ./mine.so model=out/mine-1 output=w.safetensors
 *
 * The shared object exports one symbol,
 *
 *     const lvn_recipe *lvn_recipe_table(void);
 *
 * and uses the functions of levin's headers from the program that loads it. Several ranks load it
 * in each of their processes. examples/07_recipe is one. */
#ifndef LEVIN_RECIPE_H
#define LEVIN_RECIPE_H

#include <levin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_RECIPE_ABI = 1 }; /* counted up when a table of before cannot be read */

typedef enum lvn_key_type {
    LVN_KEY_TEXT,
    LVN_KEY_PATH, /* kept as an absolute path, except what begins with builtin: */
    LVN_KEY_INT,
    LVN_KEY_FLOAT,
    LVN_KEY_BOOL
} lvn_key_type;

/* A key that the recipe takes beside those of every training. */
typedef struct lvn_key {
    const char *name; /* "depth", "model.depth": lower case, digits, '_', '.' between levels */
    lvn_key_type type;
    const char *fallback; /* the default, as it would be typed; NULL: the key may be unset */
    const char *help;     /* one sentence */
} lvn_key;

/* The values of a training's keys, also of those that every training has. Of a trained model: those
 * of its training, and the recipe's own as the command gives them. */
typedef struct lvn_keys lvn_keys;
LVN_API bool lvn_key_is_set(const lvn_keys *keys, const char *name);
/* Of the type that the key has; text: of texts and paths. Unset: NULL, 0, false. A key that there
 * is not, or of another type, makes the training end when open returns. The text lives as long as
 * the training. */
LVN_API const char *lvn_key_text(const lvn_keys *keys, const char *name);
LVN_API int64_t lvn_key_int(const lvn_keys *keys, const char *name);
LVN_API double lvn_key_float(const lvn_keys *keys, const char *name);
LVN_API bool lvn_key_bool(const lvn_keys *keys, const char *name);

/* ---- a trained model ----
 * Exported models and checkpoints name the recipe and keep the values of all its keys, so a recipe
 * without what follows evaluates and exports, too: with `open` and these values. */

/* What the recipe keeps in such a file beside the keys: texts with names. */
typedef struct lvn_card lvn_card;
/* Both are copied; a name that is there gets the new value. LVN_ERR_MEMORY. */
LVN_API lvn_status lvn_card_set(lvn_card *card, const char *name, const char *value);
/* NULL: there is none. Lives as long as the model is open. */
LVN_API const char *lvn_card_text(const lvn_card *card, const char *name);

typedef enum lvn_use { LVN_USE_EXPORT, LVN_USE_EVAL, LVN_USE_PREDICT } lvn_use;

typedef struct lvn_recipe_use {
    /* After open of a training: what of its data a trained model needs (names of classes, means).
     * NULL: nothing. */
    lvn_status (*write_card)(const lvn_keys *keys, const lvn_job *job, lvn_card *card);
    /* In place of open, once in each process: module and arguments as in the training; to evaluate
     * and to predict the data in val or train (of both: val, except with split=train). NULL: open
     * of the recipe. */
    lvn_status (*open)(const lvn_keys *keys, const lvn_card *card, lvn_use use, lvn_job *job);
    /* What `levin predict` writes of a batch: f32 (N, K), a row for each sample. On the threads of
     * lanes, without gradients. NULL: the recipe does not predict. */
    lvn_tensor *(*predict)(const lvn_module *root, const lvn_batch *batch);
    /* Name of column i of predict's K. NULL, or where it returns NULL: its number. */
    const char *(*column)(const lvn_card *card, int i);
    void *reserved[4];
} lvn_recipe_use;

typedef struct lvn_recipe {
    uint32_t abi; /* LVN_RECIPE_ABI */
    /* of the run directory, out/NAME-1: lower case, digits, '_' */
    const char *name;
    const char *help; /* what it trains, one line */
    const lvn_key *keys;
    int n_keys;
    const char *options; /* "max_epochs=20 optim=adamw": defaults; the command line wins; or NULL */
    /* Fills module, arguments, train, val and streams of the job (zeros before), once in each
     * process of a training and in `levin plan`. The datasets are levin's from then on, also after
     * a failure; what else the job points at lives until the process ends. Errors are described
     * with LVN_FAIL of levin/status.h; LVN_ERR_USAGE: a key's value. */
    lvn_status (*open)(const lvn_keys *keys, lvn_job *job);
    const lvn_recipe_use *use; /* NULL: eval and export with open, no predictions */
    /* Images of samples while it trains: f32 (R, N, H, W, C), R rows of N images with 1 (grey) or 3
     * (RGB) channels, from 0 (black) to 1 (white), of a batch of the validation. Called behind the
     * validation step of the first samples, on the thread of a lane of rank 0, without gradients.
     * images/step=0000096.png of the run has up to 8 of each row; a training has the key
     * image_every_n_epochs then (1; 0: never). NULL: none. */
    lvn_tensor *(*preview)(const lvn_module *root, const lvn_batch *batch);
    void *reserved[2];
} lvn_recipe;

/* The symbol that the shared object exports: define it as
 *     LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void) { return &mine; } */
typedef const lvn_recipe *(*lvn_recipe_table_fn)(void);
#define LVN_RECIPE_SYMBOL "lvn_recipe_table"
#define LVN_RECIPE_EXPORT __attribute__((visibility("default")))
LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void);

#ifdef __cplusplus
}
#endif
#endif
