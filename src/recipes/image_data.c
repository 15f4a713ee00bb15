/* The data of the image recipes (image_data.h). */
#include "recipes/image_data.h"

#include "core/alloc.h"
#include "data/image_folder.h"
#include "data/shapes.h"
#include "data/split.h"
#include "trainer/identity.h"

#include <stdio.h>
#include <string.h>

#define SHAPES "builtin:shapes"

static const lvni_option image_rows[] = {
    {.name = "data", .type = LVNI_OPT_PATH, .help = "Folder with one sub-folder of pictures per class (or train/ and val/ with these), or builtin:shapes."},
    {.name = "data.count", .type = LVNI_OPT_INT, .unit = "pictures", .fallback = "2000", .range = LVNI_AT_LEAST(2),
     .help = "Pictures of builtin:shapes."},
    {.name = "data.classes", .type = LVNI_OPT_INT, .fallback = "6", .range = LVNI_BETWEEN(LVNI_SHAPES_MIN_CLASSES, LVNI_SHAPES_MAX_CLASSES),
     .help = "Classes of builtin:shapes."},
    {.name = "data.seed", .type = LVNI_OPT_INT, .fallback = "0", .range = LVNI_AT_LEAST(0), .help = "Another set of builtin:shapes."},
};
const lvni_option_table lvni_image_options = LVNI_OPTION_TABLE("data", image_rows);

static const lvni_option augment_rows[] = {
    {.name = "image_size", .type = LVNI_OPT_INT, .unit = "pixels", .range = {.used = true, .min = 4, .max = 2048}, .flags = LVNI_OPT_AUTO,
     .help = "Side of the square pictures the network sees; auto: 224, for builtin:shapes 32."},
    {.name = "val_split", .type = LVNI_OPT_FLOAT, .fallback = "0.2", .range = LVNI_FROM_TO_BELOW(0, 1),
     .help = "Part of each class kept for validation, where the folder has no val/; 0: no validation."},
    {.name = "augment.crop", .type = LVNI_OPT_BOOL, .flags = LVNI_OPT_AUTO, .help = "Random resized crop; auto: for photos."},
    {.name = "augment.scale", .type = LVNI_OPT_FLOAT_LIST, .fallback = "[0.35,1]", .range = {.used = true, .above = true, .min = 0, .max = 1}, .count = 2,
     .help = "Part of the picture's area that a random crop keeps, from and to."},
    {.name = "augment.ratio", .type = LVNI_OPT_FLOAT_LIST, .fallback = "[0.75,1.3333333333333333]", .range = LVNI_ABOVE(0), .count = 2,
     .help = "Width over height of a random crop, from and to."},
    {.name = "augment.hflip", .type = LVNI_OPT_FLOAT, .range = LVNI_BETWEEN(0, 1), .flags = LVNI_OPT_AUTO,
     .help = "Probability of a flip left to right; auto: 0.5 for photos, 0 for builtin:shapes."},
    {.name = "augment.vflip", .type = LVNI_OPT_FLOAT, .fallback = "0", .range = LVNI_BETWEEN(0, 1), .help = "Probability of a flip upside down."},
    {.name = "augment.brightness", .type = LVNI_OPT_FLOAT, .fallback = "0", .range = LVNI_AT_LEAST(0), .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.contrast", .type = LVNI_OPT_FLOAT, .fallback = "0", .range = LVNI_AT_LEAST(0), .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.saturation", .type = LVNI_OPT_FLOAT, .fallback = "0", .range = LVNI_AT_LEAST(0), .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.hue", .type = LVNI_OPT_FLOAT, .fallback = "0", .range = LVNI_BETWEEN(0, 0.5), .help = "Colour jitter: shift of up to x turns."},
};
const lvni_option_table lvni_augment_options = LVNI_OPTION_TABLE("augmentation", augment_rows);

static bool is_shapes(const lvni_config *c)
{
    return strcmp(lvni_config_str(c, "data"), SHAPES) == 0;
}

static lvn_status need_data(const lvni_config *c)
{
    const char *data = lvni_config_str(c, "data");
    if (data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "data= is missing: a folder with one sub-folder of pictures per class, or " SHAPES);
    }
    if (strncmp(data, "builtin:", 8) == 0 && strcmp(data, SHAPES) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: the only built-in set is " SHAPES, data);
    }
    return LVN_OK;
}

