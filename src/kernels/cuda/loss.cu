/* Losses over classes. Cross entropy reads the logits once (twice with smoothing), in
 * any float type, and keeps a maximum and a log-sum per row; the gradient reads them again. Losses
 * and weights of rows are f64: a partial sum per block, then one block adds those. A label out of
 * range is raised; its row counts for nothing. */
#include "teams.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { MOST_PARTS = 4096, WEIGHT_PARTS = 64, FINISH_THREADS = 1024 };

/* ---- rows and their weights ---- */

struct class_rows {
    const int64_t *label;
    const float *of_class, *of_row; /* weights; NULL: ones */
    int64_t rows, k, ignore;
    lvnc_alarm alarm;

    /* 0: the row counts for nothing, and its label may be no class. */
    __device__ __forceinline__ double weight(int64_t row) const
    {
        const int64_t l = label[row];
        if (l == ignore) {
            return 0.0;
        }
        if (l < 0 || l >= k) {
            raise(alarm, LVNC_FAULT_LABEL, l, k, row);
            return 0.0;
        }
        return of_row == NULL ? 1.0 : (double)of_row[row];
    }
    __device__ __forceinline__ double of_label(int64_t row) const /* weight(row) is not 0 */
    {
        return of_class == NULL ? 1.0 : (double)of_class[label[row]];
    }
};

/* Logits at input x; labels and weights from input `labels` on. */
static class_rows rows_of(const lvn_kernel_args *args, int x, int labels)
{
    const lvn_tensor *t = args->in[x];
    class_rows c;
    c.label = in<int64_t>(args, labels);
    c.of_class = in<float>(args, labels + 1);
    c.of_row = in<float>(args, labels + 2);
    c.k = lvn_size(t, lvn_ndim(t) - 1);
    c.rows = lvn_numel(t) / c.k;
    c.ignore = attr_of<lvn_class_loss_attr>(args).ignore;
    c.alarm = lvnc_alarm_of(args);
    return c;
}

static team_grid grid_of(const lvn_tensor *x)
{
    const int64_t k = lvn_size(x, lvn_ndim(x) - 1);
    return share_rows(lvn_numel(x) / k, k, k, MOST_PARTS);
}

/* What a sum of losses is divided by. */
__device__ static inline double divisor(bool sum, double weights)
{
    return sum || weights == 0.0 ? 1.0 : weights;
}

/* loss = sum / divisor, of n parts (losses, weights). */
static __global__ void finish_loss(const double2 *part, int64_t n, bool sum, float *loss)
{
    double losses = 0.0, weights = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        losses += part[i].x;
        weights += part[i].y;
    }
    losses = block_sum(losses);
    weights = block_sum(weights);
    if (threadIdx.x == 0) {
        *loss = (float)(losses / divisor(sum, weights));
    }
}
static lvn_status launch_finish(const lvn_kernel_args *args, int64_t parts)
{
    return launch(args->stream, args->op->name, finish_loss, 1, FINISH_THREADS, 0,
                  static_cast<const double2 *>(args->workspace), parts,
                  attr_of<lvn_class_loss_attr>(args).sum, out<float>(args, 0));
}

__device__ static inline void write_part(double2 *part, double loss, double weight)
{
    loss = block_sum(loss);
    weight = block_sum(weight);
    if (threadIdx.x == 0) {
        double2 both;
        both.x = loss;
        both.y = weight;
        part[blockIdx.x] = both;
    }
}

