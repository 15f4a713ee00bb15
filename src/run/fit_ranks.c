/* What the ranks of a run compare and choose together (fit_impl.h): their hardware, their data,
 * their shares of the micro-batches. Called by fit.c. */
#include "run/fit_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/options.h"
#include "tensor/device.h"
#include "trainer/identity.h"
#include "trainer/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- a text of each rank ---- */

typedef struct rank_texts {
    void *all;
    size_t *size;
    const char **of; /* each rank */
} rank_texts;

static void texts_free(rank_texts *t)
{
    lvni_core_free(t->all);
    lvni_core_free(t->size);
    lvni_core_free(t->of);
}

/* *out is to be freed in every case. */
static lvn_status gather_texts(const lvni_run_fit_run *r, const char *mine, rank_texts *out)
{
    const size_t world = (size_t)r->rank.world;
    out->all = NULL;
    out->size = lvni_core_calloc(LVNI_TAG_TRAINER, world, sizeof *out->size);
    out->of = lvni_core_calloc(LVNI_TAG_TRAINER, world, sizeof *out->of);
    if (out->size == NULL || out->of == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_dist_comm_all_gather_sized(r->rank.comm, mine, strlen(mine) + 1, &out->all,
                                            out->size));
    const char *at = out->all;
    for (size_t i = 0; i < world; i++) {
        out->of[i] = at;
        at += out->size[i];
        if (out->size[i] == 0 || at[-1] != '\0') {
            LVN_FAIL(LVN_ERR_CORRUPT, "rank %zu sends half a text", i);
        }
    }
    return LVN_OK;
}

/* ---- the run directory ---- */

lvn_status lvni_run_fit_compare_out(const lvni_run_fit_run *r)
{
    const char *out = lvni_core_config_str(r->request->config, "out");
    rank_texts t = {0};
    if (r->rank.world <= 1) {
        return LVN_OK;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, gather_texts(r, out != NULL ? out : "", &t));
    for (int i = 1; i < r->rank.world && s == LVN_OK; i++) {
        if (strcmp(t.of[i], t.of[0]) != 0) {
            s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                              "rank %d has out=%s where rank 0 has out=%s: the ranks of a run have "
                              "one directory; give a name that does not hold a time or the number "
                              "of the rank",
                              i, t.of[i], t.of[0]);
        }
    }
done:
    texts_free(&t);
    return s;
}

/* ---- hardware ---- */

enum { MOST_NAMES = 4, MOST_KINDS = 3 };

static int count_of(const rank_texts *t, int world, const char *text)
{
    int n = 0;
    for (int i = 0; i < world; i++) {
        n += strcmp(t->of[i], text) == 0;
    }
    return n;
}

/* The smallest rank that has it. */
static int first_of(const rank_texts *t, const char *text)
{
    int i = 0;
    while (strcmp(t->of[i], text) != 0) {
        i++;
    }
    return i;
}

/* What most ranks have, of equally many the one of the smallest rank. */
static const char *usual_of(const rank_texts *t, int world)
{
    const char *usual = t->of[0];
    int most = 0;
    for (int i = 0; i < world; i++) {
        const int n = first_of(t, t->of[i]) < i ? 0 : count_of(t, world, t->of[i]);
        usual = n > most ? t->of[i] : usual;
        most = n > most ? n : most;
    }
    return usual;
}

static bool has_item(const char *list, const char *item, size_t n)
{
    for (const char *at = list; *at != '\0'; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, item, n) == 0) {
            return true;
        }
        at += length;
    }
    return false;
}

/* "avx2 v3, oneDNN 2.7": what a list has and the other one has not; else all of it. */
static void print_apart(const char *list, const char *other, lvni_core_str *out)
{
    int n = 0;
    for (const char *at = list; *at != '\0'; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        if (!has_item(other, at, length)) {
            lvni_core_str_append(out, n++ > 0 ? ", " : "");
            lvni_core_str_append_n(out, at, length);
        }
        at += length;
    }
    lvni_core_str_append(out, n == 0 ? list : "");
}

/* Of several nodes each has ranks with this text only, or none. */
static bool are_whole_nodes(const rank_texts *t, const char *text, int world,
                            const lvni_control_member *m)
{
    int nodes = 0;
    for (int i = 0; m != NULL && i < world; i++) {
        nodes = m[i].host_index + 1 > nodes ? m[i].host_index + 1 : nodes;
        for (int k = 0; strcmp(t->of[i], text) == 0 && k < world; k++) {
            if (m[k].host_index == m[i].host_index && strcmp(t->of[k], text) != 0) {
                return false;
            }
        }
    }
    return nodes > 1;
}

