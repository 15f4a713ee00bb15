/* JPEG files as phones, scanners and broken tools write them, made by the tests themselves: an
 * ordinary file of the installed library, and edits of its segments. */
#ifndef LEVIN_TESTS_ODD_JPEG_H
#define LEVIN_TESTS_ODD_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct odd_file {
    uint8_t *bytes; /* odd_free */
    size_t n;
} odd_file;

typedef struct odd_kind {
    bool progressive, arithmetic;
    bool separate; /* a scan for each colour */
    int restart;   /* blocks between restart markers; 0: none */
    bool print;    /* four colours, YCCK */
} odd_kind;

/* A smooth image of width x height. */
odd_file odd_make(int width, int height, const odd_kind *kind);
odd_file odd_copy(const odd_file *file);
void odd_free(odd_file *file);

/* Insert at byte `at`. */
void odd_insert(odd_file *file, size_t at, const void *bytes, size_t n);
void odd_append(odd_file *file, const void *bytes, size_t n);
void odd_remove(odd_file *file, size_t at, size_t n);
/* A segment of `marker` with a body, at byte `at`. */
void odd_insert_segment(odd_file *file, size_t at, uint8_t marker, const void *body, size_t n);
/* Where the k-th marker `marker` begins (its 0xFF), from the file's begin; 0: there is none. */
size_t odd_find(const odd_file *file, uint8_t marker, int k);
/* Where the segments up to the first scan begin; how many. */
int odd_segments(const odd_file *file, size_t at[32]);

/* What the installed library decodes by default, its warnings ignored: RGB or CMYK in *pixels
 * (free); false when it gives up. */
bool odd_reference(const odd_file *file, uint8_t **pixels, int *width, int *height, int *channels);

#endif
