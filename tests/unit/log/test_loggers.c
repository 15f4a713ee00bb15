/* The loggers beside metrics.jsonl: known answers of CRC-32C, records of event files, the layout of
 * metrics.csv, a program on the other end of a pipe, and what a full disk and a lack of memory
 * leave. TensorBoard itself reads event files in tests/cli/test_loggers.py. */
#include "log_support.h"

#include "log/event_file.h"
#include "log/loggers.h"
#include "log/run_log.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>

static lvni_log_loggers *opened(const char *name, int64_t step)
{
    lvni_log_loggers *l = NULL;
    const lvni_log_loggers_options o = {
        .dir = dir,
        .names = &name,
        .n_names = 1,
        .config_json = "{\"a.b\":1.5,\"text\":\"x\",\"on\":true,\"list\":[1,2],\"none\":null}",
        .run_id = "r",
        .step = step,
        .resumed = step > 0};
    assert_int_equal(lvni_log_loggers_open(&o, &l), LVN_OK);
    return l;
}

static int drop_all(void **state)
{
    lvni_core_alloc_fail_at(0);
    lvni_core_vfs_fail_at("open", 0, 0);
    DIR *d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        assert_null(strstr(path, ".tmp-"));
        unlink(path);
    }
    closedir(d);
    return drop_dir(state);
}

TEST_EACH(make_dir, drop_all);

/* The n-th file whose name begins so, in the order of names; NULL: there are not so many. */
static const char *file_named(const char *beginning, int n)
{
    static char path[512];
    struct dirent **list;
    const int all = scandir(dir, &list, NULL, alphasort);
    const char *found = NULL;
    for (int i = 0; i < all; i++) {
        if (strncmp(list[i]->d_name, beginning, strlen(beginning)) == 0 && n-- == 0) {
            snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
            found = path;
        }
        free(list[i]);
    }
    free(list);
    return found;
}

/* ---- event files ---- */

