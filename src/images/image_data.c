/* The parts of data= that training, validation, evaluation and prediction take (image_data.h). */
#include "images/image_data.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <string.h>

static const lvni_core_option augment_rows[] = {
    {.name = "image_size",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = {.used = true, .min = 4, .max = 2048},
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square images the network sees; auto: 224 for photos, as they are for "
             "array files, 32 for builtin:shapes."},
    {.name = "val_split",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .help =
         "Part of each class kept for validation, where the folder has no val/; 0: no validation."},
    {.name = "augment.crop",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_AUTO,
     .help = "Random resized crop; auto: for photos."},
    {.name = "augment.scale",
     .type = LVNI_OPT_FLOAT_LIST,
     .fallback = "[0.35,1]",
     .range = {.used = true, .above = true, .min = 0, .max = 1},
     .count = 2,
     .needs = "augment.crop",
     .help = "Part of the image's area that a random crop keeps, from and to."},
    {.name = "augment.ratio",
     .type = LVNI_OPT_FLOAT_LIST,
     .fallback = "[0.75,1.3333333333333333]",
     .range = LVNI_ABOVE(0),
     .count = 2,
     .needs = "augment.crop",
     .help = "Width over height of a random crop, from and to."},
    {.name = "augment.hflip",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_BETWEEN(0, 1),
     .flags = LVNI_OPT_AUTO,
     .help = "Probability of a flip left to right; auto: 0.5 for photos, else 0."},
    {.name = "augment.vflip",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Probability of a flip upside down."},
    {.name = "augment.brightness",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.contrast",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.saturation",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Colour jitter: factor between 1-x and 1+x."},
    {.name = "augment.hue",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 0.5),
     .help = "Colour jitter: shift of up to x turns."},
    {.name = "augment.jitter",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_BETWEEN(0, 1),
     .needs = "augment.brightness|augment.contrast|augment.saturation|augment.hue",
     .help = "Probability of the colour jitter."},
    {.name = "augment.grey",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Probability of an image without colours."},
    {.name = "augment.blur",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Probability of a Gaussian blur."},
    {.name = "augment.blur_sigma",
     .type = LVNI_OPT_FLOAT_LIST,
     .unit = "pixels",
     .fallback = "[0.1,2]",
     .range = LVNI_BETWEEN(0, 20),
     .count = 2,
     .needs = "augment.blur",
     .help = "Standard deviation of the blur, from and to."},
    {.name = "augment.blur_kernel",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 141),
     .needs = "augment.blur",
     .help = "Width of the blur, odd; 0: 3.5 standard deviations to either side."},
    {.name = "augment.solarize",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Probability that bright values are inverted."},
    {.name = "augment.solarize_from",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.5",
     .range = LVNI_BETWEEN(0, 1),
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = "augment.solarize",
     .help = "Brightness, of 1, from which solarize inverts."},
    {.name = "augment.mixup_alpha",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000),
     .help =
         "mixup: pairs of a micro-batch are blended, with parts drawn from Beta(x, x); 0: off."},
    LVNI_OPTION_ALIAS("mixup_alpha", "augment.mixup_alpha"),
    {.name = "augment.cutmix_alpha",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000),
     .help = "CutMix: a box of one is pasted into the other, with an area drawn from Beta(x, x); "
             "0: off; beside mixup each micro-batch draws which."},
    LVNI_OPTION_ALIAS("cutmix_alpha", "augment.cutmix_alpha"),
};
const lvni_core_option_table lvni_images_augment_options =
    LVNI_OPTION_TABLE("augmentation", augment_rows);

static lvn_status read_transform(const lvni_core_config *c, const lvni_images_source *s,
                                 lvni_data_transform *t)
{
    lvni_images_source_transform(s, t);
    t->as_stored = lvni_images_source_as_stored(c, NULL);
    if (lvni_core_config_is_set(c, "image_size")) {
        t->size = (int)lvni_core_config_int(c, "image_size");
    }
    size_t n;
    memcpy(t->scale, lvni_core_config_float_list(c, "augment.scale", &n), sizeof t->scale);
    memcpy(t->ratio, lvni_core_config_float_list(c, "augment.ratio", &n), sizeof t->ratio);
    if (lvni_core_config_is_set(c, "augment.crop")) {
        t->random_crop = lvni_core_config_bool(c, "augment.crop");
    }
    if (lvni_core_config_is_set(c, "augment.hflip")) {
        t->hflip = lvni_core_config_float(c, "augment.hflip");
    }
    if (!t->random_crop) { /* of auto, too */
        LVN_TRY(lvni_core_config_no_effect(c, "augment.scale", "without augment.crop=true"));
        LVN_TRY(lvni_core_config_no_effect(c, "augment.ratio", "without augment.crop=true"));
    }
    t->vflip = lvni_core_config_float(c, "augment.vflip");
    t->brightness = lvni_core_config_float(c, "augment.brightness");
    t->contrast = lvni_core_config_float(c, "augment.contrast");
    t->saturation = lvni_core_config_float(c, "augment.saturation");
    t->hue = lvni_core_config_float(c, "augment.hue");
    t->jitter = lvni_core_config_float(c, "augment.jitter");
    t->grey = lvni_core_config_float(c, "augment.grey");
    t->blur = lvni_core_config_float(c, "augment.blur");
    memcpy(t->blur_sigma, lvni_core_config_float_list(c, "augment.blur_sigma", &n),
           sizeof t->blur_sigma);
    t->blur_kernel = (int)lvni_core_config_int(c, "augment.blur_kernel");
    t->solarize = lvni_core_config_float(c, "augment.solarize");
    t->solarize_from = lvni_core_config_float(c, "augment.solarize_from");
    return lvni_data_transform_check(t);
}

static void print_ignored(const lvni_images_source *s, lvni_core_str *out)
{
    lvni_core_str_append(out, "ignored: ");
    const size_t nothing = out->len;
    lvni_images_source_print_ignored(s, out);
    if (out->len == nothing) {
        lvni_core_str_clear(out);
    }
}

static lvn_status warn_unvalidated(const lvni_core_config *c, const lvni_images_source *s,
                                   const lvni_images_data *d)
{
    lvni_core_str names = {0};
    const lvn_status status =
        d->val == NULL ? LVN_OK : lvni_images_class_counts_unvalidated(d->train, d->val, &names);
    if (names.len > 0 && lvni_images_source_has_parts(s)) {
        lvni_log_line(LVNI_LOG_WARNING, "data=%s: the validation part has no image of: %s",
                      lvni_core_config_str(c, "data"), lvni_core_str_text(&names));
    } else if (names.len > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s: too few images to validate any of: %s (val_split=%g takes none of "
                      "a single one)",
                      lvni_core_config_str(c, "data"), lvni_core_str_text(&names),
                      lvni_core_config_float(c, "val_split"));
    }
    lvni_core_str_free(&names);
    return status;
}

/* A network has an output for every label up to the largest. */
static lvn_status warn_gaps(const lvni_core_config *c, const lvni_data_array_images *arrays)
{
    lvni_core_str gaps = {0};
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_data_array_images_print_gaps(arrays, &gaps));
    if (gaps.len > 0) {
        const bool begins = strcmp(lvni_core_str_text(&gaps), "0") == 0;
        lvni_log_line(
            LVNI_LOG_WARNING,
            "data=%s: %s no image has the label %s, and each is a class of the network "
            "that is never right; labels count from 0 on",
            lvni_core_config_str(c, "data"),
            begins ? "the labels begin at 1:" : "the labels have gaps:", lvni_core_str_text(&gaps));
    }
done:
    lvni_core_str_free(&gaps);
    return status;
}

