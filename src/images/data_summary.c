/* The log's summary of data= at the start of a run: images of each class, their sizes, and the
 * memory that decoding them takes. Called by image_data.c and image_source.c. */
#include "images/image_data.h"

#include "core/alloc.h"
#include "core/error.h"
#include "data/dataset.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { CLASSES_SHOWN = 20 };

/* ---- classes ---- */

static void count(const lvn_dataset *d, int64_t *n)
{
    for (int64_t i = 0; d != NULL && i < d->cls->length(d); i++) {
        n[d->cls->label(d, lvni_data_dataset_index(d, i))]++;
    }
}

static int64_t *new_counts(int n_classes)
{
    return lvni_core_calloc(LVNI_TAG_DATA, (size_t)n_classes, sizeof(int64_t));
}

static void print_counts(const lvn_dataset *d, const int64_t *n, lvni_core_str *out)
{
    int least = 0, most = 0;
    for (int i = 0; i < d->n_classes; i++) {
        least = n[i] < n[least] ? i : least;
        most = n[i] > n[most] ? i : most;
    }
    for (int i = 0; i < d->n_classes && d->n_classes <= CLASSES_SHOWN; i++) {
        lvni_core_str_printf(out, "%s%s %lld", i == 0 ? "(" : ", ", d->class_names[i],
                             (long long)n[i]);
    }
    if (d->n_classes > CLASSES_SHOWN) {
        lvni_core_str_printf(out, "(smallest: %s %lld, largest: %s %lld", d->class_names[least],
                             (long long)n[least], d->class_names[most], (long long)n[most]);
    }
    lvni_core_str_char(out, ')');
}

/* Takes the samples away whose headers are damaged: *left is how many are not. n: of each class, or
 * NULL. */
static void take_unusable(const lvni_data_image_scan *scan, const lvn_dataset *d, int64_t *n,
                          int64_t *left)
{
    *left = d == NULL ? 0 : d->cls->length(d);
    for (int64_t i = 0, all = *left; scan != NULL && scan->size != NULL && i < all; i++) {
        const int64_t sample = lvni_data_dataset_index(d, i);
        if (scan->size[sample].width == 0) {
            if (n != NULL) {
                n[d->cls->label(d, sample)]--;
            }
            --*left;
        }
    }
}

lvn_status lvni_images_counts_print(const lvni_data_image_scan *scan, const lvn_dataset *train,
                                    const lvn_dataset *val, lvni_core_str *out)
{
    const int64_t all = train->cls->length(train) + (val == NULL ? 0 : val->cls->length(val));
    int64_t left[2], *n = new_counts(train->n_classes);
    if (n == NULL) {
        return LVN_ERR_MEMORY;
    }
    count(train, n);
    count(val, n);
    take_unusable(scan, train, n, &left[0]);
    take_unusable(scan, val, n, &left[1]);
    const int64_t usable = left[0] + left[1];
    lvni_core_str_printf(out, "%lld image%s in %d class%s ", (long long)usable,
                         lvni_core_plural(usable, "", "s"), train->n_classes,
                         lvni_core_plural(train->n_classes, "", "es"));
    print_counts(train, n, out);
    if (usable < all) {
        lvni_core_str_printf(out, " and %lld that cannot be used", (long long)(all - usable));
    }
    lvni_core_str_printf(out, "; %lld to train, %lld to validate", (long long)left[0],
                         (long long)left[1]);
    lvni_core_free(n);
    return lvni_core_str_status(out);
}

lvn_status lvni_images_total_print(const lvni_data_image_scan *scan, const lvn_dataset *train,
                                   lvni_core_str *out)
{
    int64_t left;
    take_unusable(scan, train, NULL, &left);
    lvni_core_str_printf(out, "%lld image%s", (long long)left, lvni_core_plural(left, "", "s"));
    if (left < train->cls->length(train)) {
        lvni_core_str_printf(out, " and %lld that cannot be used",
                             (long long)(train->cls->length(train) - left));
    }
    return lvni_core_str_status(out);
}

/* Classes of which `all` has some and `part` none. */
static lvn_status list_without(const int64_t *all, const int64_t *part, const char *const *names,
                               int n_classes, lvni_core_str *out)
{
    enum { SHOWN = 8 };
    int64_t n = 0;
    for (int i = 0; i < n_classes; i++) {
        if (all[i] > 0 && part[i] == 0 && n++ < SHOWN) {
            lvni_core_str_printf(out, "%s%s", n == 1 ? "" : ", ", names[i]);
        }
    }
    if (n > SHOWN) {
        lvni_core_str_printf(out, ", and %lld more", (long long)n - SHOWN);
    }
    return lvni_core_str_status(out);
}

lvn_status lvni_images_class_counts_unvalidated(const lvn_dataset *train, const lvn_dataset *val,
                                                lvni_core_str *out)
{
    int64_t *all = new_counts(train->n_classes), *part = new_counts(train->n_classes);
    lvn_status s = all == NULL || part == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        count(train, all);
        count(val, part);
        s = list_without(all, part, train->class_names, train->n_classes, out);
    }
    lvni_core_free(all);
    lvni_core_free(part);
    return s;
}

