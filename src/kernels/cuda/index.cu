/* Elements chosen by an index along an axis, and their gradients, which add in the order of the
 * index; places that an index writes to. */
#include "device.cuh"
#include "sort.cuh"
#include "walk.cuh"

namespace
{

enum { BLOCK = 256, FEW = 64 };

/* A tensor of `size` places along an axis and one of `many`; index is (many), or shaped like the
 * latter. */
struct chosen {
    int64_t outer, size, many, inner;
    const int64_t *index;
};

static chosen chosen_of(const lvn_kernel_args *args, const lvn_tensor *big, const lvn_tensor *small,
                        int index)
{
    const int axis = attr_of<lvn_axis_attr>(args).axis;
    return chosen{sizes_before(big, axis), lvn_size(big, axis), lvn_size(small, axis),
                  sizes_after(big, axis), in<int64_t>(args, index)};
}

/* ---- forward ---- */

/* Rows of `width` units: row m of y is row index[m] of x. */
template <typename U, typename I>
static __global__ void select(const U *x, U *y, int64_t n, const int64_t *index, int64_t size,
                              divisor many, divisor width, lvnc_alarm alarm)
{
    FOR_GRID (i, n) {
        const I row = divide((I)i, width), c = (I)i - row * (I)width.by, o = divide(row, many);
        const int64_t m = (int64_t)(row - o * (I)many.by), at = index[m];
        if (at >= 0 && at < size) {
            y[i] = x[((int64_t)o * size + at) * width.by + (int64_t)c];
        } else if (c == 0) {
            raise(alarm, LVNC_FAULT_INDEX, at, size, m);
        }
    }
}

template <typename U>
static lvn_status launch_select(const lvn_kernel_args *args, const chosen &c, int64_t width)
{
    const int64_t n = c.outer * c.many * width;
    WITH_INDEX(n, I,
               return launch(args->stream, "index_select", select<U, I>, blocks_for(n, BLOCK),
                             BLOCK, 0, static_cast<const U *>(lvn_const_data(args->in[0])),
                             static_cast<U *>(lvn_data(args->out[0])), n, c.index, c.size,
                             make_divisor(c.many), make_divisor(width), lvnc_alarm_of(args)));
}

static lvn_status run_index_select(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->in[0], args->out[0], 1);
    const int64_t bytes = c.inner * (int64_t)lvn_dtype_size(lvn_tensor_dtype(args->in[0]));
    const int unit = unit_of(bytes);
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    WITH_UNIT(unit, U, return launch_select<U>(args, c, bytes / unit));
}

template <typename U, typename I>
static __global__ void gather(const U *x, U *y, int64_t n, const int64_t *index, int64_t size,
                              divisor many, divisor inner, lvnc_alarm alarm)
{
    FOR_GRID (e, n) {
        const I row = divide((I)e, inner), i = (I)e - row * (I)inner.by, o = divide(row, many);
        const int64_t at = index[e];
        if (at >= 0 && at < size) {
            y[e] = x[((int64_t)o * size + at) * inner.by + (int64_t)i];
        } else {
            raise(alarm, LVNC_FAULT_INDEX, at, size, e);
        }
    }
}

template <typename U> static lvn_status launch_gather(const lvn_kernel_args *args, const chosen &c)
{
    const int64_t n = c.outer * c.many * c.inner;
    WITH_INDEX(n, I,
               return launch(args->stream, "gather", gather<U, I>, blocks_for(n, BLOCK), BLOCK, 0,
                             static_cast<const U *>(lvn_const_data(args->in[0])),
                             static_cast<U *>(lvn_data(args->out[0])), n, c.index, c.size,
                             make_divisor(c.many), make_divisor(c.inner), lvnc_alarm_of(args)));
}

static lvn_status run_gather(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->in[0], args->out[0], 1);
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    WITH_UNIT(lvn_dtype_size(lvn_tensor_dtype(args->in[0])), U, return launch_gather<U>(args, c));
}

/* ---- gradients: keys of (place, number in the index), sorted, have the terms of each place side
 * by side and in order ---- */

/* Line l of keys: line first + l of (outer, inner), or the whole index. */
static __global__ void make_keys(uint64_t *keys, int64_t n, int64_t room, int64_t first, chosen c,
                                 bool per_element, lvnc_alarm alarm)
{
    FOR_GRID (e, n) {
        const int64_t line = first + e / room, m = e & (room - 1);
        uint64_t key = SORT_NO_KEY;
        if (m < c.many) {
            const int64_t o = line / c.inner, i = line % c.inner,
                          place = per_element ? (o * c.many + m) * c.inner + i : m,
                          to = c.index[place];
            if (to >= 0 && to < c.size) {
                key = (uint64_t)to << 32 | (uint64_t)m;
            } else {
                raise(alarm, LVNC_FAULT_INDEX, to, c.size, place);
            }
        }
        keys[e] = key;
    }
}

