/* What a run reports at its start (fit_impl.h): the estimated memory, before there is a run
 * directory, with sizes of micro-batches that the network cannot take; then data, model, batch,
 * ranks, device, and the line that reproduces the run. verbose=true prints the rest, which
 * train.log always has. And what `levin plan train` prints. */
#include "run/fit_impl.h"

#include "core/escape.h"
#include "core/machine.h"
#include "core/str.h"
#include "kernels/kernels.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/options.h"
#include "run/run_dir.h"
#include "trainer/memory.h"
#include "trainer/phases.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- memory ---- */

/* The network cannot take so few samples (or such images): refused before the first step, not after
 * the last of an epoch. */
static lvn_status refuse_size(const lvni_plan *p, int64_t size)
{
    const lvn_error why = *lvn_last_error();
    const bool in_all = size >= lvni_plan_micro_batch(p, 0, p->micro_batches - 1).count &&
                        !(p->coupled && p->group > 1 && p->last_step < p->micro_batches);
    if (in_all || p->last_step == p->effective_batch) {
        LVN_FAIL(LVN_ERR_USAGE, "the network cannot take a micro-batch of %lld sample%s: %s",
                 (long long)size, lvni_core_plural(size, "", "s"), why.message);
    }
    LVN_FAIL(
        LVN_ERR_USAGE,
        "the last step of an epoch has %lld sample%s in %d micro-batch%s (%lld samples in steps of "
        "%lld), and the network cannot take a micro-batch of %lld: %s; "
        "drop_last=true omits that step, and another batch_size may not have it",
        (long long)p->last_step, lvni_core_plural(p->last_step, "", "s"), p->micro_batches,
        lvni_core_plural(p->micro_batches, "", "es"), (long long)p->n_samples,
        (long long)p->effective_batch, (long long)size, why.message);
}

enum { SIZE_KEY = 64 };

/* " or image_size", of recipes with such a key. */
static const char *or_size_key(const lvni_run_fit_run *r, char text[SIZE_KEY])
{
    const char *key = r->request->recipe->size_key;
    snprintf(text, SIZE_KEY, "%s%s", key == NULL ? "" : " or ", key == NULL ? "" : key);
    return text;
}

/* The estimate is of the peak, and memory of other processes may be free by then: what is a little
 * more than there is may run. Of the host alone: a device that runs out ends the run with an error,
 * the system kills it. */
static bool is_far_above(uint64_t need, uint64_t has)
{
    return (double)need > 1.2 * (double)has;
}

static uint64_t on_host(const lvni_run_fit_run *r, const lvni_trainer_memory_need *n)
{
    const char *accelerator = lvni_core_config_str(r->request->config, "accelerator");
    return lvni_trainer_memory_on_host(n, accelerator != NULL && strcmp(accelerator, "sim") == 0);
}

/* Ranks whose memory is that of rank i's host, each with a process of its own. */
static int count_ranks_of_host(const lvni_run_fit_run *r, const lvni_control_member *m, int rank)
{
    int n = 0;
    for (int i = 0; m != NULL && i < r->rank.world; i++) {
        n += m[i].host_index == m[rank].host_index;
    }
    return n > 0 ? n : r->rank.nodes > 0 ? r->rank.world / r->rank.nodes : r->rank.world;
}

/* What the run takes of a host, and what its ranks find there at least. */
typedef struct host_memory {
    const char *name; /* NULL: this one */
    uint64_t need, has;
} host_memory;

static bool is_tighter(const host_memory *a, const host_memory *b)
{
    return (double)a->need * (double)b->has > (double)b->need * (double)a->has;
}

/* The host with the least room for its ranks, of which each takes `one`. */
static host_memory find_tightest_host(const lvni_run_fit_run *r, uint64_t one)
{
    const lvni_control_member *m =
        r->rank.control == NULL ? NULL : lvni_control_members(r->rank.control);
    host_memory tightest = {.need = one * (uint64_t)count_ranks_of_host(r, m, r->rank.rank),
                            .has = lvni_core_machine_memory("")};
    for (int i = 0; m != NULL && r->available != NULL && i < r->rank.world; i++) {
        const host_memory host = {.name = m[i].host_index == m[r->rank.rank].host_index ? NULL
                                                                                        : m[i].host,
                                  .need = one * (uint64_t)count_ranks_of_host(r, m, i),
                                  .has = r->available[i]};
        tightest = is_tighter(&host, &tightest) ? host : tightest;
    }
    return tightest;
}

