/* Rows looked up in a table, plus the row of their position; and the gradient.
 *
 * A row of dweight is the sum of dy at the places that name it, in their order. The places are
 * sorted by id (radix sort: Knuth, "The art of computer programming" 3, 5.2.5), which keeps the
 * order of equal ids. Blocks then take PART sorted places each: they write the rows that lie in
 * their part as a whole, and the sums of rows that go on in other parts for a second kernel. */
#include "columns.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { THREADS = 256, WARPS = THREADS / 32 };

struct lookup_job {
    const int64_t *ids;
    int64_t n, length, rows, features;
    lvnc_alarm alarm;

    __device__ __forceinline__ bool is_row(int64_t id) const
    {
        return id >= 0 && id < rows;
    }
};

static lookup_job describe(const lvn_kernel_args *args, int64_t rows, int64_t features)
{
    const lvn_tensor *ids = args->in[1];
    lookup_job j;
    j.ids = in<int64_t>(args, 1);
    j.n = lvn_numel(ids);
    j.length = lvn_ndim(ids) == 0 ? 1 : lvn_size(ids, lvn_ndim(ids) - 1);
    j.rows = rows;
    j.features = features;
    j.alarm = lvnc_alarm_of(args);
    return j;
}

/* ---- forward ---- */

/* `across` threads for a place; a row that is not there is 0. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    embedding(lookup_job j, int across, const T *weight, const T *positions, T *y)
{
    const int down = THREADS / across, x = (int)threadIdx.x & (across - 1);
    const int64_t i = (int64_t)blockIdx.x * down + (int)threadIdx.x / across;
    if (i >= j.n) {
        return;
    }
    const int64_t id = j.ids[i];
    const bool there = j.is_row(id);
    if (!there && x == 0) {
        raise(j.alarm, LVNC_FAULT_INDEX, id, j.rows, i);
    }
    const T *row = weight + (there ? id : 0) * j.features,
            *more = positions == NULL ? NULL : positions + i % j.length * j.features;
    for (int64_t f = (int64_t)x * V; f < j.features; f += (int64_t)across * V) {
        pack<T, V> a;
        if (there) {
            a = load<T, V>(row + f);
        } else {
            memset(&a, 0, sizeof a);
        }
        if (more != NULL) {
            const pack<T, V> b = load<T, V>(more + f);
            UNROLL
            for (int v = 0; v < V; v++) {
                a.v[v] = from_float<T>(to_float(a.v[v]) + to_float(b.v[v]));
            }
        }
        store_whole(y + i * j.features + f, a);
    }
}

template <typename T, int V> static lvn_status forward(const lvn_kernel_args *args)
{
    const lvn_tensor *weight = args->in[0];
    const lookup_job j = describe(args, lvn_size(weight, 0), lvn_size(weight, 1));
    int across = 1;
    while (across < THREADS && across * V < j.features) {
        across *= 2;
    }
    return launch(args->stream, "embedding", embedding<T, V>, blocks_for(j.n, THREADS / across),
                  THREADS, 0, j, across, in<T>(args, 0), in<T>(args, 2), out<T>(args, 0));
}

static lvn_status run_embedding(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, lvn_size(args->in[0], 1), V, return (forward<T, V>(args))));
}

/* ---- places sorted by id ---- */

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    SORT_TURNS = 8, /* places of a thread */
    SORT_PART = THREADS * SORT_TURNS,
    SCAN_THREADS = 1024,
};

/* Pairs (id, place); a place whose id is outside of the rows has id `rows` and comes last. */
struct pairs {
    int *id, *place;
};

static __global__ void make_pairs(lookup_job j, pairs to)
{
    FOR_GRID (i, j.n) {
        const int64_t id = j.ids[i];
        if (!j.is_row(id)) {
            raise(j.alarm, LVNC_FAULT_INDEX, id, j.rows, i);
        }
        to.id[i] = (int)(j.is_row(id) ? id : j.rows);
        to.place[i] = (int)i;
    }
}

__device__ __forceinline__ int digit_of(int id, int shift)
{
    return id >> shift & (DIGITS - 1);
}

