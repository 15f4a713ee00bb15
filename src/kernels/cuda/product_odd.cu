/* Products of 16-bit matrices whose rows do not begin at multiples of 16 bytes, as the logits of a
 * vocabulary of 50257 words: libraries have only slow kernels for them (a third of the speed on an
 * H200). The one matrix with such rows, of samples, is copied to or from rows that do, some samples
 * at a time. With O the odd width of a row and I the width of the others, multiples of 8 both but
 * O:
 *     Y          y (samples, O) = a (samples, I) b (O, I)^T            a linear layer
 *     A          y (samples, I) = a (samples, O) b (O, I)              gradient of its input
 *     A_TURNED   y (O, I) = a (samples, O)^T b (samples, I)            gradient of its weight
 * Columns of y and rows of the last one beyond a multiple of 8 are a product of their own; terms
 * beyond it are zeros. */
#include "gemm.cuh"

enum odd_kind { NONE, Y, A, A_TURNED };

enum {
    WIDTH = 8, /* elements of 16 bytes */
#ifdef LEVIN_CUDA_ON_HOST
    LEAST_WORK = 1 << 12,
    LEAST_O = 16,
    MOST_COPY = 1 << 14,
    WHOLE_ROWS = 8,
#else
    LEAST_WORK = 1 << 24,
    LEAST_O = 512,
    MOST_COPY = 256 << 20, /* bytes */
    WHOLE_ROWS = 64,       /* samples at a time; fewer in all are not worth copies */
#endif
};

struct odd_plan {
    odd_kind kind;
    int64_t samples, odd, pitch, rows; /* rows: samples at a time */
};

static int64_t up_to(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static odd_kind kind_of(const lvnc_product *p)
{
    const bool low_y = p->y_type != LVN_F32, plain = p->a_at.pitch == 0 && p->b_at.pitch == 0 &&
                                                     p->y_at.pitch == 0 && p->batches == 1;
    if (p->a_type == LVN_F32 || !plain || p->adds || p->m * p->n * p->k < LEAST_WORK) {
        return NONE;
    }
    const bool m = p->m % WIDTH != 0 && p->m >= LEAST_O, n = p->n % WIDTH != 0 && p->n >= LEAST_O,
               k = p->k % WIDTH != 0 && p->k >= LEAST_O;
    if (p->trans_a) {
        return m && !p->trans_b && p->n % WIDTH == 0 ? A_TURNED : NONE;
    }
    if (p->trans_b) {
        return n && low_y && p->k % WIDTH == 0 ? Y : NONE;
    }
    return k && p->n % WIDTH == 0 ? A : NONE;
}

static odd_plan plan_of(const lvnc_product *p)
{
    odd_plan plan = {kind_of(p), 0, 0, 0, 0};
    if (plan.kind == NONE) {
        return plan;
    }
    plan.samples = plan.kind == A_TURNED ? p->k : p->m;
    plan.odd = plan.kind == A_TURNED ? p->m : plan.kind == Y ? p->n : p->k;
    plan.pitch = up_to(plan.odd, WIDTH);
    const int64_t most = MOST_COPY / (plan.pitch * 2) / WHOLE_ROWS * WHOLE_ROWS,
                  turns = most == 0 ? 0 : (plan.samples + most - 1) / most;
    const bool one_turn = plan.kind == A_TURNED && p->y_type != LVN_F32; /* its sums would round */
    if (plan.samples < WHOLE_ROWS || turns == 0 || (one_turn && turns > 1)) {
        plan.kind = NONE;
        return plan;
    }
    const int64_t each = up_to((plan.samples + turns - 1) / turns, WHOLE_ROWS);
    plan.rows = each < plan.samples ? each : plan.samples;
    return plan;
}

struct odd_pieces {
    void *copy, *b; /* b: in a's type, with rows of zeros after it */
    lvnc_scratch product;
};

static bool copies_b(const lvnc_product *p, odd_kind kind)
{
    return kind == A || p->b_type != p->a_type;
}

static odd_pieces cut(const lvnc_product *p, const odd_plan &plan, lvnc_scratch *s)
{
    odd_pieces at;
    at.copy = lvnc_piece(s, (size_t)(plan.rows * plan.pitch) * 2);
    const int64_t terms = plan.kind == A ? plan.pitch : p->k;
    at.b = lvnc_piece(s, copies_b(p, plan.kind) ? (size_t)(terms * p->n) * 2 : 0);
    at.product = *s;
    (void)lvnc_piece(s, lvnc_product_most_bytes());
    (void)lvnc_piece(s, (size_t)(p->has_bias ? p->n * 4 : 0)); /* in y's type */
    return at;
}

size_t lvnc_odd_product_bytes(const lvnc_product *p)
{
    const odd_plan plan = plan_of(p);
    lvnc_scratch none = {NULL, 0};
    if (plan.kind != NONE) {
        (void)cut(p, plan, &none);
    }
    return none.used;
}

/* ---- copies of rows ---- */

enum { COPY_THREADS = 256, PACKS = 4 /* of a thread */ };

/* Elements of 16 bits; columns from `columns` to `filled` become zeros. */
struct row_copy {
    const uint16_t *from, *end; /* end: of all that may be read */
    uint16_t *to;
    int64_t from_pitch, to_pitch, columns, filled;
};

/* 16 bits each at a place that is only a multiple of 2 bytes, out of two aligned packs. */
template <int HALF>
__device__ __forceinline__ void shift(const uint32_t w[8], bool odd, uint32_t out[4])
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = odd ? w[HALF + i] >> 16 | w[HALF + i + 1] << 16 : w[HALF + i];
    }
}