static void compare_memory(lvni_run_fit_run *r, const host_memory *host, lvni_core_str *out)
{
    char size[SIZE_KEY];
    char takes[LVNI_BYTES_TEXT], there[LVNI_BYTES_TEXT];
    r->too_scarce = is_far_above(host->need, host->has);
    if (host->need <= host->has) {
        return;
    }
    lvni_core_bytes_text(host->need, takes);
    lvni_core_bytes_text(host->has, there);
    if (host->name != NULL) {
        lvni_core_str_printf(out,
                             "the run takes about %s of the host %s, and %s are available to it "
                             "there",
                             takes, host->name, there);
    } else {
        lvni_core_str_printf(out, "the run takes about %s, and %s are available to it here", takes,
                             there);
    }
    lvni_core_str_printf(out,
                         ": the system may kill it; a smaller batch_size%s, or more micro-batches, "
                         "takes less",
                         or_size_key(r, size));
}

/* Too much to begin with. A finder is to find what is not. */
static bool refuses_memory(const lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    return r->too_scarce && !r->request->tunes &&
           strcmp(lvni_core_config_str(c, lvni_run_key_name(c, "memory_check")), "warn") != 0;
}

void lvni_run_fit_warn_memory(const lvni_run_fit_run *r)
{
    if (r->scarce.len > 0) {
        lvni_log_line(LVNI_LOG_WARNING, "%s%s", lvni_core_str_text(&r->scarce),
                      refuses_memory(r) ? "; here it begins with memory_check=warn alone" : "");
    }
}

lvn_status lvni_run_fit_check_memory(const lvni_run_fit_run *r)
{
    if (!refuses_memory(r)) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE, "%s; memory_check=warn begins all the same",
             lvni_core_str_text(&r->scarce));
}

/* What does not fit in any case is refused before there is a run; the rest is an estimate of what
 * is in use at once, and a warning. */
static lvn_status compare_device(const lvni_run_fit_run *r, const lvni_trainer_memory_need *n,
                                 lvni_core_str *out)
{
    char size[SIZE_KEY];
    char takes[LVNI_BYTES_TEXT], has[LVNI_BYTES_TEXT];
    lvni_core_bytes_text(n->device_limit, has);
    if (n->device_fixed > n->device_limit) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY,
                 "weights, gradients and optimizer take %s of %s, which has %s: a smaller model, "
                 "fewer micro-batches or lanes=1 need less",
                 lvni_core_bytes_text(n->device_fixed, takes), n->device_name, has);
    }
    if (n->device > n->device_limit) {
        lvni_core_str_printf(
            out,
            "%sthe run takes up to %s of %s, which has %s, and may run out of it; a "
            "smaller batch_size%s, more micro-batches or fewer lanes need less",
            out->len > 0 ? "; " : "", lvni_core_bytes_text(n->device, takes), n->device_name, has,
            or_size_key(r, size));
    }
    return LVN_OK;
}

/* Of the rank and the plan that *r has now. *predicted: its status, where the options are right. */
static lvn_status predict_lanes(lvni_run_fit_run *r, lvni_trainer_memory_need *need,
                                lvn_status *predicted)
{
    lvni_trainer_options o;
    *need = (lvni_trainer_memory_need){0};
    LVN_TRY(lvni_run_fit_options(r, &o));
    o.out = r->request->tunes ? "" : o.out; /* the run that follows saves */
    LVN_TRY(lvni_trainer_check(&o));        /* before there is a run directory, and in a plan */
    *predicted = lvni_trainer_predict_memory(&o, need);
    LVN_TRY(*predicted == LVN_OK && r->plan.staged ? lvni_run_fit_cut(r, &o, need) : LVN_OK);
    lvni_core_str_clear(&r->json); /* the configuration may still change */
    lvni_core_str_clear(&r->card);
    return LVN_OK;
}