/* Is rank i the first of its node? */
static bool begins_node(const lvni_control_member *m, int i)
{
    int k = 0;
    while (m[k].host_index != m[i].host_index) {
        k++;
    }
    return k == i;
}

/* "node b03 has", "ranks 1, 2 have": those with this text. */
static void print_who(const rank_texts *t, const char *text, int world,
                      const lvni_control_member *m, lvni_core_str *out)
{
    const bool nodes = are_whole_nodes(t, text, world, m);
    lvni_core_str names = {0};
    int n = 0;
    for (int i = 0; i < world; i++) {
        if (strcmp(t->of[i], text) != 0 || (nodes && !begins_node(m, i))) {
            continue;
        }
        if (n < MOST_NAMES) {
            lvni_core_str_append(&names, n > 0 ? ", " : "");
            if (nodes) {
                lvni_core_str_append(&names, m[i].host);
            } else {
                lvni_core_str_printf(&names, "%d", i);
            }
        }
        n++;
    }
    lvni_core_str_printf(out, "%s%s %s", nodes ? "node" : "rank", lvni_core_plural(n, "", "s"),
                         lvni_core_str_text(&names));
    if (n > MOST_NAMES) {
        lvni_core_str_printf(out, " and %d more", n - MOST_NAMES);
    }
    lvni_core_str_append(out, n == 1 ? " has" : " have");
    lvni_core_str_free(&names);
}

/* "node b03 has avx2 v3, the others avx512 v4"; nothing where all have the same. */
static void print_differences(const rank_texts *t, int world, const lvni_control_member *m,
                              lvni_core_str *out)
{
    const char *usual = usual_of(t, world);
    int kinds = 0;
    for (int i = 0; i < world; i++) {
        if (strcmp(t->of[i], usual) == 0 || first_of(t, t->of[i]) < i || ++kinds > MOST_KINDS) {
            continue;
        }
        lvni_core_str_append(out, out->len > 0 ? "; " : "");
        print_who(t, t->of[i], world, m, out);
        lvni_core_str_char(out, ' ');
        print_apart(t->of[i], usual, out);
        lvni_core_str_append(out, ", ");
        if (count_of(t, world, usual) == 1) {
            print_who(t, usual, world, m, out);
        } else {
            lvni_core_str_append(out, "the others");
        }
        lvni_core_str_char(out, ' ');
        print_apart(usual, t->of[i], out);
    }
    if (kinds > MOST_KINDS) {
        lvni_core_str_printf(out, "; and %d more kinds", kinds - MOST_KINDS);
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every kind once, in an order that does not depend on ranks. */
static lvn_status print_all(const rank_texts *t, int world, lvni_core_str *out)
{
    const char **sorted = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)world, sizeof *sorted);
    if (sorted == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(sorted, t->of, (size_t)world * sizeof *sorted);
    qsort(sorted, (size_t)world, sizeof *sorted, compare_texts);
    for (int i = 0; i < world; i++) {
        if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0) {
            lvni_core_str_append(out, i > 0 ? " and " : "");
            lvni_core_str_append(out, sorted[i]);
        }
    }
    lvni_core_free(sorted);
    return lvni_core_str_status(out);
}

static lvn_status compare_machines(lvni_run_fit_run *r, const char *mine)
{
    const lvni_control_member *m =
        r->rank.control == NULL ? NULL : lvni_control_members(r->rank.control);
    rank_texts texts = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, gather_texts(r, mine, &texts));
    print_differences(&texts, r->rank.world, m, &r->hardware);
    LVNI_TRY_DONE(s, lvni_core_str_status(&r->hardware));
    s = print_all(&texts, r->rank.world, &r->machine);
done:
    texts_free(&texts);
    return s;
}

/* For rank 0, which compares the estimate with each host. */
static lvn_status gather_memory(lvni_run_fit_run *r)
{
    const uint64_t mine = lvni_core_machine_memory("");
    r->available = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)r->rank.world, sizeof *r->available);
    return r->available == NULL
               ? LVN_ERR_MEMORY
               : lvni_dist_comm_all_gather(r->rank.comm, &mine, sizeof mine, r->available);
}

lvn_status lvni_run_fit_compare_hardware(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    lvni_core_str mine = {0};
    if (r->rank.world <= 1) {
        return LVN_OK;
    }
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_run_accelerator_use(c, r->rank.device));
    lvni_trainer_identity_machine(&mine);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&mine));
    LVNI_TRY_DONE(s, compare_machines(r, lvni_core_str_text(&mine)));
    s = gather_memory(r);
