/* How well features part classes, by the votes of nearest neighbours (pretrain_votes.c): `eval` of
 * a pretrained backbone, and knn.data= of a training. */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "images/image_data.h"
#include "log/run_log.h"
#include "run/inference.h"
#include "run/options.h"

#include <stdio.h>

static const lvni_core_option embed_rows[] = {
    {.name = "image_size",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square that the network sees of an image; auto: that of the training."},
};
const lvni_core_option_table lvni_pretrain_embed_options = LVNI_OPTION_TABLE("images", embed_rows);

static const lvni_core_option knn_rows[] = {
    {.name = "k",
     .type = LVNI_OPT_INT,
     .fallback = "20",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "Nearest neighbours that vote for the class of an image; of fewer references all."},
    {.name = "temperature",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0.001, 1000),
     .help = "A vote counts exp(cosine / temperature)."},
};
const lvni_core_option_table lvni_pretrain_knn_options = LVNI_OPTION_TABLE("knn", knn_rows);

static const lvni_core_option parts_rows[] = {
    {.name = "val_split",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Of data without val/: the part of each class that is classified; the rest are the "
             "references."},
};
const lvni_core_option_table lvni_pretrain_parts_options = LVNI_OPTION_TABLE("parts", parts_rows);

lvn_tensor *lvni_pretrain_features(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    return lvni_pretrain_embed(&((const lvni_pretrain_root *)root)->embedding, batch->image);
}

/* ---- eval ---- */

static lvn_status begin(lvni_run_inference *u)
{
    const lvni_pretrain_images_used used = lvni_pretrain_used(&u->exported->job);
    return lvni_pretrain_votes_create(u->config, &used, (lvni_pretrain_votes **)&u->own);
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t dim)
{
    u->n++;
    const lvn_status s = lvni_pretrain_votes_add(u->own, sample, value, dim);
    if (s != LVN_OK) {
        lvn_error_frame("the model %s", lvni_core_config_str(u->config, "model"));
    }
    return s;
}

/* Without LAPACK it is left out. */
static lvn_status print_rank(const lvni_pretrain_votes *votes, bool json, lvni_core_str *out)
{
    double rank;
    const lvn_status s = lvni_pretrain_votes_rank(votes, &rank);
    if (s == LVN_ERR_NOT_FOUND) {
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    lvni_core_str_printf(out, json ? "\"effective_rank\": %.9g, " : "effective rank %.4g ", rank);
    return LVN_OK;
}

static lvn_status finish(lvni_run_inference *u)
{
    const lvni_pretrain_votes_count found = lvni_pretrain_votes_result(u->own);
    const double n = found.queries > 0 ? (double)found.queries : 1.0,
                 top1 = (double)found.first / n, top5 = (double)found.five / n;
    const bool json = lvni_core_config_bool(u->config, "json");
    lvni_core_str text = {0};
    lvn_status s;
    lvni_core_str_printf(
        &text, json ? "{\"top1\": %.9g, \"top5\": %.9g, " : "knn top1 %.4f top5 %.4f ", top1, top5);
    LVNI_TRY_DONE(s, print_rank(u->own, json, &text));
    lvni_core_str_printf(&text,
                         json ? "\"k\": %lld, \"references\": %lld, \"n\": %lld, \"classes\": %d}"
                              : "(k=%lld of %lld references, %lld images of %d classes)",
                         (long long)found.k, (long long)found.references, (long long)found.queries,
                         u->data->n_classes);
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    puts(lvni_core_str_text(&text));
done:
    lvni_core_str_free(&text);
    return s;
}

static void end(lvni_run_inference *u)
{
    lvni_pretrain_votes_destroy(u->own);
}

static lvn_status check_eval(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_images_source_check(c);
}

const lvni_run_results lvni_pretrain_knn = {.check = check_eval,
                                            .begin = begin,
                                            .output = lvni_pretrain_features,
                                            .row = take_row,
                                            .finish = finish,
                                            .end = end};

/* ---- during a training ---- */

typedef struct evaluation {
    lvni_pretrain_held *held;
    lvni_pretrain_votes *votes;
} evaluation;

static lvn_status begin_epoch(void *user, void **state)
{
    evaluation *e = *state = LVNI_NEW(LVNI_TAG_DATA, evaluation);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->held = user;
    return lvni_pretrain_votes_create(e->held->keys, &e->held->images, &e->votes);
}

static lvn_status take_held(void *state, int64_t sample, const float *value, int64_t dim)
{
    return lvni_pretrain_votes_add(((evaluation *)state)->votes, sample, value, dim);
}

/* With so small an effective rank features differ along one direction at most. */
static void watch_rank(lvni_pretrain_held *held, double rank)
{
    enum { RECORDS = 2 };
    static const double least = 1.5;
    held->narrow = rank < least ? held->narrow + 1 : held->narrow < RECORDS ? 0 : held->narrow;
    if (held->narrow == RECORDS) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the features of all images have become alike: the effective rank of those "
                      "of knn.data= is %.3g, of at most 256, and below %g the network has "
                      "collapsed. Try a smaller optim.lr, a method_args.temperature near 0.1, or "
                      "a larger batch_size, and look at the images",
                      rank, least);
    }
}

static lvn_status log_rank(evaluation *e, lvn_step *step)
{
    double rank;
    const lvn_status s = lvni_pretrain_votes_rank(e->votes, &rank);
    if (s == LVN_ERR_NOT_FOUND) { /* nothing that a training needs */
        if (!e->held->rank_missing) {
            lvni_log_line(LVNI_LOG_INFO, "note: val/effective_rank is left out: %s",
                          lvn_last_error()->message);
        }
        e->held->rank_missing = true;
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    lvn_log_number(step, "effective_rank", rank);
    if (rank > 0.0) { /* some reference was seen */
        watch_rank(e->held, rank);
    }
    return LVN_OK;
}

/* The part of the queries that is right with one guess; 0 where only references were seen. */
static lvn_status finish_epoch(void *state, lvn_step *step)
{
    evaluation *e = state;
    const lvni_pretrain_votes_count found = lvni_pretrain_votes_result(e->votes);
    lvn_log_number(step, "knn",
                   found.queries > 0 ? (double)found.first / (double)found.queries : 0.0);
    return log_rank(e, step);
}

static void end_epoch(void *state)
{
    evaluation *e = state;
    if (e != NULL) {
        lvni_pretrain_votes_destroy(e->votes);
        lvni_core_free(e);
    }
}

lvni_trainer_evaluation lvni_pretrain_evaluation(lvni_pretrain_held *held)
{
    return (lvni_trainer_evaluation){.output = lvni_pretrain_features,
                                     .begin = begin_epoch,
                                     .row = take_held,
                                     .finish = finish_epoch,
                                     .end = end_epoch,
                                     .user = held};
}