/* count[digit * parts + part] */
static __global__ void __launch_bounds__(THREADS)
    count_digits(const int *id, int n, int shift, int parts, int *count)
{
    SHARED(int, own, WARPS, DIGITS);
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    for (int d = t; d < WARPS * DIGITS; d += THREADS) {
        own[d / DIGITS][d % DIGITS] = 0;
    }
    __syncthreads();
    for (int turn = 0; turn < SORT_TURNS; turn++) {
        const int i = (int)blockIdx.x * SORT_PART + turn * THREADS + t;
        const int digit = i < n ? digit_of(id[i], shift) : DIGITS;
        unsigned same = __ballot_sync(0xffffffffu, digit < DIGITS);
        for (int bit = 0; bit < DIGIT_BITS; bit++) {
            const bool set = (digit >> bit & 1) != 0;
            const unsigned with = __ballot_sync(0xffffffffu, set);
            same &= set ? with : ~with;
        }
        if (digit < DIGITS && lane == __ffs((int)same) - 1) {
            own[warp][digit] += __popc(same);
        }
        __syncwarp();
    }
    __syncthreads();
    int sum = 0;
    for (int w = 0; w < WARPS; w++) {
        sum += own[w][t];
    }
    count[t * parts + (int)blockIdx.x] = sum;
}

/* Exclusive sums, in place, by one block. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_counts(int *count, int n)
{
    SHARED(int, of_warp, 32);
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    int before = 0;
    for (int first = 0; first < n; first += SCAN_THREADS) {
        const int own = first + t < n ? count[first + t] : 0;
        int sum = own;
        for (unsigned apart = 1; apart < 32; apart *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, sum, apart);
            sum += lane >= (int)apart ? other : 0;
        }
        if (lane == 31) {
            of_warp[warp] = sum;
        }
        __syncthreads();
        int all = 0, of_lower = 0;
        for (int w = 0; w < 32; w++) {
            of_lower += w < warp ? (int)of_warp[w] : 0;
            all += of_warp[w];
        }
        if (first + t < n) {
            count[first + t] = before + of_lower + sum - own;
        }
        before += all;
        __syncthreads();
    }
}

/* Each pair goes to the start of its digit in its part, plus the number of those before it. */
static __global__ void __launch_bounds__(THREADS)
    scatter_pairs(pairs from, pairs to, int n, int shift, int parts, const int *start)
{
    SHARED(int, own, WARPS, DIGITS); /* of each warp, this turn */
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    int next = start[t * parts + (int)blockIdx.x]; /* of digit t */
    SHARED(int, base, DIGITS);
    for (int turn = 0; turn < SORT_TURNS; turn++) {
        for (int w = 0; w < WARPS; w++) {
            own[w][t] = 0;
        }
        base[t] = next;
        __syncthreads();
        const int i = (int)blockIdx.x * SORT_PART + turn * THREADS + t;
        const int id = i < n ? from.id[i] : 0, digit = i < n ? digit_of(id, shift) : DIGITS;
        unsigned same = __ballot_sync(0xffffffffu, digit < DIGITS);
        for (int bit = 0; bit < DIGIT_BITS; bit++) {
            const bool set = (digit >> bit & 1) != 0;
            const unsigned with = __ballot_sync(0xffffffffu, set);
            same &= set ? with : ~with;
        }
        if (digit < DIGITS && lane == __ffs((int)same) - 1) {
            own[warp][digit] = __popc(same);
        }
        __syncthreads();
        if (digit < DIGITS) {
            int at = (int)base[digit] + __popc(same & ((1u << lane) - 1));
            for (int w = 0; w < warp; w++) {
                at += own[w][digit];
            }
            to.id[at] = id;
            to.place[at] = from.place[i];
        }
        for (int w = 0; w < WARPS; w++) {
            next += own[w][t];
        }
        __syncthreads();
    }
}

/* ---- dweight ---- */

enum { PART = 32 };

/* part p's sum of a row that began before it at (2 p) features, of one that goes on behind it at
 * (2 p + 1) features */
struct row_parts {
    const int *id, *place; /* sorted */
    int n, parts, rows;
    int64_t features;
    float *sum, *dweight;
    bool add;
};

template <int V> __device__ __forceinline__ void store_floats(float *to, const float (&x)[V])
{
    enum { N = V >= 4 ? 4 : 1 };
    UNROLL
    for (int v = 0; v < V; v += N) {
        pack<float, N> part;
        for (int i = 0; i < N; i++) {
            part.v[i] = x[v + i];
        }
        store_whole(to + v, part);
    }
}