static lvn_status read_transform(const lvni_config *c, lvni_transform *t)
{
    const bool shapes = is_shapes(c);
    const int size = lvni_config_is_set(c, "image_size") ? (int)lvni_config_int(c, "image_size") : shapes ? 32 : 224;
    if (shapes) {
        lvni_shapes_transform_init(t, size);
    } else {
        lvni_transform_init(t, size);
    }
    size_t n;
    memcpy(t->scale, lvni_config_float_list(c, "augment.scale", &n), sizeof t->scale);
    memcpy(t->ratio, lvni_config_float_list(c, "augment.ratio", &n), sizeof t->ratio);
    if (lvni_config_is_set(c, "augment.crop")) {
        t->random_crop = lvni_config_bool(c, "augment.crop");
    }
    if (lvni_config_is_set(c, "augment.hflip")) {
        t->hflip = lvni_config_float(c, "augment.hflip");
    }
    t->vflip = lvni_config_float(c, "augment.vflip");
    t->brightness = lvni_config_float(c, "augment.brightness");
    t->contrast = lvni_config_float(c, "augment.contrast");
    t->saturation = lvni_config_float(c, "augment.saturation");
    t->hue = lvni_config_float(c, "augment.hue");
    return lvni_transform_check(t);
}

/* A view of the shapes or of a scan. */
typedef struct source {
    lvni_image_scan *scan;
    lvni_shapes_options shapes;
} source;

static lvn_status view(const source *s, const int64_t *indices, int64_t n, const lvni_transform *t, lvn_dataset **out)
{
    return s->scan != NULL ? lvni_image_view_create(s->scan, indices, n, t, out) : lvni_shapes_create(&s->shapes, indices, n, t, out);
}

/* Indices of the two parts: the folder's own train/ and val/, or a seeded split. */
static lvn_status cut(const source *s, const lvni_transform *t, double val_split, uint64_t seed, int64_t *part[2], int64_t n[2])
{
    if (s->scan != NULL && s->scan->has_parts) {
        LVN_TRY(lvni_image_scan_select(s->scan, LVNI_PART_TRAIN, &part[0], &n[0]));
        return lvni_image_scan_select(s->scan, LVNI_PART_VAL, &part[1], &n[1]);
    }
    lvn_dataset *all;
    LVN_TRY(view(s, NULL, 0, t, &all));
    const lvn_status status = lvni_split_dataset(all, val_split, seed, &part[0], &n[0], &part[1], &n[1]);
    lvn_dataset_destroy(all);
    return status;
}

/* Shapes have no names: what they are drawn from stands for them. */
static lvn_status identify(const source *s, const lvni_transform *t, char identity[96])
{
    if (s->scan == NULL) {
        snprintf(identity, 96, SHAPES " count=%lld classes=%d seed=%llu", (long long)s->shapes.count, s->shapes.classes,
                 (unsigned long long)s->shapes.seed);
        return LVN_OK;
    }
    lvn_dataset *all;
    LVN_TRY(view(s, NULL, 0, t, &all));
    snprintf(identity, 96, "%lld pictures %016llx", (long long)s->scan->n, (unsigned long long)lvni_identity_of_data(all));
    lvn_dataset_destroy(all);
    return LVN_OK;
}

static lvn_status open_source(const lvni_config *c, lvni_scan_mode mode, source *s)
{
    *s = (source){0};
    if (is_shapes(c)) {
        s->shapes = (lvni_shapes_options){.count = lvni_config_int(c, "data.count"),
                                          .classes = (int)lvni_config_int(c, "data.classes"),
                                          .seed = (uint64_t)lvni_config_int(c, "data.seed")};
        return LVN_OK;
    }
    return lvni_image_scan_open(lvni_config_str(c, "data"), mode, &s->scan);
}

lvn_status lvni_image_data_open(const lvni_config *c, lvni_image_data *out)
{
    *out = (lvni_image_data){0};
    LVN_TRY(need_data(c));
    LVN_TRY(read_transform(c, &out->transform));
    source s;
    const lvn_status opened = open_source(c, LVNI_SCAN_CLASSES, &s);
    if (opened != LVN_OK) {
        lvn_error_frame("data=%s (%s)", lvni_config_str(c, "data"), lvni_config_origin(c, "data"));
        return opened;
    }
    int64_t *part[2] = {NULL, NULL}, n[2] = {0, 0};
    lvn_status status = cut(&s, &out->transform, lvni_config_float(c, "val_split"), (uint64_t)lvni_config_int(c, "seed"), part, n);
    if (status == LVN_OK) {
        status = identify(&s, &out->transform, out->identity);
    }
    if (status == LVN_OK) {
        status = view(&s, part[0], n[0], &out->transform, &out->train);
    }
    if (status == LVN_OK && n[1] > 0) {
        status = view(&s, part[1], n[1], &out->transform, &out->val);
    }
    if (status == LVN_OK) {
        lvni_str_printf(&out->note, "data %s: %lld pictures in %d classes; %lld to train, %lld to validate", lvni_config_str(c, "data"),
                        (long long)n[0] + (long long)n[1], out->train->n_classes, (long long)n[0], (long long)n[1]);
        status = lvni_str_status(&out->note);
    }
    lvni_free(part[0]);
    lvni_free(part[1]);
    lvni_image_scan_release(s.scan);
    if (status != LVN_OK) {
        lvni_image_data_free(out);
    }
    return status;
}

