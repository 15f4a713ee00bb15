/* Scores for `levin eval gan choose=`: checkpoints whose last validation found them acceptable are
 * measured, by the distance of distributions or by the error of the mean (run/best_checkpoint.h).
 */
#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/gan/gan_embeddings.h"
#include "recipes/gan/gan_metrics.h"
#include "recipes/gan/gan_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct scores {
    lvni_gan_embeddings embeddings;
    lvni_gan_average rmse;
} scores;

/* ---- the acceptable ones ---- */

static lvn_status read_number(const lvni_ckpt *ckpt, const char *name, double *out)
{
    float value;
    char full[64];
    snprintf(full, sizeof full, LVNI_CKPT_MODEL "%s", name);
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(ckpt->file, full);
    if (t == NULL || t->ndim != 1 || t->shape[0] != 1) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s is not a checkpoint of gan: it has no number %s", ckpt->path,
                 full);
    }
    LVN_TRY(lvni_ckpt_st_read_f32(t, &value));
    *out = (double)value;
    return LVN_OK;
}

static lvn_status measure(const lvni_ckpt *ckpt, lvni_run_candidate *out)
{
    double good = 0.0, d = 0.0;
    LVN_TRY(read_number(ckpt, LVNI_GAN_IS_GOOD, &good));
    LVN_TRY(read_number(ckpt, LVNI_GAN_PSNR_DIFF, &d));
    out->is_good = good > 0.5;
    out->distance = good > 0.5 || d != 0.0 ? d : (double)NAN;
    return LVN_OK;
}

/* ---- the score of one ---- */

static bool is_cfid(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "choose"), "cfid") == 0;
}

static lvn_status measure_item(lvni_gan_work *w, int64_t sample, const float *value)
{
    (void)sample;
    (void)value;
    scores *s = w->own;
    if (is_cfid(w->use->config)) {
        return lvni_gan_embeddings_add(&s->embeddings, w);
    }
    const lvni_gan_masked masked =
        lvni_gan_masked_of(w->image, lvni_gan_truth(w), w->mask, w->pixels);
    lvni_gan_average_add(&s->rmse, masked.rmse);
    return LVN_OK;
}

/* For CFID one sample of each measurement is enough: it compares distributions over all of them. */
static int count_samples(const lvni_core_config *c)
{
    const bool one = is_cfid(c) && lvni_core_config_layer(c, "num_samples") == LVNI_LAYER_DEFAULT;
    return one ? 1 : (int)lvni_core_config_int(c, "num_samples");
}

static lvn_status begin(lvni_run_inference *u)
{
    lvni_gan_work *w;
    scores *s = LVNI_NEW(LVNI_TAG_DATA, scores);
    const lvn_status created = lvni_gan_work_create(u, count_samples(u->config), s, &w);
    if (w == NULL || s == NULL) {
        lvni_core_free(w == NULL ? s : NULL);
        return LVN_ERR_MEMORY;
    }
    w->item = measure_item;
    LVN_TRY(created);
    return is_cfid(u->config)
               ? lvni_gan_embeddings_begin(&s->embeddings, w->settings->sizes.in_chans)
               : LVN_OK;
}

static void end(lvni_run_inference *u)
{
    lvni_gan_work *w = u->own;
    scores *s = w == NULL ? NULL : w->own;
    if (s != NULL) {
        lvni_gan_embeddings_free(&s->embeddings);
        lvni_core_free(s);
    }
    lvni_gan_work_destroy(w);
}

static lvn_status score(lvni_run_inference *u, const char *metric, double *out, bool *more)
{
    const scores *s = ((const lvni_gan_work *)u->own)->own;
    lvni_gan_cfid cfid;
    *more = false;
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "none of the measurements could be read: see the warnings");
    }
    if (strcmp(metric, "rmse") == 0) {
        *out = s->rmse.mean;
        return LVN_OK;
    }
    if (!u->again) {
        lvni_gan_embeddings_check(&s->embeddings);
    }
    LVN_TRY(lvni_gan_embeddings_cfid(&s->embeddings, &cfid));
    *out = cfid.cfid;
    return LVN_OK;
}

/* ---- the answer ---- */

static void print_members(const lvni_core_config *c, lvni_core_str *out)
{
    lvni_core_str_printf(out, ", \"samples\": %d", count_samples(c));
}

static lvn_status write_page(const lvni_core_config *c, const char *run, const char *table)
{
    const char *images[LVNI_GAN_CURVES], *folder = lvni_core_config_str(c, "output");
    lvni_gan_page page = {.title = run, .text = table, .images = images};
    if (folder == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_mkdirs(folder));
    LVN_TRY(lvni_gan_report_curves(folder, run, images, &page.n_images));
    return lvni_gan_report_page(folder, &page);
}

static const lvni_run_results results = {.check = lvni_gan_report_check,
                                         .begin = begin,
                                         .output = lvni_gan_samples,
                                         .row = lvni_gan_take_row,
                                         .score = score,
                                         .end = end};
const lvni_run_choice_rules lvni_gan_choice = {.results = &results,
                                               .measure = measure,
                                               .distance = LVNI_GAN_PSNR_DIFF,
                                               .unit = "dB",
                                               .rule = "psnr_gain_tol",
                                               .print_members = print_members,
                                               .page = write_page};
