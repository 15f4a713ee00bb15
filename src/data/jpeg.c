/* JPEG decoding (image.h). The library reports through callbacks and a long jump; all of that stays
 * in this file. What costs pixels is an error here, although the library would fill them with grey;
 * its other warnings are of no account. */
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
enum { MARGIN = 4, ROWS_AT_ONCE = 16 };

/* What the library does where a restart marker is not the one it expects: 2: it passes over
 * compressed data until the next marker. */
enum { ACTION_SKIP = 2 };

typedef struct reader {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    jmp_buf stop;
    bool in_data;  /* the header is read */
    bool ended;    /* the bytes ended before an end marker */
    size_t n;      /* of the bytes */
    size_t behind; /* where what follows the newest scan begins; 0: with a marker */
} reader;

/* ---- what the library calls ---- */

static void on_error(j_common_ptr c)
{
    longjmp(((reader *)c->client_data)->stop, 1);
}

/* A band of coefficients whose earlier bits are missing. Bands in another order than usual lose
 * nothing, nor does one that comes whole once more. */
static bool misses_bits(const reader *r)
{
    const bool before_dc = r->d.Ss > 0 && r->errors.msg_parm.i[1] == 0;
    return r->d.Ah > 0 && !before_dc;
}

/* Bytes too many, wrong numbers of restart markers, strange versions and parameters leave every
 * pixel as it was meant. So does an end of the bytes where nothing else is missing: a pixel that
 * needs more of them is JWRN_HIT_MARKER. */
static bool loses_pixels(const reader *r)
{
    switch (r->errors.msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE: return true;
    case JWRN_JPEG_EOF: return !r->in_data;
    case JWRN_BOGUS_PROGRESSION: return misses_bits(r);
    case JTRC_RECOVERY_ACTION: return r->errors.msg_parm.i[1] == ACTION_SKIP;
    default: return false;
    }
}

/* After each scan the library looks for the next marker; what it passes over has no pixels. */
static void record_tail(reader *r)
{
    if (r->errors.msg_code == JTRC_SOS) {
        r->behind = 0;
    } else if (r->errors.msg_code == JWRN_EXTRANEOUS_DATA && r->behind == 0) {
        const size_t at = r->ended ? r->n : r->n - r->d.src->bytes_in_buffer;
        r->behind = at - (size_t)r->errors.msg_parm.i[0];
    }
}

/* Traces come here, too, with a positive level. */
static void on_message(j_common_ptr c, int level)
{
    (void)level;
    reader *r = c->client_data;
    r->ended = r->ended || r->errors.msg_code == JWRN_JPEG_EOF;
    record_tail(r);
    if (loses_pixels(r)) {
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
    const bool memory = r->errors.msg_code == JERR_OUT_OF_MEMORY;
    r->errors.msg_code = r->ended ? JWRN_JPEG_EOF /* the cause */
                         : r->errors.msg_code == JTRC_RECOVERY_ACTION ? JWRN_HIT_MARKER
                                                                      : r->errors.msg_code;
    r->errors.format_message((j_common_ptr)&r->d, reason);
    lvni_data_jpeg_handle_free(r);
    scratch->jpeg = NULL;
    if (memory) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no memory to decode it", path);
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged JPEG %s: %s", path, part, reason);
}

/* ---- header ---- */

static void read_header(reader *r, const uint8_t *bytes, size_t n)
{
    r->in_data = r->ended = false;
    r->n = n;
    r->behind = 0;
    jpeg_mem_src(&r->d, bytes, (unsigned long)n);
    jpeg_read_header(&r->d, TRUE);
    r->in_data = true;
}

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
    read_header(r, bytes, n);
    const int64_t width = r->d.image_width, height = r->d.image_height;
    jpeg_abort_decompress(&r->d);
    LVN_TRY(lvni_data_image_check_size(path, width, height));
    *info = (lvni_data_image_info){.format = LVNI_IMAGE_JPEG,
                                   .width = (int)width,
                                   .height = (int)height,
                                   .orientation = lvni_data_jpeg_orientation(bytes, n)};
    return LVN_OK;
}