/* More lanes than a device has memory for, which nothing asks for. */
static bool has_too_many_lanes(const lvni_run_fit_run *r, const lvni_trainer_memory_need *need)
{
    return need->device_limit > 0 && need->device > need->device_limit && r->plan.lanes > 1 &&
           !r->plan.coupled && !r->plan.staged &&
           !lvni_core_config_is_set(r->request->config, "lanes");
}

/* Micro-batches beside each other are for speed: where a device has room for fewer of them they
 * take turns, so that what fits as one micro-batch fits with accumulate_grad_batches, too. */
static lvn_status predict(lvni_run_fit_run *r, lvni_trainer_memory_need *need,
                          lvn_status *predicted)
{
    LVN_TRY(predict_lanes(r, need, predicted));
    while (*predicted == LVN_OK && has_too_many_lanes(r, need)) {
        r->plan.lanes--;
        LVN_TRY(predict_lanes(r, need, predicted));
    }
    return LVN_OK;
}

/* Ranks that are threads of this process. */
static bool has_others(const lvni_run_fit_run *r)
{
    const lvni_run_ranks *ranks = r->request->ranks;
    return r->rank.world > 1 && ranks != NULL && ranks->n == r->rank.world;
}

static lvn_status add_others(lvni_run_fit_run *r, lvni_trainer_memory_need *need, int *lanes,
                             lvn_status *predicted)
{
    const lvni_plan own = r->plan;
    const lvni_run_rank mine = r->rank;
    lvn_status s = LVN_OK;
    for (int i = 1; i < mine.world && *predicted == LVN_OK; i++) {
        lvni_trainer_memory_need more;
        r->rank.rank = i;
        LVNI_TRY_DONE(s, lvni_run_make_plan(r->request->config, &r->data, &r->rank,
                                            r->model->coupled, &r->plan));
        LVNI_TRY_DONE(s, predict(r, &more, predicted));
        if (*predicted == LVN_OK) {
            lvni_trainer_memory_add_thread(need, &more);
            *lanes += r->plan.lanes;
        }
    }
done:
    r->plan = own;
    r->rank = mine;
    return s;
}

/* A dry run of each size of micro-batch. Another failure in it is reported when the step runs. */
lvn_status lvni_run_fit_predict_memory(lvni_run_fit_run *r)
{
    lvni_trainer_memory_need need;
    /* a finder goes on with a smaller one */
    const lvn_status too_large = r->request->tunes ? LVN_ERR_DEVICE_MEMORY : LVN_ERR_USAGE;
    const bool together = has_others(r) && r->rank.rank == 0 && r->plan.rank == 0;
    lvn_status s = LVN_OK;
    LVN_TRY(predict(r, &need, &s));
    int lanes = r->plan.lanes;
    LVN_TRY(together ? add_others(r, &need, &lanes, &s) : LVN_OK);
    if (s == LVN_ERR_SHAPE && need.refused > 0) {
        return refuse_size(&r->plan, need.refused);
    }
    if (need.lacks_kernels) {
        const lvn_error why = *lvn_last_error();
        LVN_FAIL(LVN_ERR_USAGE, "%s", why.message);
    }
    if (s == LVN_ERR_DEVICE_MEMORY) {
        const lvn_error why = *lvn_last_error();
        char size[SIZE_KEY];
        LVN_FAIL(too_large,
                 "%lld sample%s at once take%s more memory than there is (%s): give a smaller "
                 "batch_size%s, or more micro-batches",
                 (long long)need.refused, lvni_core_plural(need.refused, "", "s"),
                 lvni_core_plural(need.refused, "s", ""), why.message, or_size_key(r, size));
    }
    r->need = need;
    if (s == LVN_OK) {
        lvni_trainer_memory_print(&need, lanes, &r->memory);
        if (together) {
            lvni_core_str_printf(&r->memory, ", of %d ranks in one process", r->rank.world);
        } else if (r->rank.world > 1) {
            lvni_core_str_printf(&r->memory, ", on each of %d ranks", r->rank.world);
        }
        const host_memory host =
            together ? (host_memory){.need = on_host(r, &need), .has = lvni_core_machine_memory("")}
                     : find_tightest_host(r, on_host(r, &need));
        compare_memory(r, &host, &r->scarce);
        LVN_TRY(compare_device(r, &need, &r->scarce));
    } else {
        lvni_core_str_printf(&r->memory, "memory: not known (%s)", lvn_last_error()->message);
        lvn_clear_error();
    }
    LVN_TRY(lvni_core_str_status(&r->scarce));
    return lvni_core_str_status(&r->memory);
}