TEST(crc32c_has_its_known_answers)
{
    uint8_t zero[32] = {0}, ones[32], up[32], down[32];
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    /* RFC 3720, B.4 */
    assert_int_equal(lvni_log_crc32c(zero, 32), 0x8a9136aau);
    assert_int_equal(lvni_log_crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(lvni_log_crc32c(up, 32), 0x46dd794eu);
    assert_int_equal(lvni_log_crc32c(down, 32), 0x113fdb5cu);
    assert_int_equal(lvni_log_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(lvni_log_crc32c("", 0), 0);
    const uint32_t crc = 0xe3069283u;
    assert_int_equal(lvni_log_crc32c_masked("123456789", 9),
                     (uint32_t)(((crc >> 15) | (crc << 17)) + 0xa282ead8u));
}

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

/* How many records the bytes hold, all of them whole. */
static int count_records(const uint8_t *at, size_t n)
{
    int records = 0;
    while (n > 0) {
        assert_true(n >= 16);
        const size_t length = (size_t)number(at, 8);
        assert_true(length <= n - 16);
        assert_int_equal(number(at + 8, 4), lvni_log_crc32c_masked(at, 8));
        assert_int_equal(number(at + 12 + length, 4), lvni_log_crc32c_masked(at + 12, length));
        at += 16 + length;
        n -= 16 + length;
        records++;
    }
    return records;
}

static int records_of(const char *path)
{
    static uint8_t bytes[1 << 18];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_memory_equal(bytes + 12 + 9 + 2, "brain.Event:2", 13); /* behind the time */
    return count_records(bytes, n);
}

TEST(records_are_framed_with_checked_lengths)
{
    lvni_core_str out = {0};
    memcpy(lvni_log_record_begin(&out, 3), "abc", 3);
    lvni_log_record_end(&out, 3);
    assert_non_null(lvni_log_record_begin(&out, 0));
    lvni_log_record_end(&out, 0);
    assert_int_equal(out.len, 16 + 3 + 16);
    assert_int_equal(out.data[0], 3);
    assert_memory_equal(out.data + 12, "abc", 3);
    assert_int_equal(count_records((const uint8_t *)out.data, out.len), 2);
    lvni_core_str_free(&out);
}

static const lvni_log_metric loss[] = {{"train/loss", 0.5}, {"lr", NAN}};

static void log_everything(lvni_log_loggers *l, int64_t step)
{
    const double limit[] = {0.0, 1.0}, count[] = {2.0, 3.0};
    lvni_log_loggers_scalars(l, step, 1, 0.5, loss, 2);
    lvni_log_loggers_histogram(l, step,
                               &(lvni_log_histogram){.name = "h",
                                                     .min = -1.0,
                                                     .max = 1.0,
                                                     .n = 5.0,
                                                     .limit = limit,
                                                     .count = count,
                                                     .n_buckets = 2});
    lvni_log_loggers_text(l, step, "note", "*hello* \"you\"");
    lvni_log_loggers_image(
        l, step,
        &(lvni_log_image){.name = "i", .path = file, .width = 1, .height = 1, .channels = 3});
}

TEST(event_files_are_whole_and_one_follows_the_other)
{
    put_text(file, "no PNG, but bytes");
    lvni_log_loggers *l = opened("tensorboard", 0);
    log_everything(l, 1);
    lvni_log_loggers_close(l, LVNI_LOG_STOPPED);
    const char *first = file_named("events.out.tfevents.", 0);
    /* version, session, configuration twice, lines */
    assert_int_equal(records_of(first), 1 + 1 + 2 + 4);
    /* a run that goes on, also on a machine whose clock is behind */
    char renamed[512];
    snprintf(renamed, sizeof renamed, "%s/events.out.tfevents.9999999990.other.1.0", dir);
    assert_int_equal(rename(first, renamed), 0);
    lvni_log_loggers_close(opened("true", 1), LVNI_LOG_FINISHED);
    assert_string_equal(file_named("events.out.tfevents.", 0), renamed);
    assert_non_null(strstr(file_named("events.out.tfevents.", 1), ".9999999991."));
    /* version, session, configuration, end */
    assert_int_equal(records_of(file_named("events.out.tfevents.", 1)), 1 + 1 + 2 + 1);
    /* one that begins again has no use for them */
    lvni_log_loggers_close(opened("tensorboard", 0), LVNI_LOG_FAILED);
    assert_int_equal(records_of(file_named("events.out.tfevents.", 0)), 1 + 1 + 2 + 1);
    assert_null(file_named("events.out.tfevents.", 1));
}

/* ---- CSV ---- */

static const char *csv_text(void)
{
    return text_of(file_named("metrics.csv", 0));
}

TEST(a_new_name_completes_the_header_and_earlier_rows)
{
    const lvni_log_metric val[] = {{"val/a,\"b\"", 1e-5}, {"a", INFINITY}};
    lvni_log_loggers *l = opened("csv", 0);
    assert_string_equal(csv_text(), "epoch,step,time_s\n");
    lvni_log_loggers_scalars(l, 2, 1, 0.25, loss, 2);
    lvni_log_loggers_scalars(l, 4, 1, 0.5, loss, 1);
    lvni_log_loggers_scalars(l, 4, 1, 0.75, val, 2);
    lvni_log_loggers_scalars(l, 6, 2, 1, loss, 1);
    lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    assert_string_equal(csv_text(), "a,epoch,lr,step,time_s,train/loss,\"val/a,\"\"b\"\"\"\n"
                                    ",1,nan,2,0.25,0.5,\n"
                                    ",1,,4,0.5,0.5,\n"
                                    "inf,1,,4,0.75,,1e-05\n"
                                    ",2,,6,1,0.5,\n");
}

/* As metrics.jsonl has them. */
TEST(names_that_are_not_utf8_are_escaped)
{
    const lvni_log_metric values[] = {{"caf\xe9", 1.0},
                                      {"caf\xc3\xa9", 2.0},
                                      {"a\xff\xfe"
                                       "b,c",
                                       3.0},
                                      {"loss", 4.0}};
    lvni_log_loggers *l = opened("csv", 0);
    lvni_log_loggers_scalars(l, 1, 0, 0.5, values, 4);
    lvni_log_loggers_scalars(l, 2, 0, 0.5, values + 3, 1);
    lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    char *text;
    size_t n;
    assert_int_equal(lvni_core_file_read(file_named("metrics.csv", 0), 1 << 20, &text, &n), LVN_OK);
    assert_string_equal(text, "\"a\\xff\\xfeb,c\",caf\\xe9,caf\xc3\xa9,epoch,loss,step,time_s\n"
                              "3,1,2,0,4,1,0.5\n,,,0,4,2,0.5\n");
    lvni_core_free(text);
    l = opened("tensorboard", 0);
    lvni_log_loggers_scalars(l, 1, 0, 0.5, values, 4);
    lvni_log_loggers_text(l, 1, "note\xe9", "x");
    lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    assert_int_equal(lvni_core_file_read(file_named("events.", 0), 1 << 20, &text, &n), LVN_OK);
    static const char *const tags[] = {"caf\\xe9", "caf\xc3\xa9",
                                       "a\\xff\\xfe"
                                       "b,c",
                                       "note\\xe9"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        assert_non_null(memmem(text, n, tags[i], strlen(tags[i])));
    }
    assert_null(memmem(text, n, "caf\xe9", 4));
    lvni_core_free(text);
}

TEST(resuming_drops_later_and_broken_rows)
{
    char path[160];
    snprintf(path, sizeof path, "%s/metrics.csv", dir);
    put_text(path, "\"a,\"\"b\",epoch,step,time_s\n7,1,2,0.5\n,1,4,1\n,1,3\n,1,6,2\n,1,5,2\n,2,4");
    lvni_log_loggers *l = opened("csv", 5);
    lvni_log_loggers_scalars(l, 6, 1, 9, loss, 1);
    lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    assert_string_equal(csv_text(), "\"a,\"\"b\",epoch,step,time_s,train/loss\n7,1,2,0.5,\n,1,4,1,"
                                    "\n,1,5,2,\n,1,6,9,0.5\n");
    /* what follows the step is to come again */
    put_text(path, "epoch,lr,step,time_s,val\n1,,4,1,2\n1,0.5,5,1,\n1,,5,2,3\n");
    const char *const names[] = {"csv"};
    const lvni_log_loggers_options o = {
        .dir = dir, .names = names, .n_names = 1, .step = 5, .resumed = true, .ends_again = true};
    assert_int_equal(lvni_log_loggers_open(&o, &l), LVN_OK);
    lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    assert_string_equal(csv_text(), "epoch,lr,step,time_s,val\n1,,4,1,2\n1,0.5,5,1,\n");
    /* a header that was cut off: there is no row either */
    put_text(path, "epoch,step,tim");
    const int saved = catch_fd(STDERR_FILENO);
    lvni_log_loggers_close(opened("csv", 5), LVNI_LOG_FINISHED);
    assert_non_null(strstr(restore_fd(STDERR_FILENO, saved), "another layout"));
    assert_string_equal(csv_text(), "epoch,step,time_s\n");
    lvni_log_loggers_close(opened("csv", 0), LVNI_LOG_FINISHED);
    assert_string_equal(csv_text(), "epoch,step,time_s\n");
}

/* ---- failures ---- */

/* The warnings of the lines in between. */
static int count_warnings(const char *screen)
{
    int n = 0;
    for (; (screen = strstr(screen, "warning: ")) != NULL; screen++) {
        n++;
    }
    return n;
}

TEST(a_full_disk_is_one_warning_and_the_run_goes_on)
{
    static const char *const names[] = {"csv", "tensorboard"};
    for (int i = 0; i < 2; i++) {
        lvni_log_loggers *l = opened(names[i], 0);
        lvni_log_loggers_scalars(l, 1, 1, 1, loss, 2);
        const int saved = catch_fd(STDERR_FILENO);
        lvni_core_vfs_fail_at("room", 10, ENOSPC);
        for (int step = 2; step < 5; step++) {
            lvni_log_loggers_scalars(l, step, 1, 1, loss, 2);
        }
        lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
        lvni_core_vfs_fail_at("room", 0, 0);
        const char *screen = restore_fd(STDERR_FILENO, saved);
        assert_int_equal(count_warnings(screen), 1);
        assert_non_null(strstr(screen, names[i]));
        assert_non_null(strstr(screen, "No space left"));
        assert_string_equal(lvn_last_error()->message, "");
    }
    /* the row that was cut off goes when the run is resumed */
    assert_string_not_equal(strrchr(csv_text(), '\n'), "\n");
    lvni_log_loggers_close(opened("csv", 9), LVNI_LOG_FINISHED);
    assert_string_equal(csv_text(), "epoch,lr,step,time_s,train/loss\n1,nan,1,1,0.5\n");
}

TEST(what_cannot_be_opened_is_an_error)
{
    static const char *const names[] = {"csv", "tensorboard", "exec:true"};
    for (int i = 0; i < 3; i++) {
        lvni_log_loggers *l;
        const lvni_log_loggers_options o = {.dir = dir, .names = &names[i], .n_names = 1};
        lvni_core_vfs_fail_at(i == 0 ? "rename" : "open", 1, EACCES);
        const lvn_status s = lvni_log_loggers_open(&o, &l);
        lvni_core_vfs_fail_at("open", 0, 0);
        assert_int_equal(s, LVN_ERR_IO);
        assert_null(l);
        lvn_clear_error();
    }
    assert_true(lvni_log_loggers_known("exec:a b"));
    assert_false(lvni_log_loggers_known("exec:"));
    assert_false(lvni_log_loggers_known("wandb"));
}

TEST(memory_may_run_out_and_a_line_allocates_nothing)
{
    static const char *const names[] = {"csv", "tensorboard", "exec:cat >/dev/null"};
    put_text(file, "image");
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    const int saved = catch_fd(STDERR_FILENO);
    for (int i = 0; i < 3; i++) {
        const lvni_log_loggers_options o = {
            .dir = dir, .names = &names[i], .n_names = 1, .config_json = "{\"a\":[1]}"};
        lvn_status status = LVN_ERR_MEMORY;
        int64_t left = 0, k = 1;
        for (; left == 0; k++) {
            lvni_log_loggers *l = NULL;
            lvni_core_alloc_fail_at(k);
            status = lvni_log_loggers_open(&o, &l);
            if (status == LVN_OK) {
                log_everything(l, 1);
            }
            left = lvni_core_alloc_fail_at(0);
            assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
            lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        }
        assert_true(k > 4);
        lvni_log_loggers *l = opened(names[i], 0);
        lvni_log_loggers_scalars(l, 1, 0, 1.0 / 3, loss, 2);
        const uint64_t calls = lvni_core_alloc_get_total().calls;
        for (int step = 2; step < 10; step++) {
            lvni_log_loggers_scalars(l, step, 0, 1.0 / 3, loss, 2);
        }
        assert_int_equal(lvni_core_alloc_get_total().calls, calls);
        lvni_log_loggers_close(l, LVNI_LOG_FINISHED);
    }
    restore_fd(STDERR_FILENO, saved);
}

/* ---- a program ---- */

TEST(a_program_reads_lines_to_the_end)
{
    char name[160];
    put_text(file, "image");
    snprintf(name, sizeof name, "exec:cat >%s/lines; echo done", dir);
    lvni_log_loggers *l = opened(name, 7);
    log_everything(l, 8);
    lvni_log_loggers_close(l, LVNI_LOG_STOPPED);
    char expected[2048];
    snprintf(expected, sizeof expected,
             "{\"event\":\"start\",\"step\":7,\"dir\":\"%s\",\"run_id\":\"r\",\"config\":{\"a.b\":"
             "1.5,\"text\":\"x\",\"on\":true,\"list\":[1,2],\"none\":null}}\n"
             "{\"event\":\"metrics\",\"metrics\":{\"step\":8,\"epoch\":1,\"time_s\":0.5,"
             "\"train/loss\":0.5,\"lr\":null,\"nonfinite\":true}}\n"
             "{\"event\":\"histogram\",\"step\":8,\"name\":\"h\",\"min\":-1,\"max\":1,\"limits\":"
             "[0,1],\"counts\":[2,3]}\n"
             "{\"event\":\"text\",\"step\":8,\"name\":\"note\",\"text\":\"*hello* \\\"you\\\"\"}\n"
             "{\"event\":\"image\",\"step\":8,\"name\":\"i\",\"path\":\"%s\"}\n"
             "{\"event\":\"end\",\"status\":\"stopped\"}\n",
             dir, file);
    assert_string_equal(text_of(file_named("lines", 0)), expected);
    assert_string_equal(text_of(file_named("logger.log", 0)), "done\n");
}

static int pipe_signals;

static void count_signal(int number_of)
{
    (void)number_of;
    pipe_signals++;
}

/* Lines until the logger is closed, at most n; returns its warnings. */
static const char *log_to(const char *name, int n)
{
    const int saved = catch_fd(STDERR_FILENO);
    lvni_log_loggers *l = opened(name, 0);
    for (int step = 1; step <= n; step++) {
        lvni_log_loggers_scalars(l, step, 1, 1, loss, 2);
        if (step < 100) {
            usleep(1000); /* its end comes while lines are written */
        }
    }
    lvni_log_loggers_close(l, LVNI_LOG_FAILED);
    return restore_fd(STDERR_FILENO, saved);
}

TEST(a_program_that_ends_is_one_warning_and_no_signal)
{
    const struct sigaction counted = {.sa_handler = count_signal};
    struct sigaction before;
    sigaction(SIGPIPE, &counted, &before);
    const char *screen = log_to("exec:exit 3", 200);
    assert_int_equal(count_warnings(screen), 1);
    assert_non_null(strstr(screen, "exit code 3"));
    screen = log_to("exec:kill -9 $$", 200);
    assert_int_equal(count_warnings(screen), 1);
    assert_non_null(strstr(screen, "signal 9"));
    screen = log_to("exec:/nonexistent/program", 200);
    assert_non_null(strstr(screen, "exit code 127"));
    screen = log_to("exec:cat >/dev/null; exit 4", 3); /* only behind the last line */
    assert_int_equal(count_warnings(screen), 1);
    assert_non_null(strstr(screen, "exit code 4"));
    assert_int_equal(pipe_signals, 0);
    sigaction(SIGPIPE, &before, NULL);
}

TEST(a_program_that_does_not_read_is_one_warning)
{
    char name[160];
    snprintf(name, sizeof name, "exec:echo $$ >%s/pid; exec sleep 1000", dir);
    const char *screen = log_to(name, 60000); /* of about 110 bytes */
    assert_int_equal(count_warnings(screen), 1);
    assert_non_null(strstr(screen, "does not read"));
    const pid_t pid = (pid_t)atoi(text_of(file_named("pid", 0)));
    assert_true(pid > 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
}
