/* Jobs with streams: what lvn_job_train refuses before there is a run directory, what a resume
 * within an epoch refuses, datasets without length, and states of workers over a whole run. */
#include "support/line_job.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char out[] = "/tmp/levin-job-streams-XXXXXX";
static const char *arguments[8]; /* beside those of train(); NULL ends them */

static lvn_status train(const char *run, const lvn_job *job)
{
    char directory[96];
    snprintf(directory, sizeof directory, "out=%s/%s", out, run);
    const char *words[24] = {directory, "quiet=true", "batch_size=2", "micro_batches=2",
                             "wgrad_threads=1"};
    int n = 5;
    for (int i = 0; i < 8 && arguments[i] != NULL; i++) {
        words[n++] = arguments[i];
    }
    lvn_clear_error();
    const lvn_status s = lvn_job_train(job, n, words);
    memset(arguments, 0, sizeof arguments);
    return s;
}

#define GIVE(...)                                                                                  \
    memcpy(arguments, (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}))
#define JOB(...) (&(lvn_job){.module = &line_stream_class, .train = &line_points, __VA_ARGS__})
#define STREAMS(...)                                                                               \
    .streams = (const lvn_stream[]){__VA_ARGS__},                                                  \
    .n_streams = (int)(sizeof((const lvn_stream[]){__VA_ARGS__}) / sizeof(lvn_stream))

static bool there(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", out, name);
    return access(path, F_OK) == 0;
}

static void refused(const lvn_job *job, lvn_status status, const char *why)
{
    assert_int_equal(train("refused", job), status);
    if (strstr(lvn_last_error()->message, why) == NULL) {
        fail_msg("\"%s\" does not have \"%s\"", lvn_last_error()->message, why);
    }
    assert_false(there("refused"));
}

/* ---- other datasets ---- */

static int64_t no_samples(const lvn_dataset *dataset)
{
    (void)dataset;
    return 0;
}

static int64_t without_end(const lvn_dataset *dataset)
{
    (void)dataset;
    return LVN_ENDLESS;
}

static int64_t five(const lvn_dataset *dataset)
{
    (void)dataset;
    return 5;
}

static lvn_status unopened(const lvn_dataset *dataset, void **state)
{
    (void)dataset, (void)state;
    LVN_FAIL(LVN_ERR_UNSUPPORTED, "no decoder for this video");
}

static lvn_dataset_class empty_class, endless_class, more_class, unopened_class, half_class;
static lvn_dataset empty = {.cls = &empty_class}, endless = {.cls = &endless_class},
                   more = {.cls = &more_class}, closed = {.cls = &unopened_class},
                   half = {.cls = &half_class};

BEFORE_ALL()
{
    empty_class = endless_class = more_class = half_class = *line_points.cls;
    unopened_class = *line_decoded.cls;
    empty_class.length = no_samples;
    endless_class.length = without_end;
    more_class.length = five;
    unopened_class.worker_open = unopened;
    half_class.worker_open = line_decoded.cls->worker_open;
    return 0;
}

/* ---- tests ---- */

TEST(wrong_streams_are_refused)
{
    refused(JOB(STREAMS({.name = "more", .dataset = &empty})), LVN_ERR_USAGE,
            "the stream more has 0 samples");
    refused(JOB(STREAMS({.name = "more", .dataset = &more}, {.name = "more", .dataset = &endless})),
            LVN_ERR_INVALID, "two streams have the name more");
    refused(JOB(STREAMS({.name = "more", .dataset = &more, .batch = 1})), LVN_ERR_USAGE,
            "the stream more has 1 sample in a step, which cannot be cut into 2 micro-batches: at "
            "least one sample each; smallest that works: 2 (or micro_batches=1)");
    refused(JOB(STREAMS({.name = "More", .dataset = &more})), LVN_ERR_INVALID,
            "stream 0 has the name 'More'");
    refused(JOB(STREAMS({.dataset = &more})), LVN_ERR_INVALID, "stream 0 has the name ''");
    refused(JOB(STREAMS({.name = "more"})), LVN_ERR_INVALID, "the stream more has no dataset");
    refused(JOB(STREAMS({.name = "more", .dataset = &more, .batch = -2})), LVN_ERR_INVALID,
            "batch -2");
    refused(JOB(STREAMS({.name = "more", .dataset = &more, .order = (lvn_order)7})),
            LVN_ERR_INVALID, "order 7");
    refused(JOB(.n_streams = 5), LVN_ERR_INVALID, "5 streams: 0 to 4 are possible");
}

