/* One size of a finder's search (tune.h): the training is started as a process of its own, which
 * becomes its ranks, and reports through a file without a name. What ran out of memory is gone with
 * its processes, so the next trial begins with a whole device. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/own_program.h"
#include "core/str.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "run/error_record.h"
#include "run/options.h"
#include "tensor/device.h"
#include "tensor/device_blocks.h"
#include "trainer/excerpt.h"
#include "trainer/memory.h"
#include "tune/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char TRIAL[] = "LEVIN_TUNE_TRIAL"; /* SIZE:dry|run:FILE */

/* ---- in the processes of the training ---- */

/* Of the run's beginning. On a device: the steps before one is captured, that one, and two that
 * repeat it. */
enum { HOST_STEPS = 2, HOST_EPOCHS = 1, DEVICE_STEPS = 6, DEVICE_EPOCHS = 2 };
enum { VAL_CHUNKS = 8 /* of a rank */, MIB = 1 << 20 };
typedef struct trial {
    int64_t size, accumulate, samples;
    int64_t chunk; /* of a validation that takes too much; 0: not known */
    bool dry, on_device;
    const char *path;
    uint64_t given;       /* tune.memory_limit; 0: none */
    lvni_tune_rank *rank; /* all, as of the last exchange; of the first rank here */
} trial;

bool lvni_tune_is_trial(void)
{
    return lvni_launch_env_get(lvni_run_environment(), TRIAL) != NULL;
}

static lvn_status read_trial(trial *t)
{
    const char *text = lvni_launch_env_get(lvni_run_environment(), TRIAL);
    char *end;
    t->size = strtoll(text, &end, 10);
    t->dry = strncmp(end, ":dry:", 5) == 0;
    if (t->size < 1 || (!t->dry && strncmp(end, ":run:", 5) != 0)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s: levin tune sets it for processes that it starts; unset it",
                 TRIAL, text);
    }
    t->path = end + 5;
    return LVN_OK;
}

/* One write a report, so that those of several processes do not mix. Where the finder is gone there
 * is nothing to report to. */
static void report(const trial *t, lvni_core_str *text)
{
    const int fd = open(t->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        const ssize_t n = write(fd, lvni_core_str_text(text), text->len);
        (void)n;
        close(fd);
    }
    lvni_core_str_free(text);
}

static void report_ranks(const trial *t, const lvni_run_rank *first, const lvni_tune_rank *all)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "plan %d %" PRId64 " %" PRId64 " %" PRId64 " %d %d\n", first->world,
                         t->accumulate, t->samples, t->chunk, t->on_device, first->rank == 0);
    for (int i = 0; i < first->world; i++) {
        lvni_core_str_printf(&text, "rank %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, all[i].need,
                             all[i].limit, all[i].peak);
    }
    report(t, &text);
}

/* Ranks that share the memory of this rank's host, where they are processes or ddp2's threads. */
static int ranks_of_host(const lvni_run_ranks *ranks, const lvni_run_rank *rank)
{
    const lvni_control_member *m =
        rank->control == NULL ? NULL : lvni_control_members(rank->control);
    int n = 0;
    for (int i = 0; m != NULL && i < rank->world; i++) {
        n += m[i].host_index == m[rank->rank].host_index;
    }
    return n > 0 ? n : ranks->n;
}

/* Threads of one process share one estimate, that of rank 0. */
static bool shares_host(const lvni_run_ranks *ranks)
{
    return ranks->process == NULL;
}

static lvni_tune_rank weigh_rank(const trial *t, const lvni_run_ranks *ranks,
                                 const lvni_run_rank *rank, lvni_tensor_device *device,
                                 const lvni_trainer_memory_need *need)
{
    if (device != NULL) {
        return (lvni_tune_rank){.need = need->device,
                                .limit = lvni_tensor_device_get_stats(device).limit};
    }
    const uint64_t has = t->given > 0 ? t->given : lvni_core_machine_memory("");
    if (shares_host(ranks)) {
        return (lvni_tune_rank){.need = rank->rank == 0 ? need->total : 0, .limit = has};
    }
    const uint64_t share = has / (uint64_t)ranks_of_host(ranks, rank);
    return (lvni_tune_rank){.need = need->total, .limit = has < UINT64_MAX ? share : has};
}

