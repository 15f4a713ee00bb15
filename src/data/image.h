/* Encoded images and the memory that a thread reuses from one to the next. An image gives first its
 * size, then its pixels; its format is known by its first bytes, not by its name; image.c holds the
 * scratch memory and the choice of the decoder, jpeg.c, png.c and image_other.c the decoders,
 * orientation.c how images are turned. Called by the image datasets and what prepares their pixels.
 */
#ifndef LEVIN_DATA_IMAGE_H
#define LEVIN_DATA_IMAGE_H

#include <levin/status.h>

/* ---- scratch memory: after the first few images nothing is allocated any more ---- */

/* Grows, never shrinks; reserving does not keep the content. */
typedef struct lvni_data_buffer {
    void *data;
    size_t bytes; /* room */
} lvni_data_buffer;

typedef struct lvni_data_scratch {
    void *jpeg;              /* jpeg.c's reader, made by the first JPEG */
    lvni_data_buffer file;   /* the image's file */
    lvni_data_buffer pixels; /* decoded RGB */
    lvni_data_buffer turned; /* the same, turned upright or with other channels */
    lvni_data_buffer tables; /* taps and weights of both axes */
    lvni_data_buffer row;    /* what lies between the two passes: a row, or all rows (resize.c) */
    lvni_data_buffer blur;   /* what lies between the two passes of a blur; before a rotation */
    lvni_data_buffer view;   /* a view of other channels than RGB, before it is normalised */
} lvni_data_scratch;

/* The calling thread's scratch, freed when the thread ends. NULL with the thread's error when out
 * of memory. */
lvni_data_scratch *lvni_data_scratch_get(void);
/* Free the calling thread's scratch now (the main thread at exit, tests). */
void lvni_data_scratch_release(void);

lvn_status lvni_data_buffer_reserve(lvni_data_buffer *buffer, size_t bytes);

/* A whole file into scratch->file; the number of its bytes to *bytes. LVN_ERR_NOT_FOUND or
 * LVN_ERR_IO with path and reason. */
lvn_status lvni_data_read_file(lvni_data_scratch *scratch, const char *path, size_t *bytes);

/* ---- one encoded image ---- */

typedef enum lvni_data_image_format {
    LVNI_IMAGE_JPEG,
    LVNI_IMAGE_PNG,
    LVNI_IMAGE_OTHER
} lvni_data_image_format;

typedef struct lvni_data_image_info {
    lvni_data_image_format format;
    int width, height; /* pixels, as stored */
    int orientation;   /* 1 to 8 (Exif): how to turn the stored image */
    bool has_16_bits;  /* per channel (PNG) */
    bool deep;         /* set by the caller: all 16 bits are decoded, else the high 8 of them */
} lvni_data_image_info;

/* In pixels of an image, fractions allowed. */
typedef struct lvni_data_box {
    double x, y, width, height;
} lvni_data_box;

/* Pixels of 8 or 16 bits per channel, row by row without gaps. */
typedef struct lvni_data_image {
    const uint8_t *rgb;   /* (rows, columns, channels) */
    const uint16_t *deep; /* the same, instead of rgb, of 16 bits; NULL: 8 */
    int channels;         /* 1 grey, 2 grey and alpha, 3 or 0 RGB, 4 RGB and alpha */
    int width, height;    /* of the whole image in these pixels */
    double scale;         /* these pixels per stored pixel: 1, or less where the decoder shrank */
    int left, top, columns, rows; /* the part of it that is there; columns 0: all */
} lvni_data_image;

/* MAX_PIXELS until another limit is set: 13377 x 13377, where Pillow refuses as well. */
enum { LVNI_IMAGE_MAX_SIDE = 65500, LVNI_IMAGE_MAX_PIXELS = 178956970 };

/* The key data.max_pixels, for all threads of the process. */
void lvni_data_image_set_max_pixels(int64_t n);
/* No more pixels than that; sides of at most LVNI_IMAGE_MAX_SIDE. */
bool lvni_data_image_fits(int64_t width, int64_t height);
/* Check a size read from a file, before anything is allocated for it. */
lvn_status lvni_data_image_check_size(const char *path, int64_t width, int64_t height);
/* Errors name the path: LVN_ERR_CORRUPT, LVN_ERR_MEMORY. */
lvn_status lvni_data_image_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                 const char *path, lvni_data_image_info *info);
/* Decode at a scale of at least `need` (0 < need <= 1), at least the part `wanted` in stored pixels
 * (NULL: all). out->rgb lies in scratch->pixels until the thread's next image. */
lvn_status lvni_data_image_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, const lvni_data_image_info *info, double need,
                                  const lvni_data_box *wanted, lvni_data_image *out);
/* The same with 1 to 4 channels (lvni_data_image), and with info->deep those of a file of 16 bits
 * whole: grey is that of Pillow, alpha without one in the file 255 (65535). Pixels of other
 * channels than RGB may lie in scratch->turned. */
lvn_status lvni_data_image_decode_channels(lvni_data_scratch *scratch, const uint8_t *bytes,
                                           size_t n, const char *path,
                                           const lvni_data_image_info *info, int channels,
                                           double need, const lvni_data_box *wanted,
                                           lvni_data_image *out);