TEST(a_step_that_asks_for_another_stream_learns_the_names)
{
    GIVE("max_steps=1");
    assert_int_equal(train("other", JOB(STREAMS({.name = "other", .dataset = &more}))),
                     LVN_ERR_INVALID);
    assert_non_null(
        strstr(lvn_last_error()->message, "asks for the stream 'more'; the training has other"));
    GIVE("max_steps=1");
    assert_int_equal(train("none", JOB(.n_streams = 0)), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "the training has none"));
}

TEST(states_that_cannot_be_made_are_named)
{
    GIVE("max_steps=2", "on_error=skip", "num_workers=2");
    assert_int_equal(train("unopened", JOB(STREAMS({.name = "more", .dataset = &closed}))),
                     LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "no decoder for this video"));
    GIVE("max_steps=2");
    assert_int_equal(train("half", JOB(STREAMS({.name = "more", .dataset = &half}))),
                     LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "come together"));
    for (int workers = 0; workers <= 2; workers++) {
        char number[32], run[32];
        snprintf(number, sizeof number, "num_workers=%d", workers);
        snprintf(run, sizeof run, "decoded%d", workers);
        line_opened = line_closed = 0;
        GIVE("max_steps=4", "num_sanity_val_steps=0", number);
        const lvn_job job = {.module = &line_stream_class,
                             .train = &line_points,
                             .val = &line_decoded,
                             STREAMS({.name = "more", .dataset = &line_decoded})};
        assert_int_equal(train(run, &job), LVN_OK);
        /* training and validation; the same dataset in two places is destroyed once */
        assert_int_equal(line_opened, 2 * (workers > 0 ? workers : 1));
        assert_int_equal(line_closed, line_opened);
    }
}

TEST(without_a_length)
{
    const lvn_job job = {.module = &line_stream_class,
                         .train = &endless,
                         STREAMS({.name = "more", .dataset = &endless})};
    GIVE("max_epochs=3");
    refused(&job, LVN_ERR_USAGE, "the training set has no length: give steps_per_epoch");
    GIVE("max_steps=6");
    assert_int_equal(train("endless", &job), LVN_OK);
    GIVE("max_epochs=3", "steps_per_epoch=2");
    assert_int_equal(train("epochs", &job), LVN_OK);
    GIVE("max_steps=6");
    refused(JOB(.val = &endless, STREAMS({.name = "more", .dataset = &more})), LVN_ERR_INVALID,
            "the validation set line has no length");
    GIVE("max_steps=6");
    refused(JOB(STREAMS({.name = "more", .dataset = &endless, .rule = LVN_STREAM_LENGTHENS})),
            LVN_ERR_USAGE, "the stream more has no length: it cannot decide the epoch's");
}

/* A run stopped within an epoch of two steps. */
TEST(a_resume_compares_the_streams)
{
    const lvn_job job = {.module = &line_stream_class,
                         .train = &line_points,
                         STREAMS({.name = "more", .dataset = &more})};
    const struct {
        lvn_job job;
        const char *why;
    } rows[] = {
        {*JOB(STREAMS({.name = "more", .dataset = &line_decoded})), "stream.more.data="},
        {*JOB(STREAMS({.name = "more", .dataset = &more, .batch = 4})),
         "stream.more=2,shuffle,cycle (samples of a step, order and epoch rule), and this one has "
         "stream.more=4,shuffle,cycle"},
        {*JOB(STREAMS({.name = "more", .dataset = &more, .order = LVN_ORDER_SEQUENCE})),
         "stream.more=2,sequence,cycle"},
        {*JOB(STREAMS({.name = "more", .dataset = &more, .rule = LVN_STREAM_ONCE})),
         "stream.more=2,shuffle,once"},
        {*JOB(STREAMS({.name = "more", .dataset = &more}, {.name = "two", .dataset = &endless})),
         "streams=1 (streams beside the training set), and this one has streams=2"},
        {*JOB(.order = LVN_ORDER_SEQUENCE, STREAMS({.name = "more", .dataset = &more})),
         "sampler=sequence"},
    };
    GIVE("max_steps=3");
    assert_int_equal(train("resumed", &job), LVN_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        GIVE("max_steps=9", "resume=true");
        assert_int_equal(train("resumed", &rows[i].job), LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, rows[i].why) == NULL) {
            fail_msg("\"%s\" does not have \"%s\"", lvn_last_error()->message, rows[i].why);
        }
    }
    GIVE("max_steps=9", "resume=true", "steps_per_epoch=5");
    assert_int_equal(train("resumed", &job), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "steps_per_epoch=0"));
    GIVE("max_steps=9", "resume=true");
    assert_int_equal(train("resumed", &job), LVN_OK);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    const int failed = test_main(argc, argv);
    nftw(out, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return failed;
}
