/* Images blended with their partners in the batch (mixup), or with a box of them (CutMix). */
#include "cuda.cuh"

struct mix_job {
    int64_t images, rows;       /* rows of pixels in an image */
    int64_t width, first, last; /* of a row, and of the box in it, in elements */
    int y0, y1;                 /* rows of the box */
    float own, other;
    bool cut;
};

/* A block per row of pixels. */
template <typename T>
static __global__ void mix_images(const T *__restrict__ x, const int64_t *__restrict__ partner,
                                  T *__restrict__ y, mix_job j, lvnc_alarm alarm)
{
    for (int64_t at = blockIdx.x; at < j.images * j.rows; at += gridDim.x) {
        const int64_t image = at / j.rows, row = at - image * j.rows, with = partner[image];
        if (with < 0 || with >= j.images) {
            if (row == 0 && threadIdx.x == 0) {
                raise(alarm, LVNC_FAULT_INDEX, with, j.images, image);
            }
            continue;
        }
        const T *a = x + at * j.width, *b = x + (with * j.rows + row) * j.width;
        T *to = y + at * j.width;
        const bool in_box = row >= j.y0 && row < j.y1;
        for (int64_t i = threadIdx.x; i < j.width; i += blockDim.x) {
            if (j.cut) {
                to[i] = in_box && i >= j.first && i < j.last ? b[i] : a[i];
            } else {
                to[i] = from_float<T>(j.own * to_float(a[i]) + j.other * to_float(b[i]));
            }
        }
    }
}

static lvn_status run_mix_images(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    const lvn_mix_attr &attr = attr_of<lvn_mix_attr>(args);
    const int64_t pixel = lvn_size(x, 3);
    mix_job j;
    j.images = lvn_size(x, 0);
    j.rows = lvn_size(x, 1);
    j.width = lvn_size(x, 2) * pixel;
    j.first = attr.x0 * pixel;
    j.last = attr.x1 * pixel;
    j.y0 = attr.y0;
    j.y1 = attr.y1;
    j.own = (float)attr.lambda;
    j.other = (float)(1.0 - attr.lambda);
    j.cut = attr.cut;
    WITH_FLOAT(lvn_tensor_dtype(x), T,
               return launch(args->stream, "mix_images", mix_images<T>,
                             blocks_for(j.images * j.rows, 1), 128, 0, in<T>(args, 0),
                             in<int64_t>(args, 1), out<T>(args, 0), j, lvnc_alarm_of(args)));
}

static const lvn_backend_kernel kernels[] = {
    {"mix_images", run_mix_images, FLOATS, 0, NULL},
};
extern const kernel_rows rows_mix;
const kernel_rows rows_mix = ROWS(kernels);