typedef pack<uint32_t, 4> words;

__device__ __forceinline__ words load_shifted(const uint16_t *from)
{
    const int late = (int)(reinterpret_cast<uintptr_t>(from) / 2 & 7);
    const words *at = reinterpret_cast<const words *>(from - late);
    const words first = *at;
    if (late == 0) {
        return first;
    }
    const words second = at[1];
    uint32_t w[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        w[i] = first.v[i];
        w[i + 4] = second.v[i];
    }
    words y;
    switch (late / 2) {
    case 0: shift<0>(w, late % 2 != 0, y.v); break;
    case 1: shift<1>(w, late % 2 != 0, y.v); break;
    case 2: shift<2>(w, late % 2 != 0, y.v); break;
    default: shift<3>(w, late % 2 != 0, y.v); break;
    }
    return y;
}

/* Pack `which` of a row: columns [8 which - late, + 8), where `to` is aligned. */
__device__ __forceinline__ void copy_pack(const row_copy &c, const uint16_t *from, uint16_t *to,
                                          int late, int64_t which)
{
    const int64_t first = 8 * which - late;
    if (first >= 0 && first + 8 <= c.columns && from + first - 8 >= c.from &&
        from + first + 16 <= c.end) {
        *reinterpret_cast<words *>(to + first) = load_shifted(from + first);
        return;
    }
    for (int64_t i = first < 0 ? 0 : first; i < first + 8 && i < c.filled; i++) {
        to[i] = i < c.columns ? from[i] : (uint16_t)0;
    }
}

/* Blocks: of a row; rows. */
static __global__ void __launch_bounds__(COPY_THREADS) copy_rows(row_copy c, int64_t blocks)
{
    const int64_t row = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const uint16_t *from = c.from + row * c.from_pitch;
    uint16_t *to = c.to + row * c.to_pitch;
    const int late = (int)(reinterpret_cast<uintptr_t>(to) / 2 & 7);
    UNROLL
    for (int i = 0; i < PACKS; i++) {
        copy_pack(c, from, to, late, (block * PACKS + i) * COPY_THREADS + (int)threadIdx.x);
    }
}

static lvn_status run_copy(const lvn_kernel_args *args, row_copy c, int64_t rows)
{
    const int64_t blocks = (c.filled + 7 + 7) / 8 / (COPY_THREADS * PACKS) + 1;
    c.end = c.from + (rows - 1) * c.from_pitch + c.columns;
    return launch(args->stream, args->op->name, copy_rows, blocks_for(rows * blocks, 1),
                  COPY_THREADS, 0, c, blocks);
}

/* ---- the product ---- */

