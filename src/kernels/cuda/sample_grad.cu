/* The gradients of grid_sample (sample.cuh).
 *
 * That of the image gathers: a position is kept under its cell, the pixel at its top left; a pixel
 * takes from the four cells around it. The positions of an image are sorted by cell, stably, so a
 * pixel's terms have an order. Integer sums alone are involved until then. */
#include "sample.cuh"

/* ---- the image: cells of positions ---- */

/* In the workspace; of image n, n times its number of positions (or cells) further. */
struct sample_cells {
    int *cell, *position;               /* pairs: of each position, and before a pass of the sort */
    int *other_cell, *other_position;   /* pairs after a pass */
    int *sorted_cell, *sorted_position; /* those of the two that the sort ends with */
    pack<float, CORNERS> *weight;       /* by position */
    int *start;                         /* of each cell's run in the sorted order, and the end */
    int cells;                          /* of an image; a position with none is in cell `cells` */
    int passes;                         /* that the sort takes */
};

enum { SORTERS = 512, DIGIT_BITS = 4, DIGITS = 1 << DIGIT_BITS, COUNTS = SORTERS * DIGITS };

/* Row and column of the top left pixel are -1 at least: cells have a border more than pixels. */
static __global__ void find_cells(const float *grid, sample_shape s, sample_cells t, int64_t n)
{
    FOR_GRID (i, n) {
        const corners at = find_corners(s, grid + 2 * i);
        const bool inside = at.there && (!s.nearest || corner_pixel(s, at, 0) >= 0);
        t.cell[i] = inside ? (at.row + 1) * (s.w + 1) + at.column + 1 : t.cells;
        t.position[i] = (int)(i % s.positions);
        pack<float, CORNERS> w;
        for (int k = 0; k < CORNERS; k++) {
            w.v[k] = (float)corner_weight(at, k);
        }
        t.weight[i] = w;
    }
}

/* What lies before each of the SORTERS DIGITS counts, digit by digit. */
template <typename A> __device__ __forceinline__ void sum_up(A count)
{
    SHARED(int, part, SORTERS / 32);
    const int me = (int)threadIdx.x, lane = me % 32, warp = me / 32;
    int sum = 0;
    for (int d = 0; d < DIGITS; d++) {
        sum += count[me * DIGITS + d];
    }
    int before = sum;
    for (int apart = 1; apart < 32; apart *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, before, apart);
        before += lane >= apart ? other : 0;
    }
    if (lane == 31) {
        part[warp] = before;
    }
    __syncthreads();
    before -= sum;
    for (int w = 0; w < warp; w++) {
        before += part[w];
    }
    for (int d = 0; d < DIGITS; d++) {
        const int own = count[me * DIGITS + d];
        count[me * DIGITS + d] = before;
        before += own;
    }
    __syncthreads();
}

/* A block sorts the positions of an image by cell: by their digits from the lowest on, where a
 * thread has a run of neighbours in each pass (a radix sort: Knuth, The Art of Computer Programming
 * 3, 5.2.5). */
static __global__ void sort_cells(sample_shape s, sample_cells t)
{
    SHARED(int, count, COUNTS); /* [digit][thread] */
    const int64_t image = (int64_t)blockIdx.x * s.positions;
    const int me = (int)threadIdx.x, each = (s.positions + SORTERS - 1) / SORTERS,
              first = (int)min((int64_t)me * each, (int64_t)s.positions),
              end = min(first + each, s.positions);
    int *cell = t.cell + image, *position = t.position + image, *to_cell = t.other_cell + image,
        *to_position = t.other_position + image;
    for (int pass = 0; pass < t.passes; pass++) {
        for (int d = 0; d < DIGITS; d++) {
            count[d * SORTERS + me] = 0;
        }
        for (int i = first; i < end; i++) {
            count[(cell[i] >> pass * DIGIT_BITS) % DIGITS * SORTERS + me] += 1;
        }
        __syncthreads();
        sum_up(count);
        for (int i = first; i < end; i++) {
            const int digit = (cell[i] >> pass * DIGIT_BITS) % DIGITS * SORTERS + me,
                      place = count[digit];
            count[digit] = place + 1;
            to_cell[place] = cell[i];
            to_position[place] = position[i];
        }
        __syncthreads();
        int *const swap_cell = cell, *const swap_position = position;
        cell = to_cell;
        position = to_position;
        to_cell = swap_cell;
        to_position = swap_position;
    }
}

