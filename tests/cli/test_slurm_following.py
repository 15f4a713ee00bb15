"""levin slurm status, logs, why, cancel, requeue, signal, nodes and shell with jobs of a real
Slurm, which has no accounting here.

usage: test_slurm_following.py SOURCE_DIR LEVIN [test names]
"""

import json
import re
import subprocess
import time

from slurm_cluster_case import LEVIN, SEEDS, TRAIN, WAIT_S, Cluster, command, main

OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Following(Cluster):
    def setUp(self):
        super().setUp()
        self.logs = f"{self.out}-logs"

    def slurm(self, *arguments, code=0, timeout=WAIT_S):
        got, reported = command([LEVIN, "slurm", *arguments], timeout=timeout)
        self.assertEqual(got, code, reported)
        return reported

    def submit(self, *arguments):
        reported = self.slurm(
            "submit",
            "--no-plan",
            f"--log-dir={self.logs}",
            "-t",
            "10",
            "-c1",
            "-J",
            self._testMethodName,
            *arguments,
        )
        job = re.search(r"^job (\d+)$", reported, re.M)[1]
        self.addCleanup(command, ["scancel", job])
        return job

    def state(self, job):
        return json.loads(self.slurm("status", "--json", job))[0]["state"]

    def wait(self, job, *states):
        end = time.monotonic() + WAIT_S
        while self.state(job) not in states:
            self.assertLess(time.monotonic(), end, self.slurm("why", job))
            time.sleep(0.2)

    def test_a_training(self):
        """From the queue over a signal and a second start to its end, by number, name and run
        directory."""
        name = self._testMethodName
        job = self.submit(
            "--devices=2",
            "--accelerator=cpu",
            "--",
            LEVIN,
            *TRAIN,
            "max_steps=1500",
            "checkpoint.every_n_steps=20",
            f"out={self.out}",
        )
        where = f"--log-dir={self.logs}"
        p = subprocess.Popen(
            [LEVIN, "slurm", "logs", "-f", "last", where],
            cwd=self.dir,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(p.kill)
        self.wait(job, "RUNNING")
        row = self.slurm("status", name).splitlines()[1].split()
        self.assertEqual(row[:3], [job, name, "running"])
        self.assertIn(f"job {job} ({name}): running, after ", self.slurm("why", "last", where))
        end = time.monotonic() + WAIT_S
        while "INFO] step" not in self.train_log() and "epoch 1 done" not in self.train_log():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        here = self.slurm("shell", job, "--", "printenv", "SLURM_JOB_ID")
        self.assertIn(job, here.split())
        self.assertEqual(self.slurm("signal", self.out, "USR1"), f"sent USR1: {job}\n")
        self.wait(job, "PENDING", "COMPLETED")
        self.assertIn(
            f"job {job} ({name}) is waiting for its start number 2: ", self.slurm("why", job)
        )
        self.assertIn("cancelled", self.slurm("cancel", name))
        self.wait(job, "CANCELLED")
        followed, _ = p.communicate(timeout=WAIT_S)
        self.assertIn("stopped: SIGUSR1 after step ", followed)
        self.assertIn(f"levin: job {job} has ended: cancelled", followed)
        self.assertEqual(followed.count("model cnn: "), 1, followed)
        self.assertIn(f"next: levin slurm requeue {job} starts it again", self.slurm("why", job))
        self.assertIn("its state is `cancelled`", self.slurm("cancel", job, code=69))

    def train_log(self):
        try:
            with open(f"{self.out}/train.log", encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def test_a_failure(self):
        """The error of the training, and not what srun and Slurm add to it."""
        job = self.submit(
            "--devices=2",
            "--accelerator=cpu",
            "--",
            LEVIN,
            *TRAIN,
            "max_steps=5",
            "optim.lr=1e30",
            f"out={self.out}",
        )
        self.wait(job, "FAILED")
        why = self.slurm("why", job)
        self.assertRegex(
            why,
            rf"^job {job} \(\w+\): failed, after \S+ of 10:00 on \w+, exit code "
            r"(1|76): the loss is nan at step \d",
        )
        self.assertIn("next: repair that", why)
        self.assertIn(f"run directory: {self.out}\n", why)

    def test_an_array(self):
        job = self.submit(
            "-a",
            "0-2",
            "--ntasks-per-node=1",
            "--no-requeue",
            "--",
            "bash",
            "-c",
            "echo element; exit $SLURM_ARRAY_TASK_ID",
        )
        for i, state in enumerate(("COMPLETED", "FAILED", "FAILED")):
            self.wait(f"{job}_{i}", state)
        self.assertEqual(len(self.slurm("status", job).splitlines()), 4)
        why = self.slurm("why", job)
        self.assertIn(f"job {job} has 3 parts: 2 failed, 0 running, 0 waiting, 1 finished", why)
        self.assertRegex(why, rf"job {job}_[12] \(\w+\): failed, .*, exit code [12]")
        self.assertIn("element\n", self.slurm("logs", f"{job}_2"))
        self.assertEqual(self.slurm("logs", job).count("==> "), 3)

    def test_nodes_and_others(self):
        code, job = command(["sbatch", "--parsable", "--wrap", "sleep 600", *SEEDS])
        self.assertEqual(code, 0, job)
        job = job.strip()
        self.addCleanup(command, ["scancel", job])
        self.wait(job, "RUNNING")
        rows = json.loads(self.slurm("nodes", "--json"))
        self.assertEqual(sum(row["nodes"] for row in rows), 2)
        gpus = [gpu for row in rows for gpu in row["gpus"]]
        self.assertEqual(sum(gpu["total"] for gpu in gpus), 8)
        self.assertEqual(sum(gpu["free"] for gpu in gpus), 4, rows)
        self.assertEqual(len(self.slurm("nodes", "-N").splitlines()), 3)
        for act in (["cancel", job], ["requeue", job], ["signal", job, "USR1"]):
            code, reported = command([*OTHER_USER, LEVIN, "slurm", *act])
            self.assertEqual(code, 69, reported)
            self.assertIn(f"job {job} is a job of root, and is left alone", reported)
        code, reported = command([*OTHER_USER, LEVIN, "slurm", "cancel", job, "--user=root"])
        self.assertEqual(code, 69, reported)
        self.assertIn("scancel refuses", reported)
        self.assertEqual(self.state(job), "RUNNING")
        self.assertIn("does not know it", self.slurm("why", "99999", code=1))


if __name__ == "__main__":
    main()
