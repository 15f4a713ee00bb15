"""Workers of a sweep on several nodes of a real Slurm: killed ones, and a requeued job.

usage: test_sweep_cluster.py SOURCE_DIR LEVIN [test names]
LEVIN_TEST_SLOW=1: 32 workers and 200 kills instead of 8 and 12. LEVIN_TEST_SEED=N: other moments.
"""

import glob
import json
import os
import random
import signal
import subprocess
import time

from slurm_cluster_case import Cluster, LEVIN, TRAIN, WAIT_S, command, main

SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
STEPS, WORKERS = (8, 4) if SLOW else (4, 2)
KILLS, TRIALS = (200, 1500) if SLOW else (12, 120)


def count(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


class Sweeps(Cluster):
    def plan(self, trials, *words):
        values = ",".join(map(str, range(trials)))
        code, reported = command(
            [
                LEVIN,
                "sweep",
                "plan",
                f"out={self.out}",
                f"--list=x={values}",
                "--dead-after=1",
                "--",
                *words,
            ]
        )
        self.assertEqual(code, 0, reported)

    def step(self, *words):
        """Workers beside each other in a step of a job of their own."""
        p = subprocess.Popen(
            ["srun", "--overcommit", "--mem=0", *words],
            cwd=self.dir,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def end():
            p.kill()
            p.communicate(timeout=WAIT_S)

        self.addCleanup(lambda: p.stdout.closed or end())
        return p

    def workers(self):
        """Processes `levin sweep worker` of this test, on all nodes."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
                with open(f"/proc/{pid}/comm") as f:
                    guard = f.read() == "lvn-guard\n"
            except OSError:
                continue
            if not guard and words[:4] == [LEVIN, "sweep", "worker", self.out]:
                found.append(int(pid))
        return found

    def trial(self, i):
        return f"{self.out}/trials/{i:06}"

    def assert_all_ended_once(self, trials):
        for i in range(trials):
            with open(f"{self.trial(i)}/result") as f:
                self.assertEqual(json.load(f)["state"], "done")
            ends = 0
            for path in glob.glob(f"{self.trial(i)}/left.*"):
                with open(path) as f:
                    ends += json.load(f)["why"] == "ended"
            self.assertEqual(ends, 1, i)
            self.assertGreaterEqual(count(f"{self.trial(i)}/run/ran"), 1)

    def test_killed_workers(self):
        """On two nodes, in several jobs; what they leave is taken over on the same node and on the
        other one."""
        rng = random.Random(int(os.environ.get("LEVIN_TEST_SEED", "1")))
        self.plan(TRIALS, "sh", "-c", "sleep 0.05; printf . >>{trial_dir}/ran")
        options = [
            "-N",
            "2",
            "-n",
            str(WORKERS),
            "-s",
            LEVIN,
            "sweep",
            "worker",
            self.out,
            "--quiet",
        ]
        steps = [self.step(*options) for _ in range(STEPS)]
        killed = 0
        end = time.monotonic() + WAIT_S
        while killed < KILLS and time.monotonic() < end:
            time.sleep(rng.random() * 0.05)
            alive = self.workers()
            if alive:
                try:
                    os.kill(rng.choice(alive), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed += 1
            for i, step in enumerate(steps):
                if step.poll() is not None:
                    step.communicate()
                    steps[i] = self.step(*options)
        steps.append(self.step(*options))
        for step in steps:
            step.communicate(timeout=WAIT_S)
        self.assertEqual(killed, KILLS)
        self.assertTrue(glob.glob(f"{self.out}/trials/*/claim.2"))
        self.assert_all_ended_once(TRIALS)

    def test_worker_of_another_node(self):
        """As long as it beats it has its trial; when it is dead, the other node goes on."""
        self.plan(
            1, "sh", "-c", "printf . >>{trial_dir}/ran; test -s {trial_dir}/again || sleep 100"
        )
        first = self.step("-w", self.node, LEVIN, "sweep", "worker", self.out)
        end = time.monotonic() + WAIT_S
        while not count(f"{self.trial(0)}/run/ran"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        owner = self.workers()
        second = self.step("-N", "1", "-x", self.node, LEVIN, "sweep", "worker", self.out)
        time.sleep(4)  # more than three times dead_after
        self.assertEqual(len(self.workers()), 2)
        self.assertFalse(os.path.exists(f"{self.trial(0)}/claim.2"))
        with open(f"{self.trial(0)}/run/again", "w") as f:
            f.write("x")
        os.kill(owner[0], signal.SIGKILL)
        reported, _ = second.communicate(timeout=WAIT_S)
        self.assertIn("is dead and taken over", reported)
        first.communicate(timeout=WAIT_S)
        self.assert_all_ended_once(1)

    def test_requeued_job(self):
        """SIGUSR1: a checkpoint, another start of the job, and the bits of a training alone."""
        words = [LEVIN, *TRAIN, "max_epochs=20", "checkpoint.every_n_steps=1"]
        code, reported = command([*words, f"out={self.out}-alone"])
        self.assertEqual(code, 0, reported)
        code, reported = command(
            [LEVIN, "sweep", "plan", f"out={self.out}", "--list=seed=3", "--", "levin", *words[1:]]
        )
        self.assertEqual(code, 0, reported)
        script = f"{self.out}.sh"
        with open(script, "w") as f:
            f.write(
                "#!/bin/bash\n#SBATCH --requeue --open-mode=append\n"
                f"#SBATCH --output={self.out}.log\nsrun {LEVIN} sweep run {self.out}\n"
            )
        code, job = command(["sbatch", "--parsable", script])
        self.assertEqual(code, 0, job)
        end = time.monotonic() + WAIT_S
        while not os.path.exists(f"{self.trial(0)}/run/checkpoints/last.safetensors"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        command(["scancel", "-s", "USR1", job.strip()])
        while not os.path.exists(f"{self.trial(0)}/result"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        with open(f"{self.out}.log") as f:
            reported = f.read()
        self.assertIn("is interrupted after", reported)
        self.assertIn("is requeued: its next start goes on from the checkpoint", reported)
        self.assertIn("begins: seed=3 (attempt 2)", reported)
        self.assert_bits(f"{self.trial(0)}/run", reported, f"{self.out}-alone")


if __name__ == "__main__":
    main()