template <int V>
__device__ __forceinline__ void write_sum(const row_parts &r, int id, int64_t f,
                                          const float (&sum)[V])
{
    float *to = r.dweight + id * r.features + f, row[V];
    load_floats<V>(r.add ? to : NULL, 0, row);
    for (int v = 0; v < V; v++) {
        row[v] += sum[v];
    }
    store_floats<V>(to, row);
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) sum_parts(row_parts r, const T *dy)
{
    const int p = (int)blockIdx.x, first = p * PART, end = min(first + PART, r.n);
    const int64_t f = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (f >= r.features) {
        return;
    }
    float sum[V] = {};
    int id = r.id[first];
    const bool began = first > 0 && r.id[first - 1] == id, goes_on = end < r.n;
    bool head = began; /* the row of `sum` began in an earlier part */
    for (int i = first; i < end; i++) {
        const pack<T, V> d = load<T, V>(dy + r.place[i] * r.features + f);
        UNROLL
        for (int v = 0; v < V; v++) {
            sum[v] += to_float(d.v[v]);
        }
        const int next = i + 1 < r.n ? r.id[i + 1] : -1;
        const bool last = i + 1 == end;
        if (!last && next == id) {
            continue;
        }
        const bool tail = last && goes_on && next == id;
        if (head || tail) {
            store_floats<V>(r.sum + (2 * (int64_t)p + (head ? 0 : 1)) * r.features + f, sum);
        } else if (id < r.rows) {
            write_sum<V>(r, id, f, sum);
        }
        for (int v = 0; v < V; v++) {
            sum[v] = 0.0f;
        }
        id = next;
        head = false;
    }
}

/* The row that begins in a part and goes on behind it. */
template <int V> static __global__ void __launch_bounds__(THREADS) join_parts(row_parts r)
{
    const int p = (int)blockIdx.x, first = p * PART;
    const int64_t f = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    const int end = first + PART;
    if (end >= r.n || f >= r.features) {
        return;
    }
    const int id = r.id[end - 1];
    const bool began = first > 0 && r.id[first] == id && r.id[first - 1] == id;
    if (id != r.id[end] || id >= r.rows || began) {
        return;
    }
    float sum[V], more[V];
    load_floats<V>(r.sum, (2 * (int64_t)p + 1) * r.features + f, sum);
    for (int q = p + 1; q < r.parts && r.id[q * PART] == id; q++) {
        load_floats<V>(r.sum, 2 * (int64_t)q * r.features + f, more);
        for (int v = 0; v < V; v++) {
            sum[v] += more[v];
        }
    }
    write_sum<V>(r, id, f, sum);
}

static __global__ void clear(float *x, int64_t n)
{
    FOR_GRID (i, n) {
        x[i] = 0.0f;
    }
}

/* ---- dpositions: sums over what comes before the last axis ---- */

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    sum_positions(const T *dy, int64_t batches, int64_t length, int64_t positions, int64_t features,
                  float *dpositions)
{
    FOR_GRID (i, positions * features / V) {
        const int64_t e = i * V;
        float sum[V] = {};
        for (int64_t b = 0; b < batches && e < length * features; b++) {
            const pack<T, V> d = load<T, V>(dy + b * length * features + e);
            UNROLL
            for (int v = 0; v < V; v++) {
                sum[v] += to_float(d.v[v]);
            }
        }
        store_floats<V>(dpositions + e, sum);
    }
}

/* ---- launches ---- */

/* What the workspace holds. */
struct lookup_memory {
    pairs one, other;
    int *count;
    float *sum;
    int sort_parts, parts;
    size_t bytes;
};

static lookup_memory divide_memory(void *workspace, int64_t n, int64_t features)
{
    lookup_memory m;
    m.sort_parts = (int)((n + SORT_PART - 1) / SORT_PART);
    m.parts = (int)((n + PART - 1) / PART);
    const int64_t whole = (n + 63) / 64 * 64, counts = (int64_t)m.sort_parts * DIGITS;
    int *at = static_cast<int *>(workspace);
    m.bytes = (size_t)(4 * whole + counts + 2 * m.parts * features) * sizeof(int);
    if (at == NULL) {
        return m;
    }
    m.one.id = at;
    m.one.place = at + whole;
    m.other.id = at + 2 * whole;
    m.other.place = at + 3 * whole;
    m.count = at + 4 * whole;
    m.sum = reinterpret_cast<float *>(m.count + counts);
    return m;
}

