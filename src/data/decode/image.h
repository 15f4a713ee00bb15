/* One encoded image, whatever its format: first its size, then its pixels. The format is known by
 * the first bytes, not by the name. Called by image_folder.c. */
#ifndef LEVIN_DATA_DECODE_IMAGE_H
#define LEVIN_DATA_DECODE_IMAGE_H

#include "data/image_scratch.h"

typedef enum lvni_decode_image_format { LVNI_IMAGE_JPEG, LVNI_IMAGE_PNG } lvni_decode_image_format;

typedef struct lvni_decode_image_info {
    lvni_decode_image_format format;
    int width, height; /* pixels, as stored */
    int orientation;   /* 1 to 8 (Exif): how to turn the stored image */
} lvni_decode_image_info;

/* In pixels of an image, fractions allowed. */
typedef struct lvni_decode_box {
    double x, y, width, height;
} lvni_decode_box;

/* RGB pixels of 8 bits each, row by row without gaps. */
typedef struct lvni_decode_image {
    const uint8_t *rgb; /* (rows, columns, 3) */
    int width, height;  /* of the whole image in these pixels */
    double scale;       /* these pixels per stored pixel: 1, or less where the decoder shrank */
    int left, top, columns, rows; /* the part of it that is there; columns 0: all */
} lvni_decode_image;

/* MAX_PIXELS until another limit is set: 13377 x 13377, where Pillow refuses as well. */
enum { LVNI_IMAGE_MAX_SIDE = 65500, LVNI_IMAGE_MAX_PIXELS = 178956970 };

/* The key data.max_pixels, for all threads of the process. */
void lvni_decode_image_set_max_pixels(int64_t n);
/* sides that are possible: no more pixels than that? */
bool lvni_decode_image_fits(int64_t width, int64_t height);
/* Check a size read from a file, before anything is allocated for it. */
lvn_status lvni_decode_image_check_size(const char *path, int64_t width, int64_t height);
/* Errors name the path: LVN_ERR_CORRUPT, LVN_ERR_MEMORY. */
lvn_status lvni_decode_image_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                   const char *path, lvni_decode_image_info *info);
/* Decode at a scale of at least `need` (0 < need <= 1), at least the part `wanted` in stored pixels
 * (NULL: all). out->rgb lies in scratch->pixels until the thread's next image. */
lvn_status lvni_decode_image_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                    const char *path, const lvni_decode_image_info *info,
                                    double need, const lvni_decode_box *wanted,
                                    lvni_decode_image *out);

#endif
