/* The memory a thread reuses from image to image: file bytes, decoded pixels, resampling
 * tables, the JPEG decompressor. After the first few images nothing is allocated any more. Called
 * by decode/, resample.c and the image datasets. */
#ifndef LEVIN_DATA_IMAGE_SCRATCH_H
#define LEVIN_DATA_IMAGE_SCRATCH_H

#include <levin/status.h>

/* Grows, never shrinks; reserving does not keep the content. */
typedef struct lvni_data_buffer {
    void *data;
    size_t bytes; /* room */
} lvni_data_buffer;

typedef struct lvni_data_scratch {
    void *jpeg;              /* tjhandle, made by the first JPEG */
    lvni_data_buffer file;   /* the image's file */
    lvni_data_buffer pixels; /* decoded RGB */
    lvni_data_buffer turned; /* the same, turned to be looked at */
    lvni_data_buffer tables; /* taps and weights of both axes */
    lvni_data_buffer row;    /* what lies between the two passes: a row, or all rows (resize.c) */
    lvni_data_buffer blur;   /* what lies between the two passes of a blur */
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

#endif