/* What all ranks have now, the same on all of them: LVN_ERR_DEVICE_MEMORY where one has more than
 * its limit, so that no rank waits for one that stops. */
static lvn_status exchange(const trial *t, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                           const lvni_tune_rank *mine)
{
    lvni_tune_rank *all = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)rank->world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    all[0] = *mine;
    lvn_status s;
    LVNI_TRY_DONE(s, rank->comm == NULL
                         ? LVN_OK
                         : lvni_dist_comm_all_gather(rank->comm, mine, sizeof *mine, all));
    if (rank->rank == ranks->rank[0].rank) {
        report_ranks(t, rank, all);
    }
    /* A run on a device decides itself, whatever the estimate; the host would be full first. Lanes
     * that found room one after the other may need it at once in the next run. */
    const bool counts = t->dry || !t->on_device || mine->peak > 0;
    for (int i = 0; i < rank->world; i++) {
        const uint64_t takes = all[i].peak > 0 ? all[i].peak : all[i].need;
        if (takes > all[i].limit && (counts || all[i].lanes > 1)) {
            char text[LVNI_BYTES_TEXT], has[LVNI_BYTES_TEXT];
            s = lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                              "rank %d takes %s, and has %s", i, lvni_core_bytes_text(takes, text),
                              lvni_core_bytes_text(all[i].limit, has));
            break;
        }
    }
done:
    lvni_core_free(all);
    return s;
}

static lvn_status weigh(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        const lvni_nn_model *model, const lvni_plan *plan,
                        const lvni_trainer_memory_need *need)
{
    trial t = *(const trial *)host;
    t.accumulate = plan->accumulate;
    t.samples = plan->n_samples;
    lvni_tensor_device *device = lvni_tensor_device_of(model->weights);
    t.on_device = device != NULL;
    lvni_tune_rank mine = weigh_rank(&t, ranks, rank, device, need);
    mine.lanes = (uint64_t)plan->lanes;
    const bool validates_most =
        t.on_device && need->device_val > 0 && mine.need - need->device_val <= mine.limit;
    t.chunk = validates_most ? plan->eval_batch_size : 0;
    LVN_TRY(exchange(&t, ranks, rank, &mine));
    if (t.dry) {
        LVN_FAIL(LVN_ERR_CANCELLED, "only the estimate counts");
    }
    return LVN_OK;
}

static uint64_t measure_peak(const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                             lvni_tensor_device *device)
{
    if (device != NULL) {
        return lvni_tensor_device_get_stats(device).most;
    }
    return shares_host(ranks) && rank->rank > 0 ? 0 : lvni_core_alloc_get_total().peak_bytes;
}

/* After every epoch, and no longer than the memory needs. */
static void shorten_validation(const lvni_run_rank *rank, lvni_trainer_options *o)
{
    const int64_t most = (int64_t)VAL_CHUNKS * rank->world;
    if (lvni_trainer_validation_length(o) > 0) {
        o->val_every_n_epochs = 1;
        o->val_every_n_batches = 0;
        o->val_every_s = 0.0;
    }
    o->val_chunks = o->val_chunks == 0 || o->val_chunks > most ? most : o->val_chunks;
}

/* Images of samples take memory, too: those of each validation, which are not written. */
static bool always(void *user, const lvn_module *root, const lvni_plan *plan,
                   const lvni_ckpt_position *at)
{
    (void)user, (void)root, (void)plan, (void)at;
    return true;
}

static void drop(void *user, const float *images, const int64_t *shape, int64_t step)
{
    (void)user, (void)images, (void)shape, (void)step;
}

static void make_previews(const lvni_run_rank *rank, lvni_trainer_preview *preview)
{
    if (preview->images != NULL && rank->rank == 0) {
        preview->is_due = always;
        preview->take = drop;
    }
}

/* An eighth of what tensors may take, at most 1 MiB, or a 16th where that is more: a trial does
 * without it where several lanes decide in which order they take it. Of two runs one may need a
 * little more than the other. With one lane a trial takes what the run takes. */
typedef struct spare {
    lvni_tensor_device *device; /* NULL: none is spared */
    void *block;
    size_t bytes;
} spare;

