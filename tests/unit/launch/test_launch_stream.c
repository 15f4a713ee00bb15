/* A reader that stands still: what it does not take is kept, and when it cannot be kept the sink
 * does not wait. */

#include "launch/launch_stream.h"
#include "support/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 40, PIECE = 64 << 10, HANGS_S = 30 };

static size_t put_much(lvni_launch_sink *s)
{
    static char piece[PIECE];
    memset(piece, 'x', sizeof piece);
    alarm(HANGS_S); /* a sink that waits for the reader ends the test */
    for (int i = 0; i < PIECES; i++) {
        lvni_launch_sink_put(s, piece, sizeof piece);
        lvni_launch_sink_flush(s);
    }
    alarm(0);
    return (size_t)PIECES * PIECE;
}

TEST(what_is_not_read_is_kept)
{
    int ends[2];
    lvni_launch_sink s;
    assert_int_equal(pipe(ends), 0);
    lvni_launch_sink_open(&s, ends[1], "/tmp");
    const size_t wanted = put_much(&s);
    assert_false(s.gone);
    static char part[PIECE];
    size_t got = 0;
    while (got < wanted) {
        const ssize_t n = read(ends[0], part, sizeof part);
        assert_true(n > 0 || (n < 0 && errno == EINTR));
        got += n > 0 ? (size_t)n : 0;
        lvni_launch_sink_flush(&s);
    }
    assert_int_equal(got, wanted);
    assert_true(lvni_launch_sink_is_empty(&s));
    lvni_launch_sink_close(&s);
    close(ends[0]);
    close(ends[1]);
}

TEST(the_reader_is_given_up)
{
    int ends[2];
    lvni_launch_sink s;
    assert_int_equal(pipe(ends), 0);
    lvni_launch_sink_open(&s, ends[1], "/proc/self/nowhere");
    put_much(&s);
    assert_true(s.gone);
    assert_true(lvni_launch_sink_is_empty(&s));
    lvni_launch_sink_close(&s);
    close(ends[0]);
    close(ends[1]);
}
