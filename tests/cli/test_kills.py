#!/usr/bin/env python3
"""A run that is killed again and again, at random moments, most of them while it saves: never are
there fewer good checkpoints than before, no file is damaged, and the run ends with the bits of the
undisturbed one.

usage: test_kills.py LEVIN
LEVIN_TEST_SLOW=1: 1,000 kills instead of 6. LEVIN_TEST_SEED=N: other moments.
"""

import json
import os
import random
import shutil
import struct
import subprocess

import case
from case import LEVIN, OK, WAIT_S, Case

KILLS = 1000 if os.environ.get("LEVIN_TEST_SLOW") else 6
SEED = int(os.environ.get("LEVIN_TEST_SEED", "1"))
STEPS = 40
RUN = [
    "data=builtin:shapes",
    "data.count=60",
    "data.classes=3",
    "image_size=8",
    "model=cnn",
    "batch_size=8",
    "micro_batches=2",
    "wgrad_threads=1",
    "val_split=0.2",
    "num_workers=0",
    "seed=5",
    f"max_steps={STEPS}",
    "checkpoint.every_n_steps=1",
    "checkpoint.monitor=val/loss",
    "checkpoint.save_top_k=2",
]


def step_of(path):
    """Of a checkpoint that is there: its header is whole, or this raises."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return int(json.loads(f.read(n))["__metadata__"]["levin.step"])


class Kills(Case):
    def line(self, name):
        out = f"{self.dir}/{name}"
        if self.checkpoints(name):
            return ["train", "classify", f"out={out}", "resume=true"]
        shutil.rmtree(out, ignore_errors=True)
        return ["train", "classify", *RUN, f"out={out}"]

    def weights(self, name):
        path = f"{self.dir}/{name}/checkpoints/last.safetensors"
        return self.levin(["ckpt", "hash", path], OK)[0]

    def checkpoints(self, name):
        folder = f"{self.dir}/{name}/checkpoints"
        there = os.listdir(folder) if os.path.isdir(folder) else []
        return {n: step_of(f"{folder}/{n}") for n in there if n.endswith(".safetensors")}

    def kill_after(self, name, delay):
        """Whether the kill met the run, and not its end."""
        p = subprocess.Popen(
            [LEVIN, *self.line(name)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            text = p.communicate(timeout=delay)[0]
        except subprocess.TimeoutExpired:
            p.kill()
            text = p.communicate(timeout=WAIT_S)[0]
        self.assertIn(p.returncode, (OK, -9), text.decode())
        return p.returncode != OK

    def check(self, name, before):
        """What is there after a kill that came when `before` was there, {file: step}."""
        after = self.checkpoints(name)
        if "last.safetensors" in before:
            self.assertGreaterEqual(after.get("last.safetensors", -1), before["last.safetensors"])
        self.assertGreaterEqual(len(after), len(before))
        if after:
            self.levin(["ckpt", "verify", f"{self.dir}/{name}"], OK)
        return after

    def one_run(self, name, moments, left):
        """Kills it until it ends or `left` are done; (kills, of them after a checkpoint)."""
        kills = saved = 0
        there = {}
        while kills < left and self.kill_after(name, moments.uniform(0.0, 0.35)):
            kills += 1
            after = self.check(name, there)
            saved += after.get("last.safetensors") != there.get("last.safetensors")
            there = after
        self.levin(self.line(name), OK)
        return kills, saved

    def test_kills(self):
        self.levin(self.line("undisturbed"), OK)
        expected = self.weights("undisturbed")
        kept = self.checkpoints("undisturbed")
        moments = random.Random(SEED)
        kills = saved = runs = 0
        while kills < KILLS:
            done, of_them = self.one_run(f"killed_{runs}", moments, KILLS - kills)
            self.assertEqual(self.weights(f"killed_{runs}"), expected, f"LEVIN_TEST_SEED={SEED}")
            self.assertEqual(self.checkpoints(f"killed_{runs}"), kept)
            left = os.listdir(f"{self.dir}/killed_{runs}/checkpoints")
            self.assertEqual([n for n in left if not n.endswith(".safetensors")], [])
            kills, saved, runs = kills + done, saved + of_them, runs + 1
        print(f"{kills} kills of {runs} runs, {saved} of them after a new checkpoint")
        self.assertGreater(saved, 0)


if __name__ == "__main__":
    case.main()