/* b in a's type; of kind A with rows of zeros after it. */
static lvn_status copy_b(const lvn_kernel_args *args, const lvnc_product *p, const odd_plan &plan,
                         const void *b, void *to)
{
    const int64_t n = p->k * p->n, more = plan.kind == A ? (plan.pitch - plan.odd) * p->n : 0;
    if (p->b_type != p->a_type) {
        lvnc_casts c = {};
        c.from_type = p->b_type;
        c.to_type = p->a_type;
        c.from[0] = b;
        c.to[0] = to;
        c.n[0] = n;
        LVN_TRY(lvnc_cast(args->stream, args->op->name, c));
    } else {
        const row_copy all = {
            static_cast<const uint16_t *>(b), NULL, static_cast<uint16_t *>(to), n, n, n, n};
        LVN_TRY(run_copy(args, all, 1));
    }
    return more == 0 ? LVN_OK
                     : lvnc_zero(args->stream, static_cast<uint16_t *>(to) + n, (size_t)more * 2);
}

static const void *element(const void *p, lvn_dtype type, int64_t i)
{
    return static_cast<const char *>(p) + (size_t)i * lvn_dtype_size(type);
}

/* One product, and one of the columns (of_n) or rows of y beyond a multiple of 8, if there are. */
static lvn_status run_two(const lvn_kernel_args *args, lvnc_product q, bool of_n, const void *a,
                          const void *b, const void *bias, void *y, const lvnc_scratch &scratch)
{
    int64_t *const size = of_n ? &q.n : &q.m;
    const int64_t all = *size, whole = all / WIDTH * WIDTH;
    *size = whole;
    LVN_TRY(lvnc_product_run(args, &q, a, b, bias, y, scratch));
    *size = all - whole;
    if (of_n) {
        b = element(b, q.b_type, whole * q.k);
        bias = bias == NULL ? NULL : element(bias, q.bias_type, whole);
    } else {
        a = element(a, q.a_type, whole);
    }
    y = const_cast<void *>(element(y, q.y_type, of_n ? whole : whole * q.y_at.pitch));
    return lvnc_product_run(args, &q, a, b, bias, y, scratch);
}

struct operands {
    const void *a, *b, *bias;
    void *y;
};

/* Samples [first, first + rows). */
static lvn_status run_samples(const lvn_kernel_args *args, const lvnc_product *p,
                              const odd_plan &plan, const odd_pieces &at, const operands &o,
                              int64_t first, int64_t rows)
{
    const bool to_rows = plan.kind == Y;
    const void *const matrix = to_rows ? o.y : o.a;
    void *const tight = const_cast<void *>(element(matrix, p->a_type, first * plan.odd));
    uint16_t *const in_rows = static_cast<uint16_t *>(at.copy);
    row_copy c = {};
    c.columns = plan.odd;
    lvnc_product q = *p;
    q.b_type = p->a_type;
    if (to_rows) {
        q.m = rows;
        q.y_at.pitch = plan.pitch;
        LVN_TRY(run_two(args, q, true, element(o.a, p->a_type, first * p->k), o.b, o.bias, at.copy,
                        at.product));
        c.from = in_rows;
        c.to = static_cast<uint16_t *>(tight);
        c.from_pitch = plan.pitch;
        c.to_pitch = c.filled = plan.odd;
        return run_copy(args, c, rows);
    }
    c.from = static_cast<const uint16_t *>(tight);
    c.to = in_rows;
    c.from_pitch = plan.odd;
    c.to_pitch = c.filled = plan.pitch;
    LVN_TRY(run_copy(args, c, rows));
    if (plan.kind == A) {
        q.m = rows;
        q.k = plan.pitch;
        return lvnc_product_run(args, &q, at.copy, o.b, o.bias,
                                const_cast<void *>(element(o.y, p->y_type, first * p->n)),
                                at.product);
    }
    q.k = rows;
    q.a_at.pitch = plan.pitch;
    q.y_at.pitch = p->n;
    q.adds = first > 0;
    return run_two(args, q, false, at.copy, element(o.b, p->a_type, first * p->n), o.bias, o.y,
                   at.product);
}

lvn_status lvnc_odd_product_run(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                                const void *b, const void *bias, void *y, lvnc_scratch scratch)
{
    const odd_plan plan = plan_of(p);
    const odd_pieces at = cut(p, plan, &scratch);
    operands o = {a, b, bias, y};
    if (copies_b(p, plan.kind)) {
        LVN_TRY(copy_b(args, p, plan, b, at.b));
        o.b = at.b;
    }
    for (int64_t first = 0; first < plan.samples; first += plan.rows) {
        const int64_t left = plan.samples - first;
        LVN_TRY(run_samples(args, p, plan, at, o, first, left < plan.rows ? left : plan.rows));
    }
    return LVN_OK;
}