/* The transform that the model was validated with. */
static lvn_status open_for(const lvni_config *c, const lvni_classifier_card *card, lvni_scan_mode mode, source *s, lvni_image_data *out)
{
    *out = (lvni_image_data){0};
    LVN_TRY(need_data(c));
    lvni_transform_init(&out->transform, card->image_size);
    lvni_transform_no_augment(&out->transform);
    out->transform.eval_crop = card->eval_crop;
    memcpy(out->transform.mean, card->mean, sizeof card->mean);
    memcpy(out->transform.std, card->std, sizeof card->std);
    return open_source(c, mode, s);
}

lvn_status lvni_image_data_for_model(const lvni_config *c, const lvni_classifier_card *card, lvni_image_data *out)
{
    source s;
    LVN_TRY(open_for(c, card, LVNI_SCAN_FLAT, &s, out));
    const lvn_status status = view(&s, NULL, 0, &out->transform, &out->train);
    lvni_image_scan_release(s.scan);
    return status;
}

static lvn_status use_classes_of(const lvni_classifier_card *card, const source *s)
{
    if (s->scan != NULL) {
        return lvni_image_scan_relabel(s->scan, card->class_names, card->n_classes);
    }
    if (s->shapes.classes != card->n_classes) {
        LVN_FAIL(LVN_ERR_MISMATCH, "the model knows %d classes; give data.classes=%d", card->n_classes, card->n_classes);
    }
    return LVN_OK;
}

/* Without the same list of pictures, the cut of the training cannot be made again. A folder's own val/ needs no cut. */
static lvn_status check_split(const lvni_config *c, const lvni_classifier_card *card, const source *s, const char *identity)
{
    const char *split = lvni_config_str(c, "split");
    if (s->scan != NULL && s->scan->has_parts) {
        return LVN_OK;
    }
    if (card->data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "split=%s: the model %s does not record its split, as files of early versions; give split=all, or data= a folder "
                 "of pictures it was not trained on", split, lvni_config_str(c, "model"));
    }
    if (strcmp(card->data, identity) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "split=%s: data=%s are not the pictures the model was trained with (here %s, then %s): its split cannot be made "
                 "again; give the data of the training, or split=all", split, lvni_config_str(c, "data"), identity, card->data);
    }
    return LVN_OK;
}

/* The view that split= asks for; with all, how much of it was trained on. */
static lvn_status choose_part(const lvni_config *c, const lvni_classifier_card *card, const source *s, lvni_image_data *out)
{
    const char *split = lvni_config_str(c, "split");
    const bool all = strcmp(split, "all") == 0;
    if (!all) {
        LVN_TRY(check_split(c, card, s, out->identity));
    } else if (card->data == NULL || strcmp(card->data, out->identity) != 0) {
        return view(s, NULL, 0, &out->transform, &out->train);
    }
    int64_t *part[2] = {NULL, NULL}, n[2] = {0, 0};
    lvn_status status = cut(s, &out->transform, card->val_split, (uint64_t)card->seed, part, n);
    const int wanted = strcmp(split, "val") == 0 ? 1 : 0;
    if (status == LVN_OK && all) {
        out->n_trained = n[0];
        status = view(s, NULL, 0, &out->transform, &out->train);
    } else if (status == LVN_OK && n[wanted] == 0) {
        status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "split=%s: this part has no pictures (val_split of the training was %g)", split,
                               card->val_split);
    } else if (status == LVN_OK) {
        status = view(s, part[wanted], n[wanted], &out->transform, &out->train);
    }
    lvni_free(part[0]);
    lvni_free(part[1]);
    return status;
}

lvn_status lvni_image_data_for_eval(const lvni_config *c, const lvni_classifier_card *card, lvni_image_data *out)
{
    source s;
    LVN_TRY(open_for(c, card, LVNI_SCAN_EVAL, &s, out));
    lvn_status status = use_classes_of(card, &s);
    if (status == LVN_OK) {
        status = identify(&s, &out->transform, out->identity);
    }
    if (status == LVN_OK) {
        status = choose_part(c, card, &s, out);
    }
    lvni_image_scan_release(s.scan);
    return status;
}

void lvni_image_data_free(lvni_image_data *d)
{
    lvn_dataset_destroy(d->train);
    lvn_dataset_destroy(d->val);
    lvni_str_free(&d->note);
    d->train = d->val = NULL;
}
