/* Dense arrays in files of other programs: NumPy's .npy (npy.c) and IDX, the format of MNIST, also
 * packed with gzip (array.c). Element type, byte order, axis order, bounds-checked bytes. Called by
 * array_images.c and by the recipes that load or write arrays. */
#ifndef LEVIN_DATA_ARRAY_H
#define LEVIN_DATA_ARRAY_H

#include <levin/status.h>

enum { LVNI_ARRAY_MAX_NDIM = 8 };

typedef enum lvni_data_array_type {
    LVNI_ARRAY_BOOL,
    LVNI_ARRAY_U8,
    LVNI_ARRAY_I8,
    LVNI_ARRAY_U16,
    LVNI_ARRAY_I16,
    LVNI_ARRAY_U32,
    LVNI_ARRAY_I32,
    LVNI_ARRAY_U64,
    LVNI_ARRAY_I64,
    LVNI_ARRAY_F16,
    LVNI_ARRAY_F32,
    LVNI_ARRAY_F64,
    LVNI_ARRAY_C64, /* two float32: real and imaginary part */
    LVNI_ARRAY_C128,
} lvni_data_array_type;

typedef struct lvni_data_array {
    lvni_data_array_type type;
    bool big_endian; /* most significant byte first */
    bool fortran;    /* the first axis runs fastest */
    int ndim;        /* 0: one element */
    int64_t shape[LVNI_ARRAY_MAX_NDIM];
    int64_t count;       /* elements */
    const uint8_t *data; /* count elements; borrowed from `owned`, or from the caller of a parser */
    void *owned;         /* freed by lvni_data_array_free; NULL: nothing */
} lvni_data_array;

const char *lvni_data_array_type_name(lvni_data_array_type type); /* "float32" */
size_t lvni_data_array_type_bytes(lvni_data_array_type type);     /* 1 to 16 */

/* shape[0 .. ndim) to count; LVN_ERR_CORRUPT when it is negative or count * 16 does not fit into 63
 * bits. */
lvn_status lvni_data_array_set_shape(lvni_data_array *array, const char *name, int ndim,
                                     const int64_t *shape);
/* The elements [first, first + count) in row-major order (the last axis fastest), whatever the
 * order in the file. LVN_ERR_INVALID outside the array. f32: as a conversion in C does it, and
 * LVN_ERR_DTYPE for complex numbers. i64: LVN_ERR_DTYPE for floating point, LVN_ERR_CORRUPT for a
 * value above 2^63 - 1. complex: of any type, out holds 2 * count numbers, real part and imaginary
 * part of each element. */
lvn_status lvni_data_array_read_f32(const lvni_data_array *array, int64_t first, int64_t count,
                                    float *out);
lvn_status lvni_data_array_read_i64(const lvni_data_array *array, int64_t first, int64_t count,
                                    int64_t *out);
lvn_status lvni_data_array_read_complex(const lvni_data_array *array, int64_t first, int64_t count,
                                        double *out);
/* "(60000, 28, 28)" into text; returns text. */
const char *lvni_data_array_shape_text(const lvni_data_array *array, char text[192]);
/* May an array of this shape and type be unpacked from so many bytes? LVN_ERR_USAGE above 256 MiB
 * and 100 to one; `instead` ends the message: what to do where the array is right. */
lvn_status lvni_data_array_check_packed(const lvni_data_array *array, const char *name,
                                        uint64_t packed, const char *instead);
/* Any array file, known by its first bytes: .npy, IDX, or IDX packed with gzip. Free with
 * lvni_data_array_free. */
lvn_status lvni_data_array_open(const char *path, lvni_data_array *out);
void lvni_data_array_free(lvni_data_array *array); /* leaves it empty */

/* ---- .npy, formats 1.0, 2.0, 3.0: a Python dictionary literal, then the elements ----
 *
 * Read: bool, int8 to int64, uint8 to uint64, float16, float32, float64, complex64, complex128,
 * either byte order, either axis order. Written: float32, float64, complex64. */

bool lvni_data_npy_is(const void *bytes, size_t n);
/* The header alone: type, orders and shape to *out (data stays NULL), the offset of the first
 * element to *data_at. `name` is for messages. Reads nothing outside bytes[0..n). LVN_ERR_CORRUPT,
 * or LVN_ERR_UNSUPPORTED for records and other element types. */
lvn_status lvni_data_npy_parse_header(const void *bytes, size_t n, const char *name,
                                      lvni_data_array *out, size_t *data_at);
/* A whole file in memory; out->data points into bytes. */
lvn_status lvni_data_npy_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out);
/* Read a file; elements with lvni_data_array_read_f32, then lvni_data_array_free. Refuses
 * what is not .npy. */
lvn_status lvni_data_npy_open(const char *path, lvni_data_array *out);

/* The header of a file alone, as lvni_data_npy_parse_header, without reading its elements;
 * LVN_ERR_CORRUPT, too, when the file is shorter than they are. */
lvn_status lvni_data_npy_peek(const char *path, lvni_data_array *out, size_t *data_at);
/* Elements [first, first + count) as lvni_data_array_read_complex gives them, and no more of the
 * file is read than they take (all of it where the first axis runs fastest). */
lvn_status lvni_data_npy_read_part(const char *path, int64_t first, int64_t count, double *out);

/* Write a row-major array of LVNI_ARRAY_F32, _F64 or _C64 (format 1.0, little endian) under a
 * temporary name, then rename: a reader sees the old file or the new one. `data` holds the elements
 * as the file will. */
lvn_status lvni_data_npy_write(const char *path, lvni_data_array_type type, int ndim,
                               const int64_t *shape, const void *data);
/* The same of float32. */
lvn_status lvni_data_npy_write_f32(const char *path, int ndim, const int64_t *shape,
                                   const float *data);
/* .npz: several of them, by name, as numpy.savez writes them. The list ends with a name NULL, after
 * four at most; instead: what to do where they take more than 4 GiB (LVN_ERR_UNSUPPORTED). */
typedef struct lvni_data_npz_array {
    const char *name;  /* "filenames.npy" */
    const char *descr; /* "<f4", "<U12": of an element, in the file's order of bytes */
    int ndim;
    int64_t shape[LVNI_ARRAY_MAX_NDIM];
    const void *data;
    size_t bytes;
} lvni_data_npz_array;
lvn_status lvni_data_npz_write(const char *path, const lvni_data_npz_array *arrays,
                               const char *instead);

/* ---- IDX: two zero bytes, element type, number of axes, the lengths (32 bits each), the elements,
 * most significant byte first ---- */

/* A whole file in memory; out->data points into bytes. Reads nothing outside bytes[0..n).
 * LVN_ERR_CORRUPT. */
lvn_status lvni_data_idx_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out);

/* Put the unpacked content in place of a gzip file's bytes (*bytes from core/alloc, freed here on
 * success). LVN_ERR_CORRUPT. */
lvn_status lvni_data_idx_unpack(const char *name, char **bytes, size_t *n);

#endif
