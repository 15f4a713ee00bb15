"""Folders of sweeps as levin sweep plan and its workers leave them, written by hand: for tests of
what only looks at them, or submits them. The files are described in src/sweep/sweep_plan.h and
src/sweep/sweep_records.h.
"""

import itertools
import json
import os
import shutil
import tempfile

from case import LEVIN, Case, write

# The nine trials of test-tube's example.
RATES, LAYERS = ["0.001", "0.01", "0.1"], ["16", "32", "64"]
NINE = [dict(zip(("learning_rate", "layers"), p)) for p in itertools.product(RATES, LAYERS)]
HERE = {"host": "elsewhere", "pid": 77, "started": 5, "boot": "b", "space": 1, "job": "",
        "node": "", "restarts": 0}


def record(path, value):
    write(path, json.dumps(value).encode())


class SweepCase(Case):
    """A sweep in self.sweep; no model is trained."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="levin-sweep-")

    def setUp(self):
        super().setUp()
        self.sweep = f"{self.dir}/sweep"

    def plan(self, points=NINE, command=("levin", "train", "./mine.so", "config=config.yaml"),
             **more):
        names = list(dict.fromkeys(name for point in points for name in point))
        for i, point in enumerate(points):
            record(self.trial(i, "trial.json"), {"trial": i, "parameters": point})
        record(f"{self.sweep}/sweep.json", {
            "format": "levin sweep 1", "name": "nine", "strategy": "grid", "seed": 0,
            "trials": len(points), "most": 0, "parameters": names, "command": list(command),
            "style": "keys", "training": command[:2] == ("levin", "train"), "metric": "val/loss",
            "mode": "min", "dead_after": 300, "space": [], **more})

    def trial(self, i, name=""):
        return f"{self.sweep}/trials/{i:06}/{name}"

    def claim(self, i, attempt=1, **owner):
        record(self.trial(i, f"claim.{attempt}"), {"attempt": attempt, **HERE, **owner})

    def leave(self, i, why, attempt=1, **result):
        self.claim(i, attempt)
        record(self.trial(i, f"left.{attempt}"),
               {"attempt": attempt, "why": why, **HERE, **result})

    def end(self, i, state="done", value=None, attempt=1, linked=True, **more):
        """With its result, which an owner that is killed before it does not link."""
        values = {} if value is None else {
            "value": value, "last": value, "step": 40, "epoch": 3,
            "checkpoint": "run/checkpoints/best.safetensors"}
        result = {"state": state, "exit_code": 0, "error": "", "epochs": 4, "seconds": 61.5,
                  "checkpoint": "", **values, **more}
        self.leave(i, "ended", attempt, **result)
        if linked:
            os.link(self.trial(i, f"left.{attempt}"), self.trial(i, "result"))

    def run_sweep(self, word, *arguments, code=0, expects=(), **how):
        return self.levin(["sweep", word, self.sweep, *arguments], code, expects, **how)

    def counts(self):
        """The states that there are, and of how many trials."""
        found = json.loads(self.run_sweep("status", "--json")[0])
        return {k: v for k, v in found.items()
                if v and k not in ("name", "trials", "stopped")}

    def replan(self):
        shutil.rmtree(self.sweep)
        self.plan()


__all__ = ["LEVIN", "NINE", "SweepCase", "record"]
