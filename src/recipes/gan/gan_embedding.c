/* The embedding with fixed random weights (gan_cfid.h). Weights are normal numbers of He's
 * deviation, biases of 0.1; key (seed 0, "gan/embedding"), a = layer, c = 0 for weights in the
 * order (out, in, row, column) and c = 1 for biases. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/rng.h"
#include "recipes/gan/gan_cfid.h"

#include <math.h>

enum { LAYERS = 4, KERNEL = 3 };
static const int widths[LAYERS] = {8, 16, 32, LVNI_GAN_EMBEDDING};
static const float slope = 0.2F; /* of leaky ReLU below 0 */

typedef struct layer {
    int in, out;
    float *weight; /* (out, in, KERNEL, KERNEL) */
    float *bias;   /* (out) */
} layer;

struct lvni_gan_embedding {
    int channels;
    layer layers[LAYERS];
};

static lvn_status draw_layer(layer *l, int number, int in, int out)
{
    const lvni_core_rng_key key = lvni_core_rng_make_key(0, lvni_core_rng_purpose("gan/embedding"));
    const lvni_core_rng weights = {key, (uint32_t)number, 0, 0},
                        biases = {key, (uint32_t)number, 0, 1};
    const int fan_in = in * KERNEL * KERNEL;
    const double deviation = sqrt(2.0 / ((1.0 + (double)(slope * slope)) * fan_in));
    *l = (layer){.in = in, .out = out};
    l->weight = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)out * (size_t)fan_in * sizeof *l->weight);
    l->bias = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)out * sizeof *l->bias);
    if (l->weight == NULL || l->bias == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int e = 0; e < out * fan_in; e++) {
        l->weight[e] = (float)(deviation * lvni_core_rng_normal(&weights, (uint64_t)e));
    }
    for (int e = 0; e < out; e++) {
        l->bias[e] = (float)(0.1 * lvni_core_rng_normal(&biases, (uint64_t)e));
    }
    return LVN_OK;
}

lvn_status lvni_gan_embedding_create(int channels, lvni_gan_embedding **out)
{
    *out = NULL;
    LVN_ARG(channels > 0 && channels <= 4096, "an embedding of images with %d channels", channels);
    lvni_gan_embedding *e = LVNI_NEW(LVNI_TAG_MODEL, lvni_gan_embedding);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->channels = channels;
    lvn_status s;
    for (int i = 0; i < LAYERS; i++) {
        LVNI_TRY_DONE(s,
                      draw_layer(&e->layers[i], i, i == 0 ? channels : widths[i - 1], widths[i]));
    }
    *out = e;
    return LVN_OK;
done:
    lvni_gan_embedding_destroy(e);
    return s;
}

void lvni_gan_embedding_destroy(lvni_gan_embedding *e)
{
    for (int i = 0; e != NULL && i < LAYERS; i++) {
        lvni_core_free(e->layers[i].weight);
        lvni_core_free(e->layers[i].bias);
    }
    lvni_core_free(e);
}

/* ---- forward ---- */

static int halved(int side)
{
    return (side + 1) / 2;
}

/* Output row y of one channel: adds weight times input where the kernel lies within the image
 * (padding 1). */
static void add_row(const float *plane, int height, int width, const float weight[KERNEL * KERNEL],
                    int y, float *out)
{
    for (int i = 0; i < KERNEL; i++) {
        const int row = 2 * y - 1 + i;
        if (row < 0 || row >= height) {
            continue;
        }
        const float *in = plane + (int64_t)row * width;
        for (int j = 0; j < KERNEL; j++) {
            for (int x = j == 0 ? 1 : 0; x < halved(width) && 2 * x - 1 + j < width; x++) {
                out[x] += weight[i * KERNEL + j] * in[2 * x - 1 + j];
            }
        }
    }
}

/* in (l->in, height, width) -> out (l->out, halved height, halved width) */
static void forward(const layer *l, const float *in, int height, int width, float *out)
{
    const int h = halved(height), w = halved(width);
    for (int o = 0; o < l->out; o++) {
        for (int y = 0; y < h; y++) {
            float *row = out + ((int64_t)o * h + y) * w;
            for (int x = 0; x < w; x++) {
                row[x] = l->bias[o];
            }
            for (int c = 0; c < l->in; c++) {
                add_row(in + (int64_t)c * height * width, height, width,
                        l->weight + ((int64_t)o * l->in + c) * KERNEL * KERNEL, y, row);
            }
            for (int x = 0; x < w; x++) {
                row[x] = row[x] > 0.0F ? row[x] : slope * row[x];
            }
        }
    }
}

static void scale_to_unit(const float *in, int64_t n, float *out)
{
    float low = in[0], high = in[0];
    for (int64_t i = 1; i < n; i++) {
        low = in[i] < low ? in[i] : low;
        high = in[i] > high ? in[i] : high;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = high > low ? (in[i] - low) / (high - low) : 0.0F;
    }
}

static void average(const float *in, int64_t pixels, double out[LVNI_GAN_EMBEDDING])
{
    for (int c = 0; c < LVNI_GAN_EMBEDDING; c++) {
        double sum = 0.0;
        for (int64_t i = 0; i < pixels; i++) {
            sum += (double)in[c * pixels + i];
        }
        out[c] = sum / (double)pixels;
    }
}

/* Floats of the largest array between two layers. */
static size_t largest(const lvni_gan_embedding *e, int height, int width)
{
    size_t most = (size_t)e->channels * (size_t)height * (size_t)width;
    for (int i = 0; i < LAYERS; i++) {
        height = halved(height);
        width = halved(width);
        const size_t n = (size_t)e->layers[i].out * (size_t)height * (size_t)width;
        most = n > most ? n : most;
    }
    return most;
}

lvn_status lvni_gan_embed(const lvni_gan_embedding *e, const float *image, int height, int width,
                          double out[LVNI_GAN_EMBEDDING])
{
    LVN_ARG(height > 0 && width > 0, "an image of %d x %d pixels has no embedding", height, width);
    const size_t room = largest(e, height, width);
    float *memory = lvni_core_alloc(LVNI_TAG_DATA, 2 * room * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    scale_to_unit(image, (int64_t)e->channels * height * width, memory);
    for (int i = 0; i < LAYERS; i++) {
        const size_t from = (size_t)(i % 2) * room, to = room - from;
        forward(&e->layers[i], memory + from, height, width, memory + to);
        height = halved(height);
        width = halved(width);
    }
    average(memory + (size_t)(LAYERS % 2) * room, (int64_t)height * width, out);
    lvni_core_free(memory);
    return LVN_OK;
}
