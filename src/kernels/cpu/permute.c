/* Axes in another order. Called through the op table (kernels.h).
 *
 * Axes of size 1 are dropped and neighbours that stay neighbours are joined. What is left either
 * ends in the axis that x ends in (rows are copied: heads and tokens change places), or not: then
 * it is a stack of transposes between the last axis of the result and that of x, done in tiles that
 * read and write whole cache lines. */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef struct permute_job {
    int ndim;                   /* of the walk: axes of the result that are left */
    int64_t size[LVN_MAX_NDIM]; /* in the order of the result */
    int64_t from[LVN_MAX_NDIM], to[LVN_MAX_NDIM]; /* steps in x and in the result, elements */
    int64_t row;                                  /* rows: elements copied at once */
    int64_t tall, wide; /* transposes: y[t * to_tall + w] = x[t + w * from_wide] */
    int64_t to_tall, from_wide, strips;
    size_t bytes; /* of one element */
    const char *x;
    char *y;
} permute_job;

/* Removes axis k of the walk. */
static void drop(permute_job *j, int k)
{
    j->ndim--;
    for (int i = k; i < j->ndim; i++) {
        j->size[i] = j->size[i + 1];
        j->from[i] = j->from[i + 1];
        j->to[i] = j->to[i + 1];
    }
}

static permute_job plan(const lvn_tensor *x, const lvn_tensor *y, const lvn_permute_attr *attr)
{
    permute_job j = {
        .ndim = x->ndim, .bytes = lvn_dtype_size(x->dtype), .x = x->data, .y = y->data};
    int64_t step[LVN_MAX_NDIM] = {0}, run = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        step[i] = run;
        run *= x->shape[i];
    }
    run = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        j.size[i] = y->shape[i];
        j.from[i] = step[attr->axis[i]];
        j.to[i] = run;
        run *= y->shape[i];
    }
    for (int i = j.ndim - 1; i >= 0; i--) {
        if (j.size[i] == 1) {
            drop(&j, i);
        }
    }
    for (int i = j.ndim - 2; i >= 0; i--) {
        if (j.from[i] == j.from[i + 1] * j.size[i + 1]) {
            j.from[i] = j.from[i + 1];
            j.to[i] = j.to[i + 1];
            j.size[i] *= j.size[i + 1];
            drop(&j, i + 1);
        }
    }
    return j;
}

/* Coordinates of item `item` of the walk and where they lie, in elements. */
static void locate(const permute_job *j, int64_t item, int64_t at[LVN_MAX_NDIM], int64_t *from,
                   int64_t *to)
{
    *from = *to = 0;
    for (int i = j->ndim - 1; i >= 0; i--) {
        at[i] = item % j->size[i];
        item /= j->size[i];
        *from += at[i] * j->from[i];
        *to += at[i] * j->to[i];
    }
}

/* One item on. */
static void advance(const permute_job *j, int64_t at[LVN_MAX_NDIM], int64_t *from, int64_t *to)
{
    for (int i = j->ndim - 1; i >= 0; i--) {
        *from += j->from[i];
        *to += j->to[i];
        if (++at[i] < j->size[i]) {
            return;
        }
        *from -= at[i] * j->from[i];
        *to -= at[i] * j->to[i];
        at[i] = 0;
    }
}

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const permute_job *j = job;
    const size_t row = (size_t)j->row * j->bytes;
    int64_t at[LVN_MAX_NDIM], from, to;
    locate(j, begin, at, &from, &to);
    for (int64_t item = begin; item < end; item++) {
        memcpy(j->y + (size_t)to * j->bytes, j->x + (size_t)from * j->bytes, row);
        advance(j, at, &from, &to);
    }
}

/* ---- transposes ---- */

enum { TILE = 16 };

typedef uint32_t four __attribute__((vector_size(16)));

static four load4(const uint32_t *p)
{
    four v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void transpose_4x4(const uint32_t *x, int64_t from_wide, uint32_t *y, int64_t to_tall)
{
    const four a = load4(x), b = load4(x + from_wide), c = load4(x + 2 * from_wide),
               d = load4(x + 3 * from_wide);
    const four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const four r[4] = {__builtin_shufflevector(ab0, cd0, 0, 1, 4, 5),
                       __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
                       __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5),
                       __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) {
        memcpy(y + i * to_tall, &r[i], sizeof r[i]);
    }
}

