/* Elements that move: axes in another order, tensors joined, cut and padded. */
#include "walk.cuh"

namespace
{

/* ---- permute: either rows are copied, or it is a stack of transposes ---- */

/* y[t * to_tall + w] = x[t + w * from_wide], t < tall, w < wide, of each of the outer places. */
struct transposes {
    int64_t tall, wide, to_tall, from_wide;
    int64_t tiles_tall, tiles_wide;
    int tall_bits, wide_bits; /* log2 of a tile's sides */
    walk from, to;            /* of the outer axes, in x and in y */
};

enum { BLOCK = 256 };

/* A tile has this many elements, in a shape that suits both sides; it is read along x and written
 * along y. */
template <typename U> struct tile_of {
    static const int bits = sizeof(U) <= 2 ? 12 : 10, area = 1 << bits,
                     padding = sizeof(U) >= 4 ? 1 : 4 / (int)sizeof(U);
};

template <typename U> static __global__ void transpose(const U *x, U *y, transposes j)
{
    const int area = tile_of<U>::area, tall = 1 << j.tall_bits, wide = 1 << j.wide_bits,
              pitch = wide + (tall < 32 ? 32 / tall : 1) * tile_of<U>::padding,
              me = (int)threadIdx.x;
    SHARED(U, tile, tile_of<U>::area + tile_of<U>::area / 4 * tile_of<U>::padding);
    const int64_t group = blockIdx.x / j.tiles_wide, outer = group / j.tiles_tall;
    const int64_t t0 = group % j.tiles_tall * tall, w0 = blockIdx.x % j.tiles_wide * wide;
    x += source_of(j.from, outer) + t0 + w0 * j.from_wide;
    y += source_of(j.to, outer) + t0 * j.to_tall + w0;
    const int tall_here = (int)(j.tall - t0 < tall ? j.tall - t0 : tall),
              wide_here = (int)(j.wide - w0 < wide ? j.wide - w0 : wide);
    for (int i = 0; i < area / BLOCK; i++) {
        const int k = me + i * BLOCK, t = k & (tall - 1), w = k >> j.tall_bits;
        if (t < tall_here && w < wide_here) {
            tile[t * pitch + w] = x[t + w * j.from_wide];
        }
    }
    __syncthreads();
    for (int i = 0; i < area / BLOCK; i++) {
        const int k = me + i * BLOCK, w = k & (wide - 1), t = k >> j.wide_bits;
        if (t < tall_here && w < wide_here) {
            y[t * j.to_tall + w] = tile[t * pitch + w];
        }
    }
}

template <typename U>
static lvn_status launch_transposes(const lvn_kernel_args *args, transposes j, int64_t n)
{
    j.tall_bits = j.wide_bits = tile_of<U>::bits / 2;
    while (j.tall_bits > 2 && (int64_t)1 << (j.tall_bits - 1) >= j.tall) {
        j.tall_bits--;
        j.wide_bits++;
    }
    while (j.wide_bits > 2 && (int64_t)1 << (j.wide_bits - 1) >= j.wide) {
        j.wide_bits--;
        j.tall_bits++;
    }
    j.tiles_tall = (j.tall + (1 << j.tall_bits) - 1) >> j.tall_bits;
    j.tiles_wide = (j.wide + (1 << j.wide_bits) - 1) >> j.wide_bits;
    return launch(args->stream, "permute", transpose<U>,
                  (unsigned)(n / j.tall / j.wide * j.tiles_tall * j.tiles_wide), BLOCK, 0,
                  static_cast<const U *>(lvn_const_data(args->in[0])),
                  static_cast<U *>(lvn_data(args->out[0])), j);
}

/* to[i]: steps in y. */
static axes permuted_axes(const lvn_tensor *x, const lvn_tensor *y, const lvn_permute_attr &attr)
{
    axes a = {};
    int64_t step[LVN_MAX_NDIM] = {0}, run = 1;
    a.n = lvn_ndim(y);
    for (int i = a.n - 1; i >= 0; i--) {
        step[i] = run;
        run *= lvn_size(x, i);
    }
    for (int i = 0; i < a.n; i++) {
        a.size[i] = lvn_size(y, i);
        a.from[i] = step[attr.axis[i]];
    }
    return a;
}

/* The axes between the last one of y and that of x (`inner`) are walked by the blocks. */
static transposes plan_transposes(axes a, int inner)
{
    transposes j = {};
    axes to = a;
    int64_t run = 1;
    for (int i = a.n - 1; i >= 0; i--) {
        to.from[i] = run;
        run *= a.size[i];
    }
    j.tall = a.size[inner];
    j.to_tall = to.from[inner];
    j.wide = a.size[a.n - 1];
    j.from_wide = a.from[a.n - 1];
    axes_drop(&a, a.n - 1);
    axes_drop(&a, inner);
    axes_drop(&to, to.n - 1);
    axes_drop(&to, inner);
    j.from = walk_of(a);
    j.to = walk_of(to);
    return j;
}

static lvn_status run_permute(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    const int64_t n = lvn_numel(x);
    const int bytes = (int)lvn_dtype_size(lvn_tensor_dtype(x));
    axes a = permuted_axes(x, args->out[0], attr_of<lvn_permute_attr>(args));
    if (n == 0) {
        return LVN_OK;
    }
    axes_join(&a);
    if (a.n == 0 || a.from[a.n - 1] == 1) {
        return launch_copy(args, a, bytes, lvn_const_data(x), 0, lvn_data(args->out[0]), n);
    }
    int inner = 0; /* the last axis of x */
    while (a.from[inner] != 1) {
        inner++;
    }
    const int64_t area = a.size[inner] * a.size[a.n - 1];
    const bool compact = inner == a.n - 2 && a.from[a.n - 1] == a.size[inner];
    if (area <= 64 || (compact && area <= 1024)) { /* too small for a block each */
        return launch_copy(args, a, bytes, lvn_const_data(x), 0, lvn_data(args->out[0]), n);
    }
    const transposes j = plan_transposes(a, inner);
    WITH_UNIT(bytes, U, return launch_transposes<U>(args, j, n));
}

/* ---- concat ---- */

template <typename U> struct pieces {
    const U *x[LVN_KERNEL_INPUTS];
    int64_t end[LVN_KERNEL_INPUTS]; /* in a row of y; of units */
};

template <typename U, typename I>
static __global__ void concat(pieces<U> p, U *y, int64_t n, divisor row)
{
    FOR_GRID (i, n) {
        const I o = divide((I)i, row);
        const int64_t at = i - (int64_t)o * row.by;
        int k = 0;
        int64_t start = 0;
        while (at >= p.end[k]) {
            start = p.end[k++];
        }
        y[i] = p.x[k][(int64_t)o * (p.end[k] - start) + at - start];
    }
}

template <typename U> static lvn_status launch_concat(const lvn_kernel_args *args, int64_t outer)
{
    const int64_t bytes = (int64_t)lvn_dtype_size(lvn_tensor_dtype(args->in[0]));
    pieces<U> p = {};
    int64_t end = 0;
    for (int i = 0; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        end += lvn_numel(args->in[i]) / outer * bytes / (int64_t)sizeof(U);
        p.x[i] = static_cast<const U *>(lvn_const_data(args->in[i]));
        p.end[i] = end;
    }
    const int64_t n = outer * end;
    WITH_INDEX(n, I,
               return launch(args->stream, "concat", concat<U, I>, blocks_for(n, BLOCK), BLOCK, 0,
                             p, static_cast<U *>(lvn_data(args->out[0])), n, make_divisor(end)));
}

static lvn_status run_concat(const lvn_kernel_args *args)
{
    const int64_t bytes = (int64_t)lvn_dtype_size(lvn_tensor_dtype(args->in[0])),
                  outer = sizes_before(args->out[0], attr_of<lvn_axis_attr>(args).axis);
    int unit = 16;
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    for (int i = 0; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        const int most = unit_of(lvn_numel(args->in[i]) / outer * bytes);
        unit = most < unit ? most : unit;
    }
    WITH_UNIT(unit, U, return launch_concat<U>(args, outer));
}

/* ---- crop ---- */

static lvn_status run_crop(const lvn_kernel_args *args)
{
    const lvn_box_attr &box = attr_of<lvn_box_attr>(args);
    const lvn_tensor *x = args->in[0];
    axes a = {};
    int64_t run = 1, offset = 0;
    a.n = box.ndim;
    for (int i = a.n - 1; i >= 0; i--) {
        a.size[i] = box.size[i];
        a.from[i] = run;
        offset += box.start[i] * run;
        run *= lvn_size(x, i);
    }
    return launch_copy(args, a, (int)lvn_dtype_size(lvn_tensor_dtype(x)), lvn_const_data(x), offset,
                       lvn_data(args->out[0]), lvn_numel(args->out[0]));
}

/* ---- borders ---- */

/* Axes of the tensor with its border; where the inner one begins, its sizes and steps. */
struct border {
    int n; /* at least 1 */
    divisor outer[LVN_MAX_NDIM], inner[LVN_MAX_NDIM];
    int64_t start[LVN_MAX_NDIM];
    bool reflect;
};

static void border_join(border *b, int i) /* axis i + 1 joins axis i */
{
    const int64_t size = b->inner[i + 1].by;
    b->outer[i] = make_divisor(b->outer[i].by * size);
    b->inner[i] = make_divisor(b->inner[i].by * size);
    b->start[i] *= size;
    b->n--;
    for (int k = i + 1; k < b->n; k++) {
        b->outer[k] = b->outer[k + 1];
        b->inner[k] = b->inner[k + 1];
        b->start[k] = b->start[k + 1];
    }
}

/* An axis without border joins the one before it, unless that one is mirrored. */
static border border_of(const lvn_tensor *outer, const lvn_tensor *inner, const lvn_box_attr &box,
                        bool reflect)
{
    border b = {};
    b.n = box.ndim > 0 ? box.ndim : 1;
    b.reflect = reflect;
    for (int i = 0; i < b.n; i++) {
        b.outer[i] = make_divisor(box.ndim > 0 ? lvn_size(outer, i) : 1);
        b.inner[i] = make_divisor(box.ndim > 0 ? lvn_size(inner, i) : 1);
        b.start[i] = box.ndim > 0 ? box.start[i] : 0;
    }
    for (int i = b.n - 2; i >= 0; i--) {
        if (b.outer[i + 1].by == b.inner[i + 1].by &&
            (!reflect || b.outer[i].by == b.inner[i].by)) {
            border_join(&b, i);
        }
    }
    return b;
}

/* Accesses of v elements each. */
static border border_in_packs(border b, int v)
{
    const int last = b.n - 1;
    b.outer[last] = make_divisor(b.outer[last].by / v);
    b.inner[last] = make_divisor(b.inner[last].by / v);
    b.start[last] /= v;
    return b;
}

/* Where the mirror shows an element that lies outside of [0, n): edges are not repeated. */
__device__ __forceinline__ int64_t mirrored(int64_t i, int64_t n)
{
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

template <typename T, int V, typename I>
static __global__ void pad(const T *x, T *y, int64_t n, border b, float value)
{
    FOR_GRID (e, n) {
        I i = (I)e;
        int64_t from = 0, step = 1;
        bool inside = true;
        for (int k = b.n - 1; k >= 0; k--) {
            const I rest = divide(i, b.outer[k]);
            int64_t at = (int64_t)(i - rest * (I)b.outer[k].by) - b.start[k];
            at = b.reflect ? mirrored(at, b.inner[k].by) : at;
            inside = inside && at >= 0 && at < b.inner[k].by;
            from += at * step;
            step *= b.inner[k].by;
            i = rest;
        }
        pack<T, V> all;
        if (inside) {
            all = reinterpret_cast<const pack<T, V> *>(x)[from];
        } else {
            for (int j = 0; j < V; j++) {
                all.v[j] = from_float<T>(value);
            }
        }
        reinterpret_cast<pack<T, V> *>(y)[e] = all;
    }
}

template <typename T, int V>
static lvn_status launch_pad(const lvn_kernel_args *args, const border &b)
{
    const int64_t n = lvn_numel(args->out[0]) / V;
    const float value = (float)attr_of<lvn_box_attr>(args).value;
    WITH_INDEX(n, I,
               return launch(args->stream, "pad", pad<T, V, I>, blocks_for(n, BLOCK), BLOCK, 0,
                             in<T>(args, 0), out<T>(args, 0), n, border_in_packs(b, V), value));
}

template <typename T> static lvn_status run_pad_of(const lvn_kernel_args *args)
{
    const lvn_box_attr &box = attr_of<lvn_box_attr>(args);
    const border b = border_of(args->out[0], args->in[0], box, box.reflect);
    const int whole = 16 / (int)sizeof(T), last = b.n - 1;
    const bool packs = b.outer[last].by % whole == 0 && b.inner[last].by % whole == 0 &&
                       b.start[last] % whole == 0 &&
                       (!box.reflect || b.outer[last].by == b.inner[last].by);
    return packs ? launch_pad<T, 16 / (int)sizeof(T)>(args, b) : launch_pad<T, 1>(args, b);
}

static lvn_status run_pad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_pad_of<T>(args));
}

