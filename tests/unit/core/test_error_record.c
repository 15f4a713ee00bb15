/* Error records: what is written is read back; the first one stays; fatal signals leave one and
 * still kill. */

#include "core/error.h"
#include "core/thread.h"
#include "core/vfs.h"
#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/levin-record-XXXXXX";
static char path[64];

BEFORE_ALL()
{
    const bool made = mkdtemp(dir) != NULL;
    snprintf(path, sizeof path, "%s/rank.json", dir);
    return made ? 0 : -1;
}

AFTER_ALL()
{
    unlink(path);
    return rmdir(dir);
}

static lvn_status record_of(lvn_status code, const char *text)
{
    lvn_status s = lvn_error_set(code, "loader.c", 7, "%-s", text);
    lvn_error_frame("epoch %d", 3);
    lvn_error_frame("training");
    return s;
}

TEST(the_first_record_is_read_back)
{
    assert_int_equal(lvni_core_error_record_begin(path, 5), LVN_OK);
    record_of(LVN_ERR_NON_FINITE, "the loss is \"nan\"\nat step 12");
    assert_int_equal(lvni_core_error_record_write(lvn_last_error(), 1), LVN_OK);
    record_of(LVN_ERR_PEER, "rank 0 is gone");
    assert_int_equal(lvni_core_error_record_write(lvn_last_error(), 76), LVN_OK);
    lvni_core_error_record r;
    assert_int_equal(lvni_core_error_record_read(path, &r), LVN_OK);
    assert_int_equal(r.rank, 5);
    assert_int_equal(r.code, 1);
    assert_int_equal(r.pid, getpid());
    assert_string_equal(r.kind, "nan");
    assert_string_equal(r.message, "the loss is \"nan\"\nat step 12");
    assert_string_equal(r.where, "loader.c:7");
    assert_int_equal(r.n_stack, 2);
    assert_string_equal(r.stack[0], "epoch 3");
    assert_true(r.time_ns > 1700000000000000000u);
    unlink(path);
}

TEST(nowhere_is_fine)
{
    assert_int_equal(lvni_core_error_record_begin(NULL, 0), LVN_OK);
    record_of(LVN_ERR_IO, "x");
    assert_int_equal(lvni_core_error_record_write(lvn_last_error(), 1), LVN_OK);
    lvni_core_error_record r;
    assert_int_equal(lvni_core_error_record_read(path, &r), LVN_ERR_NOT_FOUND);
}

TEST(what_is_no_record_is_reported)
{
    static const char *const bad[] = {"", "[]", "{\"rank\": 1}", "{\"message\": 3}", "nonsense"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvni_core_error_record r;
        assert_int_equal(lvni_core_file_write(path, bad[i], strlen(bad[i])), LVN_OK);
        assert_int_equal(lvni_core_error_record_read(path, &r), LVN_ERR_CORRUPT);
    }
    unlink(path);
}

static void send_it(int number)
{
    raise(number);
}

static void give_up(int number)
{
    (void)number;
    abort();
}

static int fill_stack(int pages)
{
    volatile char page[4096];
    page[0] = (char)pages;
    /* NOLINT(misc-no-recursion): that is the point */
    return pages == 0 ? 0 : fill_stack(pages - 1) + page[0];
}

static void *overflow(void *argument)
{
    *(int *)argument = fill_stack(1 << 20);
    return NULL;
}

static void overflow_in_a_thread(int number)
{
    (void)number;
    pthread_t thread;
    int sum = 0;
    if (lvni_core_thread_start(&thread, overflow, &sum) == 0) {
        pthread_join(thread, NULL);
    }
    _exit(8);
}

/* The child does what kills it; the record must be there when it is dead, and it must be dead of
 * the signal. */
static void die(int number, void (*how)(int number))
{
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(number, SIG_DFL); /* without a sanitizer's handler */
        if (lvni_core_error_record_begin(path, 2) != LVN_OK ||
            lvni_core_error_record_catch_signals() != LVN_OK) {
            _exit(9);
        }
        how(number);
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    lvni_core_error_record r;
    assert_int_equal(lvni_core_error_record_read(path, &r), LVN_OK);
    assert_int_equal(r.rank, 2);
    assert_int_equal(r.pid, pid);
    assert_int_equal(r.code, lvni_core_exit_of_signal(number));
    assert_string_equal(r.kind, "signal");
    char name[16];
    snprintf(name, sizeof name, "SIG%s", sigabbrev_np(number));
    assert_memory_equal(r.message, name, strlen(name));
    unlink(path);
}

TEST(signals_leave_a_record_and_kill)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        die(numbers[i], send_it);
    }
    die(SIGABRT, give_up);
}

TEST(threads_have_a_stack_for_it)
{
    die(SIGSEGV, overflow_in_a_thread);
}
