"""Scripts of levin slurm script on a real Slurm: those of the documents and random sets of options
pass `sbatch --test-only`, one of each kind trains, and a job that is queued again ends well.

usage: test_slurm_scripts.py SOURCE_DIR LEVIN [test names]
LEVIN_TEST_SLOW=1: 500 random sets instead of 25. LEVIN_TEST_SEED=N: others.
"""

import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import slurm_cluster_case
from slurm_cluster_case import LEVIN, SIM, STEPS, TRAIN, WAIT_S, Cluster, command, main

slurm_cluster_case.UP[:] = ["-n", "12", "-c", "24", "-g", "8"]
SETS = 500 if os.environ.get("LEVIN_TEST_SLOW") == "1" else 25
SEED = int(os.environ.get("LEVIN_TEST_SEED", "38"))
CLASSIFY = ["train", "classify", "data=builtin:shapes", "batch_size=768", "plan=false"]
# A login shell would replace the PATH in which this levin is.
USUAL = ["--time=5", "--cpus-per-task=2", "--shebang=#!/bin/bash"]
PYTHON = ["--", "python", "train.py"]
# Of the documents; partition, nodes and the type of the GPUs are this cluster's.
SCRIPTS = {
    "rcgan": "-J multi_gpu_train -p main -w NODE --devices 4 --gpu-syntax gres -c 4 -t 60 "
    "-o multi_gpu_train_%j.out -e multi_gpu_train_%j.err",
    "rcgan finder": "-J find_batch_size -p main -w NODE --devices 1 --gpu-syntax gres -t 60",
    "lightning": "--nodes 12 --devices 8 --gpu-syntax gres --mem 0 --time 0-02:00:00 "
    "--master-port random",
    "lightly": "--devices 2 --gpu-syntax gres -c 12 --mem 0 -t 2:00:00",
    "guide": "-p main --gpu-type A100 --devices 2 -c 1 -t 00:05:00 -o /dev/null -e /dev/null "
    "--master-port 29400",
    "guide search": "--nodes 2 --independent-tasks 4 -c 2 -t 0-00:05:00",
    "ddp2": "--nodes 2 --devices 2 --gpu-syntax gres --strategy ddp2 --mem 0 -t 0-02:00:00",
    "llm.c": "--nodes 2 --devices 8 --gpu-syntax gres -o %x_%j_%t -e %x_%j_%t -t 60",
}
# What any job may have here, an option or several that belong together.
CHOICES = [
    "-N 2", "-N 12", "--nodes=3", "--gpu-syntax gres", "--gpu-type A100", "-c 3", "-c 6",
    "--workers 2", "--mem 0", "--mem 2G", "--mem-per-gpu 512", "-t 10", "-t 1-12", "-t 90s",
    "--time-min 1", "-a 0-3", "-a 1,3,7%2", "-a 0-1000", "--signal USR1@60", "--signal B:TERM@30",
    "--requeue --signal USR2", "--no-requeue", "-p main", "-J name", "--comment a", "--exclusive",
    "--contiguous", "-m block", "-x OTHER", "--nice=5", "-b now+1hour", "--mail-type END",
    "--mail-user a@b", "--mode launcher", "--strategy ddp2", "--no-srun", "-o /dev/null",
    "--env-propagate NONE", "--env-propagate PATH,HOME", "--export A=1", "--setup hostname",
    "--module-purge", "--master-port random", "--debug", "--shell-trace", "-D /tmp",
    "--sbatch wait-all-nodes=1", "--cpu-bind none", "--srun-arg=--label", "--raw",
    "--switches 1@0:10", "--kill-on-invalid-dep yes", "--teardown date",
]  # fmt: skip