__device__ __forceinline__ bool starts(const uint64_t *keys, int64_t k)
{
    return keys[k] != SORT_NO_KEY && (k == 0 || keys[k - 1] >> 32 != keys[k] >> 32);
}

/* Key k of the only line stands for its place if it is the first of it: an access of V elements. */
template <typename T, int V>
static __global__ void add_slices(const uint64_t *keys, const T *dy, T *dx, int64_t n, chosen c)
{
    const int64_t width = c.inner / V;
    FOR_GRID (e, n) {
        const int64_t i = e % width, k = e / width % c.many, o = e / width / c.many;
        if (starts(keys, k)) {
            const uint64_t to = keys[k] >> 32;
            float sum[V];
            for (int j = 0; j < V; j++) {
                sum[j] = 0.0f;
            }
            for (int64_t t = k; t < c.many && keys[t] >> 32 == to; t++) {
                const int64_t m = (int64_t)(keys[t] & UINT32_MAX);
                const pack<T, V> d =
                    reinterpret_cast<const pack<T, V> *>(dy)[(o * c.many + m) * width + i];
                for (int j = 0; j < V; j++) {
                    sum[j] += to_float(d.v[j]);
                }
            }
            pack<T, V> all;
            for (int j = 0; j < V; j++) {
                all.v[j] = from_float<T>(sum[j]);
            }
            reinterpret_cast<pack<T, V> *>(dx)[(o * c.size + (int64_t)to) * width + i] = all;
        }
    }
}

/* The same for lines with an index each. */
template <typename T>
static __global__ void add_elements(const uint64_t *keys, const T *dy, T *dx, int64_t n,
                                    int64_t room, int64_t first, chosen c)
{
    FOR_GRID (e, n) {
        const int64_t l = e / c.many, k = e % c.many, line = first + l, o = line / c.inner,
                      i = line % c.inner;
        const uint64_t *own = keys + l * room;
        if (starts(own, k)) {
            const uint64_t to = own[k] >> 32;
            float sum = 0.0f;
            for (int64_t t = k; t < c.many && own[t] >> 32 == to; t++) {
                const int64_t m = (int64_t)(own[t] & UINT32_MAX);
                sum += to_float(dy[(o * c.many + m) * c.inner + i]);
            }
            dx[(o * c.size + (int64_t)to) * c.inner + i] = from_float<T>(sum);
        }
    }
}

/* With few terms each element of dx looks for its own. */
template <typename T>
static __global__ void find_elements(const T *dy, T *dx, int64_t n, chosen c, lvnc_alarm alarm)
{
    FOR_GRID (e, n) {
        const int64_t i = e % c.inner, s = e / c.inner % c.size, o = e / c.inner / c.size;
        float sum = 0.0f;
        for (int64_t m = 0; m < c.many; m++) {
            const int64_t place = (o * c.many + m) * c.inner + i, to = c.index[place];
            if (to == s) {
                sum += to_float(dy[place]);
            }
            if (s == 0 && (to < 0 || to >= c.size)) {
                raise(alarm, LVNC_FAULT_INDEX, to, c.size, place);
            }
        }
        dx[e] = from_float<T>(sum);
    }
}

static lvn_status zero_gradient(const lvn_kernel_args *args)
{
    const lvn_tensor *dx = args->out[0];
    return lvnc_zero(args->stream, lvn_data(args->out[0]),
                     (size_t)lvn_numel(dx) * lvn_dtype_size(lvn_tensor_dtype(dx)));
}

template <typename T, int V>
static lvn_status launch_slices(const lvn_kernel_args *args, const chosen &c)
{
    const int64_t n = c.outer * c.many * (c.inner / V);
    return launch(args->stream, "index_select_grad", add_slices<T, V>, blocks_for(n, BLOCK), BLOCK,
                  0, static_cast<const uint64_t *>(args->workspace), in<T>(args, 0),
                  out<T>(args, 0), n, c);
}

template <typename T> static lvn_status add_to_slices(const lvn_kernel_args *args, const chosen &c)
{
    const int whole = 16 / (int)sizeof(T);
    return c.inner % whole == 0 ? launch_slices<T, 16 / (int)sizeof(T)>(args, c)
                                : launch_slices<T, 1>(args, c);
}

