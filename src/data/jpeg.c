/* JPEG decoding and the Exif orientation (image.h). The library reports through callbacks and a
 * long jump; all of that stays in this file. Its warnings are errors here, except those that leave
 * every pixel as it was meant. */
#include "data/image.h"

#include "core/alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h wants it before */
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* The rows and columns that the library interpolates differently next to the edge of what is
 * decoded. */
enum { MARGIN = 4, ROWS_AT_ONCE = 16, MARKER_EOI = 0xD9 };

typedef struct reader {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    jmp_buf stop;
} reader;

bool lvni_data_jpeg_is(const uint8_t *bytes, size_t n)
{
    return n >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

/* ---- what the library calls ---- */

static void on_error(j_common_ptr c)
{
    longjmp(((reader *)c->client_data)->stop, 1);
}

/* Two warnings about the header, and bytes too many right before the end marker, when all pixels
 * are done. */
static void on_message(j_common_ptr c, int level)
{
    const struct jpeg_error_mgr *e = c->err;
    const bool header = e->msg_code == JWRN_JFIF_MAJOR || e->msg_code == JWRN_ADOBE_XFORM;
    const bool extra = e->msg_code == JWRN_EXTRANEOUS_DATA && e->msg_parm.i[1] == MARKER_EOI;
    if (level < 0 && !header && !extra) {
        on_error(c);
    }
}

void lvni_data_jpeg_handle_free(void *handle)
{
    if (handle != NULL) {
        jpeg_destroy_decompress(&((reader *)handle)->d);
        lvni_core_free(handle);
    }
}

/* The thread's decompressor, made by its first JPEG. NULL with LVN_ERR_MEMORY recorded. */
static reader *reader_get(lvni_data_scratch *scratch)
{
    if (scratch->jpeg != NULL) {
        return scratch->jpeg;
    }
    reader *r = LVNI_NEW(LVNI_TAG_DATA, reader);
    if (r == NULL) {
        return NULL;
    }
    r->d.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->d.client_data = r;
    if (setjmp(r->stop) != 0) {
        lvni_core_free(r);
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "cannot make a JPEG decompressor");
        return NULL;
    }
    jpeg_create_decompress(&r->d);
    scratch->jpeg = r;
    return r;
}

/* Record the library's message. The decompressor may be left in the middle of a marker, so the next
 * image gets a new one. */
static lvn_status failed(lvni_data_scratch *scratch, const char *path, const char *part)
{
    reader *r = scratch->jpeg;
    char reason[JMSG_LENGTH_MAX];
    r->errors.format_message((j_common_ptr)&r->d, reason);
    const bool memory = r->errors.msg_code == JERR_OUT_OF_MEMORY;
    lvni_data_jpeg_handle_free(r);
    scratch->jpeg = NULL;
    if (memory) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no memory to decode it", path);
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged JPEG %s: %s", path, part, reason);
}

/* ---- header ---- */

lvn_status lvni_data_jpeg_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                const char *path, lvni_data_image_info *info)
{
    reader *r = reader_get(scratch);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (setjmp(r->stop) != 0) {
        return failed(scratch, path, "header");
    }
    jpeg_mem_src(&r->d, bytes, (unsigned long)n);
    jpeg_read_header(&r->d, TRUE);
    const int64_t width = r->d.image_width, height = r->d.image_height;
    jpeg_abort_decompress(&r->d);
    LVN_TRY(lvni_data_image_check_size(path, width, height));
    *info = (lvni_data_image_info){LVNI_IMAGE_JPEG, (int)width, (int)height,
                                   lvni_data_exif_orientation(bytes, n)};
    return LVN_OK;
}

/* The end-of-image marker near the end (some cameras add a few bytes behind it). */
static bool has_end_marker(const uint8_t *bytes, size_t n)
{
    const size_t from = n > 4096 ? n - 4096 : 0;
    for (size_t i = n; i >= from + 2; i--) {
        if (bytes[i - 2] == 0xFF && bytes[i - 1] == MARKER_EOI) {
            return true;
        }
    }
    return false;
}

