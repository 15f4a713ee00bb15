"""What a person sees of a training: the progress line on terminals of several widths, whose window
changes, without colours, dumb, redirected, after Ctrl-C, with one device and two. What is on the
screen is computed (screen.py): nothing of a line that was rewritten may be left.

usage: test_screen.py LEVIN [names]
"""

import fcntl
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

from case import Case, LEVIN, OK, SIGINT, WAIT_S, main, read, write
from rank_processes import drop_identity
from screen import Screen, open_terminal

drop_identity()
SHAPES = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=600",
    "model=mlp",
    "image_size=16",
    "micro_batches=2",
    "wgrad_threads=1",
    "batch_size=4",
]
PROGRESS = re.compile(r"epoch \d+(/\d+)?  step \d+/\d+")
DRAWN = re.compile(rb"\r\x1b\[Jepoch \d+(?:/\d+)?  step ([^\r\n]*)\r")
KINDS = [
    "^data ",
    "^model ",
    "^effective batch ",
    "^device",
    r"^\d ranks: ",
    "^transport shm: ",
    "^the same bits elsewhere: ",
    r"^epoch \d+ done at step \d+: train/loss ",
    "^done after ",
    "^levin report ",  # not in the log
    r"^\^C$",
    "^stopping after this step; ",
    "^stopped: Ctrl-C after step ",
    "^levin launch: stopped by SIGINT$",
    "^warning: ",
]


def set_size(fd, width):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


class Terminal:
    """A run on a terminal; out, err: whether that is where it writes, or else the bytes written to
    a pipe."""

    def __init__(self, arguments, width=80, out=True, err=True, reflow=True, **env):
        self.master, slave = open_terminal()
        set_size(self.master, width)
        self.screen, self.seen = Screen(width, reflow), b""
        own = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        pipe = {"out": subprocess.PIPE, "err": subprocess.PIPE}
        self.p = subprocess.Popen(
            [LEVIN, *arguments],
            stdin=slave,
            stdout=slave if out else pipe["out"],
            stderr=slave if err else pipe["err"],
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**own, "TERM": "xterm", **env},
        )
        os.close(slave)

    def until(self, condition):
        """Reads on until it is so, or to the end; None: to the end."""
        end = time.monotonic() + WAIT_S
        while condition is None or not condition():
            assert time.monotonic() < end, self.seen
            if not select.select([self.master], [], [], 1)[0]:
                continue
            if not self.read():
                assert condition is None, self.seen
                return

    def resize(self, width):
        """All that was written for the old width is on the screen first, as on a terminal: who
        draws stands still meanwhile, or a line of the old width could be read after the change."""
        os.kill(self.p.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.p.pid, os.WSTOPPED)
        while select.select([self.master], [], [], 0)[0]:
            self.read()
        self.screen.resize(width)
        set_size(self.master, width)
        os.kill(self.p.pid, signal.SIGCONT)

    def read(self):
        """What the run has written is on the screen; False at its end."""
        try:
            part = os.read(self.master, 4096)
        except OSError:  # no process has the terminal open any more
            part = b""
        self.seen += part
        self.screen.feed(part)
        return len(part) > 0

    def drawn(self):
        return DRAWN.findall(self.seen)

    def finish(self):
        """Exit code, and what went into pipes."""
        self.until(None)
        out, err = self.p.communicate(timeout=WAIT_S)
        os.close(self.master)
        return self.p.returncode, (out or b"").decode(), (err or b"").decode()


