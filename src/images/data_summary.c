/* The log's summary of data= at the start of a run: images of each class, their sizes, and the
 * memory that decoding them takes. Called by image_data.c and image_source.c. */
#include "images/image_data.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
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

/* Are all bits of a file of 16 per channel decoded, then with four channels? By the largest PNG,
 * which stands for all: the list of images has sizes alone. */
static bool has_deep(const lvni_data_image_scan *scan, const lvni_data_transform *t)
{
    enum { HEADER = 33 };
    uint8_t bytes[HEADER];
    lvni_data_image_info info = {0};
    lvni_core_str path = {0};
    int64_t largest = -1;
    uint64_t n;
    int fd;
    for (int64_t i = 0; t->deep && scan->size != NULL && i < scan->n; i++) {
        if (is_png(lvni_data_image_scan_name(scan, i)) &&
            (largest < 0 || area(&scan->size[i]) > area(&scan->size[largest]))) {
            largest = i;
        }
    }
    if (largest < 0) {
        return false;
    }
    lvni_core_str_printf(&path, "%s/%s", scan->root, lvni_data_image_scan_name(scan, largest));
    if (lvni_core_str_status(&path) == LVN_OK &&
        lvni_core_regular_open(lvni_core_str_text(&path), &fd, &n) == LVN_OK) {
        const bool whole = lvni_core_vfs_get()->read(fd, bytes, HEADER) == HEADER;
        lvni_core_vfs_get()->close(fd);
        (void)(whole && lvni_data_image_probe(lvni_data_scratch_get(), bytes, HEADER,
                                              lvni_core_str_text(&path), &info) == LVN_OK);
    }
    lvni_core_str_free(&path);
    lvn_clear_error(); /* of a damaged one: reading it reports why */
    return info.has_16_bits;
}

/* What a pixel takes: of RGB or, with alpha, four channels, and where others are wanted those. */
static size_t pixel_bytes(bool png, bool deep, int channels)
{
    const int decoded_to = png && (deep || channels % 2 == 0) ? 4 : 3,
              values = decoded_to + (channels == decoded_to ? 0 : channels);
    return (size_t)values * (png && deep ? 2 : 1);
}

/* Bytes of pixels that are there at once in evaluation: a JPEG's part, in full size, that the crop
 * is made of, or all of a PNG, and the rows between the two passes. */
static size_t decoded_in_full(const lvni_data_walk_size *s, const char *name, bool deep,
                              const lvni_data_transform *t)
{
    const bool png = is_png(name);
    lvni_data_resize_plan plan;
    if (area(s) == 0 || lvni_data_resize_centre(t->eval_resize, t->size, t->eval_filter, s->width,
                                                s->height, &plan) != LVN_OK) {
        return 0;
    }
    const lvni_data_box box = lvni_data_resize_wanted(&plan, s->width, s->height);
    const size_t there = png ? (size_t)area(s) : (size_t)box.width * (size_t)box.height;
    return pixel_bytes(png, deep, lvni_data_transform_channels(t)) * there +
           3 * (size_t)box.height * (size_t)t->size;
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
    const bool deep = has_deep(scan, t);
    size_t file = 0, pixels = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_data_walk_size *s = &scan->size[i];
        const char *name = lvni_data_image_scan_name(scan, i);
        const size_t full = decoded_in_full(s, name, deep, t);
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
static size_t decoded_for_views(const lvni_data_walk_size *s, const char *name, bool deep,
                                const lvni_data_views *views)
{
    const size_t bytes = pixel_bytes(is_png(name), deep, lvni_data_views_channels(views));
    double need = 1.0;
    int64_t eighths = is_png(name) ? 8 : 1;
    for (int v = 0; v < views->n && area(s) > 0; v++) {
        need = fmax(need, eighths_of_view(s, &views->view[v]));
    }
    while (eighths < 8 && (double)eighths < need) {
        eighths *= 2;
    }
    return (size_t)(area(s) * eighths * eighths / 64) * bytes;
}

size_t lvni_images_sizes_decode_views(const lvni_data_image_scan *scan,
                                      const lvni_data_views *views)
{
    const bool deep = has_deep(scan, &views->view[0]);
    size_t file = 0, pixels = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_data_walk_size *s = &scan->size[i];
        const size_t here = decoded_for_views(s, lvni_data_image_scan_name(scan, i), deep, views);
        file = area(s) > 0 && (size_t)s->bytes > file ? (size_t)s->bytes : file;
        pixels = here > pixels ? here : pixels;
    }
    return file + pixels;
}