/* For gradients: parts of the sum of weights, and behind them the sum of the class weights. */
static __global__ void sum_weights(class_rows c, double *part)
{
    double sum = 0.0;
    if (blockIdx.x == gridDim.x - 1) {
        for (int64_t k = threadIdx.x; c.of_class != NULL && k < c.k; k += blockDim.x) {
            sum += (double)c.of_class[k];
        }
    } else {
        for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < c.rows;
             row += (int64_t)(gridDim.x - 1) * blockDim.x) {
            const double weight = c.weight(row);
            sum += weight == 0.0 ? 0.0 : weight * c.of_label(row);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}
static int weight_parts(int64_t rows)
{
    const int64_t parts = (rows + FINISH_THREADS - 1) / FINISH_THREADS;
    return parts < WEIGHT_PARTS ? (int)parts : (int)WEIGHT_PARTS;
}
static size_t weights_workspace(const lvn_kernel_args *args)
{
    (void)args;
    return (WEIGHT_PARTS + 1) * sizeof(double);
}
static lvn_status launch_weights(const lvn_kernel_args *args, const class_rows &c)
{
    return launch(args->stream, args->op->name, sum_weights, (unsigned)weight_parts(c.rows) + 1,
                  FINISH_THREADS, 0, c, static_cast<double *>(args->workspace));
}

/* dloss / divisor, by every thread of a block of at least WEIGHT_PARTS. */
__device__ static inline double factor_of(const double *part, int parts, bool sum,
                                          const float *dloss)
{
    const double weights = block_sum((int)threadIdx.x < parts ? part[threadIdx.x] : 0.0);
    return (double)*dloss / divisor(sum, weights);
}

/* ---- cross entropy ---- */

/* The largest logit of a row, and the sum of e^(x - it): a long row is read once (Milakov &
 * Gimelshein 2018, "Online normalizer calculation for softmax"). NaN, which fmaxf() drops, is
 * looked for where the sum has it. */
template <typename T>
__device__ __forceinline__ void log_sum_parts(const team<true> &t, const long_row<T> &row,
                                              float *top_out, float *sum_out)
{
    typedef long_row<T> R;
    const int64_t edge = row.edge(t.lane);
    const float last = edge < 0 ? -INFINITY : to_float(row.x[edge]);
    float top = -INFINITY, sum = 0.0f;
    row.in_packs(t.lane, [&](int64_t, const typename R::packed *ahead, int n) {
        float most = top;
        UNROLL
        for (int j = 0; j < R::AHEAD * R::N; j++) { /* a pack again changes nothing */
            most = fmaxf(most, to_float(ahead[j / R::N].v[j % R::N]));
        }
        const float from = most == -INFINITY ? 0.0f : most;
        sum = most == top ? sum : sum * expf(top - most);
        top = most;
        UNROLL
        for (int j = 0; j < R::AHEAD; j++) {
            float part = 0.0f;
            UNROLL
            for (int e = 0; j < n && e < R::N; e++) {
                part += expf(to_float(ahead[j].v[e]) - from);
            }
            sum += part;
        }
    });
    const float own = top;
    top = t.max(fmaxf(top, last));
    sum = own == top ? sum : sum * expf(own - top);
    sum = t.sum(last == -INFINITY ? sum : sum + expf(last - top));
    if (sum != sum) { /* of the whole team */
        each_of_row(t, row, [&](int64_t, float x) { top = larger(top, x); });
        top = t.max(top);
    }
    *top_out = top;
    *sum_out = sum + (top - top); /* NaN unless it is finite, as the short way has it */
}
template <typename T>
__device__ __forceinline__ void log_sum_parts(const team<false> &t, const long_row<T> &row,
                                              float *top_out, float *sum_out)
{
    float top = -INFINITY, sum = 0.0f;
    each_of_row(t, row, [&](int64_t, float x) { top = larger(top, x); });
    top = t.max(top);
    each_of_row(t, row, [&](int64_t, float x) { sum += expf(x - top); });
    *top_out = top;
    *sum_out = t.sum(sum);
}

/* row weight ((1 - s) w_label (-log p_label) + s / K sum_k w_k (-log p_k)) */
template <bool BLOCK, typename T>
static __global__ void __launch_bounds__(TEAM_THREADS)
    cross_entropy(team_grid g, class_rows c, const T *logits, double smoothing, float *kept,
                  double2 *part)
{
    const team<BLOCK> t(g);
    double losses = 0.0, weights = 0.0; /* of the rows whose first lane this is */
    int64_t row = t.first;
    for (int i = 0; i < t.turns; i++, row += t.step) {
        const bool mine = row < t.end;
        const long_row<T> x(logits, mine ? row * g.k : 0, mine ? g.k : 0);
        float top, sum, all = 0.0f;
        log_sum_parts(t, x, &top, &sum);
        const float log_sum = logf(sum);
        if (smoothing > 0.0) {
            each_of_row(t, x, [&](int64_t k, float v) {
                all += (log_sum - (v - top)) * (c.of_class == NULL ? 1.0f : c.of_class[k]);
            });
            all = t.sum(all);
        }
        if (!mine || t.lane != 0) {
            continue;
        }
        kept[2 * row] = top;
        kept[2 * row + 1] = log_sum;
        const double weight = c.weight(row);
        if (weight != 0.0) {
            const double of_label = c.of_label(row);
            const float at_label = log_sum - (to_float(x.x[c.label[row]]) - top);
            losses += weight * ((1.0 - smoothing) * of_label * (double)at_label +
                                smoothing / (double)g.k * (double)all);
            weights += weight * of_label;
        }
    }
    write_part(part, losses, weights);
}

static size_t parts_workspace(const lvn_kernel_args *args)
{
    return team_blocks(grid_of(args->in[0])) * sizeof(double2);
}

template <typename T> static lvn_status cross_entropy_of(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    const double smoothing = attr_of<lvn_class_loss_attr>(args).smoothing;
    LVN_TRY(LAUNCH_TEAMS_OF(T, args, cross_entropy, g, rows_of(args, 0, 1), in<T>(args, 0),
                            smoothing, out<float>(args, 1),
                            static_cast<double2 *>(args->workspace)));
    return launch_finish(args, team_blocks(g));
}
static lvn_status run_cross_entropy(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return cross_entropy_of<T>(args));
}