static lvn_status take_spare(const lvni_trainer_options *o, lvni_tensor_device *device, spare *out)
{
    *out = (spare){0};
    if (device == NULL || o->plan.lanes == 1) {
        return LVN_OK;
    }
    const lvni_tensor_device_stats stats = lvni_tensor_device_get_stats(device);
    const uint64_t left = stats.limit > stats.in_use ? stats.limit - stats.in_use : 0;
    const uint64_t few = left / 8 < MIB ? left / 8 : MIB, more = left / 16;
    out->device = device;
    out->block = lvni_tensor_device_take(device, LVN_STREAM_COMPUTE,
                                         (size_t)(few > more ? few : more), &out->bytes);
    return out->block == NULL ? lvn_last_error()->code : LVN_OK;
}

static void give_spare(const spare *s)
{
    if (s->block != NULL) {
        lvni_tensor_device_give(s->device, LVN_STREAM_COMPUTE, false, s->block, s->bytes);
    }
}

/* Memory does not depend on values, and no value ends a trial: a gradient that is not finite makes
 * a step without an update, as with precision=16-mixed. */
static void ignore_values(lvni_trainer_engine *e)
{
    e->scaler.on = e->now.scaled = true;
}

static lvn_status run_beginning(lvni_trainer *trainer, lvni_tensor_device *device, size_t *spared)
{
    spare rest;
    ignore_values(trainer->engine);
    lvn_status s = take_spare(&trainer->o, device, &rest);
    if (s == LVN_OK) {
        s = device != NULL ? lvni_trainer_fit_excerpt(trainer, DEVICE_STEPS, DEVICE_EPOCHS)
                           : lvni_trainer_fit_excerpt(trainer, HOST_STEPS, HOST_EPOCHS);
    }
    give_spare(&rest);
    *spared = rest.bytes;
    return s;
}

static lvn_status drive(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        lvni_trainer *trainer)
{
    trial t = *(const trial *)host;
    lvni_trainer_options *o = &trainer->o;
    lvni_tensor_device *device = lvni_tensor_device_of(o->model->weights);
    const lvni_trainer_memory_need none = {0};
    t.accumulate = o->plan.accumulate;
    t.samples = o->plan.n_samples;
    t.on_device = device != NULL;
    shorten_validation(rank, o);
    make_previews(rank, &o->preview);
    size_t spared;
    LVN_TRY(run_beginning(trainer, device, &spared));
    lvni_tune_rank mine = weigh_rank(&t, ranks, rank, device, &none);
    mine.peak = measure_peak(ranks, rank, device) - spared;
    return exchange(&t, ranks, rank, &mine);
}

static lvn_status set_config(const trial *t, lvni_core_config *c)
{
    static const char by[] = "levin tune";
    char size[32];
    snprintf(size, sizeof size, "%" PRId64, t->size);
    LVN_TRY(lvni_core_config_set(c, "batch_size", "auto", by));
    LVN_TRY(lvni_core_config_set(c, "batch_size_per_device", size, by));
    LVN_TRY(lvni_core_config_set(c, "quiet", "true", by));
    return LVN_OK;
}

static lvn_status run(const lvni_tune_command *command, trial *t)
{
    lvni_core_config *c;
    lvni_tune_key_list keys;
    LVN_TRY(lvni_run_read_config(lvni_tune_keys(command->recipe, &lvni_tune_size_options, &keys),
                                 "levin help tune", &command->recipe->defaults,
                                 command->n - command->skip, command->args + command->skip, &c));
    const char *limit = lvni_core_config_str(c, "tune.memory_limit");
    t->given = limit == NULL ? 0 : lvni_tune_read_bytes(limit);
    if (t->given > 0) {
        lvni_tensor_device_limit_memory(t->given);
    }
    const lvni_run_driver driver = {.weigh = weigh, .drive = drive, .host = t};
    const lvni_run_ranks_command ranks = {.command = {"tune", "batch-size"},
                                          .n = command->n,
                                          .args = command->args,
                                          .keeps_no_logs = true};
    lvn_status s;
    LVNI_TRY_DONE(s, set_config(t, c));
    s = lvni_run_drive(command->recipe, c, &ranks, &driver);
done:
    lvni_core_config_destroy(c);
    return s;
}

