"""What the tests of failing ranks share: a run of several, a way to hurt one of them, and what must
be so afterwards: the end in time, the exit code, the sentence, no process, no shared memory, no
temporary file."""

import os
import re
import subprocess
import time

from case import Case, LEVIN, OK, WAIT_S
from neighbours import Neighbours
from rank_processes import children, drop_identity, of_process, rank_pid, reached

drop_identity()
GRACE_S = float(os.environ.get("LEVIN_TEST_GONE_S", "2"))  # under sanitizers: more
SHAPES = [
    "data=builtin:shapes",
    "data.count=230",
    "image_size=16",
    "batch_size=30",
    "micro_batches=6",
    "wgrad_threads=1",
    "quiet=true",
    "log_every_n_steps=1",
]

TRAIN_SHAPES = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=16",
    "model=mlp",
    "batch_size=6",
    "max_steps=2",
    "val_split=0",
]

# A rank that crashes here was sent the signal: no matter for AddressSanitizer, which would leave
# with a code of its own.
SIGNALS = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "handle_segv=0"]))


def shared_memory():
    """Names that others see: levin uses none, and other programs on this machine may. Fuzz
    tests have their folders there, and so has the simulation of NCCL."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    others = ("-fuzz-", "-nccl-on-sim-")
    return [
        name
        for name in names
        if re.search("lev|lvn", name) and not any(other in name for other in others)
    ]


class RankCase(Case):
    def setUp(self):
        super().setUp()
        self.tmp = f"{self.dir}/tmp"
        os.mkdir(self.tmp)
        os.chmod(self.tmp, 0o777)
        self.shared_before = shared_memory()

    def start_ranks(self, arguments, env=None):
        p = subprocess.Popen(
            arguments,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=self.dir,
            env={**os.environ, "ASAN_OPTIONS": SIGNALS, "TMPDIR": self.tmp, **(env or {})},
        )
        self.addCleanup(self.end, p)
        return p

    def begin(self, *arguments, env=None):
        return self.start_ranks([LEVIN, "train", "classify", *arguments, f"out={self.out}"], env)

    def begin_with(self, script, *arguments, env=None):
        """As begin; each of the three ranks first runs the shell script, which knows $RANK."""
        return self.start_ranks(
            [
                LEVIN,
                "launch",
                "-n",
                "3",
                "--no-prefix",
                "--show=0",
                "--run-dir",
                self.out,
                "--keep-logs=started",
                "--accelerator",
                "sim" if "accelerator=sim" in arguments else "cpu",
                "--",
                "sh",
                "-c",
                script + '; exec "$0" "$@"',
                LEVIN,
                "train",
                "classify",
                *arguments,
                f"out={self.out}",
            ],
            env,
        )

    def gone(self, p, within, since):
        """Returns standard error, once all processes of the run are gone."""
        with Neighbours() as neighbours:
            _, reported = p.communicate(timeout=WAIT_S)
            self.took = time.monotonic() - since
        self.slowdown = neighbours.slowdown()
        self.assertLess(self.took, within * self.slowdown, reported)
        self.assertEqual(children(self.out), [], reported)
        self.assertNotIn("Sanitizer", reported)
        self.assertEqual(shared_memory(), self.shared_before)
        self.assertEqual(os.listdir(self.tmp), [])
        if os.path.exists(self.out):
            self.no_leftovers()
        return reported

    def hurt(self, p, rank, how, code, expects, within=GRACE_S):
        """how: a signal number, or what to do with the process. All ends in time, with this code
        and these pieces of a message."""
        pid = rank_pid(self.out, rank)
        self.assertEqual(
            [
                line
                for child in children(self.out)
                for maps in of_process(child, "maps")
                for line in maps.splitlines()
                if b"/dev/shm/" in line and not line.endswith(b"(deleted)")
            ],
            [],
        )
        since = time.monotonic()
        if callable(how):
            how(pid)
        else:
            os.kill(pid, how)
        reported = self.gone(p, within, since)
        self.assertEqual(p.returncode, code, reported)
        for piece in expects:
            self.assertIn(piece, reported)
        return reported

    def hit(self, rank, how, *arguments, code, expects, within=GRACE_S, when=None):
        p = self.begin(*SHAPES, "devices=3", "max_epochs=-1", *arguments)
        self.wait_for(when or (lambda: self.steps() >= 3), p)
        return self.hurt(p, rank, how, code, expects, within)

    def saved(self):
        return reached(f"{self.out}/checkpoints/last.safetensors")

    def goes_on(self, reported):
        """From the step that the message promises, once, on one device."""
        promised = re.findall(r"step (\d+) \(epoch \d+\) is saved: resume=true", reported)
        self.assertEqual(len(promised), 1, reported)
        step = int(promised[0])
        self.assertEqual(self.saved(), step)
        _, again = self.levin(
            [
                "train",
                "classify",
                f"out={self.out}",
                "resume=true",
                "devices=1",
                "quiet=false",
                f"max_steps={step + 2}",
            ],
            OK,
        )
        self.assertEqual(self.steps(), step + 2, again)
        self.no_leftovers()
