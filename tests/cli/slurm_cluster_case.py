"""A Slurm of the tests' own, for test_slurm_cluster.py: how it is started, asked and stopped.

A cluster of two virtual nodes with 4 simulated GPUs each is started for this file alone by the
scripts `up` and `down` of LEVIN_TEST_SLURM (else ../shared/slurm beside the repository), and is
stopped whatever happens, also when this process is killed. Left out, with the reason, where these
are missing, for others than root, and without Slurm's packages (slurmctld slurmd slurm-client
munge), which `up` installs, but only with LEVIN_TEST_SLOW=1.
"""

import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from reproducibility_lines import first_difference, reproducibility_lines

SOURCE, LEVIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
TOOLS = os.environ.get("LEVIN_TEST_SLURM") or f"{SOURCE}/../shared/slurm"
WAIT_S = 120
SKIP = 77  # for ctest
UP = ["-n", "2", "-c", "8", "-g", "4"]  # a test may have others before it calls main
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=48",
    "image_size=16",
    "model=cnn",
    "batch_size=16",
    "micro_batches=4",
    "wgrad_threads=1",
    "val_split=0.25",
    "model.dropout=0.1",
    "log_every_n_steps=1",
    "seed=3",
]
STEPS = "max_steps=5"
SIM = {"LEVIN_SIM_DEVICES": "4", "LEVIN_SIM_MEMORY": "64MiB"}
SEEDS = [
    "--nodes=1",
    "--gres=gpu:4",
    "--ntasks-per-node=4",
    "--mem=0",
    "--time=0-00:05:00",
]  # what the job scripts of others ask for


def missing():
    """Why there can be no cluster; "" when there can."""
    if not os.access(f"{TOOLS}/up", os.X_OK):
        return f"no cluster tools in {TOOLS} (LEVIN_TEST_SLURM)"
    if os.getuid() != 0:
        return "only root can start a cluster"
    programs = [
        name
        for name in ("slurmctld", "slurmd", "srun", "munged")
        if shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None
    ]
    if programs and os.environ.get("LEVIN_TEST_SLOW") != "1":
        return f"{' '.join(programs)} not installed (LEVIN_TEST_SLOW=1 installs Slurm)"
    return ""


def bind_somewhere(s):
    """To a port that no outgoing connection is given meanwhile, nor a rank without MASTER_PORT."""
    while True:
        port = random.randrange(28000, 32000)
        try:
            s.bind(("127.0.0.1", port))
            return port
        except OSError:
            pass


