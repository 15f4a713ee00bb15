/* The progress line: what it looks like, and when it appears on a terminal (a pseudo-terminal here)
 * and elsewhere. */
#include "log_support.h"

#include "log/progress.h"
#include "log/run_log.h"

#include <math.h>
#include <sys/ioctl.h>

static lvni_log_progress_state sample(void)
{
    return (lvni_log_progress_state){.epoch = 2,
                                     .max_epochs = 20,
                                     .step = 128,
                                     .steps = 341,
                                     .loss = 0.52314,
                                     .accuracy = 0.8125,
                                     .samples_per_s = 1234.4,
                                     .lr = 0.001,
                                     .memory_bytes = 312u << 20,
                                     .left_s = 80.2};
}

TEST_WITH(the_line_looks_like_this, make_dir, drop_dir)
{
    char out[256];
    lvni_log_progress_state s = sample();
    static const char whole[] = "epoch 3/20  step 128/341  loss_step 0.5231  acc_step 0.812  1234 "
                                "images/s  lr 0.001  mem 312 MiB  left 1m20s";
    assert_int_equal(lvni_log_progress_format(&s, 0, out, sizeof out), sizeof whole - 1);
    assert_string_equal(out, whole);
    lvni_log_progress_format(&s, (int)sizeof whole - 1, out, sizeof out); /* exactly as wide */
    assert_string_equal(out, whole);
    lvni_log_progress_format(&s, (int)sizeof whole - 2, out, sizeof out); /* one column less */
    assert_string_equal(out, "epoch 3/20  step 128/341  loss_step 0.5231  acc_step 0.812  1234 "
                             "images/s  lr 0.001  mem 312 MiB");
    lvni_log_progress_format(&s, 24, out, sizeof out);
    assert_string_equal(out, "epoch 3/20  step 128/341");
    for (int width = 1; width < 120; width++) {
        assert_true(lvni_log_progress_format(&s, width, out, sizeof out) <= (size_t)width);
    }
    assert_int_equal(lvni_log_progress_format(&s, 0, out, 1), 0);
    assert_int_equal(lvni_log_progress_format(&s, 0, out, 0), 0);
    s.loss = s.accuracy = s.lr = s.left_s = NAN;
    s.max_epochs = s.steps = 0;
    s.memory_bytes = 0;
    s.samples_per_s = 8.25;
    lvni_log_progress_format(&s, 0, out, sizeof out);
    assert_string_equal(out, "epoch 3  step 128  8.2 images/s");
}

TEST(a_wait_for_data_is_shown_where_it_matters)
{
    char out[256];
    lvni_log_progress_state s = sample();
    s.wait_share = 0.09;
    lvni_log_progress_format(&s, 0, out, sizeof out);
    assert_null(strstr(out, "wait"));
    s.wait_share = 0.374;
    lvni_log_progress_format(&s, 0, out, sizeof out);
    assert_non_null(strstr(out, "images/s  data wait 37%  lr 0.001"));
}

TEST_WITH(times_and_sizes_are_short, make_dir, drop_dir)
{
    static const struct {
        double s;
        const char *text;
    } times[] = {
        {0.2, "left 0s"},     {59.4, "left 59s"},     {59.6, "left 1m00s"}, {3599, "left 59m59s"},
        {7500, "left 2h05m"}, {273600, "left 3d04h"}, {INFINITY, NULL},     {-5, NULL}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        char out[256];
        lvni_log_progress_state s = sample();
        s.left_s = times[i].s;
        lvni_log_progress_format(&s, 0, out, sizeof out);
        const char *left = strstr(out, "left");
        if (times[i].text == NULL) {
            assert_null(left);
        } else {
            assert_string_equal(left, times[i].text);
        }
        s.memory_bytes = (uint64_t)24 << 30;
        lvni_log_progress_format(&s, 0, out, sizeof out);
        assert_non_null(strstr(out, "mem 24.00 GiB"));
    }
}

static int count(const char *text, char c)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += *text == c;
    }
    return n;
}

