/* levin tune batch-size: the search (tune.h). Sizes grow by powers of two and are then bisected, on
 * estimates alone; the largest that should fit is really run, larger ones where it took less than
 * estimated, and so is the answer, which is the largest that ran less a margin. */
#include "core/alloc.h"
#include "core/escape.h"
#include "core/option.h"
#include "core/str.h"
#include "launch/rank_info.h"
#include "log/progress.h"
#include "log/run_log.h"
#include "run/options.h"
#include "tune/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TRIALS = 256, LAST_FIRST_SIZE = 64 };

static lvn_status check_bytes(const lvni_core_option *row, const lvni_core_value *value,
                              const char *origin)
{
    return lvni_tune_read_bytes(value->text) > 0
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin, "expected bytes, as in 512MiB or 24GiB");
}

static const lvni_core_option rows[] = {
    {.name = "tune.mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "binary|power",
     .spellings = "binsearch=binary",
     .fallback = "binary",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "binary: powers of two, then what lies between them; power: powers of two alone."},
    {.name = "tune.margin",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.05",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Part of the largest size that is left free; the reduced size is run, too."},
    {.name = "tune.max_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .fallback = "8192",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "The search does not go beyond this batch_size_per_device."},
    {.name = "tune.memory_limit",
     .type = LVNI_OPT_STRING,
     .check = check_bytes,
     .flags = LVNI_OPT_AUTO | LVNI_OPT_NOT_SAVED,
     .help = "Memory that the run may take: 24GiB of each device, on the CPU of all ranks of a "
             "host; auto: what is there (of a control group, its limit)."},
    {.name = "tune.effective_batch",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO | LVNI_OPT_NOT_SAVED,
     .help = "Print the accumulate_grad_batches, too, with which the answer makes this effective "
             "batch, or the next larger one; tune.write=true writes it."},
    {.name = "tune.write",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Write the answer into the file of config=, and leave all else there as it is."},
    LVNI_OPTION_ALIAS("write", "tune.write"),
};

const lvni_core_option_table lvni_tune_size_options = LVNI_OPTION_TABLE("tune batch-size", rows);

/* ---- the search ---- */

typedef struct search {
    const lvni_tune_command *command;
    bool power, json, quiet;
    double margin;
    int64_t most;
    int64_t effective; /* effective batch; 0: none in particular */
    char *file;        /* of config=; NULL: none */
    bool writes;       /* the answer into it */
    int64_t samples;   /* of the training set, where `most` follows from it; 0: tune.max_size */
    lvni_tune_trial trial[MOST_TRIALS];
    int n;
    lvni_tune_trial refused; /* the first; size 0: none */
} search;

static void print_trial(const lvni_tune_trial *t)
{
    char need[LVNI_BYTES_TEXT], peak[LVNI_BYTES_TEXT], limit[LVNI_BYTES_TEXT];
    const char *result = t->outcome == LVNI_TUNE_REFUSED ? "refused"
                         : t->outcome == LVNI_TUNE_TOO_LARGE && t->rank.need <= t->rank.limit
                             ? "runs out of memory"
                         : t->outcome == LVNI_TUNE_TOO_LARGE ? "does not fit"
                         : t->ran                            ? "fits, was run"
                                                             : "should fit";
    lvni_core_print(stdout, "batch_size_per_device=%" PRId64 ": %s", t->size, result);
    if (t->rank.need > 0) {
        lvni_core_print(stdout, ", estimate %s", lvni_core_bytes_text(t->rank.need, need));
    }
    if (t->rank.peak > 0) {
        lvni_core_print(stdout, ", measured %s", lvni_core_bytes_text(t->rank.peak, peak));
    }
    if (t->rank.limit > 0 && t->rank.limit < UINT64_MAX) {
        lvni_core_print(stdout, ", limit %s", lvni_core_bytes_text(t->rank.limit, limit));
    }
    if (t->world > 1 && t->tightest >= 0) {
        printf(" (rank %d)", t->tightest);
    }
    if (t->outcome == LVNI_TUNE_REFUSED) {
        lvni_core_print(stdout, ": %s", t->message);
    }
    putchar('\n');
    fflush(stdout);
}

/* What is known of a size; an estimate does not replace a run, but on the host, which must not run
 * out of memory. */
static const lvni_tune_trial *find_trial(const search *s, int64_t size, bool dry)
{
    for (int i = 0; i < s->n; i++) {
        const lvni_tune_trial *t = &s->trial[i];
        const bool decides =
            t->outcome == LVNI_TUNE_REFUSED || (t->outcome == LVNI_TUNE_TOO_LARGE && !t->on_device);
        if (t->size == size && (dry || t->ran || decides)) {
            return t;
        }
    }
    return NULL;
}

/* On a terminal, while its processes run. */
static lvn_status try_with_progress(const search *s, bool dry, lvni_tune_trial *t)
{
    char text[72];
    const int fd = s->quiet ? -1 : lvni_log_progress_terminal();
    if (fd < 0) {
        return lvni_tune_try(s->command, dry, t);
    }
    snprintf(text, sizeof text, "trial %d: batch_size_per_device=%" PRId64 ": %s", s->n + 1,
             t->size, dry ? "estimating" : "running");
    lvni_log_status_line(fd, text);
    const lvn_status status = lvni_tune_try(s->command, dry, t);
    lvni_log_status_end();
    return status;
}

/* *out lives as long as the search. */
static lvn_status attempt(search *s, int64_t size, bool dry, const lvni_tune_trial **out)
{
    *out = find_trial(s, size, dry);
    if (*out != NULL) {
        return LVN_OK;
    }
    if (s->n == MOST_TRIALS) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "%d sizes were tried without an answer; tune.max_size=%" PRId64 " may be smaller",
                 MOST_TRIALS, s->most);
    }
    lvni_tune_trial *t = &s->trial[s->n];
    t->size = size;
    LVN_TRY(try_with_progress(s, dry, t));
    s->n++;
    if (t->outcome == LVNI_TUNE_REFUSED && s->refused.size == 0) {
        s->refused = *t;
    }
    if (!s->quiet && !s->json && (t->leads || t->world == 0)) {
        print_trial(t);
    }
    *out = t;
    return LVN_OK;
}

