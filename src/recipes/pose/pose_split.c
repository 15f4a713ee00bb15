/* Training, validation and test frames (pose_split.h). */
#include "recipes/pose/pose_split.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "recipes/pose/pose_csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *lvni_pose_set_name(lvni_pose_set set)
{
    static const char *const names[LVNI_POSE_SETS] = {"train", "validation", "test", "unused"};
    return names[set];
}

int lvni_pose_set_of(const char *name)
{
    for (int s = 0; s < LVNI_POSE_SETS; s++) {
        if (strcasecmp(name, lvni_pose_set_name((lvni_pose_set)s)) == 0) {
            return s;
        }
    }
    return strcasecmp(name, "val") == 0 ? LVNI_POSE_VALIDATION : -1;
}

void lvni_pose_split_count(const int8_t *set, int64_t n, int64_t count[LVNI_POSE_SETS])
{
    memset(count, 0, LVNI_POSE_SETS * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        count[set[i]]++;
    }
}

lvn_status lvni_pose_split_check(const lvni_pose_labels *labels, const int8_t *set)
{
    int64_t frames[LVNI_POSE_SETS], points[LVNI_POSE_SETS] = {0};
    lvni_pose_split_count(set, labels->n, frames);
    for (int64_t i = 0; i < labels->n * labels->k; i++) {
        points[set[i / labels->k]] += !isnan(labels->xy[2 * i]);
    }
    for (int s = LVNI_POSE_TRAIN; s <= LVNI_POSE_VALIDATION; s++) {
        if (points[s] == 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s: no keypoint is labelled in %s %lld %s frame%s; label some of them, or "
                     "draw other frames with training.rng_seed_data_pt or data.split",
                     labels->path, frames[s] == 1 ? "the" : "all", (long long)frames[s],
                     lvni_pose_set_name((lvni_pose_set)s), lvni_core_plural(frames[s], "", "s"));
        }
    }
    return LVN_OK;
}

/* ---- drawn ---- */

/* As Lightning Pose rounds: 0.29 of 100 is 28, since the product of the doubles lies below 29. */
static int64_t part_of(double part, int64_t n)
{
    return (int64_t)floor(part * (double)n);
}

static lvn_status cut_train(double train_frames, int64_t train, int64_t *out)
{
    if (!(train_frames > 0)) {
        LVN_FAIL(LVN_ERR_USAGE, "training.train_frames %g: expected a number above 0",
                 train_frames);
    }
    int64_t n = train;
    if (train_frames < 1) {
        n = part_of(train_frames, train);
    } else if (train_frames > 1 && train_frames < (double)train) {
        n = (int64_t)train_frames;
    }
    if (n == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "training.train_frames %g: that part of %lld training frames is less than one",
                 train_frames, (long long)train);
    }
    *out = n;
    return LVN_OK;
}

lvn_status lvni_pose_split(int64_t n, double train_prob, double val_prob, double train_frames,
                           uint64_t seed, int8_t *set)
{
    enum { TEST_LEAST = 5 };
    if (!(train_prob > 0 && val_prob >= 0 && train_prob + val_prob <= 1 + 1e-6)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "training.train_prob %g and training.val_prob %g: parts of the labelled frames, "
                 "together at most 1",
                 train_prob, val_prob);
    }
    int64_t train = part_of(train_prob, n), validation = part_of(val_prob, n);
    const int64_t left = n - train - validation;
    train += left < TEST_LEAST ? left : 0;
    if (validation == 0) {
        train--;
        validation = 1;
    }
    if (train < 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "training.train_prob %g of %lld labelled frame%s: one must train and another "
                 "validate; label more frames, or raise training.train_prob",
                 train_prob, (long long)n, lvni_core_plural(n, "", "s"));
    }
    int64_t used = 0;
    LVN_TRY(cut_train(train_frames, train, &used));
    int64_t *order = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *order);
    if (order == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("pose/split"))};
    lvni_core_rng_permute(&rng, n, order);
    for (int64_t i = 0; i < n; i++) {
        set[order[i]] = i < used                 ? LVNI_POSE_TRAIN
                        : i < train              ? LVNI_POSE_UNUSED
                        : i < train + validation ? LVNI_POSE_VALIDATION
                                                 : LVNI_POSE_TEST;
    }
    lvni_core_free(order);
    return LVN_OK;
}

/* ---- from a file ---- */

/* A row of the file. */
typedef struct entry {
    const char *image;
    int64_t line;
    int8_t set;
} entry;

typedef struct columns {
    int64_t image, set, headers;
} columns;

