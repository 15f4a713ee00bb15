#include "recipes/gan/gan_preview.h"

#include "autograd/tape.h"
#include "core/alloc.h"
#include "core/error.h"
#include "recipes/gan/gan_figures.h"
#include "tensor/tensor.h"

#include <levin/device.h>
#include <levin/ops.h>

struct lvni_gan_preview {
    int side;
    bool begun;
    bool taken;   /* of the batch whose images are asked for next: on one lane */
    float *image; /* (2, H, W): the truth, the mean of samples */
};

lvn_status lvni_gan_preview_create(int side, lvni_gan_preview **out)
{
    lvni_gan_preview *p = *out = LVNI_NEW(LVNI_TAG_DATA, lvni_gan_preview);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    p->side = side;
    p->image = lvni_core_calloc(LVNI_TAG_DATA, 2 * (size_t)side * (size_t)side, sizeof *p->image);
    return p->image == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_gan_preview_destroy(lvni_gan_preview *p)
{
    if (p != NULL) {
        lvni_core_free(p->image);
        lvni_core_free(p);
    }
}

void lvni_gan_preview_begin(lvni_gan_preview *p)
{
    if (p != NULL) {
        p->begun = true;
    }
}

/* The first channel of the first image. */
static bool copy(const lvn_tensor *image, int side, float *out)
{
    lvn_tensor *host = image == NULL ? NULL : lvn_to_device(image, LVN_CPU);
    if (host == NULL) {
        return false;
    }
    const int64_t channels = lvn_size(host, 3);
    for (int64_t i = 0; i < (int64_t)side * side; i++) {
        out[i] = LVNI_CF32(host)[i * channels];
    }
    lvn_release(host);
    return true;
}

void lvni_gan_preview_take(lvni_gan_preview *p, const lvn_batch *batch, lvn_tensor *truth,
                           lvn_tensor *mean)
{
    /* the sample first: other ranks of this process come here while rank 0 begins */
    if (p != NULL && batch->size > 0 && batch->sample[0] == 0 && p->begun) {
        p->taken = copy(truth, p->side, p->image) &&
                   copy(mean, p->side, p->image + (size_t)p->side * (size_t)p->side);
    }
}

lvn_tensor *lvni_gan_preview_images(lvni_gan_preview *p)
{
    if (!p->taken) {
        return NULL;
    }
    p->taken = false;
    return lvni_autograd_adopt(
        lvn_tensor_wrap(p->image, LVN_F32, LVN_SHAPE(2, 1, p->side, p->side, 1)));
}

lvn_status lvni_gan_preview_draw(const char *path, const float *images, const int64_t *shape)
{
    const int height = (int)shape[2], width = (int)shape[3];
    return lvni_gan_progress(path, images, images + (int64_t)height * width, height, width);
}
