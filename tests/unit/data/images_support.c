/* Images and folders for the tests (images_support.h). */
#include "images_support.h"
#include "support/test.h"

#include "core/vfs.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

const char *images_temp_folder(void)
{
    static char path[256];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/levin-images-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void images_remove_folder(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *images_path(const char *folder, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void images_write_file(const char *path, const void *bytes, size_t n)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(lvni_core_mkdirs(folder), LVN_OK);
    assert_int_equal(lvni_core_file_write(path, bytes, n), LVN_OK);
}

void images_write_labels(const char *path, int n, const int64_t *labels)
{
    enum { HEADER = 128, MOST = 16 };
    uint8_t file[HEADER + MOST * sizeof *labels] = "\x93NUMPY\x01";
    assert_int_in_range(n, 1, MOST);
    file[8] = HEADER - 10;
    memset(file + 10, ' ', HEADER - 11);
    file[10 + snprintf((char *)file + 10, HEADER - 10,
                       "{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", n)] = ' ';
    file[HEADER - 1] = '\n';
    memcpy(file + HEADER, labels, (size_t)n * sizeof *labels);
    images_write_file(path, file, HEADER + (size_t)n * sizeof *labels);
}

void images_paint(uint8_t *rgb, int width, int height, unsigned seed)
{
    const int a = (int)(seed * 37 % 200), b = (int)(seed * 91 % 150);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            uint8_t *p = rgb + 3 * (y * width + x);
            p[0] = (uint8_t)(a + x * (255 - a) / width);
            p[1] = (uint8_t)(b + y * (255 - b) / height);
            p[2] = (uint8_t)((x + y) * 200 / (width + height));
        }
    }
}

/* The Exif segment with one entry, the orientation. */
static size_t exif_segment(uint8_t *out, int orientation, int big)
{
    static const uint8_t little_block[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3,
                                           0,   1,   0,  0, 0, 0, 0, 0, 0, 0, 0,    0,    0};
    static const uint8_t big_block[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0,
                                        3,   0,   0, 0,  1, 0, 0, 0, 0, 0, 0,    0,    0};
    const size_t length = 2 + 6 + sizeof big_block;
    const uint8_t head[] = {0xFF, 0xE1, 0, (uint8_t)length, 'E', 'x', 'i', 'f', 0, 0};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, big ? big_block : little_block, sizeof big_block);
    out[sizeof head + (big ? 19 : 18)] = (uint8_t)orientation;
    return sizeof head + sizeof big_block;
}

uint8_t *images_jpeg(const uint8_t *rgb, int width, int height, int quality, int grey,
                     int orientation, int big_endian, size_t *n)
{
    tjhandle handle = tjInitCompress();
    unsigned char *jpeg = NULL;
    unsigned long bytes = 0;
    assert_int_equal(tjCompress2(handle, rgb, width, 0, height, TJPF_RGB, &jpeg, &bytes,
                                 grey ? TJSAMP_GRAY : TJSAMP_444, quality, 0),
                     0);
    uint8_t *out = malloc(bytes + 64);
    size_t at = 2;
    memcpy(out, jpeg, 2);
    if (orientation != 0) {
        at += exif_segment(out + at, orientation, big_endian);
    }
    memcpy(out + at, jpeg + 2, bytes - 2);
    *n = at + bytes - 2;
    tjFree(jpeg);
    tjDestroy(handle);
    return out;
}

void images_make_jpeg(const char *path, int width, int height, unsigned seed)
{
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    images_paint(rgb, width, height, seed);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, width, height, 90, 0, 0, 0, &n);
    images_write_file(path, jpeg, n);
    free(jpeg);
    free(rgb);
}

const char *images_real_folder(void)
{
    static char path[512];
    const char *base = getenv("LEVIN_TEST_DATA");
    snprintf(path, sizeof path, "%s/clothing",
             base != NULL ? base : LEVIN_SOURCE_DIR "/../shared/data");
    if (access(path, R_OK) != 0) {
        print_message("skipped: no photos in %s (set LEVIN_TEST_DATA)\n", path);
        return NULL;
    }
    return path;
}