static int64_t named(const lvni_pose_csv *t, const char *name)
{
    for (int64_t c = 0; c < lvni_pose_csv_width(t, 0); c++) {
        if (strcasecmp(lvni_pose_csv_at(t, 0, c), name) == 0) {
            return c;
        }
    }
    return -1;
}

static lvn_status find_columns(const lvni_pose_csv *t, columns *out)
{
    static const char *const images[] = {"image", "image_path", "path", "frame", "file"};
    *out = (columns){.image = 0, .set = 1, .headers = 0};
    if (t->n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the file is empty", t->name);
    }
    const int64_t set = named(t, "set");
    if (set < 0 && lvni_pose_csv_width(t, 0) == 2 &&
        lvni_pose_set_of(lvni_pose_csv_at(t, 0, 1)) >= 0) {
        return LVN_OK; /* without a header */
    }
    if (set < 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s:%lld: no column `set`; give a CSV of images and sets (header `image,set`), or "
                 "a predictions.csv that has the column",
                 t->name, (long long)t->line[0]);
    }
    out->set = set;
    out->image = set == 0 ? 1 : 0;
    out->headers = t->n >= 3 && strcasecmp(lvni_pose_csv_at(t, 2, 0), "coords") == 0 ? 3 : 1;
    for (size_t i = 0; out->headers == 1 && i < sizeof images / sizeof images[0]; i++) {
        const int64_t c = named(t, images[i]);
        if (c >= 0) {
            out->image = c;
            break;
        }
    }
    return LVN_OK;
}

static int by_image(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return strcmp(x->image, y->image);
}

static lvn_status read_entries(const lvni_pose_csv *t, entry *entries, int64_t *n)
{
    columns c;
    LVN_TRY(find_columns(t, &c));
    *n = 0;
    for (int64_t row = c.headers; row < t->n; row++) {
        const char *image = lvni_pose_csv_at(t, row, c.image),
                   *name = lvni_pose_csv_at(t, row, c.set);
        if (lvni_pose_csv_is_empty(t, row, 0)) {
            continue;
        }
        const int set = lvni_pose_set_of(name);
        if (set < 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s:%lld, column %lld (set): `%.64s` is not train, validation, test or unused",
                     t->name, (long long)t->line[row], (long long)c.set + 1, name);
        }
        entries[(*n)++] = (entry){.image = image, .line = t->line[row], .set = (int8_t)set};
    }
    qsort(entries, (size_t)*n, sizeof *entries, by_image);
    for (int64_t i = 1; i < *n; i++) {
        const entry *a = &entries[i - 1], *b = &entries[i];
        if (strcmp(a->image, b->image) == 0 && a->set != b->set) {
            LVN_FAIL(LVN_ERR_USAGE, "%s:%lld: the image %s is in two sets, see line %lld", t->name,
                     (long long)b->line, b->image, (long long)a->line);
        }
    }
    return LVN_OK;
}

static lvn_status look_up(const char *path, const entry *entries, int64_t n,
                          const lvni_pose_labels *labels, int8_t *set)
{
    int64_t missing = 0, first = 0, count[LVNI_POSE_SETS];
    for (int64_t i = 0; i < labels->n; i++) {
        const entry key = {.image = labels->image[i]};
        const entry *e = bsearch(&key, entries, (size_t)n, sizeof *entries, by_image);
        if (e == NULL && missing++ == 0) {
            first = i;
        }
        set[i] = e != NULL ? e->set : LVNI_POSE_UNUSED;
    }
    if (missing > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: no set for %lld of %lld frames of %s, the first of them %s; paths must be as "
                 "in the labels, and frames that are to be left out are `unused`",
                 path, (long long)missing, (long long)labels->n, labels->path,
                 labels->image[first]);
    }
    lvni_pose_split_count(set, labels->n, count);
    if (count[LVNI_POSE_TRAIN] == 0 || count[LVNI_POSE_VALIDATION] == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %lld training and %lld validation frames; at least one of each is needed",
                 path, (long long)count[LVNI_POSE_TRAIN], (long long)count[LVNI_POSE_VALIDATION]);
    }
    return LVN_OK;
}

lvn_status lvni_pose_split_read(const char *path, const lvni_pose_labels *labels, int8_t *set)
{
    lvni_pose_csv t;
    entry *entries = NULL;
    int64_t n = 0;
    lvn_status status = lvni_pose_csv_read(path, &t);
    if (status == LVN_OK) {
        entries = lvni_core_calloc(LVNI_TAG_DATA, (size_t)t.n, sizeof *entries);
        status = entries == NULL ? LVN_ERR_MEMORY : read_entries(&t, entries, &n);
    }
    if (status == LVN_OK) {
        status = look_up(path, entries, n, labels, set);
    }
    lvni_core_free(entries);
    lvni_pose_csv_free(&t);
    return status;
}