static lvn_status run_index_select_grad(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->out[0], args->in[0], 1);
    const sort_room room = sort_room_for(1, c.many);
    uint64_t *keys = static_cast<uint64_t *>(args->workspace);
    LVN_TRY(zero_gradient(args));
    if (lvn_numel(args->in[0]) == 0) {
        return LVN_OK;
    }
    LVN_TRY(launch(args->stream, "index_select_grad", make_keys, blocks_for(room.size, BLOCK),
                   BLOCK, 0, keys, room.size, room.size, 0, c, false, lvnc_alarm_of(args)));
    LVN_TRY(lvnc_sort(args, keys, 1, room.size));
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return add_to_slices<T>(args, c));
}

static size_t index_select_grad_bytes(const lvn_kernel_args *args)
{
    return sort_room_for(1, lvn_numel(args->in[1])).bytes;
}

template <typename T> static lvn_status sort_and_add(const lvn_kernel_args *args, const chosen &c)
{
    const int64_t all = c.outer * c.inner;
    const sort_room room = sort_room_for(all, c.many);
    uint64_t *keys = static_cast<uint64_t *>(args->workspace);
    LVN_TRY(zero_gradient(args));
    for (int64_t first = 0; first < all; first += room.lines) {
        const int64_t lines = all - first < room.lines ? all - first : room.lines,
                      n = lines * room.size, terms = lines * c.many;
        LVN_TRY(launch(args->stream, "gather_grad", make_keys, blocks_for(n, BLOCK), BLOCK, 0, keys,
                       n, room.size, first, c, true, lvnc_alarm_of(args)));
        LVN_TRY(lvnc_sort(args, keys, lines, room.size));
        LVN_TRY(launch(args->stream, "gather_grad", add_elements<T>, blocks_for(terms, BLOCK),
                       BLOCK, 0, keys, in<T>(args, 0), out<T>(args, 0), terms, room.size, first,
                       c));
    }
    return LVN_OK;
}

template <typename T> static lvn_status run_gather_grad_of(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->out[0], args->in[0], 1);
    const int64_t n = lvn_numel(args->out[0]);
    if (c.many > FEW) {
        return sort_and_add<T>(args, c);
    }
    return launch(args->stream, "gather_grad", find_elements<T>, blocks_for(n, BLOCK), BLOCK, 0,
                  in<T>(args, 0), out<T>(args, 0), n, c, lvnc_alarm_of(args));
}

static lvn_status run_gather_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_gather_grad_of<T>(args));
}

static size_t gather_grad_bytes(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->out[0], args->in[0], 1);
    return c.many > FEW ? sort_room_for(c.outer * c.inner, c.many).bytes : 0;
}

/* ---- scatter_places ---- */

static __global__ void own_places(int64_t *y, int64_t n, int64_t size, int64_t inner)
{
    FOR_GRID (e, n) {
        y[e] = e / inner % size;
    }
}

/* Of what is written to one place the last remains: the largest number. */
static __global__ void last_places(int64_t *y, int64_t n, chosen c, lvnc_alarm alarm)
{
    FOR_GRID (e, n) {
        const int64_t i = e % c.inner, m = e / c.inner % c.many, o = e / c.inner / c.many,
                      to = c.index[e];
        if (to >= 0 && to < c.size) {
            atomicMax(reinterpret_cast<long long *>(y + (o * c.size + to) * c.inner + i),
                      (long long)(c.size + m));
        } else {
            raise(alarm, LVNC_FAULT_INDEX, to, c.size, e);
        }
    }
}

static lvn_status run_scatter_places(const lvn_kernel_args *args)
{
    const chosen c = chosen_of(args, args->out[0], args->in[0], 0);
    const int64_t n_out = lvn_numel(args->out[0]), n = lvn_numel(args->in[0]);
    LVN_TRY(launch(args->stream, "scatter_places", own_places, blocks_for(n_out, BLOCK), BLOCK, 0,
                   out<int64_t>(args, 0), n_out, c.size, c.inner));
    return launch(args->stream, "scatter_places", last_places, blocks_for(n, BLOCK), BLOCK, 0,
                  out<int64_t>(args, 0), n, c, lvnc_alarm_of(args));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"index_select", run_index_select, FLOATS, 0, NULL},
    {"index_select_grad", run_index_select_grad, FLOATS, 0, index_select_grad_bytes},
    {"gather", run_gather, FLOATS, 0, NULL},
    {"gather_grad", run_gather_grad, FLOATS, 0, gather_grad_bytes},
    {"scatter_places", run_scatter_places, FLOATS, 0, NULL},
};
extern const kernel_rows rows_index;
const kernel_rows rows_index = ROWS(kernels);