/* A step that takes more than all samples is not a larger one. */
static void limit_by_samples(search *s, const lvni_tune_trial *t)
{
    const int64_t ways = (int64_t)t->world * t->accumulate;
    if (ways > 0 && t->samples > 0) {
        const int64_t all = t->samples / ways > 0 ? t->samples / ways : 1;
        s->samples = all < s->most ? t->samples : s->samples;
        s->most = all < s->most ? all : s->most;
    }
}

/* The largest power of two that should fit, 0: none; and the smallest that does not, 0: none was
 * met. A network may refuse the very small ones. */
static lvn_status grow(search *s, int64_t *fits, int64_t *too_large)
{
    const lvni_tune_trial *t;
    *fits = *too_large = 0;
    for (int64_t size = 1; *too_large == 0;) {
        LVN_TRY(attempt(s, size, true, &t));
        limit_by_samples(s, t);
        const bool small = t->outcome == LVNI_TUNE_REFUSED && *fits == 0 && size < LAST_FIRST_SIZE;
        if (t->outcome == LVNI_TUNE_FITS) {
            *fits = size;
        } else if (!small) {
            *too_large = size;
        }
        if (size >= s->most) {
            return LVN_OK;
        }
        size = 2 * size < s->most || s->power ? 2 * size : s->most;
        if (size > s->most) {
            return LVN_OK;
        }
    }
    return LVN_OK;
}

/* Between low and high, where the memory should be full: estimates are nearly linear. Without them
 * the middle. */
static int64_t guess(const search *s, int64_t low, int64_t high)
{
    const lvni_tune_trial *a = find_trial(s, low, true), *b = find_trial(s, high, true);
    double part = 0.5;
    if (a != NULL && b != NULL && b->rank.need > a->rank.need && a->rank.need > 0 &&
        a->rank.limit >= a->rank.need && b->rank.need > a->rank.limit) {
        part = (double)(a->rank.limit - a->rank.need) / (double)(b->rank.need - a->rank.need);
    }
    const int64_t size = low + (int64_t)(part * (double)(high - low) + 0.5);
    return size <= low ? low + 1 : size >= high ? high - 1 : size;
}

