"""What the tests of levin train pose share: a small project (pose_project.py), and runs on it."""

import csv
import json
import os

from pose_project import NAMES, write_project
from pretrain_case import ApartCase


def read_table(path, heads=1):
    with open(path, encoding="ascii", newline="") as f:
        rows = list(csv.reader(f))
    return rows[:heads], rows[heads:]


def metrics(run, name):
    """(step, value) of every line that has it."""
    found = []
    with open(f"{run}/metrics.jsonl", encoding="ascii") as f:
        for line in map(json.loads, f):
            if name in line:
                found.append((line["step"], line[name]))
    return found


class PoseCase(ApartCase):
    def setUp(self):
        super().setUp()
        self.labels = write_project(f"{self.dir}/project")
        self.small = ["config=project/config.yaml", "quiet=true"]

    def train(self, out, *arguments, code=0, env=None):
        return self.levin(
            "train", "pose", *self.small, f"out={out}", *arguments, code=code, env=env
        )

    def hash_of(self, out, *arguments, env=None):
        """Of the training's state, and of every file of predictions."""
        self.train(out, *arguments, env=env)
        return self.files_of(out)

    def files_of(self, out):
        text = self.levin("ckpt", "hash", out)
        for name in sorted(os.listdir(f"{self.dir}/{out}")):
            if name.startswith("predictions"):
                with open(f"{self.dir}/{out}/{name}", encoding="ascii") as f:
                    text += f"{name}\n{f.read()}"
        return text