/* Pixels that are there, with other channels: into scratch->turned, where they are not the same.
 * Fails only for want of memory. */
lvn_status lvni_data_image_convert(lvni_data_scratch *scratch, int channels,
                                   lvni_data_image *image);

/* ---- JPEG ----
 *
 * JPEG to RGB through libjpeg-turbo, decoded no larger than needed and only where needed (scaled
 * integer DCT: the same bytes on every machine). Baseline and progressive; grey becomes RGB; print
 * colours (CMYK, YCCK, stored inverted as Adobe and all others do) become RGB by multiplication
 * with what black leaves, without colour profiles. */

lvn_status lvni_data_jpeg_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                const char *path, lvni_data_image_info *info);
/* Decode to scratch->pixels with the smallest scale that is at least `need`, at least the part
 * `wanted` (stored pixels; NULL: all), whose pixels are those of the whole image. What the library
 * decodes with all its pixels is decoded: with bytes between segments, without an end marker, with
 * anything behind the end. Data that lacks pixels up to the last row wanted is LVN_ERR_CORRUPT,
 * although the library would fill them with grey; what lies below that row is not decoded, except
 * where there is no end marker. */
lvn_status lvni_data_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                 const char *path, double need, const lvni_data_box *wanted,
                                 lvni_data_image *out);
void lvni_data_jpeg_handle_free(void *handle); /* NULL is fine */

/* ---- orientation.c: 1 to 8 as in the standard of Exif (tag 0x0112), how to turn the stored image
 * upright. The first valid one in an Exif block, else in an XMP packet; 1 (as stored) without one.
 * Reads nothing outside bytes[0..n). ---- */

int lvni_data_jpeg_orientation(const uint8_t *bytes, size_t n);
int lvni_data_png_orientation(const uint8_t *bytes, size_t n);
/* Numbers of either byte order. */
static inline uint32_t lvni_data_read_u16(const uint8_t *p, bool little)
{
    return little ? (uint32_t)(p[0] | p[1] << 8) : (uint32_t)(p[0] << 8 | p[1]);
}
static inline uint32_t lvni_data_read_u32(const uint8_t *p, bool little)
{
    const uint32_t a = lvni_data_read_u16(p, little), b = lvni_data_read_u16(p + 2, little);
    return little ? a | b << 16 : a << 16 | b;
}
/* Of an Exif block, or of a TIFF file; 0: it has none. */
int lvni_data_exif_orientation(const uint8_t *bytes, size_t n);

/* A JPEG is segments: a marker, and for most a body. */
enum {
    LVNI_JPEG_FIRST = 2, /* where the first begins */
    LVNI_JPEG_TEM = 0x01,
    LVNI_JPEG_RST0 = 0xD0,
    LVNI_JPEG_SOI = 0xD8,
    LVNI_JPEG_EOI = 0xD9,
    LVNI_JPEG_SOS = 0xDA,
    LVNI_JPEG_APP1 = 0xE1
};

typedef struct lvni_data_jpeg_segment {
    uint8_t marker;
    const uint8_t *body; /* NULL: this marker has none */
    size_t bytes;
} lvni_data_jpeg_segment;

bool lvni_data_jpeg_is(const uint8_t *bytes, size_t n);
/* The next one from *at on, which moves behind it. False: there is no other, or it is cut off. */
bool lvni_data_jpeg_segment_next(const uint8_t *bytes, size_t n, size_t *at,
                                 lvni_data_jpeg_segment *out);

/* ---- PNG ----
 *
 * PNG to RGB through libspng: grey, palette, RGB, with or without transparency, interlaced or not,
 * 1 to 16 bits per channel. As Pillow converts to RGB: transparency (alpha channel, tRNS) is
 * dropped, unless it is asked for, not blended; 16 bits become 8 by their high byte (16-bit grey
 * too, which Pillow clips).
 */
bool lvni_data_png_is(const uint8_t *bytes, size_t n);
lvn_status lvni_data_png_probe(const uint8_t *bytes, size_t n, const char *path,
                               lvni_data_image_info *info);
/* Decode in full size to scratch->pixels, to RGB or, alpha, RGB and alpha; with info->deep and 16
 * bits in the file RGB and alpha of 16 bits. */
lvn_status lvni_data_png_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                const char *path, const lvni_data_image_info *info, bool alpha,
                                lvni_data_image *out);
/* Of rgb (height, width, 3); *png is freed by the caller (lvni_core_free). */
lvn_status lvni_data_png_encode(const uint8_t *rgb, int width, int height, void **png, size_t *n);
/* Write rgb (height, width, 3). The file appears whole or not at all. LVN_ERR_IO with path and
 * reason. */
lvn_status lvni_data_png_write(const char *path, const uint8_t *rgb, int width, int height);

/* ---- image_other.c: kinds that levin_video.so decodes (foreign.h) ----
 *
 * As PNG: transparency is dropped unless it is asked for, more than 8 bits become 8 by the high
 * ones. The first image of a file. LVN_ERR_UNSUPPORTED: there is no module. */
lvn_status lvni_data_other_probe(const uint8_t *bytes, size_t n, const char *path,
                                 lvni_data_image_info *info);
lvn_status lvni_data_other_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, const lvni_data_image_info *info, bool alpha,
                                  lvni_data_image *out);

#endif
