/* Sizes of a folder's images (image_sizes.h). */
#include "recipes/image_sizes.h"

#include <string.h>
#include <strings.h>

static int64_t area(const lvni_data_walk_size *s)
{
    return (int64_t)s->width * s->height;
}

void lvni_recipes_image_sizes_print(const lvni_data_image_scan *scan, lvni_core_str *out)
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
    lvni_core_str_append(out, "images ");
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
    const lvni_decode_box box = lvni_data_resize_wanted(&plan, s->width, s->height);
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

size_t lvni_recipes_image_sizes_decode(const lvni_data_image_scan *scan,
                                       const lvni_data_transform *t, bool crops)
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
