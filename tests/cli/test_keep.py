#!/usr/bin/env python3
"""Which checkpoints are written and kept: when, by which metric, how many, under which names; the
same ones wherever a run is stopped, and on several ranks.

usage: test_keep.py LEVIN [test names]
48 samples to train and 12 to validate: 6 steps of 8.
"""

import json
import os
import resource
import shutil
import subprocess
import struct

import case
from case import LEVIN, OK, USAGE, Case, read
from today import of_today

RUN = [
    "data=builtin:shapes",
    "data.count=60",
    "data.classes=3",
    "image_size=8",
    "model=cnn",
    "batch_size=8",
    "eval_batch_size=2",
    "micro_batches=2",
    "wgrad_threads=1",
    "val_split=0.2",
    "num_workers=0",
    "num_sanity_val_steps=0",
    "optim.lr=0.01",
    "seed=5",
]
LOSS = "checkpoint.monitor=val/loss"
ACC = ["checkpoint.monitor=val/acc"]  # checkpoint.mode=auto: more is better
TRAIN = "checkpoint.monitor=train/loss"
STEP_NAMES = ["checkpoint.filename={step}", "checkpoint.auto_insert_metric_name=false"]


def metadata(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n))["__metadata__"]


class Keep(Case):
    def train(self, name, *arguments, code=OK, expects=()):
        out = f"{self.dir}/{name}"
        return "".join(
            self.levin(["train", "classify", *RUN, f"out={out}", *arguments], code, expects)
        )

    def resume(self, name, *arguments, code=OK, expects=()):
        out = f"{self.dir}/{name}"
        return "".join(
            self.levin(
                ["train", "classify", f"out={out}", "resume=true", *arguments], code, expects
            )
        )

    def path(self, name, which):
        return f"{self.dir}/{name}/checkpoints/{which}.safetensors"

    def step_of(self, name, which):
        return int(metadata(self.path(name, which))["levin.step"])

    def names(self, name):
        """Beside last and best, each of the step that it is about."""
        found = [n[: -len(".safetensors")] for n in os.listdir(f"{self.dir}/{name}/checkpoints")]
        return sorted(n for n in found if n not in ("last", "best"))

    def steps(self, name):
        named = self.names(name)
        steps = sorted(self.step_of(name, n) for n in named)
        self.assertEqual(steps, sorted(int(n) for n in named))
        return steps

    def values(self, name, metric):
        with open(f"{self.dir}/{name}/metrics.jsonl", encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        return {r["step"]: r[metric] for r in rows if metric in r}

    def assert_same(self, a, b):
        self.assertEqual(self.names(a), self.names(b))
        for which in ("last", "best", *self.names(a)):
            self.assertEqual(
                self.hashes(f"{self.dir}/{a}", which), self.hashes(f"{self.dir}/{b}", which)
            )
        kept = [metadata(self.path(x, "last")).get("kept_files") for x in (a, b)]
        self.assertEqual(*kept)

    def test_the_best_are_kept(self):
        """And the very best is `best`; of equal ones the earlier."""
        for monitor, metric, sign in (
            ([LOSS], "val/loss", 1),
            ([LOSS, "checkpoint.mode=max"], "val/loss", -1),
            (ACC, "val/acc", -1),
            ([], "val/acc", -1),
            ([TRAIN], "train/loss", 1),
        ):
            with self.subTest(monitor):
                keys = ["max_epochs=8", "checkpoint.save_top_k=3", *STEP_NAMES, *monitor]
                self.train("run", "overwrite=true", *keys)
                values = self.values("run", metric)
                best = sorted(values, key=lambda step: (sign * values[step], step))[:3]
                self.assertEqual(self.steps("run"), sorted(best))
                self.assertEqual(self.step_of("run", "best"), best[0])
                self.assertEqual(self.step_of("run", "last"), 48)

    def test_equal_values_are_seen(self):
        """What the test above needs."""
        self.train("run", "max_epochs=8")
        values = list(self.values("run", "val/acc").values())
        self.assertLess(len(set(values)), len(values))

    def test_when_one_is_written(self):
        every = ["checkpoint.save_top_k=-1", *STEP_NAMES]
        for arguments, steps in (
            (["max_epochs=2"], [6, 12]),
            (["max_epochs=2", "checkpoint.every_n_steps=4"], [4, 6, 8, 12]),
            (["max_epochs=5", "checkpoint.every_n_epochs=2"], [12, 24]),
            (["max_epochs=2", "val_check_interval=2"], [2, 4, 6, 8, 10, 12]),
            (["max_epochs=2", "val_check_interval=3", TRAIN], [6, 12]),
            (["max_epochs=2", "val_check_interval=4", "checkpoint.every_n_epochs=2"], [10, 12]),
            (["max_epochs=2", "checkpoint.every_n_epochs=9"], []),
        ):
            with self.subTest(arguments):
                self.train("run", "overwrite=true", *every, *arguments)
                self.assertEqual(self.steps("run"), steps)
                self.assertEqual(
                    self.step_of("run", "last"), 30 if "max_epochs=5" in arguments else 12
                )
                self.assertTrue(os.path.exists(self.path("run", "best")))

    def test_epochs_that_are_kept(self):
        """Whatever their metric, beside the best of all: they do not compete with the best."""
        two = ["epoch=0002-step=12", "epoch=0004-step=24"]
        self.train("run", "max_epochs=5", "checkpoint.keep_every_n_epochs=2")
        self.assertEqual(self.names("run"), two)
        values = self.values("run", "val/acc")
        best = min(step for step in values if values[step] == max(values.values()))
        self.assertEqual(self.step_of("run", "best"), best)
        more = ["max_epochs=4", "checkpoint.every_n_epochs=2", "checkpoint.keep_every_n_epochs=3"]
        self.train("run", "overwrite=true", *more)
        self.assertEqual(self.names("run"), ["epoch=0003-step=18"])
        self.train("run", "overwrite=true", "max_epochs=3", "checkpoint.keep_every_n_epochs=2")
        self.resume("run", "max_epochs=4")
        self.assertEqual(self.names("run"), two)

    def test_epochs_that_are_kept_beside_the_best(self):
        """The best are chosen among the others, so both numbers hold; also of a run that stops."""
        keys = ["checkpoint.save_top_k=2", "checkpoint.keep_every_n_epochs=3", LOSS, *STEP_NAMES]
        self.train("run", "max_epochs=8", *keys)
        values = self.values("run", "val/loss")
        stay = [18, 36]
        best = sorted((step for step in values if step not in stay), key=lambda s: values[s])[:2]
        self.assertEqual(self.steps("run"), sorted(stay + best))
        self.assertEqual(self.step_of("run", "best"), min(values, key=values.get))
        self.train("again", "max_epochs=4", *keys)
        self.resume("again", "max_epochs=8")
        self.assert_same("run", "again")

    def test_by_the_clock(self):
        keys = ["checkpoint.save_top_k=-1", *STEP_NAMES, "checkpoint.every_n_epochs=1000000"]
        keys += ["checkpoint.every_n_minutes=0.004", "max_epochs=-1", "max_time=1s"]
        for layout in ([], ["devices=2", "accelerator=cpu", "strategy=sharded"]):
            with self.subTest(layout):
                self.train("run", "overwrite=true", *keys, *layout)
                self.assertLessEqual(1, len(self.steps("run")))
                self.assertLessEqual(len(self.steps("run")), 5)

    def test_names(self):
        for pattern, expected in (
            ([], ["epoch=0001-step=6", "epoch=0002-step=12"]),
            (["checkpoint.filename={epoch}"], ["epoch=1", "epoch=2"]),
            (
                ["checkpoint.filename=n{epoch:03d}", "checkpoint.auto_insert_metric_name=false"],
                ["n001", "n002"],
            ),
            (
                ["checkpoint.filename={epoch}", "checkpoint.every_n_steps=5"],
                ["epoch=1", "epoch=1-v1", "epoch=2", "epoch=2-v1"],
            ),
        ):
            with self.subTest(pattern):
                keys = ["max_epochs=2", "checkpoint.save_top_k=-1"]
                self.train("run", "overwrite=true", *keys, *pattern)
                self.assertEqual(self.names("run"), expected)
        pattern = "checkpoint.filename={step}-{val/loss:.4f}-{train_acc:.2f}"
        self.train("run", "overwrite=true", "max_epochs=1", "checkpoint.save_top_k=1", pattern)
        loss, acc = (self.values("run", m)[6] for m in ("val/loss", "train/acc"))
        self.assertEqual(self.names("run"), [f"step=6-val_loss={loss:.4f}-train_acc={acc:.2f}"])

    def test_a_metric_that_is_not_there(self):
        """What was learned is kept, and with the right name the run is as if it had had it."""
        keys = ["max_epochs=3", "checkpoint.save_top_k=1"]
        for wrong, right in (
            ("checkpoint.monitor=val/f1", LOSS),
            ("checkpoint.monitor=train/f1", LOSS),
            ("checkpoint.filename={val/f1}", "checkpoint.filename={val/loss:.3f}"),
        ):
            with self.subTest(wrong):
                part = wrong.split("/")[0].replace("{", "=").split("=")[-1]
                message = f"has no such metric; it has {part}/loss, {part}/acc; step 6"
                self.train("bad", "overwrite=true", *keys, wrong, code=USAGE, expects=[message])
                self.assertEqual(self.names("bad"), [])
                self.resume("bad", right)
                self.train("good", "overwrite=true", *keys, right)
                self.assert_same("bad", "good")

    def test_resumed_where_it_was_stopped(self):
        """Also between two validations, and after each step of which one is kept; one or two
        of the choices each day."""
        choices = (
            ["checkpoint.save_top_k=2", *ACC, "val_check_interval=2"],
            ["checkpoint.save_top_k=2", LOSS, "val_check_interval=3", "checkpoint.every_n_steps=2"],
            [
                "checkpoint.save_top_k=-1",
                "checkpoint.every_n_steps=4",
                "checkpoint.filename={epoch}",
            ],
            ["checkpoint.save_top_k=1", TRAIN, "checkpoint.every_n_epochs=2"],
        )
        for keys in of_today(choices, 3):  # not 2, the turns of this module
            with self.subTest(keys):
                self.train("whole", "overwrite=true", "max_epochs=3", *keys)
                self.train("parts", "overwrite=true", "max_epochs=3", *keys, "max_steps=1")
                for step in (2, 3, 5, 6, 7, 8, 11, 12, 14, 17):
                    self.resume("parts", f"max_steps={step}")
                self.resume("parts", "max_steps=-1")
                self.assert_same("whole", "parts")

    def test_what_a_killed_save_left(self):
        """The checkpoint knows: its own name, and what had to leave for it."""
        keys = ["checkpoint.save_top_k=1", TRAIN, *STEP_NAMES]
        self.train("whole", *keys, "max_epochs=3")
        self.train("parts", *keys, "max_epochs=1")
        shutil.copy(self.path("parts", "6"), f"{self.dir}/kept")
        self.resume("parts", "max_epochs=2")
        self.assertEqual(self.steps("parts"), [12])
        os.remove(self.path("parts", "12"))
        shutil.copy(f"{self.dir}/kept", self.path("parts", "6"))
        self.resume("parts", "max_epochs=3")
        self.assert_same("whole", "parts")
        # what the user has removed does not count any more
        shutil.copy(self.path("parts", "18"), f"{self.dir}/kept")
        self.resume("parts", "max_epochs=4", "max_steps=19")
        os.remove(self.path("parts", "18"))
        self.resume(
            "parts", "max_epochs=4", "max_steps=-1", expects=["18.safetensors is not there"]
        )

    def test_another_monitor_begins_again(self):
        keys = ["checkpoint.save_top_k=1", *STEP_NAMES]
        self.train("run", *keys, LOSS, "checkpoint.mode=max", "max_epochs=2")
        before = self.steps("run")
        self.resume("run", *ACC, "max_epochs=3", expects=['checkpoint.monitor is "val/acc"'])
        self.assertEqual(self.steps("run"), sorted({*before, 18}))
        self.assertEqual(self.step_of("run", "best"), 18)

    def test_files_of_another_monitor_stay(self):
        """Under their names, whatever the new monitor keeps, and also when resumed once more."""
        keys = ["checkpoint.save_top_k=1", "checkpoint.filename={train/loss:.0f}"]
        self.train("run", *keys, LOSS, "max_epochs=2")
        (first,) = self.names("run")
        with open(self.path("run", first), "rb") as f:
            before = f.read()
        for epochs in (4, 6):
            output = self.resume("run", TRAIN, f"max_epochs={epochs}")
            self.assertEqual("the 1 checkpoint kept so far stays" in output, epochs == 4)
            names = self.names("run")
            self.assertEqual(len(names), 2, names)
            with open(self.path("run", first), "rb") as f:
                self.assertEqual(f.read(), before)
        self.resume("run", TRAIN, "checkpoint.mode=max", "max_epochs=8")
        self.assertEqual(len(self.names("run")), 3)

    def test_a_full_disk_leaves_the_older_ones(self):
        keys = ["checkpoint.save_top_k=1", TRAIN, *STEP_NAMES]
        self.train("run", *keys, "max_epochs=1")
        before = {w: read(self.path("run", w)) for w in ("last", "best", "6")}
        size = len(before["last"]) // 2

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = subprocess.run(
            [LEVIN, "train", "classify", f"out={self.dir}/run", "resume=true", "max_epochs=2"],
            preexec_fn=limit,
            capture_output=True,
            text=True,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("last.safetensors", done.stderr)
        self.assertEqual({w: read(self.path("run", w)) for w in before}, before)
        self.assertEqual(self.steps("run"), [6])
        self.resume("run", "max_epochs=2")
        self.train("whole", *keys, "max_epochs=2")
        self.assert_same("whole", "run")

    def test_ranks_keep_the_same(self):
        keys = ["max_epochs=3", "val_check_interval=2", "checkpoint.save_top_k=2", LOSS]
        keys += ["checkpoint.every_n_steps=5"]
        self.train("one", *keys)
        os.environ["LEVIN_SIM_DEVICES"] = "2"
        self.addCleanup(os.environ.pop, "LEVIN_SIM_DEVICES")
        for layout in (
            ["strategy=ddp", "accelerator=cpu"],
            ["strategy=dp", "accelerator=cpu"],
            ["strategy=sharded", "accelerator=cpu"],
            ["strategy=ddp", "accelerator=sim"],
        ):
            with self.subTest(layout):
                self.train("two", "overwrite=true", *keys, *layout, "devices=2", "max_steps=9")
                os.remove(self.path("two", self.names("two")[0]))  # rank 0 alone sees that
                self.resume("two", "max_steps=-1", *layout, "devices=2")
                self.train("two", "overwrite=true", *keys, *layout, "devices=2")
                self.assert_same("one", "two")

    def test_what_cannot_be(self):
        named = "checkpoint.save_top_k=1"
        for arguments, expects in (
            (["checkpoint.monitor=loss"], "is not val/NAME or train/NAME"),
            (["checkpoint.monitor=val/loss", "val_split=0"], "no validation set"),
            (["checkpoint.mode=max"], "no effect without checkpoint.monitor"),
            (["checkpoint.filename={epoch}"], "no effect without checkpoint.save_top_k"),
            ([named, "checkpoint.filename=x"], "expected a pattern with {epoch}"),
            ([named, "checkpoint.filename=../{step}"], "expected a file's name"),
            ([named, "checkpoint.filename={loss}"], "expected {epoch}, {step}, {val/NAME}"),
            ([named, "checkpoint.filename={val/loss}", "val_split=0"], "no validation set"),
            (["checkpoint.save_top_k=-2"], "expected a whole number, at least -1"),
            (["checkpoint.every_n_epochs=0"], "expected a whole number, from 1 to 2147483647"),
            (["checkpoint.every_n_minutes=-1"], "at least 0"),
        ):
            with self.subTest(arguments):
                self.train("bad", *arguments, code=USAGE, expects=[expects])
                self.assertFalse(os.path.exists(f"{self.dir}/bad"))


if __name__ == "__main__":
    case.main(turns=2)