done:
    lvni_core_str_free(&mine);
    LVN_TRY(s);
    if (r->hardware.len > 0 && strcmp(lvni_core_config_str(c, "same_hardware"), "require") == 0) {
        if (r->rank.rank > 0) { /* which has the same error */
            LVN_FAIL(LVN_ERR_PEER, "rank 0 refuses to begin");
        }
        LVN_FAIL(LVN_ERR_USAGE,
                 "same_hardware=require: %s; start on hardware of one kind, or give "
                 "same_hardware=warn",
                 lvni_core_str_text(&r->hardware));
    }
    return LVN_OK;
}

/* ---- data ---- */

/* Every rank reads the data by itself, and may see another folder. */
static lvn_status compare_runs(const rank_texts *t, int world)
{
    for (int i = 1; i < world; i++) {
        if (strcmp(t->of[i], t->of[0]) != 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "rank %d has %s where rank 0 has %s: all ranks must see the same data and "
                     "configuration",
                     i, t->of[i], t->of[0]);
        }
    }
    return LVN_OK;
}

lvn_status lvni_run_fit_compare_runs(const lvni_run_fit_run *r)
{
    lvni_core_str run = {0}, machine = {0};
    rank_texts texts = {0};
    lvni_trainer_identity_print(r->trainer, &run, &machine);
    if (r->request->val != NULL) {
        lvni_core_str_printf(&run, " val=%016llx",
                             (unsigned long long)lvni_trainer_identity_of_data(r->request->val));
    }
    if (r->request->data_files != 0) { /* a copy of its own on each node may have other files */
        lvni_core_str_printf(&run, " files=%016llx", (unsigned long long)r->request->data_files);
    }
    if (r->request->other_file != NULL) {
        lvni_core_str_printf(&run, " %s=%.16s", r->request->other_file,
                             lvni_core_config_str(r->request->config, r->request->other_file));
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&run));
    LVNI_TRY_DONE(s, gather_texts(r, lvni_core_str_text(&run), &texts));
    s = compare_runs(&texts, r->rank.world);
done:
    texts_free(&texts);
    lvni_core_str_free(&run);
    lvni_core_str_free(&machine);
    return s;
}

/* ---- shares ---- */

/* Costs that differ less are those of equal ranks: a machine is never quiet. */
static const double ABOUT_EQUAL = 1.1;

/* 0: off. -1: auto. */
static int count_shares(const lvni_core_config *c)
{
    const char *text = lvni_core_config_str(c, "balance_ranks");
    return strcmp(text, "off") == 0    ? 0
           : strcmp(text, "auto") == 0 ? -1
                                       : lvni_run_read_shares(text, NULL, 0);
}

bool lvni_run_fit_measures(const lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    const int n = count_shares(c);
    const bool kept = lvni_core_config_layer(c, "balance_ranks") != LVNI_LAYER_ARGUMENTS;
    return r->rank.world > 1 && !lvni_run_is_staged(c) &&
           (n < 0 || (n > 0 && n != r->rank.world && kept));
}

static lvn_status make_bounds(lvni_run_fit_run *r)
{
    lvni_core_free(r->bounds);
    r->bounds = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)r->rank.world + 1, sizeof *r->bounds);
    return r->bounds == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* The plan again, with the shares that this rank knows now. */
static lvn_status plan_again(lvni_run_fit_run *r)
{
    r->rank.bounds = r->bounds;
    return lvni_run_make_plan(r->request->config, &r->data, &r->rank, r->model->coupled, &r->plan);
}

lvn_status lvni_run_fit_check_sharded(const lvni_run_fit_run *r)
{
    if (lvni_run_sharded_stage(r->request->config) > 0 &&
        lvni_tensor_device_of(r->model->weights) != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=sharded: the optimizer's parts are updated on the CPU so far; use "
                 "accelerator=cpu or strategy=ddp");
    }
    return LVN_OK;
}

lvn_status lvni_run_fit_take_shares(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    const int n = count_shares(c), world = r->rank.world;
    if (n != 0 && lvni_run_is_staged(c) &&
        lvni_core_config_layer(c, "balance_ranks") == LVNI_LAYER_ARGUMENTS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "balance_ranks=%s has no effect with strategy=balance, whose ranks all work on "
                 "every micro-batch: balance.cuts gives the stages  (%s)",
                 lvni_core_config_str(c, "balance_ranks"),
                 lvni_core_config_origin(c, "balance_ranks"));
    }
    if (n <= 0 || world <= 1 || lvni_run_is_staged(c) || lvni_run_fit_measures(r)) {
        return LVN_OK;
    }
    if (n != world) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "balance_ranks=%s (%s) has %d share%s for %d ranks: give one for each rank, auto "
                 "or off",
                 lvni_core_config_str(c, "balance_ranks"),
                 lvni_core_config_origin(c, "balance_ranks"), n, lvni_core_plural(n, "", "s"),
                 world);
    }
    double *cost = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)world, sizeof *cost);
    lvn_status s = cost == NULL ? LVN_ERR_MEMORY : make_bounds(r);
    if (s == LVN_OK) {
        (void)lvni_run_read_shares(lvni_core_config_str(c, "balance_ranks"), cost, world);
        for (int i = 0; i < world; i++) {
            cost[i] = 1.0 / cost[i];
        }
        lvni_plan_balance(cost, world, r->plan.micro_batches, r->bounds);
        s = plan_again(r);
    }
    lvni_core_free(cost);
    return s;
}