#define TRANSPOSE_PLAIN(bits)                                                                      \
    static void transpose_##bits(const uint##bits##_t *x, int64_t from_wide, uint##bits##_t *y,    \
                                 int64_t to_tall, int64_t tall, int64_t wide)                      \
    {                                                                                              \
        for (int64_t t = 0; t < tall; t++) {                                                       \
            for (int64_t w = 0; w < wide; w++) {                                                   \
                y[t * to_tall + w] = x[t + w * from_wide];                                         \
            }                                                                                      \
        }                                                                                          \
    }
TRANSPOSE_PLAIN(8)
TRANSPOSE_PLAIN(16)
TRANSPOSE_PLAIN(32)
TRANSPOSE_PLAIN(64)

static void tile_32(const uint32_t *x, int64_t from_wide, uint32_t *y, int64_t to_tall,
                    int64_t tall, int64_t wide)
{
    const int64_t tall4 = tall / 4 * 4, wide4 = wide / 4 * 4;
    for (int64_t t = 0; t < tall4; t += 4) {
        for (int64_t w = 0; w < wide4; w += 4) {
            transpose_4x4(x + t + w * from_wide, from_wide, y + t * to_tall + w, to_tall);
        }
    }
    transpose_32(x + wide4 * from_wide, from_wide, y + wide4, to_tall, tall4, wide - wide4);
    transpose_32(x + tall4, from_wide, y + tall4 * to_tall, to_tall, tall - tall4, wide);
}

static void tile(const permute_job *j, const char *x, char *y, int64_t tall, int64_t wide)
{
    switch (j->bytes) {
    case 1:
        transpose_8((const uint8_t *)x, j->from_wide, (uint8_t *)y, j->to_tall, tall, wide);
        break;
    case 2:
        transpose_16((const uint16_t *)(const void *)x, j->from_wide, (uint16_t *)(void *)y,
                     j->to_tall, tall, wide);
        break;
    case 4:
        tile_32((const uint32_t *)(const void *)x, j->from_wide, (uint32_t *)(void *)y, j->to_tall,
                tall, wide);
        break;
    default:
        transpose_64((const uint64_t *)(const void *)x, j->from_wide, (uint64_t *)(void *)y,
                     j->to_tall, tall, wide);
        break;
    }
}

/* Item: TILE rows of the result of one of the transposes. */
static void strips_range(const void *job, int64_t begin, int64_t end)
{
    const permute_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        int64_t at[LVN_MAX_NDIM], from, to;
        locate(j, item / j->strips, at, &from, &to);
        const int64_t t = item % j->strips * TILE, tall = j->tall - t < TILE ? j->tall - t : TILE;
        const char *x = j->x + (size_t)(from + t) * j->bytes;
        char *y = j->y + (size_t)(to + t * j->to_tall) * j->bytes;
        for (int64_t w = 0; w < j->wide; w += TILE) {
            tile(j, x + (size_t)(w * j->from_wide) * j->bytes, y + (size_t)w * j->bytes, tall,
                 j->wide - w < TILE ? j->wide - w : TILE);
        }
    }
}

lvn_status lvni_cpu_permute(const lvn_kernel_args *args)
{
    const int64_t n = lvn_numel(args->out[0]);
    permute_job j = plan(args->in[0], args->out[0], args->attr);
    if (n == 0) {
        return LVN_OK;
    }
    const int last = j.ndim - 1;
    if (last < 0 || j.from[last] == 1) {
        j.row = last < 0 ? 1 : j.size[last];
        j.ndim = last < 0 ? 0 : last;
        lvni_cpu_par(n / j.row, 1, j.row, rows_range, &j);
        return LVN_OK;
    }
    int inner = 0; /* the last axis of x */
    while (j.from[inner] != 1) {
        inner++;
    }
    j.tall = j.size[inner];
    j.to_tall = j.to[inner];
    j.wide = j.size[last];
    j.from_wide = j.from[last];
    j.strips = lvni_cpu_div_up(j.tall, TILE);
    drop(&j, last);
    drop(&j, inner);
    lvni_cpu_par(n / j.tall / j.wide * j.strips, 1, (j.tall < TILE ? j.tall : TILE) * j.wide,
                 strips_range, &j);
    return LVN_OK;
}