/* ---- ranks and phases ---- */

/* Not a warning: the results are the same. */
static bool shares_cores(const lvni_run_fit_run *run, char *out, size_t room)
{
    const int ranks = run->rank.world, cores = run->rank.cores_all;
    snprintf(out, room,
             "%d ranks share %d core%s and take turns: more than %d make%s nothing faster", ranks,
             cores, lvni_core_plural(cores, "", "s"), cores, lvni_core_plural(cores, "s", ""));
    return cores > 0 && ranks > cores && !lvni_run_accelerator_is_device(run->request->config);
}

void lvni_run_fit_print_cores(const lvni_run_fit_run *run)
{
    char text[128];
    if (shares_cores(run, text, sizeof text)) {
        printf("%s\n", text);
    }
}

enum { MOST_DEVICES = 8 };

/* "96 x sim: 12 hosts x 8", "9 x sim: 2 hosts x 4 to 5". m: NULL where all ranks are here */
static void print_device_count(const char *kind, int n, const lvni_control_member *m,
                               lvni_core_str *out)
{
    int hosts = 0, least = n, most = 0; /* hosts are numbered by their smallest rank */
    for (int i = 0; m != NULL && i < n; i++) {
        int on = 0;
        for (int k = 0; m[i].host_index == hosts && k < n; k++) {
            on += m[k].host_index == hosts;
        }
        if (on > 0) {
            hosts++;
            least = on < least ? on : least;
            most = on > most ? on : most;
        }
    }
    lvni_core_str_printf(out, ", devices %d x %s", n, kind);
    if (hosts > 1) {
        lvni_core_str_printf(out, ": %d hosts x %d", hosts, least);
    }
    if (hosts > 1 && most > least) {
        lvni_core_str_printf(out, " to %d", most);
    }
}

/* Each by its name where they are few. m: NULL where all ranks are here */
static void print_devices(const lvni_run_fit_run *run, const lvni_control_member *m,
                          lvni_core_str *out)
{
    const lvni_run_ranks *ranks = run->request->ranks;
    const char *kind = lvni_core_config_str(run->request->config, "accelerator");
    const int n = m != NULL ? run->rank.world : ranks->n;
    if (n > MOST_DEVICES) {
        print_device_count(kind, n, m, out);
        return;
    }
    for (int i = 0; i < n; i++) {
        const char *between = i == 0 ? ", devices " : ",";
        if (m != NULL) {
            lvni_core_str_printf(out, "%s%s", between, m[i].device);
        } else {
            lvni_core_str_printf(out, "%s%s:%d", between, kind, ranks->rank[i].device);
        }
    }
}

static void report_ranks(const lvni_run_fit_run *run)
{
    const lvni_run_ranks *ranks = run->request->ranks;
    lvni_core_str devices = {.len = 0};
    if (lvni_run_accelerator_is_device(run->request->config)) {
        print_devices(run,
                      run->rank.control == NULL ? NULL : lvni_control_members(run->rank.control),
                      &devices);
    }
    lvni_log_line(LVNI_LOG_INFO, "%d ranks: %s (strategy=%s)%s", run->rank.world, ranks->how,
                  lvni_core_config_str(run->request->config, "strategy"),
                  lvni_core_str_text(&devices));
    lvni_core_str_free(&devices);
    lvni_log_line(LVNI_LOG_INFO, "%s", run->rank.transport.line);
    if (run->shares.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&run->shares));
    }
    if (run->hardware.len > 0) {
        lvni_log_line(LVNI_LOG_WARNING, "reproducibility off: %s",
                      lvni_core_str_text(&run->hardware));
    }
    char cores[128];
    if (shares_cores(run, cores, sizeof cores)) {
        lvni_log_line(LVNI_LOG_INFO, "%s", cores);
    }
}

