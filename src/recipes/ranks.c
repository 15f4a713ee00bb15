/* Which ranks a run has (ranks.h). */
#include "recipes/ranks.h"

#include "core/alloc.h"
#include "launch/device_spec.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/train_options.h"

#include <levin/device.h>
#include <string.h>
#include <unistd.h>

/* What the configuration asks for. */
typedef struct wish {
    int devices;
    int *index; /* their numbers; NULL: 0 to devices - 1 */
    bool threads;
} wish;

static lvn_status set(lvni_config *c, const char *key, const char *value)
{
    return strcmp(lvni_config_str(c, key), value) == 0 ? LVN_OK : lvni_config_set(c, key, value, "resolved at start");
}

static void warn(const lvni_notices *notices)
{
    const char *line = notices->warnings.data;
    for (const char *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        lvni_log_line(LVNI_LOG_WARNING, "%.*s", (int)(end - line), line);
    }
}

static lvn_status choose(const lvni_config *c, const lvni_visible *visible, lvni_device_choice *choice)
{
    lvni_notices notices = {0};
    const bool sim = strcmp(lvni_config_str(c, "accelerator"), "sim") == 0;
    const lvni_device_request request = {.key = "devices",
                                         .spec = lvni_config_str(c, "devices"),
                                         .accelerator = sim ? LVNI_ACCELERATOR_SIM : LVNI_ACCELERATOR_CPU,
                                         .env = environ};
    const lvn_status s = lvni_device_choose(&request, visible, &notices, choice);
    warn(&notices);
    lvni_notices_free(&notices);
    return s;
}

/* The devices by their numbers on the machine. */
static lvn_status take_devices(const lvni_config *c, const lvni_visible *visible, wish *out)
{
    lvni_device_choice choice = {0};
    LVN_TRY(choose(c, visible, &choice));
    out->devices = choice.n;
    if (choice.index != NULL) {
        out->index = lvni_calloc(LVNI_TAG_CONFIG, (size_t)choice.n, sizeof *out->index);
    }
    for (int i = 0; out->index != NULL && i < choice.n; i++) {
        out->index[i] = visible->device[choice.index[i]].physical;
    }
    const bool failed = choice.index != NULL && out->index == NULL;
    lvni_device_choice_free(&choice);
    return failed ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status read_wish(lvni_config *c, wish *out)
{
    *out = (wish){0};
    lvni_visible visible;
    LVN_TRY(lvni_accelerator_resolve(c));
    const bool sim = strcmp(lvni_config_str(c, "accelerator"), "sim") == 0;
    LVN_TRY(lvni_visible_make(lvni_env_raw(environ, "CUDA_VISIBLE_DEVICES"), sim ? lvn_device_count(LVN_DEVICE_SIM) : 0, NULL, &visible));
    const lvn_status s = take_devices(c, &visible, out);
    lvni_visible_free(&visible);
    LVN_TRY(s);
    const char *strategy = lvni_config_str(c, "strategy");
    if (strcmp(strategy, "auto") == 0) {
        strategy = out->devices > 1 ? "ddp" : "single";
    }
    if (strcmp(strategy, "single") == 0 && out->devices > 1) {
        LVN_FAIL(LVN_ERR_USAGE, "strategy=single is one device, and devices=%s are %d; leave strategy= out, or give devices=1", lvni_config_str(c, "devices"),
                 out->devices);
    }
    out->threads = strcmp(strategy, "dp") == 0 || strcmp(strategy, "ddp2") == 0; /* on one node they are the same */
    return set(c, "strategy", strategy);
}

static int share(int cores, int ranks)
{
    return cores / ranks > 1 ? cores / ranks : 1;
}

static lvni_rank rank_of(const wish *w, int rank)
{
    const int cores = lvni_usable_cores();
    return (lvni_rank){.rank = rank,
                       .world = w->devices,
                       .device = w->index != NULL ? w->index[rank] : 0,
                       .cores = share(cores, w->devices),
                       .cores_all = cores};
}

static lvn_status open_threads(const wish *w, lvni_ranks *out)
{
    out->how = w->devices > 1 ? "threads" : NULL;
    out->world = w->devices;
    out->rank = lvni_calloc(LVNI_TAG_CONFIG, (size_t)w->devices, sizeof *out->rank);
    lvni_comm **comm = lvni_calloc(LVNI_TAG_CONFIG, (size_t)w->devices, sizeof *comm);
    lvn_status s = out->rank == NULL || comm == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && w->devices > 1) {
        s = lvni_comm_threads(w->devices, false, comm);
    }
    for (out->n = 0; s == LVN_OK && out->n < w->devices; out->n++) {
        out->rank[out->n] = rank_of(w, out->n);
        out->rank[out->n].comm = comm[out->n];
    }
    lvni_free(comm);
    return s;
}

lvn_status lvni_ranks_open(lvni_config *c, lvni_ranks *out)
{
    *out = (lvni_ranks){0};
    wish w;
    lvn_status s = read_wish(c, &w);
    s = s == LVN_OK ? open_threads(&w, out) : s;
    lvni_free(w.index);
    if (s != LVN_OK) {
        lvni_ranks_close(out);
    }
    return s;
}

void lvni_ranks_close(lvni_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++) {
        lvni_comm_destroy(ranks->rank[i].comm);
    }
    lvni_free(ranks->rank);
    *ranks = (lvni_ranks){0};
}

lvn_status lvni_ranks_foresee(lvni_config *c, lvni_rank *out)
{
    wish w;
    const lvn_status s = read_wish(c, &w);
    *out = s == LVN_OK ? rank_of(&w, 0) : (lvni_rank){0};
    lvni_free(w.index);
    return s;
}