/* What the files of the source hold, as one number; 0: they are none. */
static uint64_t identify_files(const lvni_images_source *s)
{
    return s->arrays != NULL ? s->arrays->content
           : s->scan != NULL ? lvni_data_image_scan_files(s->scan)
                             : 0;
}

static lvn_status open_parts(const lvni_core_config *c, const lvni_images_source *s,
                             int64_t *part[2], int64_t n[2], lvni_images_data *out)
{
    LVN_TRY(read_transform(c, s, &out->transform));
    LVN_TRY(lvni_images_preprocess_train(c, s->scan != NULL, &out->preprocess, &out->transform,
                                         &out->eval));
    if (lvni_images_source_has_parts(s)) {
        LVN_TRY(lvni_core_config_no_effect(c, "val_split",
                                           "on data with a validation part of its own"));
    }
    LVN_TRY(lvni_images_source_cut(s, &out->transform, lvni_core_config_float(c, "val_split"),
                                   (uint64_t)lvni_core_config_int(c, "seed"), part, n));
    LVN_TRY(lvni_images_source_identify(s, &out->transform, out->identity));
    LVN_TRY(lvni_images_source_view(s, part[0], n[0], &out->transform, &out->train));
    if (n[1] > 0) {
        LVN_TRY(lvni_images_source_view(s, part[1], n[1], &out->eval, &out->val));
    }
    lvni_core_str_printf(&out->note, "data %s: ", lvni_core_config_str(c, "data"));
    LVN_TRY(lvni_images_counts_print(s->scan, out->train, out->val, &out->note));
    print_ignored(s, &out->ignored);
    LVN_TRY(warn_unvalidated(c, s, out));
    LVN_TRY(s->arrays == NULL ? LVN_OK : warn_gaps(c, s->arrays));
    out->files = identify_files(s);
    if (s->scan != NULL) {
        if (s->scan->layout.name[LVNI_PART_TEST] != NULL) {
            lvni_core_str_printf(&out->note, "; %s/ is left to eval",
                                 s->scan->layout.name[LVNI_PART_TEST]);
        }
        out->headers_read = s->scan->size != NULL;
        lvni_images_sizes_print(s->scan, &out->note);
        out->decode_bytes =
            lvni_images_sizes_decode(s->scan, &out->transform, out->transform.random_crop);
        out->val_decode_bytes = lvni_images_sizes_decode(s->scan, &out->eval, false);
    }
    return lvni_core_str_status(&out->note);
}

