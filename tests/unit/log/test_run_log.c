/* The logger: what goes where, lines of threads that do not mix, a log that breaks without breaking
 * the run. */
#include "log_support.h"

#include "core/machine.h"
#include "log/run_log.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>

/* Checks "[YYYY-MM-DD hh:mm:ss,mmm]" and returns what follows it. */
static const char *after_time(const char *line)
{
    static const char form[] = "[dddd-dd-dd dd:dd:dd,ddd]";
    for (size_t i = 0; i < sizeof form - 1; i++) {
        assert_true(form[i] == 'd' ? isdigit((unsigned char)line[i]) != 0 : line[i] == form[i]);
    }
    return line + sizeof form - 1;
}

TEST_EACH(make_dir, drop_dir);

TEST(levels_go_where_they_belong)
{
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    int saved = catch_fd(STDERR_FILENO);
    lvni_log_line(LVNI_LOG_DEBUG, "detail %d", 1);
    lvni_log_line(LVNI_LOG_DETAIL, "more");
    lvni_log_line(LVNI_LOG_INFO, "effective batch %d", 64);
    lvni_log_line(LVNI_LOG_WARNING, "odd");
    lvni_log_line(LVNI_LOG_ERROR, "bad");
    assert_string_equal(restore_fd(STDERR_FILENO, saved),
                        "effective batch 64\nwarning: odd\nerror: bad\n");
    lvni_log_set_quiet(true);
    saved = catch_fd(STDERR_FILENO);
    lvni_log_line(LVNI_LOG_INFO, "quiet");
    lvni_log_line(LVNI_LOG_WARNING, "loud");
    assert_string_equal(restore_fd(STDERR_FILENO, saved), "warning: loud\n");
    lvni_log_set_quiet(false);
    saved = catch_fd(STDERR_FILENO);
    lvni_log_file_line(LVNI_LOG_ERROR, "printed by %s", "others");
    assert_string_equal(restore_fd(STDERR_FILENO, saved), "");
    lvni_log_close();
    static const char *const expected[] = {"[DEBUG] detail 1\n",
                                           "[INFO] more\n",
                                           "[INFO] effective batch 64\n",
                                           "[WARNING] odd\n",
                                           "[ERROR] bad\n",
                                           "[INFO] quiet\n",
                                           "[WARNING] loud\n",
                                           "[ERROR] printed by others\n"};
    const char *at = text_of(file);
    for (size_t i = 0; i < 8; i++) {
        at = after_time(at);
        assert_memory_equal(at, expected[i], strlen(expected[i]));
        at += strlen(expected[i]);
    }
    assert_int_equal(*at, '\0');
}

TEST(append_keeps_and_open_empties)
{
    put_text(file, "old\n");
    assert_int_equal(lvni_log_open(file, true), LVN_OK);
    lvni_log_line(LVNI_LOG_DEBUG, "new");
    lvni_log_close();
    lvni_log_line(LVNI_LOG_DEBUG, "after closing"); /* goes nowhere */
    assert_memory_equal(text_of(file), "old\n[", 5);
    assert_null(strstr(text_of(file), "after closing"));
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    lvni_log_close();
    assert_string_equal(text_of(file), "");
    assert_int_equal(lvni_log_open("/no/such/folder/train.log", false), LVN_ERR_NOT_FOUND);
}

TEST(lines_before_the_file_are_kept_for_it)
{
    put_text(file, "old\n");
    lvni_log_line(LVNI_LOG_DEBUG, "of another run");
    lvni_log_buffer();
    const int saved = catch_fd(STDERR_FILENO);
    lvni_log_line(LVNI_LOG_WARNING, "early");
    assert_int_equal(lvni_log_open(file, true), LVN_OK);
    lvni_log_line(LVNI_LOG_INFO, "late");
    /* on the screen once */
    assert_string_equal(restore_fd(STDERR_FILENO, saved), "warning: early\nlate\n");
    lvni_log_close();
    const char *text = text_of(file);
    assert_memory_equal(text, "old\n", 4);
    assert_memory_equal(after_time(text + 4), "[WARNING] early\n", 16);
    assert_memory_equal(after_time(after_time(text + 4) + 16), "[INFO] late\n", 13);
    lvni_log_buffer();
    lvni_log_line(LVNI_LOG_DEBUG, "of a run that never began");
    lvni_log_close();
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    lvni_log_close();
    assert_string_equal(text_of(file), "");
}

TEST(long_messages_are_whole_or_cut_when_memory_is_out)
{
    static char big[10001];
    memset(big, 'x', 10000);
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    lvni_log_line(LVNI_LOG_DEBUG, "%s", big);
    size_t n = strlen(text_of(file));
    assert_int_equal(n, 25 + 8 + 10000 + 1);
    lvni_core_alloc_fail_at(1);
    lvni_log_line(LVNI_LOG_DEBUG, "%s", big);
    lvni_core_alloc_fail_at(0);
    lvni_log_close();
    assert_int_equal(strlen(text_of(file)), n + 25 + 8 + 2048 + 1);
    assert_int_equal(text_of(file)[n + 25 + 8 + 2048], '\n');
}