/* 21 steps of half a second each, every fifth is logged, and so is the last. */
static const char *plain_run_to(FILE *plain, double interval_s, bool quiet, bool log_quiet)
{
    lvni_log_progress p;
    lvni_log_progress_init(
        &p, &(lvni_log_progress_options){
                .fd = -1, .quiet = quiet, .plain_interval_s = interval_s, .plain = plain});
    lvni_log_progress_state s = sample();
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_set_quiet(log_quiet);
    const int saved = catch_fd(STDOUT_FILENO);
    for (int step = 1; step <= 21; step++) {
        s.step = step;
        lvni_log_progress_update(&p, &s, step * 0.5, step % 5 == 0 || step == 21, step == 21);
    }
    lvni_log_progress_finish(&p);
    fflush(stdout);
    lvni_log_set_quiet(false);
    lvni_log_set_report(STDERR_FILENO);
    return restore_fd(STDOUT_FILENO, saved);
}

static const char *plain_run(double interval_s, bool quiet)
{
    return plain_run_to(NULL, interval_s, quiet, quiet);
}

TEST_WITH(elsewhere_a_plain_line_now_and_then, make_dir, drop_dir)
{
    assert_string_equal(plain_run(60, false), "");
    const char *text = plain_run(4, false);
    assert_int_equal(count(text, '\n'), 2); /* steps 10 (4.5 s after the first) and 20 */
    assert_int_equal(count(text, '\r') + count(text, '\033'), 0);
    assert_memory_equal(text, "epoch 3/20  step 10/341  loss_step", 34);
    assert_non_null(strstr(text, "step 20/341"));
    assert_string_equal(plain_run(1, true), "");
    /* a finder's lines, whose training is quiet */
    assert_string_equal(plain_run_to(stdout, 4, true, false), "");
    text = plain_run_to(stdout, 4, false, true);
    assert_int_equal(count(text, '\n'), 2);
    assert_memory_equal(text, "epoch 3/20  step 10/341  loss_step", 34);
}

TEST_WITH(logging_points_reach_the_file, make_dir, drop_dir)
{
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    plain_run(60, true);
    lvni_log_close();
    assert_int_equal(count(text_of(file), '\n'), 5);
    assert_non_null(strstr(text_of(file), "[DEBUG] epoch 3/20  step 20/341"));
}

TEST_WITH(a_terminal_has_one_line_as_wide_as_it_is, make_dir, drop_dir)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    const bool there = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0;
    const int fd = there ? open(ptsname(master), O_RDWR | O_NOCTTY) : -1;
    if (fd < 0) {
        print_message("skipped: needs a pseudo terminal (/dev/pts)\n");
        skip();
    }
    const struct winsize size = {.ws_row = 25, .ws_col = 46};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    lvni_log_progress p;
    lvni_log_progress_init(&p, &(lvni_log_progress_options){.fd = fd});
    lvni_log_progress_state s = sample();
    lvni_log_progress_update(&p, &s, 10.0, false, false);
    s.step = 129;
    lvni_log_progress_update(&p, &s, 10.05, true, false); /* too soon to redraw */
    s.step = 130;
    lvni_log_progress_update(&p, &s, 10.2, false, false);
    s.step = 131;
    lvni_log_progress_update(&p, &s, 10.21, false, true); /* the last always shows */
    lvni_log_progress_finish(&p);
    lvni_log_progress_finish(&p);
    static const char seen[] = "\r\033[Jepoch 3/20  step 128/341  loss_step 0.5231\r"
                               "\r\033[Jepoch 3/20  step 130/341  loss_step 0.5231\r"
                               "\r\033[Jepoch 3/20  step 131/341  loss_step 0.5231\r\r\033[J";
    char text[512];
    size_t n = 0;
    while (n < strlen(seen)) { /* a pseudo-terminal may hand it over in parts */
        const ssize_t part = read(master, text + n, sizeof text - 1 - n);
        assert_true(part > 0);
        n += (size_t)part;
    }
    text[n] = '\0';
    assert_string_equal(text, seen);
    close(fd);
    close(master);
}