/* Places along axis k of dy that show place `at` of dx: itself, and its images in the two
 * borders. */
__device__ __forceinline__ int images(const border &b, int k, int64_t at, int64_t place[3])
{
    const int64_t n = b.inner[k].by, before = b.start[k], after = b.outer[k].by - before - n;
    int count = 0;
    place[count++] = before + at;
    if (at > 0 && at <= before) {
        place[count++] = before - at;
    }
    if (at < n - 1 && n - 1 - at <= after) {
        place[count++] = before + 2 * (n - 1) - at;
    }
    return count;
}

/* An element of dx adds what it was copied to, in a fixed order. */
template <typename T, typename I>
static __global__ void pad_reflect_grad(const T *dy, T *dx, int64_t n, border b)
{
    FOR_GRID (e, n) {
        I i = (I)e;
        int64_t place[LVN_MAX_NDIM][3];
        int count[LVN_MAX_NDIM], total = 1;
        for (int k = b.n - 1; k >= 0; k--) {
            const I rest = divide(i, b.inner[k]);
            count[k] = images(b, k, (int64_t)(i - rest * (I)b.inner[k].by), place[k]);
            total *= count[k];
            i = rest;
        }
        float sum = 0.0f;
        for (int image = 0; image < total; image++) {
            int64_t from = 0, step = 1;
            for (int k = b.n - 1, which = image; k >= 0; k--) {
                from += place[k][which % count[k]] * step;
                which /= count[k];
                step *= b.outer[k].by;
            }
            sum += to_float(dy[from]);
        }
        dx[e] = from_float<T>(sum);
    }
}

template <typename T> static lvn_status run_pad_reflect_grad_of(const lvn_kernel_args *args)
{
    const int64_t n = lvn_numel(args->out[0]);
    const border b = border_of(args->in[0], args->out[0], attr_of<lvn_box_attr>(args), true);
    WITH_INDEX(n, I,
               return launch(args->stream, "pad_reflect_grad", pad_reflect_grad<T, I>,
                             blocks_for(n, BLOCK), BLOCK, 0, in<T>(args, 0), out<T>(args, 0), n,
                             b));
}

static lvn_status run_pad_reflect_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_pad_reflect_grad_of<T>(args));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"permute", run_permute, FLOATS, 0, NULL},
    {"concat", run_concat, FLOATS, 0, NULL},
    {"crop", run_crop, FLOATS, 0, NULL},
    {"pad", run_pad, FLOATS, 0, NULL},
    {"pad_reflect_grad", run_pad_reflect_grad, FLOATS, 0, NULL},
};
extern const kernel_rows rows_move;
const kernel_rows rows_move = ROWS(kernels);
