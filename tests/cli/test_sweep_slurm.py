"""levin sweep submit on a real Slurm: the same trials as an array, as jobs of two nodes each and by
workers in one job come to the same results.

usage: test_sweep_slurm.py SOURCE_DIR LEVIN [test names]
"""

import json
import os
import time

from slurm_cluster_case import Cluster, LEVIN, TRAIN, WAIT_S, command, main

JOB = ["accelerator=cpu", "-t5", "-c1", f"--setup=export PATH={os.path.dirname(LEVIN)}:$PATH"]
WAYS = {"array": ["devices=2"], "jobs": ["devices=1", "-N2"], "tasks": ["devices=2"]}


class Submitted(Cluster):
    def sweep(self, *words):
        code, reported = command([LEVIN, "sweep", *words])
        self.assertEqual(code, 0, reported)
        return reported

    def plan(self, name):
        self.sweep(
            "plan",
            f"out={self.dir}/{name}",
            "--list=optim.lr=0.001,0.01",
            "--list=seed=1,2",
            "--",
            "levin",
            *(w for w in TRAIN if not w.startswith("seed=")),
            "max_epochs=2",
        )

    def wait(self):
        end = time.monotonic() + WAIT_S
        while command(["squeue", "-h"])[1].strip():
            self.assertLess(time.monotonic(), end, command(["squeue"])[1])
            time.sleep(0.2)

    def test_ways(self):
        found = {}
        for way, options in WAYS.items():
            self.plan(way)
            submit = ["submit", f"{self.dir}/{way}", f"as={way}", *options, *JOB]
            self.assertIn("job ", self.sweep(*submit))
            # those that have not begun are in the queue, the others run: none is submitted twice
            self.assertIn("has to be submitted", self.sweep(*submit))
            self.wait()
            shown = json.loads(self.sweep("show", f"{self.dir}/{way}", "format=json"))
            found[way] = [
                (t["trial"], t["state"], t["attempts"], t["value"], t["last"])
                for t in shown["trials"]
            ]
        self.assertEqual([t[1:3] for t in found["array"]], [("done", 1)] * 4)
        self.assertEqual(found["jobs"], found["array"])
        self.assertEqual(found["tasks"], found["array"])

    def test_queued_again(self):
        """At the signal before its time limit a trial of two ranks leaves a checkpoint, its job is
        queued again and goes on, to the result of the trial alone."""
        alone = f"{self.dir}/alone"
        keys = [w for w in TRAIN if not w.startswith("seed=")]
        steps = ["max_epochs=120", "optim.lr=0.001", "seed=1"]
        self.sweep(
            "plan",
            f"out={alone}",
            "--list=optim.lr=0.001",
            "--list=seed=1",
            "--",
            "levin",
            *keys,
            "max_epochs=120",
        )
        code, reported = command([LEVIN, *keys, *steps, f"out={self.out}", "devices=1"])
        self.assertEqual(code, 0, reported)
        self.sweep("submit", alone, "devices=2", *JOB)
        last = f"{alone}/trials/000000/run/checkpoints/last.safetensors"
        end = time.monotonic() + WAIT_S
        while not os.path.exists(last):
            self.assertLess(time.monotonic(), end, command(["squeue"])[1])
            time.sleep(0.05)
        with open(f"{alone}/jobs.tsv") as f:
            job = f.read().splitlines()[1].split("\t")[0]
        code, reported = command(["scancel", "--signal=USR1", job])
        self.assertEqual(code, 0, reported)
        self.wait()
        shown = json.loads(self.sweep("show", alone, "0", "format=json"))
        self.assertEqual((shown["state"], shown["attempts"]), ("done", 2))
        self.assertEqual(self.hash(f"{alone}/trials/000000/run"), self.hash(self.out))


if __name__ == "__main__":
    main()
