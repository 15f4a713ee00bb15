"""`levin launch --max-restarts` in the batch script of a real Slurm allocation (#SBATCH --no-kill):
what ends is started again on the nodes that are left, with the same bits. With LEVIN_TEST_SLOW=1
also an allocation of which too little is left, and a node that comes back.

usage: test_elastic.py SOURCE_DIR LEVIN [test names]
"""

import os
import signal
import time
import unittest

import slurm_cluster_case
from slurm_cluster_case import Cluster, LEVIN, SIM, TOOLS, TRAIN, WAIT_S, command, main

slurm_cluster_case.UP = ["-N", "-n", "3", "-c", "4", "-g", "0"]
SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
NODES = 3
WORK = [*TRAIN, "accelerator=cpu", "checkpoint.every_n_steps=1"]


class Elastic(Cluster):
    def submit(self, *launch, train=(), requeue=False):
        line = " ".join([LEVIN, "launch", *launch, "--", LEVIN, *WORK, *train, f"out={self.out}"])
        with open(f"{self.out}.sh", "w", encoding="utf-8") as f:
            f.write(
                "#!/bin/bash -l\n#SBATCH --no-kill\n"
                f"#SBATCH --{'requeue' if requeue else 'no-requeue'}\n"
                f"#SBATCH --nodes={NODES}\n#SBATCH --ntasks-per-node=1\n"
                f"#SBATCH --output={self.out}.log\n{line}\necho code=$?\n"
            )
        code, job = command(["sbatch", "--parsable", f"{self.out}.sh"], SIM)
        self.assertEqual(code, 0, job)
        self.addCleanup(command, ["scancel", job.strip()])

    def log(self):
        if not os.path.exists(f"{self.out}.log"):
            return ""
        with open(f"{self.out}.log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def until(self, ready, limit=WAIT_S):
        end = time.monotonic() + limit
        while not ready():
            self.assertLess(time.monotonic(), end, self.log())
            time.sleep(0.05)

    def ended(self, code):
        self.until(lambda: "code=" in self.log())
        self.assertIn(f"code={code}\n", self.log())
        return self.log()

    def begun(self):
        """Its processes of a training that has saved."""
        self.until(lambda: os.path.exists(f"{self.out}/checkpoints/last.safetensors"))
        return self.ranks()

    def assert_same(self, reported, steps):
        one = f"{self.dir}/one{steps}"
        if not os.path.exists(one):
            arguments = [*WORK, f"max_steps={steps}", "devices=1", f"out={one}"]
            code, alone = command([LEVIN, *arguments])
            self.assertEqual(code, 0, alone)
        self.assertEqual(self.hash(self.out), self.hash(one), reported)

    def lose(self, node):
        """The power failure of a node; it is there again for the next test, if there is one."""
        with open(f"{self.dir}/c/run/{node}.pid", encoding="utf-8") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        if SLOW:
            self.addCleanup(self.heal)

    def heal(self):
        command([f"{TOOLS}/up", f"{self.dir}/c"])
        nodes = ",".join(f"{self.node[:-1]}{i}" for i in range(1, NODES + 1))
        self.until(lambda: not command(["squeue", "-h"])[1].strip(), 60)
        command(["scontrol", "update", f"nodename={nodes}", "state=resume"])
        self.until(
            lambda: command(["sinfo", "-h", "-t", "idle", "-o", "%D"])[1].strip() == str(NODES), 60
        )

    def test_a_mistake_is_not_repeated(self):
        self.submit("--max-restarts", "3", train=["optim=nothing"])
        self.assertNotIn("restart 1", self.ended(64))

    def test_a_rank_that_dies(self):
        self.submit("--max-restarts", "2", train=["max_steps=150"])
        os.kill(self.begun()[1], signal.SIGKILL)
        reported = self.ended(0)
        self.assertEqual(reported.count("restart 1 of 2: 3 ranks on 3 of 3 nodes\n"), 1, reported)
        self.assertNotIn("restart 2", reported)
        self.assert_same(reported, 150)

    def test_without_effect(self):
        for words in (["--min-ranks", "2"], ["--min-ranks", "2", "--max-restarts", "1"]):
            code, reported = command([LEVIN, "launch", *words, "-n", "1", "--", "true"])
            self.assertEqual(code, 64, reported)
            self.assertIn("min_ranks 2 has no effect", reported)

    def test_z_a_node_that_dies(self):
        self.submit("--max-restarts", "1", "--min-ranks", "2", train=["max_steps=150"])
        self.begun()
        last = f"{self.node[:-1]}{NODES}"
        self.lose(last)
        reported = self.ended(0)
        self.assertIn(f"restart 1 of 1: 2 ranks on 2 of 3 nodes; no answer from {last}\n", reported)
        self.assert_same(reported, 150)

    @unittest.skipUnless(SLOW, "as long as the test before: LEVIN_TEST_SLOW=1")
    def test_zz_too_few_left(self):
        self.submit("--max-restarts", "1", "--min-ranks", "3", train=["max_epochs=-1"])
        self.begun()
        self.lose(f"{self.node[:-1]}{NODES}")
        reported = self.ended(76)
        self.assertIn("no more restarts: 2 ranks left, min_ranks=3; no answer from", reported)

    @unittest.skipUnless(SLOW, "two minutes: LEVIN_TEST_SLOW=1")
    def test_zzz_a_node_that_comes_back(self):
        """Before Slurm has declared it down, which is when a node leaves its job for good."""
        with open(f"{self.dir}/c/slurm.conf", encoding="utf-8") as f:
            conf = f.read()
        with open(f"{self.dir}/c/slurm.conf", "w", encoding="utf-8") as f:
            f.write(conf.replace("SlurmdTimeout=20", "SlurmdTimeout=200"))
        self.assertEqual(command(["scontrol", "reconfigure"])[0], 0)
        self.submit(
            "--max-restarts", "1", "--min-ranks", "2", train=["max_steps=3000"], requeue=True
        )
        self.begun()
        last = f"{self.node[:-1]}{NODES}"
        self.lose(last)
        self.until(lambda: "restart 1 of 1: 2 ranks on 2 of 3 nodes" in self.log())
        command([f"{TOOLS}/up", f"{self.dir}/c"])
        reported = self.ended(0)
        self.assertIn(f"{last} is back: the training saves, and continues with it\n", reported)
        self.assertIn("continues with 3 ranks on 3 of 3 nodes\n", reported)
        self.assertNotIn("scontrol", reported)
        self.assert_same(reported, 3000)


main()