/* The end of this image, whatever stands behind it: a video, a second image, zeros. */
static bool has_end_marker(const uint8_t *bytes, size_t n)
{
    lvni_data_jpeg_segment segment;
    size_t at = LVNI_JPEG_FIRST;
    while (lvni_data_jpeg_segment_next(bytes, n, &at, &segment)) {
        if (segment.marker == LVNI_JPEG_EOI) {
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
}

/* All scans are read by now, except the only one of a file that has one. */
static bool has_all_scans(const reader *r)
{
    const struct jpeg_decompress_struct *d = &r->d;
    for (int c = 0; c < d->num_components; c++) {
        if (d->comp_info[c].quant_table == NULL) { /* set by a component's first scan */
            return false;
        }
        for (int k = 0; d->progressive_mode && k < DCTSIZE2; k++) {
            /* how many of its last bits are missing; -1: all of them. A file may leave out the
             * finest details on purpose, one that was cut off did not */
            const int missing = d->coef_bits[c][k];
            if (r->ended ? missing != 0 : k == 0 && missing < 0) {
                return false;
            }
        }
    }
    return true;
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

typedef struct input {
    const uint8_t *bytes;
    size_t n;
    const char *path;
    bool ends;                   /* it has an end marker */
    const lvni_data_box *wanted; /* NULL: all */
    size_t filled_from;          /* decoded: filling() */
} input;

/* Zeros are valid data: a file that was cut off and filled up with them, as broken downloads are,
 * has all its pixels, of which the last were made of zeros. Where those begin that the library came
 * to; n: there are none, or no more than data may end in. */
static size_t filling(const reader *r, const input *in)
{
    enum { FEW = 8 };
    const size_t read = !r->ended       ? in->n - r->d.src->bytes_in_buffer
                        : r->behind > 0 ? r->behind
                                        : in->n;
    size_t from = read, to = read;
    while (from > 0 && in->bytes[from - 1] == 0) {
        from--;
    }
    if (from > 0 && from < read && in->bytes[from - 1] == 0xFF) {
        from++; /* FF 00 is a byte of the data */
    }
    while (to < in->n && in->bytes[to] == 0) {
        to++;
    }
    return to - from > FEW ? from : in->n;
}

/* Inside the long jump: no variable of the caller changes. */
static lvn_status decode(reader *r, lvni_data_scratch *scratch, input *in, double need,
                         lvni_data_image *out)
{
    read_header(r, in->bytes, in->n);
    const bool print = r->d.jpeg_color_space == JCS_CMYK || r->d.jpeg_color_space == JCS_YCCK;
    const int channels = print ? 4 : 3;
    r->d.out_color_space = print ? JCS_CMYK : JCS_RGB;
    r->d.dct_method = JDCT_ISLOW;
    r->d.scale_num = choose_eighths(need);
    r->d.scale_denom = 8;
    out->scale = r->d.scale_num / 8.0;
    jpeg_start_decompress(&r->d);
    /* where arithmetic data ends too early, zeros follow by its own rules */
    if (!has_all_scans(r) || (r->d.arith_code && !in->ends)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged JPEG data: %s", in->path,
                 r->ended || !in->ends ? "Premature end of JPEG file" : "a colour has no data");
    }
    place_window(r, in->wanted, out);
    const size_t room = (size_t)out->columns * (size_t)out->rows * (size_t)channels;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, room));
    read_rows(r, out, channels, scratch->pixels.data);
    in->filled_from = in->ends ? in->n : filling(r, in);
    jpeg_abort_decompress(&r->d); /* what follows the last row wanted is not looked at */
    if (print) {
        cmyk_to_rgb(scratch->pixels.data, (size_t)out->columns * (size_t)out->rows);
    }
    out->rgb = scratch->pixels.data;
    return LVN_OK;
}

static lvn_status decode_caught(reader *r, lvni_data_scratch *scratch, input *in, double need,
                                lvni_data_image *out)
{
    if (setjmp(r->stop) != 0) {
        return failed(scratch, in->path, "data");
    }
    const lvn_status s = decode(r, scratch, in, need, out);
    if (s != LVN_OK) {
        jpeg_abort_decompress(&r->d);
    }
    return s;
}

lvn_status lvni_data_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                 const char *path, double need, const lvni_data_box *wanted,
                                 lvni_data_image *out)
{
    const bool ends = has_end_marker(bytes, n);
    /* without an end, whether the file is complete must not depend on the part that is wanted */
    input in = {bytes, n, path, ends, ends ? wanted : NULL, n};
    *out = (lvni_data_image){0};
    reader *r = reader_get(scratch);
    LVN_TRY(r == NULL ? LVN_ERR_MEMORY : decode_caught(r, scratch, &in, need, out));
    if (in.filled_from == in.n) {
        return LVN_OK;
    }
    /* what is decoded without the zeros was not made of them: the library reads some ahead */
    in.n = in.filled_from;
    const lvn_status s = decode_caught(r, scratch, &in, need, out);
    if (s == LVN_ERR_CORRUPT) {
        LVN_FAIL(s, "%s: damaged JPEG data: Premature end: only zeros follow", path);
    }
    return s;
}