/* The gradient of a row. With p the probabilities: dx = factor row ((1 - s) w_label (p - [label])
 * + s / K (sum w p - w)) = a p - b w - [label] at_label */
struct row_slopes {
    float top, log_sum, a, b, at_label;
    int64_t label;
    const float *of_class;
    bool counts; /* else all are 0 */

    /* Of the elements from k on, n of them. */
    template <typename T, int N>
    __device__ __forceinline__ pack<T, N> of(const pack<T, N> &x, int64_t k) const
    {
        float d[N];
        UNROLL
        for (int e = 0; e < N; e++) {
            d[e] = expf((to_float(x.v[e]) - top) - log_sum) * a;
        }
        if (b != 0.0f) {
            UNROLL
            for (int e = 0; e < N; e++) {
                d[e] -= b * (of_class == NULL ? 1.0f : of_class[k + e]);
            }
        }
        if (k <= label && label < k + N) {
            UNROLL
            for (int e = 0; e < N; e++) {
                d[e] = k + e == label ? d[e] - at_label : d[e];
            }
        }
        pack<T, N> dx;
        UNROLL
        for (int e = 0; e < N; e++) {
            dx.v[e] = from_float<T>(counts ? d[e] : 0.0f);
        }
        return dx;
    }
    template <typename T> __device__ __forceinline__ void at(const T *x, int64_t k, T *dx) const
    {
        store<T, 1>(dx + k, of(load<T, 1>(x + k), k));
    }
};

__device__ static inline row_slopes slopes_of(const class_rows &c, int64_t row, const float *kept,
                                              double smoothing, double factor, double all)
{
    row_slopes s = {};
    const double weight = c.weight(row);
    s.counts = weight != 0.0;
    s.label = -1;
    if (s.counts) {
        const double hard = weight * factor * (1.0 - smoothing) * c.of_label(row),
                     soft = weight * factor * smoothing / (double)c.k;
        s.top = kept[2 * row];
        s.log_sum = kept[2 * row + 1];
        s.a = (float)(hard + soft * all);
        s.b = (float)soft;
        s.at_label = (float)hard;
        s.label = c.label[row];
        s.of_class = c.of_class;
    }
    return s;
}

template <bool BLOCK, typename T>
static __global__ void __launch_bounds__(TEAM_THREADS)
    cross_entropy_grad(team_grid g, class_rows c, const T *logits, const float *kept,
                       lvn_class_loss_attr attr, const float *dloss, const double *part, int parts,
                       T *dlogits)
{
    typedef long_row<T> R;
    const double factor = factor_of(part, parts, attr.sum, dloss),
                 all = c.of_class == NULL ? (double)g.k : part[parts];
    const team<BLOCK> t(g);
    for (int64_t row = t.first; row < t.end; row += t.step) {
        const row_slopes slopes = slopes_of(c, row, kept, attr.smoothing, factor, all);
        const R x(logits, row * g.k, g.k);
        T *dx = dlogits + row * g.k;
        if constexpr (BLOCK) {
            const int64_t edge = x.edge(t.lane);
            if (edge >= 0) {
                slopes.at(x.x, edge, dx);
            }
            x.in_packs(t.lane, [&](int64_t p, const typename R::packed *ahead, int n) {
                UNROLL
                for (int j = 0; j < R::AHEAD; j++) {
                    const int64_t k = x.first_of(p + j * TEAM_THREADS);
                    if (j < n) {
                        store(dx + k, slopes.of(ahead[j], k));
                    }
                }
            });
        } else {
            for (int64_t k = t.lane; k < g.k; k += t.lanes) {
                slopes.at(x.x, k, dx);
            }
        }
    }
}