class Scripts(Cluster):
    def levin(self, *arguments, code=0):
        ended, reported = command([LEVIN, "slurm", *arguments], SIM)
        self.assertEqual(ended, code, f"{arguments}\n{reported}")
        return reported

    def pass_sbatch(self, path):
        code, reported = command(["sbatch", "--test-only", path])
        with open(path, encoding="utf-8") as f:
            self.assertEqual(code, 0, f"{reported}\n{f.read()}")

    def words(self, text):
        return text.replace("NODE", self.node).replace("OTHER", self.node).split()

    def test_documents(self):
        for name, options in SCRIPTS.items():
            path = f"{self.dir}/{name.replace(' ', '-')}.sh"
            reported = self.levin("script", *self.words(options), f"--out={path}", *PYTHON)
            self.assertNotIn("cluster:", reported)
            self.pass_sbatch(path)

    def random_set(self, r):
        picked = r.sample(CHOICES, r.randint(0, 9))
        keys = [choice.split()[0].split("=")[0] for choice in picked]
        words = ["--devices", str(r.choice((1, 2, 4, 8)))]
        for i, choice in enumerate(picked):
            if keys[i] not in keys[:i]:
                words += choice.split()
        return words

    def test_random_sets(self):
        """What levin passes Slurm takes, and what it refuses has an error of its own."""
        r = random.Random(SEED)
        sets = [self.random_set(r) for _ in range(SETS)]

        def run(i):
            path = f"{self.dir}/r{i}.sh"
            program = [*CLASSIFY, "out=x"] if i % 4 == 0 else ["--", "prog", "a b"]
            words = self.words(" ".join(sets[i]))
            code, reported = command([LEVIN, "slurm", "script", *words, f"--slurm.out={path}",
                                      *program])
            if code == 64:
                self.assertIn("levin: error ", reported)
                return 0
            self.assertEqual(code, 0, f"{words}\n{reported}")
            self.pass_sbatch(path)
            return 1

        with ThreadPoolExecutor(4) as pool:
            passed = sum(pool.map(run, range(SETS)))
        print(f"{passed} of {SETS} sets are jobs, LEVIN_TEST_SEED={SEED}")
        self.assertGreater(passed, SETS // 3)

    def submit(self, *options, train=()):
        """The job's output when it has ended, with exit code 0."""
        log = f"{self.out}.log"
        reported = self.levin("submit", "--wait", *USUAL, f"--log-dir={self.out}-l",
                              f"--output={log}", *options, *TRAIN, STEPS, f"out={self.out}",
                              "accelerator=sim", *train)
        self.assertRegex(reported, r"(?m)^job \d+$")
        return Path(log).read_text(encoding="utf-8")

    def test_one_of_each_kind_trains(self):
        for options, expects in (
            (["--devices=2"], "2 ranks: processes"),
            (["--devices=2", "-N2"], "4 ranks: processes"),
            (["--devices=4", "--mode=launcher"], "4 ranks: processes"),
            (["--devices=2", "--signal=B:USR1@60", "--gpu-syntax=gres"], "2 ranks: processes"),
            (["--devices=4", "--no-srun"], "4 ranks: processes"),
        ):
            self.out = f"{self.dir}/kind{options[-1]}"
            self.assertIn(expects, self.submit(*options))
            self.assert_bits(self.out, "")

    def test_queued_again(self):
        """SIGUSR1 in the first start; the mark, and the end of the second start, which is 0."""
        log, folder = f"{self.out}.log", f"{self.out}-l"
        steps = ["max_steps=1500", "checkpoint.every_n_steps=20"]
        reported = self.levin("submit", *USUAL, "--devices=2", f"--output={log}",
                              f"--log-dir={folder}", *TRAIN, *steps, f"out={self.out}",
                              "accelerator=cpu")
        job = re.search(r"(?m)^job (\d+)$", reported)[1]
        self.addCleanup(command, ["scancel", job])
        with open(f"{folder}/jobs.tsv", encoding="utf-8") as f:
            script = f.read().splitlines()[1].split("\t")[2]
        with open(script, encoding="utf-8") as f:
            self.assertIn(f'levin slurm finish "$rc" {self.out} && rc=0\n', f.read())
        end = time.monotonic() + WAIT_S
        while not os.path.exists(f"{self.out}/checkpoints/last.safetensors"):
            self.assertLess(time.monotonic(), end, job)
            time.sleep(0.02)
        self.assertEqual(command(["scancel", "--signal=USR1", job])[0], 0)
        while "JobState=COMPLETED" not in (shown := command(["scontrol", "show", "job", job])[1]):
            self.assertNotIn("JobState=FAILED", shown)
            self.assertLess(time.monotonic(), end, Path(log).read_text(encoding="utf-8"))
            time.sleep(0.2)
        self.assertIn(" Restarts=1 ", shown)
        self.assertIn("ExitCode=0:0", shown)
        with open(f"{self.out}/requeued", encoding="utf-8") as f:
            self.assertEqual(f.read(), f"0 {job}")
        first = {"SLURM_JOB_ID": job}
        self.assertEqual(command([LEVIN, "slurm", "finish", "85", self.out], first)[0], 0)
        second = {**first, "SLURM_RESTART_COUNT": "1"}
        self.assertEqual(command([LEVIN, "slurm", "finish", "85", self.out], second)[0], 85)


if __name__ == "__main__":
    main()