/* ---- pixels ---- */

/* The smallest scale, in eighths, that is at least `need`. */
static unsigned choose_eighths(double need)
{
    /* the others have no vector code: decoding in full and resampling is faster */
    static const unsigned eighths[] = {1, 2, 4};
    for (unsigned i = 0; i < sizeof eighths / sizeof *eighths; i++) {
        if (eighths[i] / 8.0 >= need) {
            return eighths[i];
        }
    }
    return 8;
}

static int clamp_int(double x, int low, int high)
{
    return x <= low ? low : x >= high ? high : (int)x;
}

/* The part of the scaled image that `wanted` needs. Its left edge lies where the library can
 * begin, so the window may grow. */
static void place_window(reader *r, const lvni_data_box *wanted, lvni_data_image *p)
{
    p->width = (int)r->d.output_width;
    p->height = (int)r->d.output_height;
    p->columns = p->width;
    p->rows = p->height;
    if (wanted == NULL) {
        return;
    }
    const int left = clamp_int(floor(wanted->x * p->scale) - MARGIN, 0, p->width - 1);
    const int right =
        clamp_int(ceil((wanted->x + wanted->width) * p->scale) + MARGIN, left + 1, p->width);
    p->top = clamp_int(floor(wanted->y * p->scale), 0, p->height - 1);
    p->rows =
        clamp_int(ceil((wanted->y + wanted->height) * p->scale), p->top + 1, p->height) - p->top;
    if (right - left < p->width) {
        JDIMENSION x = (JDIMENSION)left, w = (JDIMENSION)(right - left);
        jpeg_crop_scanline(&r->d, &x, &w);
        p->left = (int)x;
        p->columns = (int)w;
    }
}

static void read_rows(reader *r, const lvni_data_image *p, int channels, uint8_t *pixels)
{
    const size_t stride = (size_t)p->columns * (size_t)channels;
    if (p->top > MARGIN) {
        jpeg_skip_scanlines(&r->d, (JDIMENSION)(p->top - MARGIN));
    }
    while ((int)r->d.output_scanline < p->top) { /* thrown away: overwritten by the first row */
        JSAMPROW row = pixels;
        jpeg_read_scanlines(&r->d, &row, 1);
    }
    while ((int)r->d.output_scanline < p->top + p->rows) {
        JSAMPROW rows[ROWS_AT_ONCE];
        const int done = (int)r->d.output_scanline - p->top, left = p->rows - done;
        const int n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (int i = 0; i < n; i++) {
            rows[i] = pixels + (size_t)(done + i) * stride;
        }
        jpeg_read_scanlines(&r->d, rows, (JDIMENSION)n);
    }
    if (p->top + p->rows == p->height) {
        jpeg_finish_decompress(&r->d); /* up to the end marker: damage there is damage */
    } else {
        jpeg_abort_decompress(&r->d);
    }
}

/* Print colours, stored inverted as Adobe does: each of red, green and blue is what cyan, magenta
 * or yellow leaves of the white that black leaves. In place: a pixel shrinks from four bytes to
 * three. */
static void cmyk_to_rgb(uint8_t *pixels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned white = pixels[4 * i + 3];
        for (size_t c = 0; c < 3; c++) {
            const unsigned product = (255U - pixels[4 * i + c]) * white + 128U;
            /* product / 255, rounded */
            pixels[3 * i + c] = (uint8_t)(white - ((product + (product >> 8)) >> 8));
        }
    }
}

