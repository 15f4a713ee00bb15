/* One encoded picture, whatever its format: first its size, then its pixels. The format is known by
 * the first bytes, not by the name. Called by image_folder.c. */
#ifndef LEVIN_DATA_DECODE_PICTURE_H
#define LEVIN_DATA_DECODE_PICTURE_H

#include "data/picture_scratch.h"

typedef enum lvni_picture_format { LVNI_PICTURE_JPEG, LVNI_PICTURE_PNG } lvni_picture_format;

typedef struct lvni_picture_info {
    lvni_picture_format format;
    int width, height; /* pixels, as stored */
    int orientation;   /* 1 to 8 (Exif): how to turn the stored picture */
} lvni_picture_info;

/* In pixels of a picture, fractions allowed. */
typedef struct lvni_box {
    double x, y, width, height;
} lvni_box;

/* RGB pixels of 8 bits each, row by row without gaps. */
typedef struct lvni_picture {
    const uint8_t *rgb; /* (rows, columns, 3) */
    int width, height;  /* of the whole picture in these pixels */
    double scale;       /* these pixels per stored pixel: 1, or less where the decoder shrank */
    int left, top, columns, rows; /* the part of it that is there; columns 0: all */
} lvni_picture;

/* MAX_PIXELS until another limit is set: 13377 x 13377, where Pillow refuses as well. */
enum { LVNI_PICTURE_MAX_SIDE = 65500, LVNI_PICTURE_MAX_PIXELS = 178956970 };

/* The key data.max_pixels, for all threads of the process. */
void lvni_picture_set_max_pixels(int64_t n);
/* sides that are possible: no more pixels than that? */
bool lvni_picture_fits(int64_t width, int64_t height);
/* Check a size read from a file, before anything is allocated for it. */
lvn_status lvni_picture_check_size(const char *path, int64_t width, int64_t height);
/* Errors name the path: LVN_ERR_CORRUPT, LVN_ERR_MEMORY. */
lvn_status lvni_picture_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                              const char *path, lvni_picture_info *info);
/* Decode at a scale of at least `need` (0 < need <= 1), at least the part `wanted` in stored pixels
 * (NULL: all). out->rgb lies in scratch->pixels until the thread's next picture. */
lvn_status lvni_picture_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                               const char *path, const lvni_picture_info *info, double need,
                               const lvni_box *wanted, lvni_picture *out);

#endif