def command(arguments, env=None, timeout=WAIT_S):
    """Exit code and all that was written, in one text."""
    try:
        done = subprocess.run(
            arguments,
            env={**Cluster.env, **(env or {})},
            cwd=Cluster.dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        queue = subprocess.run(
            "squeue; sinfo -N -l",
            shell=True,
            env=Cluster.env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        ).stdout
        return (
            None,
            f"{arguments}: no end in {timeout} "
            f"s\n{(late.stdout or b'').decode(errors='replace')}\n{queue}",
        )
    return done.returncode, done.stdout


class Cluster(unittest.TestCase):
    env, dir = {}, ""

    @classmethod
    def setUpClass(cls):
        Cluster.dir = tempfile.mkdtemp(
            prefix="lvs", dir="/tmp"
        )  # sockets lie below it: a short path
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        os.chmod(cls.dir, 0o755)
        keep = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("LEVIN_", "SLURM_", "SBATCH_", "CUDA_", "OMP_"))
        }
        Cluster.env = {
            **keep,
            "PATH": f"{os.path.dirname(LEVIN)}:{keep.get('PATH', '')}:/usr/sbin:/sbin",
            "SLURM_CONF": f"{cls.dir}/c/slurm.conf",
        }
        # Stops the cluster when this process ends, in whatever way: it has no parent, and reads
        # from a pipe that no other process holds.
        guard = subprocess.Popen(
            [
                "setsid",
                "-f",
                "bash",
                "-c",
                'read -r; "$0" -r "$1/c"; rm -rf "$1"',
                f"{TOOLS}/down",
                cls.dir,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=Cluster.env,
        )

        def stop():
            guard.stdin.close()
            guard.stdout.read()  # ends when the guard does
            guard.stdout.close()
            guard.wait()

        cls.addClassCleanup(stop)
        with open("/run/lock/levin-test-slurm.lock", "w") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # two clusters that start at once may choose one set of names and ports
            code, reported = command([f"{TOOLS}/up", *UP, f"{cls.dir}/c"], timeout=300)
        if code != 0:
            raise unittest.SkipTest(f"no cluster can be started here: {reported}")
        cls.node = re.search(r"nodes \((\w+)\.\.", reported)[1]
        code, reported = command([LEVIN, *TRAIN, STEPS, "devices=1", f"out={cls.dir}/one"])
        assert code == 0, reported

    def setUp(self):
        self.out = f"{self.dir}/{self._testMethodName}"

    def hash(self, run):
        code, reported = command([LEVIN, "ckpt", "hash", f"{run}/checkpoints/last.safetensors"])
        self.assertEqual(code, 0, reported)
        return reported

    def assert_bits(self, run, reported, one=None):
        self.assertEqual(self.hash(run), self.hash(one or f"{self.dir}/one"), reported)
        self.assertEqual(
            first_difference(
                reproducibility_lines(run), reproducibility_lines(one or f"{self.dir}/one")
            ),
            "",
            reported,
        )

    def srun(self, options, *arguments, code=0, expects=(), env=None, out=None):
        ended, reported = command(
            ["srun", *options, LEVIN, *TRAIN, f"out={out or self.out}", *arguments], env
        )
        self.assertEqual(ended, code, reported)
        for piece in expects:
            self.assertEqual(reported.count(piece), 1, f"{piece}: once\n{reported}")
        return reported

    def batch(self, directives, *lines):
        """The exit code of the job, and its output."""
        script = f"{self.out}.sh"
        with open(script, "w") as f:
            f.write(
                "\n".join(
                    [
                        "#!/bin/bash -l",
                        *(f"#SBATCH {d}" for d in [*directives, f"--output={self.out}.log"]),
                        *lines,
                        "",
                    ]
                )
            )
        return self.submitted(script, f"{self.out}.log")

    def submitted(self, script, log, env=None):
        code, reported = command(["sbatch", "--parsable", script], {**SIM, **(env or {})})
        self.assertEqual(code, 0, reported)
        end = time.monotonic() + WAIT_S
        while True:
            _, job = command(["scontrol", "show", "job", reported.strip()])
            if re.search(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)", job):
                break
            self.assertLess(time.monotonic(), end, job)
            time.sleep(0.1)
        with open(log) as f:
            return int(re.search(r" ExitCode=(\d+):", job)[1]), f.read()

    def start(self, options, *arguments, env=None, out=None):
        """A step without an end, returned when its first metrics are written."""
        out = out or self.out
        p = subprocess.Popen(
            [
                "srun",
                f"--job-name={os.path.basename(out)}",
                *options,
                LEVIN,
                *TRAIN,
                f"out={out}",
                "max_epochs=-1",
                *arguments,
            ],
            cwd=self.dir,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def end():
            command(["scancel", f"--name={os.path.basename(out)}"])
            p.communicate(timeout=WAIT_S)

        self.addCleanup(lambda: p.stdout.closed or end())
        limit = time.monotonic() + WAIT_S
        while not os.path.exists(f"{out}/checkpoints/last.safetensors"):
            self.assertIsNone(p.poll(), "the step ended by itself")
            self.assertLess(time.monotonic(), limit, "nothing happened")
            time.sleep(0.02)
        return p

    def ranks(self):
        """{rank: process id} of the trainings of this test."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    arguments = f.read().decode(errors="replace").split("\0")
                with open(f"/proc/{pid}/environ", "rb") as f:
                    number = re.search(rb"(?:^|\0)SLURM_PROCID=(\d+)\0", f.read())
            except OSError:
                continue
            if f"out={self.out}" in arguments and arguments[0] == LEVIN and number:
                found[int(number[1])] = int(pid)
        return found

    def step_of(self, run):
        with open(f"{run}/metrics.jsonl") as f:
            return max(json.loads(line)["step"] for line in f)


def main():
    if missing():
        print(f"left out: {missing()}")
        sys.exit(SKIP)
    result = unittest.main(verbosity=1, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else SKIP if result.testsRun == 0 else 0)