/* Of fits < too_large the edge between them; sizes that are refused count for neither. */
static lvn_status bisect(search *s, bool dry, int64_t *fits, int64_t too_large)
{
    int64_t low = *fits;
    for (int i = 0; too_large - low > 1; i++) {
        /* every third one halves what is left, whatever the estimates are like */
        const int64_t middle =
            dry && i % 3 < 2 ? guess(s, low, too_large) : low + (too_large - low) / 2;
        const lvni_tune_trial *t = NULL;
        int64_t size = middle;
        do {
            LVN_TRY(attempt(s, size, dry, &t));
        } while (t->outcome == LVNI_TUNE_REFUSED && --size > low);
        if (t->outcome == LVNI_TUNE_TOO_LARGE) {
            too_large = size;
        } else {
            *fits = t->outcome == LVNI_TUNE_FITS ? size : *fits;
            low = middle;
        }
    }
    return LVN_OK;
}

/* Down from `size` to one that is not refused and fits, by this much and then twice as much at a
 * time, and in the end 1; 0: none. */
static lvn_status run_down(search *s, int64_t size, int64_t by, int64_t *fits, int64_t *too_large)
{
    const lvni_tune_trial *t;
    *fits = 0;
    while (size >= 1) {
        LVN_TRY(attempt(s, size, false, &t));
        if (t->outcome == LVNI_TUNE_FITS) {
            *fits = size;
            return LVN_OK;
        }
        *too_large = size;
        size = size > by ? size - by : size > 1 ? 1 : 0;
        by *= 2;
    }
    return LVN_OK;
}

/* The run of `best` took clearly less than its estimate: by a 16th of what depends on the size. Of
 * few samples one more is a large part. */
static bool is_estimated_high(const search *s, int64_t best)
{
    enum { FEW = 8, PART = 16 };
    const lvni_tune_trial *run = find_trial(s, best, false), *least = &s->trial[0];
    if (run == NULL || !run->on_device || run->rank.peak == 0) {
        return false;
    }
    const uint64_t depends =
        run->rank.need > least->rank.need ? run->rank.need - least->rank.need : 0;
    return best < FEW || run->rank.peak + depends / PART < run->rank.need;
}

/* Up from *best, which ran, to one that does not; *too_large stays 0: none was met. */
static lvn_status run_up(search *s, int64_t *best, int64_t *too_large)
{
    const lvni_tune_trial *t;
    for (int64_t by = *best / 16 > 0 ? *best / 16 : 1; *best < s->most; by *= 2) {
        const int64_t size = by < s->most - *best ? *best + by : s->most;
        LVN_TRY(attempt(s, size, false, &t));
        if (t->outcome != LVNI_TUNE_FITS) {
            *too_large = size;
            return LVN_OK;
        }
        *best = size;
    }
    return LVN_OK;
}

/* The largest that was run, on all ranks; 0: none fits. */
static lvn_status find_largest(search *s, int64_t *best)
{
    int64_t estimated, too_large;
    LVN_TRY(grow(s, &estimated, &too_large));
    if (estimated > 0 && too_large > 0 && !s->power) {
        LVN_TRY(bisect(s, true, &estimated, too_large));
    }
    *best = 0;
    if (estimated == 0) {
        return LVN_OK;
    }
    int64_t failed = 0;
    LVN_TRY(run_down(s, estimated, estimated / 16 > 0 ? estimated / 16 : 1, best, &failed));
    if (*best > 0 && failed == 0 && !s->power && is_estimated_high(s, *best)) {
        LVN_TRY(run_up(s, best, &failed));
    }
    if (*best > 0 && failed > 0 && !s->power) {
        LVN_TRY(bisect(s, false, best, failed));
    }
    return LVN_OK;
}

/* ---- the answer ---- */

/* Of those above `size`; NULL: none. */
static const lvni_tune_trial *smallest(const search *s, lvni_tune_outcome outcome, int64_t size)
{
    const lvni_tune_trial *least = NULL;
    for (int i = 0; i < s->n; i++) {
        const lvni_tune_trial *t = &s->trial[i];
        if (t->outcome == outcome && t->size > size && (least == NULL || t->size < least->size)) {
            least = t;
        }
    }
    return least;
}

