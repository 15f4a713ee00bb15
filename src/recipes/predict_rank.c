/* One rank's part of a prediction (predict_rank.h). */
#include "recipes/predict_rank.h"

#include "core/alloc.h"
#include "log/run_log.h"
#include "recipes/train_options.h"

#include <string.h>

/* Images that could not be read: each rank knows its own, and rank 0 reports all. */
static lvn_status report_unreadable(const lvni_recipes_rank *rank, lvni_data_loader *loader)
{
    lvni_core_str text = {0};
    void *all = NULL;
    size_t *bytes = lvni_core_calloc(LVNI_TAG_DATA, (size_t)rank->world, sizeof *bytes);
    lvni_data_loader_report(loader, &text);
    lvn_status s = bytes == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&text);
    if (s == LVN_OK && rank->comm == NULL) {
        bytes[0] = text.len;
    } else if (s == LVN_OK) {
        s = lvni_dist_comm_all_gather_sized(rank->comm, lvni_core_str_text(&text), text.len, &all,
                                            bytes);
    }
    const char *at = all != NULL ? all : lvni_core_str_text(&text);
    for (int i = 0; i < rank->world && s == LVN_OK && rank->rank == 0; at += bytes[i++]) {
        if (bytes[i] > 0) {
            lvni_log_line(LVNI_LOG_WARNING, "%.*s", (int)bytes[i], at);
        }
    }
    lvni_core_free(all);
    lvni_core_free(bytes);
    lvni_core_str_free(&text);
    return s;
}

static lvn_status make_plan(const lvni_core_config *c, int64_t n, const lvni_recipes_rank *rank,
                            lvni_plan *out)
{
    const lvni_plan_options o = {.n_samples = n,
                                 .batch_size = rank->world,
                                 .devices = rank->world,
                                 .rank = rank->rank,
                                 .cores = rank->cores,
                                 .eval_batch_size = lvni_core_config_int(c, "eval_batch_size")};
    LVN_TRY(lvni_plan_make(&o, out));
    const int64_t chunks = lvni_plan_eval_turns_of(out, n, rank->rank).count,
                  most = chunks > 1 ? chunks : 1;
    const int lanes =
        lvni_core_config_is_set(c, "lanes") ? (int)lvni_core_config_int(c, "lanes") : rank->cores;
    out->lanes = lanes > most ? (int)most : lanes;
    return LVN_OK;
}

static lvn_tensor *probabilities(const lvn_module *root, const lvn_batch *batch)
{
    return lvn_softmax(lvn_forward(root, batch->image));
}

lvn_status lvni_recipes_predict_rank(const lvni_recipes_predict_work *work,
                                     const lvni_recipes_rank *rank)
{
    const lvni_core_config *c = work->config;
    lvni_plan plan;
    LVN_TRY(make_plan(c, work->data->cls->length(work->data), rank, &plan));
    const lvni_data_loader_options o = {
        .dataset = work->data,
        .plan = &plan,
        .in_turn = true,
        .workers = rank->workers,
        .skip_unreadable = strcmp(lvni_core_config_str(c, "on_error"), "skip") == 0};
    lvni_data_loader *loader = NULL;
    lvni_trainer_lanes *lanes = NULL;
    const int team = rank->cores / plan.lanes > 1 ? rank->cores / plan.lanes : 1;
    lvn_status s = lvni_data_loader_create(&o, &loader);
    s = s == LVN_OK ? lvni_trainer_lanes_create(plan.lanes, team,
                                                work->exported->card.wgrad_threads, &lanes)
                    : s;
    s = s == LVN_OK ? lvni_trainer_predict(work->exported->model, loader, lanes, rank->comm,
                                           probabilities, work->row, work->user)
                    : s;
    s = s == LVN_OK ? report_unreadable(rank, loader) : s;
    lvni_data_loader_destroy(loader);
    lvni_trainer_lanes_destroy(lanes);
    return s;
}