class Screens(Case):
    def on(self, *arguments, **how):
        t = Terminal([*SHAPES, f"out={self.out}", "overwrite=true", *arguments], **how)
        self.addCleanup(lambda: t.p.poll() is None and os.killpg(t.p.pid, signal.SIGKILL))
        return t

    def is_clean(self, t):
        """Whole lines of known kinds, each as train.log has it; no part of a progress line."""
        log = read(f"{self.out}/train.log").decode()
        for line in t.screen.lines():
            self.assertIsNone(PROGRESS.search(line), (line, t.seen))
            if not t.screen.reflow:
                continue  # what such a window has cut off is gone
            self.assertTrue(
                [kind for kind in KINDS if re.search(kind, line)], (line, t.screen.lines(), t.seen)
            )
            if not line.startswith(("^C", "stopping", "levin launch: ", "levin report ")):
                self.assertIn(re.sub("^(warning|stopped): ", "", line) + "\n", log, t.seen)

    def test_widths(self):
        for width in (40, 80, 200):
            t = self.on("max_epochs=2", width=width)
            self.assertEqual(t.finish()[0], OK, t.seen)
            self.is_clean(t)
            self.assertGreaterEqual(len(t.drawn()), 2, t.seen)
            self.assertLess(max(len(line) for line in t.drawn()) + len("epoch 1/2  step "), width)
            self.assertEqual(b"images/s" in b"".join(t.drawn()), width > 40)
            self.assertIn("done after 240 steps", t.screen.lines()[-2])

    def test_a_window_that_changes(self):
        """Lines that a narrower window wraps or cuts leave nothing; the next ones are as wide as
        the window."""
        for reflow, devices in ((True, 1), (False, 1), (True, 2)):
            t = self.on(
                "max_epochs=-1", f"devices={devices}", "accelerator=cpu", width=120, reflow=reflow
            )
            t.until(lambda: len(t.drawn()) >= 2)
            for width in (50, 30, 90):
                n = len(t.drawn())
                t.resize(width)
                t.until(lambda: len(t.drawn()) >= n + 2)
                self.assertLess(len(t.drawn()[-1]), width)
            os.kill(t.p.pid, signal.SIGINT)
            self.assertEqual(t.finish()[0], SIGINT, t.seen)
            self.assertIn("stopped: Ctrl-C after step", "\n".join(t.screen.lines()[-2:]))
            self.is_clean(t)

    def test_colours_are_left_out(self):
        """NO_COLOR is about colours, not about the line; a dumb terminal has neither."""
        write(
            f"{self.dir}/warned.yaml", b"scheduler: constant\nscheduler.gamma: 0.5\n"
        )  # does nothing
        for env, coloured, drawn in (
            ({}, True, True),
            ({"NO_COLOR": ""}, True, True),
            ({"NO_COLOR": "1"}, False, True),
            ({"TERM": "dumb"}, False, False),
            ({"TERM": ""}, False, False),
        ):
            t = self.on("max_epochs=1", f"config={self.dir}/warned.yaml", **env)
            self.assertEqual(t.finish()[0], OK, t.seen)
            self.is_clean(t)
            self.assertEqual(
                len([line for line in t.screen.lines() if line.startswith("warning: ")]), 1
            )
            self.assertEqual((t.screen.coloured, len(t.drawn()) > 0), (coloured, drawn), t.seen)

    def test_redirected(self):
        """The line goes to the terminal that is there; files get reports and warnings, each their
        own, and no control characters."""
        t = self.on("max_epochs=2", out=False)
        code, out, err = t.finish()
        self.assertEqual((code, err), (OK, ""))
        self.assertGreater(len(t.drawn()), 0)
        self.assertEqual(t.screen.lines(), [])
        self.assertEqual(
            [line for line in out.splitlines() if not re.search("|".join(KINDS), line)], []
        )
        self.assertIn("epoch 2 done at step 240", out)
        t = self.on("max_epochs=2", err=False)
        code, out, err = t.finish()
        self.assertEqual((code, err), (OK, ""))
        self.is_clean(t)
        self.assertGreater(len(t.drawn()), 0)

    def test_interrupted(self):
        """Ctrl-C, at any moment: ^C stands alone."""
        for devices, out in ((1, True), (1, False), (2, True)):
            t = self.on("max_epochs=-1", f"devices={devices}", "accelerator=cpu", out=out)
            t.until(lambda: len(t.drawn()) >= 1)
            end = time.monotonic() + random.random() * 0.3
            t.until(lambda: time.monotonic() > end)
            os.write(t.master, b"\x03")
            code, _, _ = t.finish()
            self.assertEqual(code, SIGINT, t.seen)
            lines = t.screen.lines()
            self.assertIn("^C", lines, t.seen)
            self.assertEqual([line for line in lines if "^C" in line], ["^C"], t.seen)
            self.assertIn("stopped: Ctrl-C after step", "\n".join(lines[-2:]))
            self.is_clean(t)

    def test_interrupted_without_a_line(self):
        for arguments, env in ((["quiet=true"], {}), ([], {"TERM": "dumb"})):
            self.out += "x"
            t = self.on("max_epochs=-1", "log_every_n_steps=1", *arguments, **env)
            self.wait_for(lambda: self.steps() > 5, t.p)
            os.write(t.master, b"\x03")
            self.assertEqual(t.finish()[0], SIGINT, t.seen)
            lines = [line for line in t.screen.lines() if not line.startswith("levin report ")]
            self.assertEqual(
                lines[-3:-1],
                ["^C", "stopping after this step; Ctrl-C again stops at once, without saving"],
                t.seen,
            )


if __name__ == "__main__":
    try:
        for end in open_terminal():
            os.close(end)
    except unittest.SkipTest as reason:
        print(reason)
        sys.exit(77)  # for CTest: all of it is skipped
    main()