/* Why no larger size than `best` was found. */
typedef enum bound { BOUND_MEMORY, BOUND_REFUSED, BOUND_MAX_SIZE, BOUND_SAMPLES } bound;

static bound find_bound(const search *s, int64_t best)
{
    return smallest(s, LVNI_TUNE_TOO_LARGE, best) != NULL ? BOUND_MEMORY
           : smallest(s, LVNI_TUNE_REFUSED, best) != NULL ? BOUND_REFUSED
           : s->samples > 0                               ? BOUND_SAMPLES
                                                          : BOUND_MAX_SIZE;
}

/* Behind "32 fits". */
static void print_bound(const search *s, int64_t best)
{
    const lvni_tune_trial *refused = smallest(s, LVNI_TUNE_REFUSED, best);
    switch (find_bound(s, best)) {
    case BOUND_MEMORY: break;
    case BOUND_REFUSED:
        lvni_core_print(stdout, " (the memory allows more; %" PRId64 " is refused: %s)",
                        refused->size, refused->message);
        break;
    case BOUND_MAX_SIZE:
        printf(" (the memory may allow more; tune.max_size=%" PRId64 " ends the search)", s->most);
        break;
    case BOUND_SAMPLES:
        printf(" (the memory may allow more; %" PRId64 " take%s all %" PRId64
               " training sample%s in one step)",
               s->most, lvni_core_plural(s->most, "s", ""), s->samples,
               lvni_core_plural(s->samples, "", "s"));
        break;
    }
}

static lvn_status refuse(const search *s)
{
    const lvni_tune_trial *t = smallest(s, LVNI_TUNE_TOO_LARGE, 0);
    char need[LVNI_BYTES_TEXT], has[LVNI_BYTES_TEXT];
    if (t == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%s", s->refused.message);
    }
    if (t->chunk > 0) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "batch_size_per_device=%" PRId64
                 " does not fit because of eval_batch_size=%" PRId64
                 ", with which validation takes more than training (%s): a smaller eval_batch_size",
                 t->size, t->chunk, t->message);
    }
    if (t->rank.need == 0 || t->rank.need <= t->rank.limit) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "batch_size_per_device=%" PRId64 " does not fit (%s): a smaller model or image, "
                 "or a device with more memory",
                 t->size, t->message);
    }
    LVN_FAIL(LVN_ERR_RESOURCE,
             "batch_size_per_device=%" PRId64 " does not fit: rank %d takes %s, and has %s: a "
             "smaller model or image, or a device with more memory",
             t->size, t->tightest, lvni_core_bytes_text(t->rank.need, need),
             lvni_core_bytes_text(t->rank.limit, has));
}

static void print_json(const search *s, int64_t best, const lvni_tune_trial *answer)
{
    static const char *const bounds[] = {[BOUND_MEMORY] = "memory",
                                         [BOUND_REFUSED] = "refused",
                                         [BOUND_MAX_SIZE] = "tune.max_size",
                                         [BOUND_SAMPLES] = "samples"};
    static const char *const outcomes[] = {[LVNI_TUNE_FITS] = "fits",
                                           [LVNI_TUNE_TOO_LARGE] = "too large",
                                           [LVNI_TUNE_REFUSED] = "refused"};
    printf("{\"batch_size_per_device\":%" PRId64 ",\"batch_size\":%" PRId64
           ",\"effective_batch\":%" PRId64 ",\"peak_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64
           ",\"bound\":\"%s\",\"trials\":[",
           answer->size, answer->size * answer->world,
           answer->size * answer->world * answer->accumulate, answer->rank.peak, answer->rank.limit,
           bounds[find_bound(s, best)]);
    for (int i = 0; i < s->n; i++) {
        const lvni_tune_trial *t = &s->trial[i];
        printf("%s{\"batch_size_per_device\":%" PRId64 ",\"outcome\":\"%s\",\"ran\":%s,\"rank\":%d,"
               "\"estimated_bytes\":%" PRIu64 ",\"peak_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64
               "}",
               i == 0 ? "" : ",", t->size, outcomes[t->outcome],
               t->ran && t->rank.peak > 0 ? "true" : "false", t->tightest, t->rank.need,
               t->rank.peak, t->rank.limit);
    }
    fputs("]}\n", stdout);
}