static void report_phases(const lvni_run_fit_run *r)
{
    lvni_core_str text = {0};
    if (lvni_trainer_phases_count(r->model) > 1) {
        lvni_trainer_phases_describe(r->model, &text);
        lvni_log_line(LVNI_LOG_DETAIL, "phases of a step: %s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}

/* ---- the start block ---- */

static void print_each(lvni_log_level level, const char *lines)
{
    while (*lines != '\0') {
        const size_t n = strcspn(lines, "\n");
        lvni_log_line(level, "%.*s", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

static void print_lines(lvni_log_level level, lvni_core_str *text)
{
    print_each(level, lvni_core_str_text(text));
    lvni_core_str_free(text);
}

/* A directory that was given is known. */
static void print_run(const lvni_run_fit_run *r)
{
    const bool chosen = lvni_core_config_str(r->request->config, "out") == NULL ||
                        lvni_launch_env_get(lvni_run_environment(), "LEVIN_OUT_CHOSEN") != NULL;
    lvni_log_line(LVNI_LOG_DETAIL, "levin %s, %s", LEVIN_VERSION, r->request->recipe->name);
    if (r->dir != NULL) {
        lvni_log_line(chosen ? LVNI_LOG_INFO : LVNI_LOG_DETAIL, "run directory: %s", r->dir);
    }
}

static void print_device(const lvni_run_fit_run *r)
{
    lvni_core_str device = {0};
    const int cores = r->rank.world > 1 ? r->rank.cores_all : r->plan.cores;
    lvni_run_accelerator_describe(&device);
    lvni_log_line(LVNI_LOG_DETAIL, "kernels: %s", lvni_kernels_describe());
    lvni_log_line(device.len > 0 ? LVNI_LOG_DETAIL : LVNI_LOG_INFO, "device cpu: %d core%s", cores,
                  lvni_core_plural(cores, "", "s"));
    print_lines(LVNI_LOG_INFO, &device);
    if (lvni_kernels_are_of_cpu() && lvni_cpu_unmeasured() != NULL) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_cpu_unmeasured());
    }
    if (lvni_run_gpu_refused()[0] != '\0') {
        lvni_log_line(LVNI_LOG_WARNING, "there is a GPU, but it cannot be used: %s",
                      lvni_run_gpu_refused());
    }
    if (r->rank.world > 1) {
        report_ranks(r);
    }
}

/* "model resnet18: 11178564 parameters in 62 tensors, 2052 of them trained": the rest is frozen. */
static void print_model(const lvni_run_fit_run *r, lvni_core_str *out)
{
    const lvni_nn_model *m = r->model;
    const int64_t n = lvni_nn_model_count(m);
    int64_t trained = 0;
    lvni_optim_rules rules;
    lvni_optim_parameter *p;
    lvni_core_str_message(out, "model %s: %lld parameter%s in %d tensor%s", r->request->cls->name,
                          (long long)n, lvni_core_plural(n, "", "s"), m->n_parameters,
                          lvni_core_plural(m->n_parameters, "", "s"));
    lvni_run_read_rules(r->request->config, &r->plan, &rules);
    if (lvni_trainer_parameters(m, &rules, &p) != LVN_OK) {
        return; /* reported when the trainer is made */
    }
    for (int i = 0; i < m->n_parameters; i++) {
        trained += p[i].frozen ? 0 : lvn_numel(m->parameters[i].tensor);
    }
    if (trained < n) {
        lvni_core_str_printf(out, ", %lld of them trained (freeze)", (long long)trained);
    }
    lvni_core_free(p);
}

void lvni_run_fit_banner(const lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    lvni_core_str model = {0}, batch = {0}, streams = {0}, work = {0}, pin = {0};
    print_run(r);
    if (r->request->note != NULL) {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->note);
    }
    if (r->request->ignored != NULL && r->request->ignored[0] != '\0') {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->ignored);
    }
    if (r->request->chosen != NULL && r->request->chosen[0] != '\0') {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->chosen);
    }
    print_model(r, &model);
    const uint64_t *own = r->request->weights_seed;
    lvni_log_line(LVNI_LOG_INFO, "%s, seed %lld, precision %s", lvni_core_str_text(&model),
                  own != NULL ? (long long)*own : (long long)lvni_core_config_int(c, "seed"),
                  lvni_core_config_str(c, "precision"));
    lvni_core_str_free(&model);
    report_phases(r);
    lvni_plan_describe_batch(&r->plan, &batch);
    print_lines(LVNI_LOG_INFO, &batch);
    if (r->stages.len > 0) {
        print_each(LVNI_LOG_INFO, lvni_core_str_text(&r->stages));
    }
    lvni_plan_describe_streams(&r->plan, &streams);
    print_lines(LVNI_LOG_INFO, &streams);
    lvni_plan_describe_work(&r->plan, &work);
    print_lines(LVNI_LOG_DETAIL, &work);
    print_device(r);
    lvni_plan_describe_pin(&r->plan, &pin);
    print_lines(LVNI_LOG_INFO, &pin);
}

/* How long the whole run is, and whether its directory is free. */
static void print_length(const lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    const int64_t epochs = lvni_core_config_int(c, "max_epochs"),
                  steps = lvni_core_config_int(c, "max_steps");
    const int64_t all = epochs < 0 ? steps : lvni_plan_steps_before(&r->plan, epochs);
    const int64_t total = steps >= 0 && (all < 0 || steps < all) ? steps : all;
    if (total >= 0) {
        int64_t whole = 0;
        const int64_t rest = lvni_plan_locate(&r->plan, total, &whole);
        const double in_epochs =
            (double)whole + (double)rest / (double)lvni_plan_steps_of(&r->plan, whole);
        lvni_core_print(stdout, "the run: %lld step%s, %.*g epoch%s\n", (long long)total,
                        lvni_core_plural(total, "", "s"),
                        /* no exponents */
                        in_epochs < 1000.0 ? 4 : 9, in_epochs, in_epochs == 1.0 ? "" : "s");
    }
    char *dir = NULL;
    if (lvni_run_dir_choose(c, &dir) != LVN_OK) {
        lvni_core_print(stdout, "but it would not start: %-s\n", lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_core_free(dir);
}

static void print_accelerator(void)
{
    lvni_core_str device = {0};
    lvni_run_accelerator_describe(&device);
    if (device.len > 0) {
        lvni_core_print(stdout, "%s\n", lvni_core_str_text(&device));
    }
    lvni_core_str_free(&device);
}

lvn_status lvni_run_fit_print_plan(const lvni_run_fit_run *r)
{
    const lvni_run_job *q = r->request;
    if (q->note != NULL) {
        lvni_core_print(stdout, "%s\n", q->note);
    }
    if (q->ignored != NULL && q->ignored[0] != '\0') {
        lvni_core_print(stdout, "%s\n", q->ignored);
    }
    if (q->chosen != NULL && q->chosen[0] != '\0') {
        lvni_core_print(stdout, "%s\n", q->chosen);
    }
    const lvn_status s = lvni_plan_print(&r->plan, stdout);
    if (r->stages.len > 0) {
        lvni_core_print(stdout, "%-s\n", lvni_core_str_text(&r->stages));
    }
    lvni_run_fit_print_tuning(r);
    print_length(r);
    if (r->rank.world > 1) {
        lvni_core_print(stdout, "%s\n", r->rank.transport.line);
    }
    lvni_run_fit_print_cores(r);
    print_accelerator();
    lvni_core_str model = {0};
    print_model(r, &model);
    lvni_core_print(stdout, "%s\n%-s\n", lvni_core_str_text(&model),
                    lvni_core_str_text(&r->memory));
    lvni_core_str_free(&model);
    fflush(stdout); /* the warning stands behind it */
    return s;
}
