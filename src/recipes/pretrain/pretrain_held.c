/* knn.data= of a training (pretrain.h): images with classes, references and queries, that it never
 * trains on, opened as `eval` opens them. */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "images/image_data.h"

#include <string.h>

static const lvni_core_option held_rows[] = {
    {.name = "knn.data",
     .type = LVNI_OPT_PATH,
     .no_file = "builtin:",
     .help =
         "Images with classes, as data= of `levin eval knn`: a folder with train/ and val/, or "
         "one folder per class; after an epoch nearest neighbours classify those of val/, which "
         "is val/knn, and the best checkpoint is chosen by it. They have no part in training."},
    {.name = "knn.k",
     .type = LVNI_OPT_INT,
     .fallback = "20",
     .range = LVNI_BETWEEN(1, 65536),
     .needs = "knn.data",
     .help = "Nearest neighbours that vote for the class of an image; of fewer references all."},
    {.name = "knn.temperature",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0.001, 1000),
     .needs = "knn.data",
     .help = "A vote counts exp(cosine / temperature)."},
    {.name = "knn.val_split",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_BETWEEN(0, 1),
     .needs = "knn.data",
     .help = "Where knn.data= has no val/: the part of each class that is classified."},
    {.name = "knn.count",
     .type = LVNI_OPT_INT,
     .unit = "images",
     .fallback = "2000",
     .range = LVNI_AT_LEAST(2),
     .needs = "knn.data=builtin:shapes",
     .help = "Images of knn.data=builtin:shapes."},
    {.name = "knn.seed",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .needs = "knn.data=builtin:shapes",
     .help = "Which set of builtin:shapes; other images than those of data.seed=."},
    LVNI_OPTION_ALIAS("knn.every_n_epochs", "check_val_every_n_epoch"),
};
const lvni_core_option_table lvni_pretrain_held_options = LVNI_OPTION_TABLE("knn", held_rows);

lvn_status lvni_pretrain_open_parts(const lvni_core_config *c, uint64_t seed,
                                    const lvni_images_source *s, const lvni_data_transform *view,
                                    lvni_pretrain_images_used *out)
{
    int64_t *part[2] = {NULL, NULL}, n[2] = {0, 0}, *all = NULL;
    lvn_status status;
    if (lvni_images_source_has_parts(s)) {
        LVN_TRY(lvni_core_config_no_effect(c, "val_split",
                                           "on data with a validation part of its own"));
    }
    LVNI_TRY_DONE(status, lvni_images_source_cut(s, view, lvni_core_config_float(c, "val_split"),
                                                 seed, part, n));
    if (n[0] == 0 || n[1] == 0) {
        status =
            lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "data=%s: %lld images to compare with and %lld to classify; both are "
                          "needed: train/ and val/, or a val_split between 0 and 1",
                          lvni_core_config_str(c, "data"), (long long)n[0], (long long)n[1]);
        goto done;
    }
    all = lvni_core_calloc(LVNI_TAG_DATA, (size_t)(n[0] + n[1]), sizeof *all);
    if (all == NULL) {
        status = LVN_ERR_MEMORY;
        goto done;
    }
    memcpy(all, part[0], (size_t)n[0] * sizeof *all);
    memcpy(all + n[0], part[1], (size_t)n[1] * sizeof *all);
    out->references = n[0];
    status = lvni_images_source_view(s, all, n[0] + n[1], view, &out->data);
done:
    lvni_core_free(part[0]);
    lvni_core_free(part[1]);
    lvni_core_free(all);
    return status;
}

/* ---- of a training ---- */

/* A value as it would be typed. */
static lvn_status copy_value(const lvni_core_config *from, const char *name, char type,
                             lvni_core_config *to, const char *as)
{
    lvni_core_str text = {0};
    if (type == 'i') {
        lvni_core_str_printf(&text, "%lld", (long long)lvni_core_config_int(from, name));
    } else if (type == 'f') {
        lvni_core_str_double(&text, lvni_core_config_float(from, name));
    } else {
        lvni_core_str_append(&text, lvni_core_config_str(from, name));
    }
    lvn_status s = lvni_core_str_status(&text);
    s = s == LVN_OK ? lvni_core_config_set(to, as, lvni_core_str_text(&text), name) : s;
    lvni_core_str_free(&text);
    return s;
}

/* What `eval` would have been given. */
static lvn_status copy_keys(const lvni_core_config *c, lvni_core_config *to)
{
    static const struct {
        const char *name, *as;
        char type;
    } keys[] = {{"knn.data", "data", 's'},
                {"knn.k", "k", 'i'},
                {"knn.temperature", "temperature", 'f'},
                {"knn.val_split", "val_split", 'f'},
                {"knn.count", "data.count", 'i'},
                {"knn.seed", "data.seed", 'i'},
                {"data.classes", "data.classes", 'i'},
                {"data.max_pixels", "data.max_pixels", 'i'},
                {"on_error", "on_error", 's'}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        LVN_TRY(copy_value(c, keys[i].name, keys[i].type, to, keys[i].as));
    }
    return LVN_OK;
}

static lvn_status open_images(const lvni_core_config *c, lvni_pretrain_held *out)
{
    lvni_images_source s;
    lvni_data_transform view;
    const lvni_images_opening how = {.mode = LVNI_SCAN_CLASSES};
    LVN_TRY(lvni_images_source_open(out->keys, &how, &s));
    out->photos = s.scan != NULL;
    lvni_pretrain_eval_view(c, out->photos, 0, &view);
    out->decode_bytes = s.scan != NULL ? lvni_images_sizes_decode(s.scan, &view, false) : 0;
    const lvn_status status = lvni_pretrain_open_parts(
        out->keys, (uint64_t)lvni_core_config_int(c, "seed"), &s, &view, &out->images);
    lvni_images_source_close(&s);
    return status;
}

lvn_status lvni_pretrain_held_open(const lvni_core_config *c, lvni_pretrain_held *out)
{
    *out = (lvni_pretrain_held){0};
    if (!lvni_core_config_is_set(c, "knn.data")) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_config_no_effect(c, "limit_val_batches",
                                       "on knn.data=, of which all images are needed"));
    LVN_TRY(lvni_core_config_create(lvni_pretrain_eval_keys, &out->keys));
    LVN_TRY(copy_keys(c, out->keys));
    return open_images(c, out);
}

void lvni_pretrain_held_close(lvni_pretrain_held *held)
{
    lvn_dataset_destroy(held->images.data);
    lvni_core_config_destroy(held->keys);
    *held = (lvni_pretrain_held){0};
}
