/* --pty: rank 0 writes to a terminal of its own where the launcher has one, so that programs show
 * their progress lines and colours. */
#include "launch/launch_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* What is written passes through unchanged; nothing is echoed. */
static bool make_raw(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) != 0) {
        return false;
    }
    cfmakeraw(&t);
    return tcsetattr(fd, TCSANOW, &t) == 0;
}

static int open_slave(int master)
{
    char name[64];
    if (grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, name, sizeof name) != 0) {
        return -1;
    }
    return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

void lvni_launch_pty_take_size(int like, int master)
{
    struct winsize size;
    if (ioctl(like, TIOCGWINSZ, &size) == 0) {
        ioctl(master, TIOCSWINSZ, &size);
    }
}

lvn_status lvni_launch_pty_open(int like, int ends[2])
{
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    ends[1] = ends[0] >= 0 ? open_slave(ends[0]) : -1;
    if (ends[1] < 0 || !make_raw(ends[1])) {
        LVN_FAIL(LVN_ERR_IO, "no pseudo-terminal for rank 0: %s", strerror(errno));
    }
    lvni_launch_pty_take_size(like, ends[0]);
    return LVN_OK;
}