static size_t workspace(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0];
    return divide_memory(NULL, lvn_numel(args->in[1]), lvn_size(dy, lvn_ndim(dy) - 1)).bytes;
}

/* *sorted: one of the memory's two. */
static lvn_status sort_pairs(const lvn_kernel_args *args, const lookup_job &j,
                             const lookup_memory &m, pairs *sorted)
{
    const int n = (int)j.n;
    pairs from = m.one, to = m.other;
    LVN_TRY(launch(args->stream, "embedding_grad", make_pairs, blocks_for(j.n, THREADS), THREADS, 0,
                   j, from));
    for (int shift = 0; shift < 32 && j.rows >> shift > 0; shift += DIGIT_BITS) {
        LVN_TRY(launch(args->stream, "embedding_grad", count_digits, (unsigned)m.sort_parts,
                       THREADS, 0, from.id, n, shift, m.sort_parts, m.count));
        LVN_TRY(launch(args->stream, "embedding_grad", scan_counts, 1, SCAN_THREADS, 0, m.count,
                       m.sort_parts * DIGITS));
        LVN_TRY(launch(args->stream, "embedding_grad", scatter_pairs, (unsigned)m.sort_parts,
                       THREADS, 0, from, to, n, shift, m.sort_parts, m.count));
        const pairs swap = from;
        from = to;
        to = swap;
    }
    *sorted = from;
    return LVN_OK;
}

template <typename T, int V>
static lvn_status sum_rows(const lvn_kernel_args *args, const lookup_job &j)
{
    const lookup_memory m = divide_memory(args->workspace, j.n, j.features);
    pairs sorted;
    LVN_TRY(sort_pairs(args, j, m, &sorted));
    row_parts r;
    r.id = sorted.id;
    r.place = sorted.place;
    r.n = (int)j.n;
    r.parts = m.parts;
    r.rows = (int)j.rows;
    r.features = j.features;
    r.sum = m.sum;
    r.dweight = out<float>(args, 0);
    r.add = attr_of<lvn_lookup_attr>(args).add;
    const int64_t packs = (j.features + V - 1) / V;
    const unsigned threads =
        packs < THREADS ? (unsigned)((packs + 31) / 32 * 32) : (unsigned)THREADS;
    const dim3 grid((unsigned)m.parts, blocks_for(packs, threads));
    LVN_TRY(launch(args->stream, "embedding_grad", sum_parts<T, V>, grid, threads, 0, r,
                   in<T>(args, 0)));
    return launch(args->stream, "embedding_grad", join_parts<V>, grid, threads, 0, r);
}

template <typename T, int V> static lvn_status backward(const lvn_kernel_args *args)
{
    const lvn_lookup_attr &attr = attr_of<lvn_lookup_attr>(args);
    const lookup_job j = describe(args, attr.rows, lvn_size(args->out[0], 1));
    LVN_ARG(j.n < INT32_MAX - SORT_PART && j.rows < INT32_MAX,
            "embedding_grad: %lld ids of a table with %lld rows are more than an int counts",
            (long long)j.n, (long long)j.rows);
    if (!attr.add) {
        const int64_t size = j.rows * j.features;
        LVN_TRY(launch(args->stream, "embedding_grad", clear, blocks_for(size, 8 * THREADS),
                       THREADS, 0, out<float>(args, 0), size));
    }
    if (j.n > 0 && j.features > 0) {
        LVN_TRY((sum_rows<T, V>(args, j)));
    }
    float *dpositions = out<float>(args, 1);
    const int64_t packs = attr.positions * j.features / V,
                  batches = j.length == 0 ? 0 : j.n / j.length;
    return dpositions == NULL ? LVN_OK
                              : launch(args->stream, "embedding_grad", sum_positions<T, V>,
                                       blocks_for(packs, THREADS), THREADS, 0, in<T>(args, 0),
                                       batches, j.length, attr.positions, j.features, dpositions);
}

static lvn_status run_embedding_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, lvn_size(args->out[0], 1), V, return (backward<T, V>(args))));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"embedding", run_embedding, FLOATS, 0, NULL},
    {"embedding_grad", run_embedding_grad, FLOATS, 0, workspace},
};
extern const kernel_rows rows_lookup;
const kernel_rows rows_lookup = ROWS(kernels);