/* Seconds of a micro-batch here; 0: it could not be measured, for a reason that the run will
 * report if it meets it. */
static lvn_status measure(lvni_run_fit_run *r, double *seconds)
{
    lvni_trainer_options o;
    *seconds = 0.0;
    if (r->model->coupled) {
        return LVN_OK;
    }
    LVN_TRY(lvni_run_fit_options(r, &o));
    const lvn_status s = lvni_trainer_measure_micro_batch(&o, seconds);
    lvni_core_str_clear(&r->json);
    lvni_core_str_clear(&r->card);
    if (s != LVN_OK) {
        lvni_log_line(LVNI_LOG_DETAIL, "balance_ranks=auto: %s", lvn_last_error()->message);
        lvn_clear_error();
        *seconds = 0.0;
    }
    return LVN_OK;
}

/* By rank 0. */
static lvn_status choose_shares(lvni_run_fit_run *r, double *cost)
{
    int fast = 0, slow = 0;
    bool known = true;
    for (int i = 0; i < r->rank.world; i++) {
        known = known && cost[i] > 0.0;
        fast = cost[i] < cost[fast] ? i : fast;
        slow = cost[i] > cost[slow] ? i : slow;
    }
    const bool equal = !known || cost[slow] < cost[fast] * ABOUT_EQUAL;
    lvni_core_str why = {0};
    if (!known) {
        lvni_core_str_append(&why, r->model->coupled ? "the micro-batches of a group run at once"
                                                     : "a micro-batch of zeros cannot be measured");
    } else {
        lvni_core_str_printf(&why, "a micro-batch takes %.3g ms on rank %d and %.3g ms on rank %d",
                             cost[fast] * 1e3, fast, cost[slow] * 1e3, slow);
    }
    for (int i = 0; i < r->rank.world && equal; i++) {
        cost[i] = 1.0;
    }
    lvni_plan_balance(cost, r->rank.world, r->plan.micro_batches, r->bounds);
    lvni_core_str shares = {0};
    for (int i = 0; i < r->rank.world; i++) {
        lvni_core_str_printf(&shares, "%s%d", i == 0 ? "[" : ",", r->bounds[i + 1] - r->bounds[i]);
    }
    lvni_core_str_append(&shares, "]");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&shares));
    LVNI_TRY_DONE(s, lvni_core_str_status(&why));
    lvni_core_str_printf(&r->shares, "balance_ranks=auto: %s: %s, balance_ranks=%s",
                         lvni_core_str_text(&why), equal ? "equal shares" : "shares by speed",
                         lvni_core_str_text(&shares));
    s = lvni_core_config_set(r->request->config, "balance_ranks", lvni_core_str_text(&shares),
                             "measured at start");
done:
    lvni_core_str_free(&why);
    lvni_core_str_free(&shares);
    return s;
}

lvn_status lvni_run_fit_balance(lvni_run_fit_run *r)
{
    const size_t world = (size_t)r->rank.world;
    double mine;
    double *cost = lvni_core_calloc(LVNI_TAG_TRAINER, world, sizeof *cost);
    lvn_status s;
    LVNI_TRY_DONE(s, cost == NULL ? LVN_ERR_MEMORY : make_bounds(r));
    LVNI_TRY_DONE(s, measure(r, &mine));
    LVNI_TRY_DONE(s, lvni_dist_comm_all_gather(r->rank.comm, &mine, sizeof mine, cost));
    s = r->rank.rank == 0 ? choose_shares(r, cost) : LVN_OK;
done:
    lvni_core_free(cost);
    LVN_TRY(s);
    LVN_TRY(lvni_dist_comm_broadcast(r->rank.comm, r->bounds, (world + 1) * sizeof *r->bounds, 0));
    LVN_TRY(plan_again(r));
    lvni_core_str_clear(&r->memory);
    lvni_core_str_clear(&r->scarce);
    return lvni_run_fit_predict_memory(r);
}
