/* Masks of method=dinov2 (pretrain_dino.h): blocks of patches, drawn on the host. */
#include "recipes/pretrain/pretrain_dino.h"

#include "autograd/tape.h"
#include "core/math.h"
#include "core/rng.h"

#include <math.h>
#include <string.h>

enum { STREAM_BLOCKS, STREAM_ORDER, LEAST = 4, ATTEMPTS = 10 };
static const double LEAST_ASPECT = 0.3;

/* ---- a crop ---- */

typedef struct draws {
    lvni_core_rng rng;
    uint64_t element; /* the next one */
} draws;

static lvni_core_rng stream(const lvni_pretrain_crops *c, int64_t crop, uint32_t which)
{
    return (lvni_core_rng){.key = lvni_core_rng_make_key(c->seed, lvni_core_rng_purpose("masks")),
                           .a = c->step,
                           .b = (uint32_t)crop,
                           .c = which};
}

static double uniform(draws *d, double from, double to)
{
    return from + (to - from) * ((double)lvni_core_rng_u32(&d->rng, d->element++) * 0x1p-32);
}

typedef struct block {
    int top, left, height, width;
} block;

/* A block of at most `most` patches; false: it does not fit. */
static bool draw_block(const lvni_pretrain_masking *m, draws *d, int most, block *out)
{
    const double bound = lvni_core_log(LEAST_ASPECT), area = uniform(d, LEAST, most),
                 aspect = lvni_core_exp(uniform(d, bound, -bound));
    *out = (block){.height = (int)rint(lvni_core_sqrt(area * aspect)),
                   .width = (int)rint(lvni_core_sqrt(area / aspect))};
    if (out->width >= m->width || out->height >= m->height) {
        return false;
    }
    out->top =
        (int)lvni_core_rng_below(&d->rng, (uint32_t)(m->height - out->height + 1), &d->element);
    out->left =
        (int)lvni_core_rng_below(&d->rng, (uint32_t)(m->width - out->width + 1), &d->element);
    return true;
}

/* Patches of the block that are not masked yet; set: they are from here on. */
static int cover(const lvni_pretrain_masking *m, const block *b, bool set, bool *mask)
{
    int n = 0;
    for (int y = b->top; y < b->top + b->height; y++) {
        for (int x = b->left; x < b->left + b->width; x++) {
            bool *at = mask + (ptrdiff_t)y * m->width + x;
            n += *at ? 0 : 1;
            *at = *at || set;
        }
    }
    return n;
}

/* One more block; returns how many patches it added. */
static int add_block(const lvni_pretrain_masking *m, draws *d, int most, bool *mask)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        block b;
        if (draw_block(m, d, most, &b)) {
            const int n = cover(m, &b, false, mask);
            if (n > 0 && n <= most) {
                return cover(m, &b, true, mask);
            }
        }
    }
    return 0;
}

static void mask_crop(const lvni_pretrain_masking *m, draws *d, int wanted, bool *mask)
{
    const int half = m->height * m->width / 2;
    for (int n = 0, added = 1; n < wanted && added > 0; n += added) {
        added = add_block(m, d, wanted - n < half ? wanted - n : half, mask);
    }
}

/* ---- the crops of a micro-batch ---- */

/* Those of a step are dealt evenly, in the order of the crops. */
static int64_t count_masked_crops(const lvni_pretrain_masking *m, const lvni_pretrain_crops *c)
{
    return (int64_t)((double)(c->first + c->n) * m->probability) -
           (int64_t)((double)c->first * m->probability);
}

/* The least part of the patches of the one in this place among `masked`; of the place behind it,
 * the largest. */
static double part_at(const lvni_pretrain_masking *m, int64_t place, int64_t masked)
{
    return m->ratio[0] + (m->ratio[1] - m->ratio[0]) / (double)masked * (double)place;
}

int64_t lvni_pretrain_masks_most(const lvni_pretrain_masking *m, const lvni_pretrain_crops *c)
{
    const double patches = (double)m->height * m->width;
    const int64_t masked = count_masked_crops(m, c);
    int64_t most = 0;
    for (int64_t i = 1; i <= masked; i++) {
        most += (int64_t)(patches * part_at(m, i, masked));
    }
    return most;
}

void lvni_pretrain_masks_draw(const lvni_pretrain_masking *m, const lvni_pretrain_crops *c,
                              int64_t *order, bool *out)
{
    const int64_t patches = (int64_t)m->height * m->width, masked = count_masked_crops(m, c);
    const lvni_core_rng shuffle = stream(c, c->first, STREAM_ORDER);
    memset(out, 0, (size_t)(c->n * patches) * sizeof *out);
    lvni_core_rng_permute(&shuffle, c->n, order);
    for (int64_t i = 0; i < c->n; i++) {
        if (order[i] < masked) {
            draws d = {.rng = stream(c, c->first + i, STREAM_BLOCKS)};
            const double end = part_at(m, order[i] + 1, masked),
                         part = uniform(&d, part_at(m, order[i], masked), end);
            mask_crop(m, &d, (int)((double)patches * (part < end ? part : end)), out + i * patches);
        }
    }
}

/* ---- as tensors ---- */

/* Rows of the masked patches, and some behind them that do not count. */
static void fill_rows(const bool *mask, int64_t crops, int64_t patches, lvni_pretrain_masked *o)
{
    int64_t *index = lvn_data(o->index), row = 0;
    float *weight = lvn_data(o->weight), *counts = lvn_data(o->counts);
    for (int64_t i = 0; i < crops; i++) {
        int64_t n = 0;
        for (int64_t p = 0; p < patches; p++) {
            n += mask[i * patches + p] ? 1 : 0;
        }
        for (int64_t p = 0; p < patches; p++) {
            if (mask[i * patches + p]) {
                index[row] = i * patches + p;
                weight[row] = 1.0F / (float)n;
                counts[row++] = 1.0F;
            }
        }
    }
    for (; row < lvn_numel(o->index); row++) {
        index[row] = 0;
        weight[row] = counts[row] = 0.0F;
    }
}

bool lvni_pretrain_masked_draw(const lvni_pretrain_masking *m, const lvni_pretrain_crops *c,
                               lvni_pretrain_masked *o)
{
    const int64_t patches = (int64_t)m->height * m->width;
    lvn_tensor *order = lvni_autograd_adopt(lvn_tensor_create(LVN_I64, LVN_SHAPE(c->n)));
    o->mask = lvni_autograd_adopt(lvn_tensor_create(LVN_BOOL, LVN_SHAPE(c->n, patches, 1)));
    if (order == NULL || o->mask == NULL) {
        return false;
    }
    bool *mask = lvn_data(o->mask);
    lvni_pretrain_masks_draw(m, c, lvn_data(order), mask);
    const int64_t most = lvni_pretrain_masks_most(m, c), rows = most > 0 ? most : 1;
    o->index = lvni_autograd_adopt(lvn_tensor_create(LVN_I64, LVN_SHAPE(rows)));
    o->weight = lvni_autograd_adopt(lvn_tensor_create(LVN_F32, LVN_SHAPE(rows, 1)));
    o->counts = lvni_autograd_adopt(lvn_tensor_create(LVN_F32, LVN_SHAPE(rows, 1)));
    if (o->index == NULL || o->weight == NULL || o->counts == NULL) {
        return false;
    }
    fill_rows(mask, c->n, patches, o);
    return true;
}