/* Inside the long jump: no variable of the caller changes. */
static lvn_status decode(reader *r, lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                         double need, const lvni_data_box *wanted, lvni_data_image *out)
{
    jpeg_mem_src(&r->d, bytes, (unsigned long)n);
    jpeg_read_header(&r->d, TRUE);
    const bool print = r->d.jpeg_color_space == JCS_CMYK || r->d.jpeg_color_space == JCS_YCCK;
    const int channels = print ? 4 : 3;
    r->d.out_color_space = print ? JCS_CMYK : JCS_RGB;
    r->d.dct_method = JDCT_ISLOW;
    r->d.scale_num = choose_eighths(need);
    r->d.scale_denom = 8;
    out->scale = r->d.scale_num / 8.0;
    jpeg_start_decompress(&r->d);
    place_window(r, wanted, out);
    const size_t room = (size_t)out->columns * (size_t)out->rows * (size_t)channels;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, room));
    read_rows(r, out, channels, scratch->pixels.data);
    if (print) {
        cmyk_to_rgb(scratch->pixels.data, (size_t)out->columns * (size_t)out->rows);
    }
    out->rgb = scratch->pixels.data;
    return LVN_OK;
}

lvn_status lvni_data_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                 const char *path, double need, const lvni_data_box *wanted,
                                 lvni_data_image *out)
{
    *out = (lvni_data_image){0};
    if (!has_end_marker(bytes, n)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: damaged JPEG data: Premature end: no end marker in its %zu bytes", path, n);
    }
    reader *r = reader_get(scratch);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (setjmp(r->stop) != 0) {
        return failed(scratch, path, "data");
    }
    const lvn_status s = decode(r, scratch, bytes, n, need, wanted, out);
    if (s != LVN_OK) {
        jpeg_abort_decompress(&r->d);
    }
    return s;
}

/* ---- Exif orientation ---- */

/* JPEG segments up to the first scan, the Exif one among them, the orientation entry of its first
 * directory. Offsets and counts come from the file, so each is checked before it is used. */
enum { MARKER_SOS = 0xDA, MARKER_APP1 = 0xE1, TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3 };

static uint32_t read_u16(const uint8_t *p, bool little)
{
    return little ? (uint32_t)(p[0] | p[1] << 8) : (uint32_t)(p[0] << 8 | p[1]);
}

static uint32_t read_u32(const uint8_t *p, bool little)
{
    const uint32_t a = read_u16(p, little), b = read_u16(p + 2, little);
    return little ? a | b << 16 : a << 16 | b;
}

/* The block after "Exif\0\0": byte order, 42, offset of the first directory; a directory is a count
 * and entries of 12 bytes. */
static int tiff_orientation(const uint8_t *tiff, size_t n)
{
    if (n < 8 || (memcmp(tiff, "II", 2) != 0 && memcmp(tiff, "MM", 2) != 0)) {
        return 1;
    }
    const bool little = tiff[0] == 'I';
    const size_t directory = read_u32(tiff + 4, little);
    if (read_u16(tiff + 2, little) != 42 || directory > n - 2) {
        return 1;
    }
    const size_t entries = read_u16(tiff + directory, little);
    for (size_t i = 0; i < entries && directory + 2 + (i + 1) * 12 <= n; i++) {
        const uint8_t *entry = tiff + directory + 2 + i * 12;
        if (read_u16(entry, little) == TAG_ORIENTATION &&
            read_u16(entry + 2, little) == TYPE_SHORT && read_u32(entry + 4, little) == 1) {
            const uint32_t value = read_u16(entry + 8, little);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
    }
    return 1;
}

int lvni_data_exif_orientation(const uint8_t *bytes, size_t n)
{
    size_t at = 2; /* after the start-of-image marker */
    while (at + 4 <= n && bytes[at] == 0xFF) {
        const uint8_t marker = bytes[at + 1];
        if (marker == 0xFF) { /* fill byte */
            at++;
            continue;
        }
        if (marker == MARKER_SOS || marker == MARKER_EOI) {
            return 1;
        }
        const size_t length = read_u16(bytes + at + 2, false); /* counts its own two bytes */
        if (length < 2 || at + 2 + length > n) {
            return 1;
        }
        if (marker == MARKER_APP1 && length >= 8 && memcmp(bytes + at + 4, "Exif\0", 6) == 0) {
            return tiff_orientation(bytes + at + 10, length - 8);
        }
        at += 2 + length;
    }
    return 1;
}
