/* Images and folders for the tests of src/data: made here, in a temporary folder that goes away
 * again. */
#ifndef LEVIN_TESTS_IMAGES_SUPPORT_H
#define LEVIN_TESTS_IMAGES_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

/* A new folder, its path in a static buffer. */
const char *images_temp_folder(void);
void images_remove_folder(const char *folder);
/* "<folder>/<name>" in one of a few static buffers. */
const char *images_path(const char *folder, const char *name);
void images_write_file(const char *path, const void *bytes, size_t n);
/* A .npy file of n int64. */
void images_write_labels(const char *path, int n, const int64_t *labels);

/* A smooth colour image, different per seed: (height, width, 3). */
void images_paint(uint8_t *rgb, int width, int height, unsigned seed);
/* JPEG bytes of rgb (or of its green channel as a grey JPEG), with an Exif orientation when 1..8,
 * in big or little byte order. The caller frees with free(). */
uint8_t *images_jpeg(const uint8_t *rgb, int width, int height, int quality, int grey,
                     int orientation, int big_endian, size_t *n);
/* Paint, encode and write a colour JPEG; parent folders are made. */
void images_make_jpeg(const char *path, int width, int height, unsigned seed);

/* The folder of real photos: LEVIN_TEST_DATA (default ../shared/data) /clothing; NULL, with a
 * printed reason, where it is absent. */
const char *images_real_folder(void);

#endif