lvn_status lvni_images_class_counts_unreadable(const lvni_data_image_scan *scan, lvni_core_str *out)
{
    if (scan->n_classes == 0) { /* a flat list, whose images have none */
        return LVN_OK;
    }
    int64_t *all = new_counts(scan->n_classes), *readable = new_counts(scan->n_classes);
    lvn_status s;
    LVNI_TRY_DONE(s, all == NULL || readable == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < scan->n; i++) {
        all[scan->label[i]]++;
        readable[scan->label[i]] += scan->size == NULL || scan->size[i].width > 0;
    }
    s = list_without(all, readable, (const char *const *)scan->class_names, scan->n_classes, out);
done:
    lvni_core_free(all);
    lvni_core_free(readable);
    return s;
}

/* ---- sizes ---- */

static int64_t area(const lvni_data_walk_size *s)
{
    return (int64_t)s->width * s->height;
}

void lvni_images_sizes_print(const lvni_data_image_scan *scan, lvni_core_str *out)
{
    const lvni_data_walk_size *least = NULL, *most = NULL;
    uint64_t bytes = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_data_walk_size *s = &scan->size[i];
        bytes += (uint64_t)s->bytes;
        if (area(s) > 0) {
            least = least == NULL || area(s) < area(least) ? s : least;
            most = most == NULL || area(s) > area(most) ? s : most;
        }
    }
    if (least == NULL) {
        return;
    }
    lvni_core_str_append(out, "; images ");
    if (area(least) == area(most)) {
        lvni_core_str_printf(out, "of %dx%d", most->width, most->height);
    } else {
        lvni_core_str_printf(out, "from %dx%d to %dx%d", least->width, least->height, most->width,
                             most->height);
    }
    char text[LVNI_BYTES_TEXT];
    lvni_core_str_printf(out, " pixels, %s of files", lvni_core_bytes_text(bytes, text));
}

static bool is_png(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot == NULL || strcasecmp(dot, ".png") == 0;
}

/* Bytes of pixels that are there at once in evaluation: a JPEG's part, in full size, that the crop
 * is made of, or all of a PNG, and the rows between the two passes. */
static size_t decoded_in_full(const lvni_data_walk_size *s, const char *name,
                              const lvni_data_transform *t)
{
    lvni_data_resize_plan plan;
    if (area(s) == 0 || lvni_data_resize_centre(t->eval_resize, t->size, t->eval_filter, s->width,
                                                s->height, &plan) != LVN_OK) {
        return 0;
    }
    const lvni_data_box box = lvni_data_resize_wanted(&plan, s->width, s->height);
    const size_t there = is_png(name) ? (size_t)area(s) : (size_t)box.width * (size_t)box.height;
    return 3 * (there + (size_t)box.height * (size_t)t->size);
}

/* Pixels that are there at once for a random crop: a JPEG is decoded in the smallest of 1/8, 1/4,
 * 1/2 and 1 that still has the pixels of the output, a PNG as it is. */
static int64_t decoded(const lvni_data_walk_size *s, const char *name, int side)
{
    const int shorter = s->width < s->height ? s->width : s->height;
    int64_t eighths = is_png(name) ? 8 : 1;
    while (eighths < 8 && shorter * eighths < 8 * (int64_t)side) {
        eighths *= 2;
    }
    return area(s) * eighths * eighths / 64;
}

size_t lvni_images_sizes_decode(const lvni_data_image_scan *scan, const lvni_data_transform *t,
                                bool crops)
{
    size_t file = 0, pixels = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_data_walk_size *s = &scan->size[i];
        const char *name = lvni_data_image_scan_name(scan, i);
        const size_t full = decoded_in_full(s, name, t);
        const size_t rgb = crops ? 3 * (size_t)decoded(s, name, t->size) : full;
        file = area(s) > 0 && (size_t)s->bytes > file ? (size_t)s->bytes : file;
        pixels = rgb > pixels ? rgb : pixels;
    }
    return file + pixels;
}

/* Eighths of its sides with which an image must be decoded for its smallest crops in this view. */
static double eighths_of_view(const lvni_data_walk_size *s, const lvni_data_transform *t)
{
    const int width = lvni_data_transform_width(t);
    double part = fmax((double)t->size / s->height, (double)width / s->width);
    if (t->random_crop && !t->whole) {
        const double side = sqrt(t->scale[0] * (double)area(s));
        part = fmax(part, fmax(t->size, width) / side);
    }
    return 8.0 * part;
}

/* Bytes of an image for these views: what is decoded, and with other channels than RGB a copy. */
static size_t decoded_for_views(const lvni_data_walk_size *s, const char *name,
                                const lvni_data_views *views)
{
    const int channels = lvni_data_views_channels(views),
              decoded_to = is_png(name) && channels % 2 == 0 ? 4 : 3,
              bytes = decoded_to + (channels == decoded_to ? 0 : channels);
    double need = 1.0;
    int64_t eighths = is_png(name) ? 8 : 1;
    for (int v = 0; v < views->n && area(s) > 0; v++) {
        need = fmax(need, eighths_of_view(s, &views->view[v]));
    }
    while (eighths < 8 && (double)eighths < need) {
        eighths *= 2;
    }
    return (size_t)(area(s) * eighths * eighths / 64 * bytes);
}

size_t lvni_images_sizes_decode_views(const lvni_data_image_scan *scan,
                                      const lvni_data_views *views)
{
    size_t file = 0, pixels = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_data_walk_size *s = &scan->size[i];
        const size_t here = decoded_for_views(s, lvni_data_image_scan_name(scan, i), views);
        file = area(s) > 0 && (size_t)s->bytes > file ? (size_t)s->bytes : file;
        pixels = here > pixels ? here : pixels;
    }
    return file + pixels;
}