/* The first of the sorted positions whose cell is not below each cell. */
static __global__ void find_starts(sample_shape s, sample_cells t, int64_t n)
{
    FOR_GRID (i, n) {
        const int64_t image = i / (t.cells + 1);
        const int wanted = (int)(i - image * (t.cells + 1));
        const int *cell = t.sorted_cell + image * s.positions;
        int low = 0, high = s.positions;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (cell[middle] >= wanted) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        t.start[i] = low;
    }
}

/* N channels of a pixel: from the cells of which it is the bottom right, bottom left, top right,
 * top left pixel. Cells with one pixel between them are neighbours in a row. */
template <int N>
static __global__ void gather_cells(const pack<float, N> *dy, pack<float, N> *dx, sample_shape s,
                                    sample_cells t, int64_t n)
{
    const int packs = s.c / N;
    FOR_GRID (i, n) {
        const int64_t pixel = i / packs, line = pixel / s.w, image = line / s.h;
        const int c = (int)(i - pixel * packs), column = (int)(pixel - line * s.w),
                  row = (int)(line - image * s.h);
        const int *start = t.start + image * (t.cells + 1),
                  *cell = t.sorted_cell + image * s.positions,
                  *position = t.sorted_position + image * s.positions;
        pack<float, N> sum;
        for (int j = 0; j < N; j++) {
            sum.v[j] = 0.0f;
        }
        for (int above = s.nearest ? 0 : 1; above >= 0; above--) {
            const int own = (row + 1 - above) * (s.w + 1) + column + 1, left = own - 1;
            const int end = start[own + 1];
            for (int e = start[s.nearest ? own : left]; e < end; e++) {
                const int64_t o = image * s.positions + position[e];
                const float weight = t.weight[o].v[2 * above + (cell[e] == left ? 1 : 0)];
                if (weight != 0.0f) {
                    const pack<float, N> v = dy[o * packs + c];
                    for (int j = 0; j < N; j++) {
                        sum.v[j] = fmaf(weight, v.v[j], sum.v[j]);
                    }
                }
            }
        }
        dx[i] = sum;
    }
}

/* ---- launching ---- */

static int64_t rounded(int64_t words)
{
    return (words + 15) / 16 * 16; /* tables begin at 64 bytes */
}

/* Words of the tables; where they lie in `memory`, unless NULL. */
static int64_t lay_out(const sample_shape &s, int64_t images, int *memory, sample_cells *t)
{
    const int64_t all = rounded(images * s.positions), cells = (int64_t)(s.h + 1) * (s.w + 1);
    t->cells = (int)cells;
    t->passes = 0;
    while (t->passes * DIGIT_BITS < 31 && cells >> t->passes * DIGIT_BITS != 0) {
        t->passes++;
    }
    if (memory != NULL) {
        t->weight = reinterpret_cast<pack<float, CORNERS> *>(memory);
        t->cell = memory + CORNERS * all;
        t->position = t->cell + all;
        t->other_cell = t->position + all;
        t->other_position = t->other_cell + all;
        t->sorted_cell = t->passes % 2 == 0 ? t->cell : t->other_cell;
        t->sorted_position = t->passes % 2 == 0 ? t->position : t->other_position;
        t->start = memory + (CORNERS + 4) * all;
    }
    return (CORNERS + 4) * all + rounded(images * (cells + 1));
}

static size_t cells_bytes(const lvn_kernel_args *args)
{
    sample_shape s;
    sample_cells t;
    if (make_sample_shape(args, args->out[0], args->in[1], &s) != LVN_OK) {
        return 0; /* refused when it runs */
    }
    return (size_t)lay_out(s, lvn_size(args->out[0], 0), NULL, &t) * sizeof(int);
}

