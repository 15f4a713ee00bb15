"""What a run leaves that is killed with SIGKILL, and what comes after it in the same folder: no
file half written, nothing in TMPDIR or /dev/shm, no process; and the guard of the launcher, which
ends what is left of its own run, touches nothing of the next one.

usage: test_leftovers.py LEVIN [test names]
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from case import LEVIN, main, tree, WAIT_S
from rank_case import shared_memory
from rank_processes import being_written, children, drop_identity, of_process

drop_identity()
# A checkpoint of 40 MB after each step: there is nearly always one being written.
LARGE = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=64",
    "model=mlp",
    "batch_size=30",
    "micro_batches=3",
    "wgrad_threads=1",
    "max_epochs=-1",
    "accelerator=cpu",
    "checkpoint.every_n_steps=1",
]


def alive(pid):
    stat = b"\0".join(of_process(pid, "stat"))
    return stat != b"" and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def child_named(pid, name):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        pids = [int(child) for child in f.read().split()]
    return next((child for child in pids if of_process(child, "comm") == [name + b"\n"]), None)


class Leftovers(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="levin-left-"))
        self.tmp = f"{self.dir}/tmp"
        os.mkdir(self.tmp)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.out = f"{self.dir}/run"

    def start(self, arguments):
        p = subprocess.Popen(
            arguments,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.dir,
            env={**os.environ, "TMPDIR": self.tmp},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.addCleanup(self.end, p)
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.wait()

    def wait_for(self, condition):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, "nothing happened")
            time.sleep(0.005)

    # ---- files ----

    def has_nameless(self):
        try:
            os.close(os.open(self.dir, os.O_TMPFILE | os.O_WRONLY))
        except OSError:
            self.skipTest("this file system has no files without a name")

    def nothing_after_a_kill(self, *more):
        """At several moments, one of them surely in the middle of a checkpoint."""
        self.has_nameless()
        shared = shared_memory()
        for moment in (None, 0.05, 0.1):
            self.out = f"{self.dir}/run-{moment}"
            p = self.start([LEVIN, *LARGE, f"out={self.out}", *more])
            if moment is None:
                self.wait_for(lambda: being_written(self.out))
            else:
                time.sleep(moment)
            p.kill()
            p.wait()
            self.wait_for(lambda: children(self.out) == [])
            left = [name for name in tree(self.dir) if "tmp" in name]
            self.assertEqual(left, [], moment)
            self.assertEqual(shared_memory(), shared)

    def test_one_process(self):
        self.nothing_after_a_kill()

    def test_launcher(self):
        self.nothing_after_a_kill("devices=3")

    # ---- processes ----

    def launch(self, name):
        """Two ranks, each with a daemon, in one folder and under one name."""
        sh = (
            f"setsid sleep 600 & echo $! $$ >{name}.part.$RANK; "
            f"mv {name}.part.$RANK {name}.$RANK; wait"
        )
        p = self.start(
            [
                LEVIN,
                "launch",
                "-n",
                "2",
                "--run-dir",
                "same",
                "--run-id",
                "same",
                "--",
                "sh",
                "-c",
                sh,
            ]
        )
        files = [f"{self.dir}/{name}.{rank}" for rank in range(2)]
        self.wait_for(lambda: all(os.path.exists(file) for file in files))
        pids = []
        for file in files:
            with open(file, encoding="ascii") as f:
                pids += [int(pid) for pid in f.read().split()]
        return p, pids

    def test_the_guard_of_a_killed_launcher_spares_the_next_run(self):
        first, old = self.launch("first")
        guard = child_named(first.pid, b"lvn-guard")
        os.kill(guard, signal.SIGSTOP)  # it is slow today
        first.kill()
        first.wait()
        # The kernel continues stopped processes whose group is orphaned, so it may be over by now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(guard, signal.SIGSTOP)
        second, new = self.launch("second")
        with contextlib.suppress(ProcessLookupError):
            os.kill(guard, signal.SIGCONT)
        self.wait_for(lambda: not alive(guard))
        self.assertEqual([pid for pid in old if alive(pid)], [])
        self.assertEqual([pid for pid in new if not alive(pid)], [])
        self.assertIsNone(second.poll())
        second.kill()
        second.wait()
        self.wait_for(lambda: not any(alive(pid) for pid in new))


if __name__ == "__main__":
    main()
