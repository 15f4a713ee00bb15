"""What the tests of levin launch share: a launcher in a folder of its own, and its processes.

Python's standard library only. The program's path is the first argument, test names may follow.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from neighbours import Neighbours

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
WAIT_S = 60
GONE_S = float(os.environ.get("LEVIN_TEST_GONE_S", "2"))  # from a failure to the launcher's end
MANY = [
    name
    for name in os.environ
    if name.startswith(("LEVIN_", "SLURM_", "TORCHELASTIC_", "MASTER_", "OMP_", "GOMP_", "CUDA_"))
]
CLEAN = {
    k: v for k, v in os.environ.items() if k not in MANY + ["RANK", "WORLD_SIZE", "LOCAL_RANK"]
}


def alive(pid):
    """A zombie is dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-launch-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def command(self, *options, program):
        return [LEVIN, "launch", *options, "--", *program]

    def launch(self, *options, sh=None, program=None, code=0, stdin=None, env=None, seconds=WAIT_S):
        """Runs it to its end; returns standard output and standard error."""
        arguments = self.command(*options, program=program or ["sh", "-c", sh])
        with Neighbours() as self.neighbours:
            done = subprocess.run(
                arguments,
                cwd=self.dir,
                env=dict(CLEAN, **(env or {})),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                **({} if stdin is not None else {"stdin": subprocess.DEVNULL}),
            )
        reported = f"{' '.join(arguments)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, reported)
        self.assertNotIn("Sanitizer", done.stderr, reported)
        self.assertNotIn("runtime error:", done.stderr, reported)
        return done.stdout, done.stderr

    def start(self, *options, sh, **how):
        p = subprocess.Popen(
            self.command(*options, program=["sh", "-c", sh]),
            cwd=self.dir,
            env=CLEAN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,
        )
        self.addCleanup(self.end, p)
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stdout.close()
        p.stderr.close()

    def ended_within(self, seconds, event):
        """The launcher, which has ended, took so long since the file `event` was written."""
        took = time.time() - os.stat(f"{self.dir}/{event}").st_mtime
        self.assertLess(took, seconds * self.neighbours.slowdown())

    def wait_for(self, condition, seconds=WAIT_S, what="nothing happened"):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.005)

    def pids(self, n, name="pid"):
        """The numbers that processes wrote into files pid.*, when there are n of them."""

        def read():
            found = []
            for file in os.listdir(self.dir):
                if file.startswith(name + "."):
                    with open(f"{self.dir}/{file}", encoding="utf-8") as f:
                        found += [int(number) for number in f.read().split()]
            return found

        self.wait_for(lambda: len(read()) >= n, what="the ranks did not start")
        return read()

    def gone(self, pids, seconds=1):
        """The default is for processes that the launcher has waited for."""
        self.wait_for(
            lambda: not any(alive(pid) for pid in pids), seconds, f"left behind, of {pids}"
        )

    def read(self, name):
        with open(f"{self.dir}/{name}", encoding="utf-8") as f:
            return f.read()


def main():
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [test names]")
    # A shell's background job ignores the two, and hands that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    unittest.main(verbosity=1)
