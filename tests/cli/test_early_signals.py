"""Signals and kills while a run of three ranks starts: at random moments, to the launcher and to
single ranks, and most of all to ranks that are just finding each other. Whatever happens, the exit
codes are those of docs/launch.md, the report names the rank that was hit or none, nothing is left.

usage: test_early_signals.py LEVIN [test names]
LEVIN_TEST_SEED=N      repeats a sequence (printed at the start; moments on a busy machine differ)
LEVIN_TEST_SECONDS=S   time of each test (default 1.5; with LEVIN_TEST_SLOW=1: 60)
LEVIN_TEST_WINDOW_S=S  the part of the run that is hit (default 0.3; slow builds: more)
"""

import collections
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from case import LEVIN, main, tree, WAIT_S
from rank_case import shared_memory, SIGNALS
from rank_processes import children, drop_identity, is_whole, of_process, thread_names

RANKS, PEER, RENDEZVOUS, REQUEUE = 3, 76, 75, 85
SEED = int(os.environ.get("LEVIN_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
SLOW = bool(os.environ.get("LEVIN_TEST_SLOW"))
SECONDS = float(os.environ.get("LEVIN_TEST_SECONDS") or (60 if SLOW else 1.5))
WINDOW_S = float(os.environ.get("LEVIN_TEST_WINDOW_S", "0.3"))
TRAINING = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=8",
    "model=mlp",
    "batch_size=6",
    "micro_batches=3",
    "wgrad_threads=1",
    "max_epochs=-1",
    "accelerator=cpu",
]
ENDS = [
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGKILL,
]
drop_identity()


def code_of(number):
    """Of a process that was sent the signal. SIGUSR2 ends nothing, the SIGTERM behind it does."""
    if number == signal.SIGUSR1:
        return REQUEUE
    return 128 + (signal.SIGTERM if number == signal.SIGUSR2 else number)


def shell_code(p):
    """A process that has no handler yet ends of the signal itself: the same code for a shell."""
    return p.returncode if p.returncode >= 0 else 128 - p.returncode


def takes(pid, number):
    """Has its main begun, so that it blocks or catches the signal?"""
    status = b"\0".join(of_process(pid, "status"))
    masks = re.findall(rb"^Sig(?:Blk|Cgt):\s*([0-9a-f]+)$", status, re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def rank_of(launcher, rank):
    """The pid of a rank of this launcher; None: it is not there (yet, or any more)."""
    try:
        with open(f"/proc/{launcher}/task/{launcher}/children") as f:
            pids = [int(pid) for pid in f.read().split()]
    except OSError:
        return None
    mine = f"LEVIN_RANK={rank}".encode()
    return next((pid for pid in pids if mine in of_process(pid, "environ")), None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Early(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"LEVIN_TEST_SEED={SEED}", file=sys.stderr)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-early-")
        self.rng = random.Random(f"{SEED} {self.id()}")
        self.tmp = f"{self.dir}/tmp"
        os.mkdir(self.tmp)
        self.shared_before = shared_memory()
        self.seen = collections.Counter()
        self.running = []
        self.runs = 0

    def tearDown(self):
        self.end_all()
        shutil.rmtree(self.dir, ignore_errors=True)
        seen = ", ".join(f"{what}: {n}" for what, n in sorted(self.seen.items()))
        print(f"{self.id().split('.')[-1]}: {self.runs} runs; {seen}", file=sys.stderr)

    def popen(self, arguments, env=None):
        env = {**os.environ, "ASAN_OPTIONS": SIGNALS, "TMPDIR": self.tmp, **(env or {})}
        p = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self.dir,
            env=env,
        )
        self.running.append(p)
        return p

    def end_all(self):
        for p in self.running:
            if p.poll() is None:
                p.kill()
                p.wait()
            p.stdout.close()
        self.running.clear()

    def until(self, condition, what):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.0005)

    def each(self, hit):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or self.runs == 0:
            self.runs += 1
            self.out = f"{self.dir}/{self.runs}"
            hit(self.rng.choice(ENDS), self.rng.random())
            shutil.rmtree(self.out, ignore_errors=True)
            self.end_all()

    def send(self, p, pid, number):
        """To a process that may have ended in the meantime, but not before its main has begun
        where the kernel alone would decide what happens."""
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self.until(lambda: takes(pid, number) or p.poll() is not None, "it takes no signals")
        try:
            os.kill(pid, number)
            if number == signal.SIGUSR2:
                time.sleep(self.rng.random() * 0.05)
                os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass

    def nothing_is_left(self, report, number):
        self.until(lambda: children(self.out) == [], f"processes are left\n{report}")
        self.assertEqual(os.listdir(self.tmp), [], report)
        self.assertEqual(shared_memory(), self.shared_before, report)
        if os.path.isdir(self.out):  # a file that is being written has no name (vfs.h)
            left = {name: data for name, data in tree(self.out).items() if ".tmp" in name}
            if number == signal.SIGKILL:  # between its naming and the rename it is whole
                left = {name for name, data in left.items() if not is_whole(data)}
            self.assertEqual(list(left), [], report)
        self.assertNotIn("Sanitizer", report)
        self.assertNotIn("runtime error:", report)

    def names_only(self, rank, report):
        named = re.findall(r"rank (\d+) \([^)]*\) failed first", report)
        self.assertEqual(set(named) - {str(rank)}, set(), report)

    def describe(self, number, rank, moment, codes):
        name, whom = signal.Signals(number).name, "the launcher" if rank is None else "a rank"
        self.seen[f"{name} to {whom}"] += 1
        return (
            f"{name} to {whom} (rank {rank}), moment {moment:.4f}, exit codes {codes}, "
            f"LEVIN_TEST_SEED={SEED}, run {self.runs}:\n"
        )

    # ---- with a launcher, or as threads of one process ----

    def hit_launched(self, number, moment):
        training = [LEVIN, *TRAINING, f"out={self.out}"]
        arguments = self.rng.choice(
            [
                [*training, f"devices={RANKS}"],
                [
                    LEVIN,
                    "launch",
                    "-n",
                    str(RANKS),
                    "--run-dir",
                    f"{self.out}-launch",
                    "--",
                    *training,
                ],
                [*training, f"devices={RANKS}", "strategy=dp"],
            ]
        )
        rank = self.rng.choice([None, None, *range(RANKS)])
        rank = None if arguments[-1] == "strategy=dp" else rank
        p = self.popen(arguments)
        pid = p.pid
        if rank is not None:
            self.until(lambda: rank_of(p.pid, rank) or p.poll() is not None, "no rank was started")
            pid = rank_of(p.pid, rank)
        time.sleep(moment * WINDOW_S)
        self.send(p, pid, number)
        reported, _ = p.communicate(timeout=WAIT_S)
        report = self.describe(number, rank, moment, shell_code(p)) + f"{arguments}\n{reported}"
        self.nothing_is_left(report, number)
        self.assertEqual(shell_code(p), code_of(number), report)
        self.names_only(rank, report)
        if rank is not None and number == signal.SIGKILL:
            self.assertRegex(report, rf"launch: rank {rank} \(.*\) failed first: killed by SIGKILL")

    def test_launched(self):
        self.each(self.hit_launched)

    # ---- without one: the ranks themselves find out ----

    def hit_by_hand(self, number, moment):
        env = {
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(RANKS),
            "GOMP_SPINCOUNT": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "LEVIN_RDZV_TIMEOUT": "1",
        }
        ranks = [
            self.popen(
                [LEVIN, *TRAINING, f"out={self.out}"], {**env, "RANK": str(r), "LOCAL_RANK": str(r)}
            )
            for r in range(RANKS)
        ]
        rank = self.rng.randrange(RANKS)
        met = self.rng.random() < 0.8  # what comes next takes milliseconds: most goes wrong there
        if met:
            self.until(
                lambda: all("lvn-control" in thread_names(p.pid) for p in ranks)
                or any(p.poll() is not None for p in ranks),
                "they never meet",
            )
        time.sleep(moment * (WINDOW_S / 25 if met else WINDOW_S))
        self.send(ranks[rank], ranks[rank].pid, number)
        reported = [p.communicate(timeout=WAIT_S)[0] for p in ranks]
        codes = [shell_code(p) for p in ranks]
        report = self.describe(number, rank, moment, codes) + "---\n".join(reported)
        self.nothing_is_left(report, number)
        self.assertEqual(codes[rank], code_of(number), report)
        for r in set(range(RANKS)) - {rank}:
            together = [] if number == signal.SIGKILL else [code_of(number)]
            self.assertIn(codes[r], [PEER, RENDEZVOUS, *together], report)
        if met:  # else the store may be waited for in vain, and so may be the rank that has it
            self.names_only(rank, report)

    def test_by_hand(self):
        self.each(self.hit_by_hand)


if __name__ == "__main__":
    main()