/* When a training has its datasets, or failed: the list to be written goes to `out`. */
static lvn_status close_source(lvni_images_source *s, lvn_status status, lvni_images_data *out)
{
    out->index = s->index;
    s->index = (lvni_core_str){0};
    lvni_images_source_close(s);
    if (status != LVN_OK) {
        lvni_images_data_free(out);
    }
    return status;
}

/* Of the run that is resumed: a new one has no index yet. */
static const char *run_of(const lvni_core_config *c)
{
    return lvni_core_config_bool(c, "resume") ? lvni_core_config_str(c, "out") : NULL;
}

static lvni_images_opening opening_of(const lvni_core_config *c, lvni_data_scan_mode mode,
                                      const lvni_run_ranks *ranks)
{
    return (lvni_images_opening){.mode = mode,
                                 .run = run_of(c),
                                 .training = true,
                                 .rank = ranks == NULL ? NULL : ranks->rank};
}

lvn_status lvni_images_data_open(const lvni_core_config *c, const lvni_run_ranks *ranks,
                                 lvni_images_data *out)
{
    const lvni_images_opening how = opening_of(c, LVNI_SCAN_CLASSES, ranks);
    *out = (lvni_images_data){0};
    lvni_images_source s;
    LVN_TRY(lvni_images_source_open(c, &how, &s));
    int64_t *part[2] = {NULL, NULL}, n[2] = {0, 0};
    const lvn_status status = open_parts(c, &s, part, n, out);
    lvni_core_free(part[0]);
    lvni_core_free(part[1]);
    return close_source(&s, status, out);
}

/* All images, whatever their folders are called. */
static lvn_status open_views(lvni_core_config *c, const lvni_images_source *s,
                             lvni_images_make_views *make, lvni_images_data *out)
{
    lvni_data_views views;
    lvni_images_source_transform(s, &out->transform);
    LVN_TRY(make(c, out->transform.size, &views));
    out->transform = views.view[0];
    LVN_TRY(lvni_images_source_identify(s, &out->transform, out->identity));
    LVN_TRY(lvni_images_source_views(s, NULL, 0, &views, &out->train));
    lvni_core_str_printf(&out->note, "data %s: ", lvni_core_config_str(c, "data"));
    LVN_TRY(lvni_images_total_print(s->scan, out->train, &out->note));
    print_ignored(s, &out->ignored);
    out->files = identify_files(s);
    if (s->scan != NULL) {
        out->headers_read = s->scan->size != NULL;
        lvni_images_sizes_print(s->scan, &out->note);
        out->decode_bytes = lvni_images_sizes_decode_views(s->scan, &views);
    }
    return lvni_core_str_status(&out->note);
}

