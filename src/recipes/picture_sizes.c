/* Sizes of a folder's pictures (picture_sizes.h). */
#include "recipes/picture_sizes.h"

#include <string.h>
#include <strings.h>

static int64_t area(const lvni_walk_size *s)
{
    return (int64_t)s->width * s->height;
}

void lvni_picture_sizes_print(const lvni_image_scan *scan, lvni_str *out)
{
    const lvni_walk_size *least = NULL, *most = NULL;
    uint64_t bytes = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_walk_size *s = &scan->size[i];
        bytes += (uint64_t)s->bytes;
        if (area(s) > 0) {
            least = least == NULL || area(s) < area(least) ? s : least;
            most = most == NULL || area(s) > area(most) ? s : most;
        }
    }
    if (least == NULL) {
        return;
    }
    lvni_str_append(out, "images ");
    if (area(least) == area(most)) {
        lvni_str_printf(out, "of %dx%d", most->width, most->height);
    } else {
        lvni_str_printf(out, "from %dx%d to %dx%d", least->width, least->height, most->width, most->height);
    }
    char text[LVNI_BYTES_TEXT];
    lvni_str_printf(out, " pixels, %s of files", lvni_bytes_text(bytes, text));
}

/* Pixels that are there at once: a JPEG is decoded in the smallest of 1/8, 1/4, 1/2 and 1 that still has the pixels of the output, a
 * PNG as it is. */
static int64_t decoded(const lvni_walk_size *s, const char *name, int side)
{
    const int shorter = s->width < s->height ? s->width : s->height;
    const char *dot = strrchr(name, '.');
    int64_t eighths = dot != NULL && strcasecmp(dot, ".png") != 0 ? 1 : 8;
    while (eighths < 8 && shorter * eighths < 8 * (int64_t)side) {
        eighths *= 2;
    }
    return area(s) * eighths * eighths / 64;
}

size_t lvni_picture_sizes_decode(const lvni_image_scan *scan, int side)
{
    size_t file = 0, pixels = 0;
    for (int64_t i = 0; scan->size != NULL && i < scan->n; i++) {
        const lvni_walk_size *s = &scan->size[i];
        const size_t rgb = 3 * (size_t)decoded(s, lvni_image_scan_name(scan, i), side);
        file = area(s) > 0 && (size_t)s->bytes > file ? (size_t)s->bytes : file;
        pixels = rgb > pixels ? rgb : pixels;
    }
    return file + pixels;
}