/* The effective batch that was asked for, of sizes up to `most`: exactly, with at most twice the
 * least accumulation; else the least that is larger. */
static lvni_tune_answer divide(int64_t effective, int64_t most, int world)
{
    const int64_t least = (effective + most * world - 1) / (most * world);
    lvni_tune_answer answer = {most, world, least};
    for (int64_t factor = least; factor <= 2 * least; factor++) {
        if (effective % (factor * world) == 0) {
            answer.accumulate = factor;
            break;
        }
    }
    const int64_t parts = answer.accumulate * world;
    answer.size = (effective + parts - 1) / parts;
    return answer;
}

/* What goes into a file. A smaller size is run, too, and where it does not run the answer stays. */
static lvn_status choose(search *s, const lvni_tune_trial *t, lvni_tune_answer *out)
{
    *out = (lvni_tune_answer){t->size, t->world, 0};
    if (s->effective == 0 || t->size < 1 || t->world < 1) {
        return LVN_OK;
    }
    const int64_t batch = t->size * t->world;
    const lvni_tune_answer a = divide(s->effective, t->size, t->world);
    const lvni_tune_trial *smaller = t;
    LVN_TRY(a.size < t->size ? attempt(s, a.size, false, &smaller) : LVN_OK);
    out->accumulate = (s->effective + batch - 1) / batch;
    if (smaller->outcome == LVNI_TUNE_FITS) {
        *out = a;
    }
    return LVN_OK;
}

/* What is left free is samples, and of few the margin may be none. */
static void print_margin(const search *s, int64_t left)
{
    if (left > 0) {
        lvni_core_print(stdout, ", less a margin of %" PRId64 " (tune.margin=%g)", left, s->margin);
    } else if (s->margin > 0.0) {
        lvni_core_print(stdout,
                        ", without a margin: tune.margin=%g of it is less than half a sample",
                        s->margin);
    }
}

static void print_answer(const search *s, int64_t best, const lvni_tune_trial *t,
                         const lvni_tune_answer *answer)
{
    if (s->json) {
        print_json(s, best, t);
        return;
    }
    const int64_t batch = t->size * t->world;
    printf("Maximum Batch Size: %" PRId64 "\n", t->size);
    printf("batch_size_per_device=%" PRId64 ": %" PRId64 " fits", t->size, best);
    print_bound(s, best);
    print_margin(s, best - t->size);
    printf("; with %d device%s batch_size=%" PRId64 ", effective batch %" PRId64 "\n", t->world,
           lvni_core_plural(t->world, "", "s"), batch, batch * t->accumulate);
    if (s->effective > 0) {
        printf("for an effective batch of %" PRId64 ": ", s->effective);
        if (answer->size != t->size) {
            printf("batch_size_per_device=%" PRId64 " ", answer->size);
        }
        printf("accumulate_grad_batches=%" PRId64 ", which makes %" PRId64 "\n", answer->accumulate,
               answer->accumulate * answer->size * answer->world);
    }
}

/* Into the file, or as a line that shows what would be there: what batch_size counts depends on the
 * file. */
static lvn_status write_answer(const search *s, const lvni_tune_answer *answer)
{
    lvni_core_str note = {0};
    lvn_status status = LVN_OK;
    if (s->writes) {
        LVNI_TRY_DONE(status, lvni_tune_write(s->command->recipe, s->file, answer, &note));
    } else if (lvni_tune_show(s->command->recipe, s->file, answer, &note) != LVN_OK) {
        lvn_clear_error(); /* one that cannot be edited */
        lvni_core_str_clear(&note);
    }
    if (!s->json && note.len > 0) {
        lvni_core_print(stdout, "%s%s\n", lvni_core_str_text(&note),
                        s->writes ? "" : " with tune.write=true");
    }
done:
    lvni_core_str_free(&note);
    return status;
}

