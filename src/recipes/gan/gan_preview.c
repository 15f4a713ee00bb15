#include "recipes/gan/gan_preview.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/gan/gan_figures.h"
#include "report/canvas.h"
#include "run/run_dir.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <levin/device.h>
#include <levin/ops.h>
#include <stdatomic.h>

struct lvni_gan_preview {
    int every, side;
    char *dir;           /* images/ of the run; NULL: nothing is written */
    float *truth, *mean; /* (H, W) */
    atomic_bool fresh;   /* of the validation that has just ended */
};

lvn_status lvni_gan_preview_create(int every, int side, lvni_gan_preview **out)
{
    lvni_gan_preview *p = *out = LVNI_NEW(LVNI_TAG_DATA, lvni_gan_preview);
    const size_t pixels = (size_t)side * (size_t)side;
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    p->every = every;
    p->side = side;
    p->truth = lvni_core_calloc(LVNI_TAG_DATA, pixels, sizeof *p->truth);
    p->mean = lvni_core_calloc(LVNI_TAG_DATA, pixels, sizeof *p->mean);
    return p->truth == NULL || p->mean == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_gan_preview_destroy(lvni_gan_preview *p)
{
    if (p != NULL) {
        lvni_core_free(p->dir);
        lvni_core_free(p->truth);
        lvni_core_free(p->mean);
        lvni_core_free(p);
    }
}

lvn_status lvni_gan_preview_open(lvni_gan_preview *p, const char *dir)
{
    if (p->every == 0) {
        return LVN_OK;
    }
    if (lvni_report_canvas_check("images of the validations are not drawn") != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    p->dir = lvni_run_path_join(dir, "images");
    return p->dir == NULL ? LVN_ERR_MEMORY : lvni_core_mkdirs(p->dir);
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
    if (p != NULL && p->dir != NULL && batch->size > 0 && batch->sample[0] == 0 &&
        copy(truth, p->side, p->truth) && copy(mean, p->side, p->mean)) {
        atomic_store(&p->fresh, true);
    }
}

void lvni_gan_preview_write(lvni_gan_preview *p, int64_t before, int64_t step)
{
    if (p == NULL || !atomic_exchange(&p->fresh, false) || before % p->every != 0) {
        return;
    }
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/step=%07" PRId64 ".png", p->dir, step);
    if (lvni_core_str_status(&path) != LVN_OK ||
        lvni_gan_progress(lvni_core_str_text(&path), p->truth, p->mean, p->side, p->side) !=
            LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "the image of this validation is not written: %s",
                      lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_core_str_free(&path);
}