TEST(a_full_disk_is_reported_once_and_the_error_at_hand_stays)
{
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    lvn_error_set(LVN_ERR_SHAPE, "f.c", 12, "shapes differ");
    const int saved = catch_fd(STDERR_FILENO);
    lvni_core_vfs_fail_at("write", 1, ENOSPC);
    for (int i = 0; i < 3; i++) {
        lvni_log_line(LVNI_LOG_ERROR, "%s", lvn_last_error()->message);
    }
    lvni_core_vfs_fail_at("write", 0, 0);
    const char *screen = restore_fd(STDERR_FILENO, saved);
    assert_int_equal(lvn_last_error()->code, LVN_ERR_SHAPE);
    assert_string_equal(lvn_last_error()->message, "shapes differ");
    const char *first = strstr(screen, "the run goes on without this log");
    assert_non_null(first);
    assert_null(strstr(first + 1, "the run goes on without this log"));
    assert_non_null(strstr(first, "error: shapes differ\nerror: shapes differ\n"));
    lvn_clear_error();
    lvni_log_close();
}

TEST(messages_appear_above_the_status_line)
{
    const int saved = catch_fd(STDERR_FILENO);
    lvni_log_status_line(STDERR_FILENO, "step 1");
    lvni_log_line(LVNI_LOG_INFO, "saved");
    lvni_log_status_line(STDERR_FILENO, "step 2");
    lvni_log_status_end();
    lvni_log_line(LVNI_LOG_INFO, "done");
    lvni_log_status_line(STDERR_FILENO, "x");
    lvni_core_terminal_print_from_signal(true, "stopping\n");
    lvni_log_status_end();
    lvni_log_status_end();
    assert_string_equal(restore_fd(STDERR_FILENO, saved),
                        "\r\033[Jstep 1\r\r\033[Jsaved\nstep 1\r\r\033[Jstep 2\r\r\033[Jdone\n"
                        "\r\033[Jx\r\r\033[J^C\nstopping\n\r\033[J");
}

TEST(reports_and_warnings_have_places_of_their_own)
{
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_set_verbose(true);
    fflush(stdout);
    const int out = catch_fd(STDOUT_FILENO);
    const int err = dup(STDERR_FILENO);
    assert_int_equal(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO), STDERR_FILENO);
    printf("buffered\n");
    lvni_log_line(LVNI_LOG_DETAIL, "more");
    lvni_log_line(LVNI_LOG_WARNING, "odd");
    lvni_log_status_line(STDERR_FILENO, "of another terminal");
    lvni_log_line(LVNI_LOG_INFO, "done");
    lvni_log_status_end();
    assert_int_equal(dup2(err, STDERR_FILENO), STDERR_FILENO);
    assert_string_equal(restore_fd(STDOUT_FILENO, out), "buffered\nmore\ndone\n");
    lvni_log_set_verbose(false);
    lvni_log_set_report(STDERR_FILENO);
}

enum { THREADS = 4, LINES = 200 };

static void *log_lines(void *arg)
{
    const int id = *(const int *)arg;
    for (int i = 0; i < LINES; i++) {
        lvni_log_line(LVNI_LOG_DEBUG, "thread %d line %d %s", id, i, "abcdefghijklmnopqrstuvwxyz");
    }
    return NULL;
}

TEST(lines_of_threads_do_not_mix)
{
    pthread_t threads[THREADS];
    int ids[THREADS];
    int next[THREADS] = {0};
    assert_int_equal(lvni_log_open(file, false), LVN_OK);
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, &ids[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    lvni_log_close();
    int n = 0;
    for (const char *at = text_of(file); *at != '\0'; n++) {
        char expected[96];
        at = after_time(at);
        const int id = at[15] - '0'; /* behind "[DEBUG] thread " */
        assert_int_in_range(id, 0, THREADS - 1);
        snprintf(expected, sizeof expected,
                 "[DEBUG] thread %d line %d abcdefghijklmnopqrstuvwxyz\n", id, next[id]++);
        assert_memory_equal(at, expected, strlen(expected));
        at += strlen(expected);
    }
    assert_int_equal(n, THREADS * LINES);
}

/* A callback that logs and fails without a message has set no error of its own. */
TEST(a_line_leaves_the_last_error_as_it_was)
{
    (void)lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "before");
    const uint64_t serial = lvn_last_error()->serial;
    const int saved = catch_fd(STDERR_FILENO);
    lvni_log_line(LVNI_LOG_WARNING, "a line");
    restore_fd(STDERR_FILENO, saved);
    assert_int_equal(lvn_last_error()->serial, serial);
    assert_string_equal(lvn_last_error()->message, "before");
    lvn_clear_error();
}