lvn_status lvni_images_data_open_views(lvni_core_config *c, const lvni_run_ranks *ranks,
                                       lvni_images_make_views *make, lvni_images_data *out)
{
    const lvni_images_opening how = opening_of(c, LVNI_SCAN_FLAT, ranks);
    *out = (lvni_images_data){0};
    lvni_images_source s;
    LVN_TRY(lvni_images_source_open(c, &how, &s));
    const lvn_status status = open_views(c, &s, make, out);
    return close_source(&s, status, out);
}

/* The transform that the model was validated with, except for keys that are given. Only data.index=
 * is written here: the run is another's. */
static lvn_status open_for(const lvni_core_config *c, const lvni_images_trained *card,
                           lvni_data_scan_mode mode, lvni_images_source *s, lvni_images_data *out)
{
    *out = (lvni_images_data){0};
    LVN_TRY(lvni_images_preprocess_use(c, card, &out->transform));
    const lvni_images_opening how = {.mode = mode, .run = lvni_core_config_str(c, "model")};
    LVN_TRY(lvni_images_source_open(c, &how, s));
    lvni_images_source_take_shapes(c, card->general.data, s);
    print_ignored(s, &out->ignored);
    if (out->ignored.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&out->ignored));
    }
    const lvn_status status = s->index.len == 0
                                  ? LVN_OK
                                  : lvni_core_file_write(lvni_core_config_str(c, "data.index"),
                                                         s->index.data, s->index.len);
    if (status != LVN_OK) {
        lvni_images_source_close(s);
    }
    return status;
}

lvn_status lvni_images_data_for_model(const lvni_core_config *c, const lvni_images_trained *card,
                                      lvni_images_data *out)
{
    lvni_images_source s;
    LVN_TRY(open_for(c, card, LVNI_SCAN_FLAT, &s, out));
    out->headers_read = s.scan != NULL;
    const lvn_status status = lvni_images_source_view(&s, NULL, 0, &out->transform, &out->train);
    lvni_images_source_close(&s);
    return status;
}

/* Without the same list of images, the cut of the training cannot be made again. A folder's own
 * val/ needs no cut. */
static lvn_status check_split(const lvni_core_config *c, const char *split,
                              const lvni_images_trained *card, const lvni_images_source *s,
                              const char *identity)
{
    if (lvni_images_source_has_parts(s)) {
        return LVN_OK;
    }
    if (card->general.data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "split=%s: the model %s does not record its split, as files of early versions; "
                 "give split=all, or data= a folder "
                 "of images it was not trained on",
                 split, lvni_core_config_str(c, "model"));
    }
    if (strcmp(card->general.data, identity) != 0) {
        char here[96], then[96];
        LVN_FAIL(LVN_ERR_USAGE,
                 "split=%s: data=%s are not the images the model was trained with (here %s, then "
                 "%s): its split cannot be made "
                 "again; give the data of the training, or split=all",
                 split, lvni_core_config_str(c, "data"),
                 lvni_images_source_identity_text(identity, here),
                 lvni_images_source_identity_text(card->general.data, then));
    }
    return LVN_OK;
}

/* Of auto: what was kept from training, where the folder shows it. */
static const char *wanted_part(const lvni_core_config *c, const lvni_images_source *s,
                               int64_t n_test)
{
    const char *split = lvni_core_config_str(c, "split");
    if (strcmp(split, "auto") != 0) {
        return split;
    }
    split = n_test > 0 ? "test" : lvni_images_source_has_parts(s) ? "val" : "all";
    if (strcmp(split, "all") != 0) {
        lvni_log_line(LVNI_LOG_INFO,
                      "split=%s: data=%s has this part; split=all measures everything", split,
                      lvni_core_config_str(c, "data"));
    }
    return split;
}