lvn_status lvni_tune_trial_run(const lvni_tune_command *command)
{
    trial t = {0};
    LVN_TRY(read_trial(&t));
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_buffer();
    const lvn_status s = run(command, &t);
    lvni_log_close();
    if (s == LVN_OK || (s == LVN_ERR_CANCELLED && lvni_trainer_stop_signal() == 0)) {
        return LVN_OK;
    }
    lvni_core_str text = {0};
    const lvn_error *e = lvn_last_error();
    lvni_core_str_printf(&text, "end %d ", (int)s);
    for (const char *p = e->message; *p != '\0'; p++) {
        lvni_core_str_char(&text, *p == '\n' ? ' ' : *p);
    }
    lvni_core_str_char(&text, '\n');
    report(&t, &text);
    return s == LVN_ERR_CANCELLED ? s : LVN_OK; /* the finder reports it */
}

/* ---- in the finder ---- */

uint64_t lvni_tune_read_bytes(const char *text)
{
    static const struct {
        const char *name;
        double bytes;
    } unit[] = {{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"GB", 1e9},
                {"MB", 1e6},     {"KB", 1e3},     {"", 1.0}};
    char *end;
    const double number = lvni_core_strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof unit / sizeof *unit; i++) {
        const double bytes = number * unit[i].bytes;
        if (strcmp(end, unit[i].name) == 0 && bytes >= 1.0 && bytes < 0x1p62) {
            return (uint64_t)bytes;
        }
    }
    return 0;
}

/* Files without a name: what the training reports, and what it prints. */
typedef struct files {
    int report, output;
} files;

static void close_files(const files *f)
{
    if (f->report >= 0) {
        close(f->report);
    }
    if (f->output >= 0) {
        close(f->output);
    }
}

static lvn_status open_files(files *f)
{
    f->report = memfd_create("levin tune", MFD_CLOEXEC);
    f->output = memfd_create("levin tune output", MFD_CLOEXEC);
    if (f->report < 0 || f->output < 0) {
        LVN_FAIL(LVN_ERR_RESOURCE, "a file in memory cannot be made: %s", strerror(errno));
    }
    return LVN_OK;
}

static const char **make_line(const lvni_tune_command *c)
{
    const char **line = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)c->n + 4, sizeof *line);
    if (line != NULL) {
        line[0] = "levin";
        line[1] = "tune";
        line[2] = "batch-size";
        for (int i = 0; i < c->n; i++) {
            line[3 + i] = c->args[i];
        }
    }
    return line;
}

static lvn_status start(const lvni_tune_command *c, const files *f, bool dry, int64_t size,
                        pid_t *pid)
{
    char trial_text[96], path[PATH_MAX];
    if (!lvni_core_self(path, sizeof path)) {
        LVN_FAIL(LVN_ERR_INTERNAL, "which program is this? /proc/self/exe: %s", strerror(errno));
    }
    const pid_t parent = getpid();
    const char **line = make_line(c);
    if (line == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(trial_text, sizeof trial_text, "%" PRId64 ":%s:/proc/%d/fd/%d", size,
             dry ? "dry" : "run", (int)parent, f->report);
    setenv(TRIAL, trial_text, 1);
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent && dup2(f->output, STDOUT_FILENO) >= 0 &&
            dup2(f->output, STDERR_FILENO) >= 0) {
            execv(path, (char *const *)(uintptr_t)line);
        }
        _exit(LVNI_EXIT_NO_PROGRAM);
    }
    const int error = errno;
    unsetenv(TRIAL);
    lvni_core_free((void *)line);
    if (*pid < 0) {
        LVN_FAIL(LVN_ERR_RESOURCE, "a process for the training cannot be started: %s",
                 strerror(error));
    }
    return LVN_OK;
}

/* All of a file, with a zero behind it. */
static char *read_all(int fd)
{
    const off_t n = lseek(fd, 0, SEEK_END);
    char *text = n < 0 ? NULL : lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + 1, 1);
    if (text != NULL && pread(fd, text, (size_t)n, 0) != n) {
        text[0] = '\0';
    }
    return text;
}

static bool is_tighter(const lvni_tune_rank *a, const lvni_tune_rank *b)
{
    const uint64_t has_a = a->peak > 0 ? a->peak : a->need, has_b = b->peak > 0 ? b->peak : b->need;
    return (double)has_a / (double)a->limit > (double)has_b / (double)b->limit;
}