template <typename T> static lvn_status cross_entropy_grad_of(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[1]);
    const class_rows c = rows_of(args, 1, 3);
    LVN_TRY(launch_weights(args, c));
    return LAUNCH_TEAMS_OF(T, args, cross_entropy_grad, g, c, in<T>(args, 1), in<float>(args, 2),
                           attr_of<lvn_class_loss_attr>(args), in<float>(args, 0),
                           static_cast<const double *>(args->workspace), weight_parts(c.rows),
                           out<T>(args, 0));
}
static lvn_status run_cross_entropy_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[1]), T, return cross_entropy_grad_of<T>(args));
}

/* ---- negative log likelihood ---- */

enum { NLL_THREADS = 256, NLL_BLOCKS = 1024 };

static __global__ void nll(class_rows c, const float *x, double2 *part)
{
    double losses = 0.0, weights = 0.0;
    FOR_GRID (row, c.rows) {
        const double weight = c.weight(row);
        if (weight != 0.0) {
            const double of_label = c.of_label(row);
            losses -= weight * of_label * (double)x[row * c.k + c.label[row]];
            weights += weight * of_label;
        }
    }
    write_part(part, losses, weights);
}
static unsigned nll_blocks(int64_t rows)
{
    const unsigned blocks = blocks_for(rows, NLL_THREADS);
    return blocks < NLL_BLOCKS ? blocks : (unsigned)NLL_BLOCKS;
}
static size_t nll_workspace(const lvn_kernel_args *args)
{
    return nll_blocks(lvn_numel(args->in[1])) * sizeof(double2);
}

static lvn_status run_nll(const lvn_kernel_args *args)
{
    const class_rows c = rows_of(args, 0, 1);
    const unsigned blocks = nll_blocks(c.rows);
    LVN_TRY(launch(args->stream, "nll", nll, blocks, NLL_THREADS, 0, c, in<float>(args, 0),
                   static_cast<double2 *>(args->workspace)));
    return launch_finish(args, blocks);
}

static __global__ void nll_grad(class_rows c, bool sum, const float *dloss, const double *part,
                                int parts, float *dx)
{
    const double factor = factor_of(part, parts, sum, dloss);
    FOR_GRID (e, c.rows * c.k) {
        const int64_t row = e / c.k;
        const bool here = e - row * c.k == c.label[row];
        const double weight = here || e == row * c.k ? c.weight(row) : 0.0; /* one looks at least */
        dx[e] = here && weight != 0.0 ? (float)(-factor * weight * c.of_label(row)) : 0.0f;
    }
}

static lvn_status run_nll_grad(const lvn_kernel_args *args)
{
    const class_rows c = rows_of(args, 1, 2);
    LVN_TRY(launch_weights(args, c));
    return launch(args->stream, "nll_grad", nll_grad, blocks_for(c.rows * c.k, 4 * NLL_THREADS),
                  NLL_THREADS, 0, c, attr_of<lvn_class_loss_attr>(args).sum, in<float>(args, 0),
                  static_cast<const double *>(args->workspace), weight_parts(c.rows),
                  out<float>(args, 0));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"cross_entropy", run_cross_entropy, FLOATS, 1u << 2 | 1u << 3, parts_workspace},
    {"cross_entropy_grad", run_cross_entropy_grad, FLOATS, 1u << 0 | 1u << 2 | 1u << 4 | 1u << 5,
     weights_workspace},
    {"nll", run_nll, F32, 0, nll_workspace},
    {"nll_grad", run_nll_grad, F32, 0, weights_workspace},
};
extern const kernel_rows rows_loss;
const kernel_rows rows_loss = ROWS(kernels);