static lvn_status find(search *s)
{
    const lvni_tune_trial *found;
    lvni_tune_answer answer;
    int64_t best, size, failed = 0;
    LVN_TRY(find_largest(s, &best));
    if (best == 0) {
        return refuse(s);
    }
    /* to the nearest: one sample of few is more than the margin */
    const int64_t reduced = (int64_t)((double)best * (1.0 - s->margin) + 0.5);
    LVN_TRY(run_down(s, reduced > 0 ? reduced : 1, 1, &size, &failed));
    LVN_TRY(attempt(s, size > 0 ? size : best, false, &found));
    LVN_TRY(choose(s, found, &answer));
    if (found->leads) {
        print_answer(s, best, found, &answer);
    }
    return found->leads && s->file != NULL ? write_answer(s, &answer) : LVN_OK;
}

/* A process that others have started as a rank would have to search in step with all others. */
static lvn_status check_alone(void)
{
    const lvni_launch_rank_info_options o = {.launcher = true};
    lvni_core_notices message = {0};
    lvni_launch_rank_info info;
    if (lvni_launch_rank_info_detect(lvni_run_environment(), &o, &message, &info) != LVN_OK) {
        lvn_clear_error(); /* the training reports it */
        lvni_core_notices_free(&message);
        return LVN_OK;
    }
    const int world = info.world, here = info.local_world;
    lvni_core_notices_free(&message);
    lvni_launch_rank_info_free(&info);
    if (here > 0 && here < world) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "this process is one of %d ranks, %d of them on this node, that another launcher "
                 "has started: levin tune starts its ranks itself, on one node, and what fits a "
                 "device there fits on all nodes; run it once, with devices=%d (under Slurm: srun "
                 "-N1 -n1)",
                 world, here, here);
    }
    if (world > 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "this process is one of %d ranks that another launcher has started: levin tune "
                 "starts its ranks itself; run it once, with devices=%d",
                 world, world);
    }
    return LVN_OK;
}

static lvn_status read_search(const lvni_tune_command *command, search *s)
{
    lvni_core_config *c;
    lvni_tune_key_list keys;
    LVN_TRY(lvni_run_read_config(lvni_tune_keys(command->recipe, &lvni_tune_size_options, &keys),
                                 "levin help tune", &command->recipe->defaults,
                                 command->n - command->skip, command->args + command->skip, &c));
    *s = (search){.command = command,
                  .power = strcmp(lvni_core_config_str(c, "tune.mode"), "power") == 0,
                  .json = lvni_core_config_bool(c, "tune.json"),
                  .quiet = lvni_core_config_bool(c, "quiet"),
                  .margin = lvni_core_config_float(c, "tune.margin"),
                  .most = lvni_core_config_int(c, "tune.max_size"),
                  .effective = lvni_core_config_is_set(c, "tune.effective_batch")
                                   ? lvni_core_config_int(c, "tune.effective_batch")
                                   : 0};
    const bool resumes = lvni_core_config_bool(c, "resume"),
               writes = lvni_core_config_bool(c, "tune.write");
    const char *file = lvni_core_config_str(c, "config");
    s->writes = writes;
    s->file = file != NULL ? lvni_core_strdup(LVNI_TAG_CONFIG, file) : NULL;
    lvni_core_config_destroy(c);
    if (writes && s->file == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "tune.write=true needs config=FILE, which gets the answer");
    }
    if (resumes) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true: a finder makes its steps from the beginning; omit "
                                "it, or give weights=FILE");
    }
    return writes ? lvni_tune_check_file(command->recipe, s->file, s->effective > 0) : LVN_OK;
}

lvn_status lvni_tune_batch_size(const lvni_tune_command *command)
{
    if (lvni_tune_is_trial()) {
        return lvni_tune_trial_run(command);
    }
    search *s = LVNI_NEW(LVNI_TAG_CONFIG, search);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status;
    LVNI_TRY_DONE(status, check_alone());
    LVNI_TRY_DONE(status, read_search(command, s));
    status = find(s);
done:
    lvni_core_free(s->file);
    lvni_core_free(s);
    return status;
}