template <int N>
static lvn_status gather_packs(const lvn_kernel_args *args, const sample_shape &s,
                               const sample_cells &t, int64_t images)
{
    const int64_t n = images * s.h * s.w * (s.c / N);
    return launch(args->stream, "grid_sample_grad_input", gather_cells<N>, blocks_for(n, 128), 128,
                  0, in<pack<float, N>>(args, 0), out<pack<float, N>>(args, 0), s, t, n);
}

static lvn_status run_grad_input(const lvn_kernel_args *args)
{
    static const char op[] = "grid_sample_grad_input";
    const int64_t images = lvn_size(args->out[0], 0);
    sample_shape s;
    sample_cells t;
    LVN_TRY(make_sample_shape(args, args->out[0], args->in[1], &s));
    LVN_ARG((int64_t)(s.h + 1) * (s.w + 1) < INT32_MAX, "%s: an image of %d x %d is too large", op,
            s.h, s.w);
    lay_out(s, images, static_cast<int *>(args->workspace), &t);
    const int64_t positions = images * s.positions, starts = images * (t.cells + 1);
    LVN_TRY(launch(args->stream, op, find_cells, blocks_for(positions, 256), 256, 0,
                   in<float>(args, 1), s, t, positions));
    LVN_TRY(launch(args->stream, op, sort_cells, (unsigned)images, SORTERS, 0, s, t));
    LVN_TRY(launch(args->stream, op, find_starts, blocks_for(starts, 256), 256, 0, s, t, starts));
    return s.c % 4 == 0 ? gather_packs<4>(args, s, t, images) : gather_packs<1>(args, s, t, images);
}

/* ---- the positions ---- */

/* LANES threads: how the values at a position grow to the right and downwards, times dy. */
template <int LANES>
static __global__ void slope_positions(const float *dy, const float *x, const float *grid,
                                       float *dgrid, sample_shape s, int64_t n)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, o = thread / LANES;
    const int lane = (int)(thread % LANES);
    if (o >= n) {
        return; /* all its lanes */
    }
    const float *image = x + o / s.positions * s.h * s.w * s.c;
    const corners at = find_corners(s, grid + 2 * o);
    double right = 0.0, down = 0.0;
    for (int k = 0; k < CORNERS && !s.nearest; k++) {
        const int64_t pixel = corner_pixel(s, at, k);
        double sum = 0.0;
        for (int c = lane; c < s.c && pixel >= 0; c += LANES) {
            sum += (double)dy[o * s.c + c] * (double)image[pixel * s.c + c];
        }
        right += (k % 2 == 0 ? -sum : sum) * (k / 2 == 0 ? 1.0 - at.down : at.down);
        down += (k / 2 == 0 ? -sum : sum) * (k % 2 == 0 ? 1.0 - at.right : at.right);
    }
    if (LANES > 1) {
        right = warp_sum(right);
        down = warp_sum(down);
    }
    if (lane == 0) {
        dgrid[2 * o] = (float)(right * at.slope[0]);
        dgrid[2 * o + 1] = (float)(down * at.slope[1]);
    }
}

static lvn_status run_grad_grid(const lvn_kernel_args *args)
{
    sample_shape s;
    LVN_TRY(make_sample_shape(args, args->in[1], args->in[2], &s));
    const int64_t n = lvn_numel(args->in[2]) / 2;
    const bool wide = s.c >= 16; /* a warp to a position */
    return launch(args->stream, "grid_sample_grad_grid",
                  wide ? slope_positions<32> : slope_positions<1>,
                  blocks_for(wide ? n * 32 : n, 128), 128, 0, in<float>(args, 0),
                  in<float>(args, 1), in<float>(args, 2), out<float>(args, 0), s, n);
}

static const lvn_backend_kernel kernels[] = {
    {"grid_sample_grad_input", run_grad_input, F32, 0, cells_bytes},
    {"grid_sample_grad_grid", run_grad_grid, F32, 0, NULL},
};
extern const kernel_rows rows_sample_grad;
const kernel_rows rows_sample_grad = ROWS(kernels);