static void read_rank(const char *line, lvni_tune_trial *t)
{
    lvni_tune_rank one;
    int i;
    if (sscanf(line, "rank %d %" SCNu64 " %" SCNu64 " %" SCNu64, &i, &one.need, &one.limit,
               &one.peak) != 4 ||
        one.limit == 0) {
        return;
    }
    if (i == t->tightest && one.peak > 0) {
        t->rank.peak = one.peak; /* beside its estimate */
    } else if (one.peak == 0 && (t->rank.limit == 0 || is_tighter(&one, &t->rank))) {
        t->rank = one;
        t->tightest = i;
    }
}

static bool is_memory(lvn_status status)
{
    return status == LVN_ERR_MEMORY || status == LVN_ERR_DEVICE_MEMORY;
}

/* Of several ranks' the cause: memory before what else followed from that, and what another rank
 * reports last. */
static void read_end(const char *line, lvn_status *status, lvni_tune_trial *t)
{
    int number, at = 0;
    if (sscanf(line, "end %d %n", &number, &at) != 1 || at == 0) {
        return;
    }
    if (*status != LVN_OK && *status != LVN_ERR_PEER &&
        (is_memory(*status) || !is_memory((lvn_status)number))) {
        return;
    }
    *status = (lvn_status)number;
    snprintf(t->message, sizeof t->message, "%.*s",
             (int)lvni_core_utf8_cut(line + at, sizeof t->message - 1), line + at);
}

static void read_report(char *text, lvn_status *status, lvni_tune_trial *t)
{
    *status = LVN_OK;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        int leads = 0, on_device = 0;
        int64_t chunk = 0;
        if (sscanf(line, "plan %d %d %" SCNd64 " %" SCNd64 " %d %d", &t->world, &t->accumulate,
                   &t->samples, &chunk, &on_device, &leads) == 6) {
            t->leads = t->leads || leads != 0;
            t->on_device = on_device != 0;
            t->chunk = chunk > 0 ? chunk : t->chunk;
        }
        read_rank(line, t);
        read_end(line, status, t);
    }
}

/* What the training printed belongs to the error. */
static lvn_status fail(lvn_status status, const char *message, int output)
{
    char *text = read_all(output);
    if (text != NULL && text[0] != '\0') {
        lvni_core_print(stderr, "%-s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
    }
    lvni_core_free(text);
    return lvn_error_set(status, __FILE__, __LINE__, "%s", message);
}

/* The system kills what takes more memory than there is. */
static bool is_killed(int ended)
{
    return (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL) ||
           (WIFEXITED(ended) && WEXITSTATUS(ended) == 128 + SIGKILL);
}

static lvn_status read_outcome(lvn_status status, int ended, const files *f, lvni_tune_trial *t)
{
    char text[96];
    const bool whole = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    if (status == LVN_OK && whole && t->rank.limit > 0) {
        t->outcome = LVNI_TUNE_FITS;
        return LVN_OK;
    }
    if (is_memory(status) || status == LVN_ERR_PEER || is_killed(ended)) {
        t->outcome = LVNI_TUNE_TOO_LARGE;
        return LVN_OK;
    }
    if (status == LVN_ERR_USAGE) {
        t->outcome = LVNI_TUNE_REFUSED;
        return LVN_OK;
    }
    if (status != LVN_OK) {
        return fail(status, t->message, f->output);
    }
    snprintf(text, sizeof text, "the training ended with %s %d",
             WIFEXITED(ended) ? "exit code" : "signal",
             WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
    return fail(LVN_ERR_ABORTED, text, f->output);
}

lvn_status lvni_tune_try(const lvni_tune_command *command, bool dry, lvni_tune_trial *t)
{
    files f = {-1, -1};
    pid_t pid;
    lvn_status ended_with = LVN_OK;
    int ended = 0;
    lvn_status s;
    *t = (lvni_tune_trial){.size = t->size, .ran = !dry, .tightest = -1};
    LVNI_TRY_DONE(s, open_files(&f));
    LVNI_TRY_DONE(s, start(command, &f, dry, t->size, &pid));
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    char *text = read_all(f.report);
    LVNI_TRY_DONE(s, text == NULL ? LVN_ERR_MEMORY : LVN_OK);
    read_report(text, &ended_with, t);
    lvni_core_free(text);
    s = read_outcome(ended_with, ended, &f, t);
done:
    close_files(&f);
    return s;
}
