/* Odd JPEG files (odd_jpeg.h). */
#include "odd_jpeg.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

/* ---- making ---- */

static void paint_row(uint8_t *row, int width, int y, int channels)
{
    for (int x = 0; x < width; x++) {
        for (int c = 0; c < channels; c++) {
            row[x * channels + c] = (uint8_t)(40 + 3 * x * (c + 1) % 170 + 2 * y + (x * y) % 7 * 3);
        }
    }
}

static void set_separate_scans(struct jpeg_compress_struct *c, jpeg_scan_info scans[4])
{
    for (int i = 0; i < c->num_components; i++) {
        scans[i] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {i}, .Se = 63};
    }
    c->scan_info = scans;
    c->num_scans = c->num_components;
}

odd_file odd_make(int width, int height, const odd_kind *kind)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4];
    unsigned char *out = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = kind->print ? 4 : 3;
    c.in_color_space = kind->print ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    if (kind->print) {
        jpeg_set_colorspace(&c, JCS_YCCK);
    }
    jpeg_set_quality(&c, 92, TRUE);
    c.arith_code = kind->arithmetic;
    c.restart_interval = (unsigned)kind->restart;
    if (kind->progressive) {
        jpeg_simple_progression(&c);
    } else if (kind->separate) {
        set_separate_scans(&c, scans);
    }
    jpeg_start_compress(&c, TRUE);
    uint8_t *row = malloc((size_t)width * 4);
    for (int y = 0; y < height; y++) {
        JSAMPROW rows[1] = {row};
        paint_row(row, width, y, c.input_components);
        jpeg_write_scanlines(&c, rows, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (odd_file){.bytes = out, .n = n};
}

odd_file odd_copy(const odd_file *file)
{
    odd_file copy = {.bytes = malloc(file->n), .n = file->n};
    memcpy(copy.bytes, file->bytes, file->n);
    return copy;
}

void odd_free(odd_file *file)
{
    free(file->bytes);
    *file = (odd_file){0};
}

/* ---- editing ---- */

void odd_insert(odd_file *file, size_t at, const void *bytes, size_t n)
{
    uint8_t *more = malloc(file->n + n); /* exact: a sanitizer sees one byte too far */
    memcpy(more, file->bytes, at);
    memcpy(more + at, bytes, n);
    memcpy(more + at + n, file->bytes + at, file->n - at);
    free(file->bytes);
    file->bytes = more;
    file->n += n;
}

void odd_append(odd_file *file, const void *bytes, size_t n)
{
    odd_insert(file, file->n, bytes, n);
}

void odd_remove(odd_file *file, size_t at, size_t n)
{
    uint8_t *less = malloc(file->n - n);
    memcpy(less, file->bytes, at);
    memcpy(less + at, file->bytes + at + n, file->n - at - n);
    free(file->bytes);
    file->bytes = less;
    file->n -= n;
}

void odd_insert_segment(odd_file *file, size_t at, uint8_t marker, const void *body, size_t n)
{
    const uint8_t head[4] = {0xFF, marker, (uint8_t)((n + 2) >> 8), (uint8_t)(n + 2)};
    odd_insert(file, at, body, n);
    odd_insert(file, at, head, sizeof head);
}

size_t odd_find(const odd_file *file, uint8_t marker, int k)
{
    for (size_t at = 0; at + 1 < file->n; at++) {
        if (file->bytes[at] == 0xFF && file->bytes[at + 1] == marker && k-- == 0) {
            return at;
        }
    }
    return 0;
}

int odd_segments(const odd_file *file, size_t at[32])
{
    int n = 0;
    for (size_t next = 2; n < 32; n++) {
        at[n] = next;
        if (file->bytes[next + 1] == 0xDA) {
            return n + 1;
        }
        next += 2 + (size_t)(file->bytes[next + 2] << 8 | file->bytes[next + 3]);
    }
    return n;
}

/* ---- what the library makes of it ---- */

static jmp_buf gave_up;

static void leave(j_common_ptr c)
{
    (void)c;
    longjmp(gave_up, 1);
}

static void ignore(j_common_ptr c, int level)
{
    (void)c, (void)level;
}

bool odd_reference(const odd_file *file, uint8_t **pixels, int *width, int *height, int *channels)
{
    static struct jpeg_decompress_struct d;
    static struct jpeg_error_mgr errors;
    d.err = jpeg_std_error(&errors);
    errors.error_exit = leave;
    errors.emit_message = ignore;
    *pixels = NULL;
    jpeg_create_decompress(&d);
    if (setjmp(gave_up) != 0) {
        free(*pixels);
        *pixels = NULL;
        jpeg_destroy_decompress(&d);
        return false;
    }
    jpeg_mem_src(&d, file->bytes, file->n);
    jpeg_read_header(&d, TRUE);
    const bool print = d.jpeg_color_space == JCS_CMYK || d.jpeg_color_space == JCS_YCCK;
    d.out_color_space = print ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&d);
    *width = (int)d.output_width;
    *height = (int)d.output_height;
    *channels = d.output_components;
    *pixels = malloc((size_t)*width * (size_t)*height * (size_t)*channels);
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = *pixels + (size_t)d.output_scanline * (size_t)*width * (size_t)*channels;
        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_destroy_decompress(&d);
    return true;
}