/* One of train, val, test. */
static lvn_status view_part(const lvni_core_config *c, const char *split,
                            const lvni_images_trained *card, const lvni_images_source *s,
                            int64_t *part[LVNI_PARTS], const int64_t n[LVNI_PARTS],
                            lvni_images_data *out)
{
    const int wanted = strcmp(split, "val") == 0     ? LVNI_PART_VAL
                       : strcmp(split, "train") == 0 ? LVNI_PART_TRAIN
                                                     : LVNI_PART_TEST;
    if (n[wanted] > 0) {
        return lvni_images_source_view(s, part[wanted], n[wanted], &out->transform, &out->train);
    }
    if (wanted == LVNI_PART_TEST || lvni_images_source_has_parts(s)) {
        LVN_FAIL(LVN_ERR_USAGE, "split=%s: data=%s has no images in a folder %s/", split,
                 lvni_core_config_str(c, "data"), split);
    }
    LVN_FAIL(LVN_ERR_USAGE, "split=%s: this part has no images (val_split of the training was %g)",
             split, card->val_split);
}

/* The view of split=; with all, how much of it was trained on. */
static lvn_status choose_part(const lvni_core_config *c, const lvni_images_trained *card,
                              const lvni_images_source *s, lvni_images_data *out)
{
    int64_t *part[LVNI_PARTS] = {NULL}, n[LVNI_PARTS] = {0};
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_images_source_test(s, &part[LVNI_PART_TEST], &n[LVNI_PART_TEST]));
    const char *split = wanted_part(c, s, n[LVNI_PART_TEST]);
    out->split = split;
    const bool all = strcmp(split, "all") == 0, test = strcmp(split, "test") == 0;
    const bool cut =
        !test &&
        (!all || (card->general.data != NULL && strcmp(card->general.data, out->identity) == 0));
    if (cut) {
        LVNI_TRY_DONE(status, all ? LVN_OK : check_split(c, split, card, s, out->identity));
        LVNI_TRY_DONE(status, lvni_images_source_cut(s, &out->transform, card->val_split,
                                                     (uint64_t)card->general.seed, part, n));
    }
    if (all) {
        out->n_trained = n[LVNI_PART_TRAIN];
        status = lvni_images_source_view(s, NULL, 0, &out->transform, &out->train);
    } else {
        status = view_part(c, split, card, s, part, n, out);
    }
done:
    for (int i = 0; i < LVNI_PARTS; i++) {
        lvni_core_free(part[i]);
    }
    return status;
}

lvn_status lvni_images_data_for_eval(const lvni_core_config *c, const lvni_images_trained *card,
                                     lvni_images_data *out)
{
    lvni_images_source s;
    LVN_TRY(open_for(c, card, LVNI_SCAN_EVAL, &s, out));
    out->headers_read = s.scan != NULL;
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_images_source_relabel(&s, card->class_names, card->n_classes));
    LVNI_TRY_DONE(status, lvni_images_source_identify(&s, &out->transform, out->identity));
    status = choose_part(c, card, &s, out);
done:
    lvni_images_source_close(&s);
    return status;
}

lvn_status lvni_images_data_write_index(const lvni_core_config *c, const lvni_images_data *d,
                                        const char *run)
{
    const char *given = lvni_core_config_str(c, "data.index");
    if (d->index.len == 0) {
        return LVN_OK;
    }
    lvni_core_str path = {0};
    if (given != NULL) {
        lvni_core_str_append(&path, given);
    } else {
        lvni_core_str_printf(&path, "%s/" LVNI_RUN_INDEX, run);
    }
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK) {
        s = lvni_core_file_write(lvni_core_str_text(&path), d->index.data, d->index.len);
    }
    lvni_core_str_free(&path);
    return s;
}

void lvni_images_data_free(lvni_images_data *d)
{
    lvni_core_str_free(&d->index);
    lvni_core_str_free(&d->ignored);
    lvn_dataset_destroy(d->train);
    lvn_dataset_destroy(d->val);
    lvni_core_str_free(&d->note);
    d->train = d->val = NULL;
}
