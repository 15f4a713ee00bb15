/* Signals at the end of a run. Each case is a process of its own, which sends itself signals. */
#include "core/signals.h"
#include "support/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENDED_ITSELF = 7, MARK = 9 };
static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDS = sizeof ends / sizeof *ends };

static void end_with_mark(int signal_number)
{
    (void)signal_number;
    _exit(MARK);
}

/* A run that was sent `asks` (0: none) in its middle, and `after` so often when it was over.
 * trains: the process does nothing else, as the command. Its handler from before: `before`. */
static int run(bool trains, void (*before)(int), int asks, int after, int times)
{
    const pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < ENDS; i++) {
            signal(ends[i], before);
        }
        if (trains) {
            lvni_core_signals_defer();
        }
        lvni_core_signals_install_early();
        lvni_core_signals_install();
        if (asks != 0) {
            raise(asks);
        }
        lvni_core_signals_remove();
        for (int i = 0; i < times; i++) {
            raise(after);
        }
        _exit(lvni_core_signals_asked() == asks ? ENDED_ITSELF : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_code(int status, int code)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void assert_killed(int status, int signal_number)
{
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_number);
}

TEST(a_complete_run_ends_well)
{
    for (int i = 0; i < ENDS; i++) {
        assert_code(run(true, SIG_DFL, 0, ends[i], 1), ENDED_ITSELF);
        assert_killed(run(true, SIG_DFL, 0, ends[i], 2), ends[i]);
    }
    assert_code(run(true, SIG_DFL, 0, SIGUSR1, 3), ENDED_ITSELF);
    assert_code(run(true, SIG_DFL, 0, SIGUSR2, 3), ENDED_ITSELF);
}

/* "Ctrl-C again stops at once." */
TEST(the_second_signal_to_a_stopped_run_ends_it)
{
    for (int i = 0; i < ENDS; i++) {
        assert_code(run(true, SIG_DFL, ends[i], ends[i], 0), ENDED_ITSELF);
        assert_killed(run(true, SIG_DFL, ends[i], ends[i], 1), ends[i]);
    }
}

TEST(what_was_ignored_stays_ignored)
{
    assert_code(run(true, SIG_IGN, 0, SIGHUP, 3), ENDED_ITSELF);
    assert_code(run(false, SIG_IGN, 0, SIGTERM, 3), ENDED_ITSELF);
}

TEST(a_host_program_gets_its_handlers_back)
{
    for (int i = 0; i < ENDS; i++) {
        assert_code(run(false, end_with_mark, 0, ends[i], 0), ENDED_ITSELF);
        assert_code(run(false, end_with_mark, 0, ends[i], 1), MARK);
    }
}
