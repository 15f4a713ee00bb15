#!/usr/bin/env python3
"""The loop: how much of the data, when it is validated, when the run ends early; the same bits
wherever such a run is stopped, and on several ranks.

usage: test_loop.py LEVIN [test names]
48 samples to train and 12 to validate: 6 steps of 8 and 6 chunks of 2.
"""

import json
import os
import re
import signal
import subprocess
import time

import case
from case import FAILURE, LEVIN, OK, SIGTERM, USAGE, Case, photos
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
    "log_every_n_steps=1",
    "seed=5",
]
STEPS = 6  # of an epoch
OVERFITS = "early_stopping.monitor=val/loss"


class Loop(Case):
    def train(self, name, *arguments, code=OK, expects=()):
        out = f"{self.dir}/{name}"
        command = ["train", "classify", *RUN, f"out={out}", *arguments]
        return "".join(self.levin(command, code, expects))

    def rows(self, name):
        with open(f"{self.dir}/{name}/metrics.jsonl", encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def steps_of(self, name, metric):
        return [r["step"] for r in self.rows(name) if metric in r]

    def values(self, name):
        """All that is logged, without times."""
        timed = ("time_s", "throughput/", "memory/")
        return [{k: v for k, v in r.items() if not k.startswith(timed)} for r in self.rows(name)]

    def assert_same(self, a, b):
        for which in ("last", "best"):
            self.assertEqual(
                self.hashes(f"{self.dir}/{a}", which), self.hashes(f"{self.dir}/{b}", which)
            )
        self.assertEqual(self.values(a), self.values(b))

    def test_when_it_is_validated(self):
        accumulates = ["max_epochs=1", "batch_size=2", "accumulate_grad_batches=4"]
        for arguments, steps in (
            (["max_epochs=2"], [6, 12]),
            (["max_epochs=2", "val_check_interval=2"], [2, 4, 6, 8, 10, 12]),
            (["max_epochs=1", "val_check_interval=0.5"], [3, 6]),
            (["max_epochs=1", "val_check_interval=4"], [4]),
            (["max_epochs=4", "check_val_every_n_epoch=2"], [12, 24]),
            (["max_epochs=2", "check_val_every_n_epoch=2", "val_check_interval=3"], [9, 12]),
            (["max_epochs=1", "val_check_interval=4", "accumulate_grad_batches=2"], [2]),
            # after the steps with batches 2, 4, 6; with batch 5 of 6; of 24 batches of 2
            (["max_epochs=1", "val_check_interval=2", "accumulate_grad_batches=4"], [1, 2]),
            (["max_epochs=1", "val_check_interval=5", "accumulate_grad_batches=2"], [3]),
            ([*accumulates, "val_check_interval=10"], [3, 5]),
            ([*accumulates, "val_check_interval=0.25"], [2, 3, 5, 6]),
            (["max_epochs=2", "limit_train_batches=2"], [2, 4]),
            (["max_epochs=2", "limit_train_batches=0.5"], [3, 6]),
            (["max_epochs=2", "overfit_batches=1"], [1, 2]),
            (["max_epochs=1", "limit_val_batches=0"], []),
        ):
            with self.subTest(arguments):
                self.train("when", "overwrite=true", *arguments)
                self.assertEqual(self.steps_of("when", "val/loss"), steps)

    def test_accumulation_by_epoch(self):
        """Steps of each epoch, and the same bits on two ranks and resumed within an epoch."""
        run = ["batch_size=6", "micro_batches=4", "wgrad_threads=2", "max_epochs=3"]
        run += ["accumulate_grad_batches=0:1,2:4", "scheduler=cosine"]
        self.train("one", *run)
        self.assertEqual(self.steps_of("one", "val/loss"), [8, 16, 18])
        rates = [r["lr"] for r in self.rows("one") if "lr" in r]
        self.assertEqual(len(rates), 18)
        self.assertLess(rates[-1], rates[0] / 50)  # the schedule ends where the run does
        self.train("two", *run, "devices=2")
        self.assert_same("one", "two")
        for steps in (5, 17):
            name = f"cut{steps}"
            self.train(name, *run, f"max_steps={steps}", "scheduler=constant")
            self.train(name + "x", *run, "scheduler=constant")
            again = ["train", "classify", f"out={self.dir}/{name}", "resume=true", "max_steps=-1"]
            self.levin(again, OK)
            self.assert_same(name, name + "x")
        plan = ["plan", "train", "classify", *RUN, *run]
        self.levin(plan, OK, ["is 8 steps of 6, from epoch 3 on 2 steps of 24", "18 steps, 3 epo"])
        self.train("late", *run, "accumulate_grad_batches=1:2")  # 1 before the first
        self.assertEqual(self.steps_of("late", "val/loss"), [8, 12, 16])

    def test_accumulation_that_cannot_be(self):
        expected = ["numbers by the epoch as in 0:1,2:4"]
        for value in ("0", "0:1,", "2:2,1:4", "1:2,1:4", "0:0", "-1:2", "a:2", "1:2.5"):
            bad = f"accumulate_grad_batches={value}"
            self.train("bad", bad, code=USAGE, expects=[f"accumulate_grad_batches {value}"])
            self.train("bad", bad, code=USAGE, expects=expected)
        for other, what in (
            ("steps_per_epoch=4", "leave out steps_per_epoch"),
            ("val_check_interval=0.5", "val_check_interval=0.5 is counted in steps"),
            ("freeze_until=[conv1=2epochs]", "freeze_until=conv1=2epochs counts epochs"),
            ("scheduler=exponential", "scheduler=exponential counts epochs"),
        ):
            run = ["accumulate_grad_batches=0:1,2:4", other]
            self.train("bad", *run, code=USAGE, expects=[what])

    def test_validation_by_the_clock(self):
        """Rank 0's clock decides for all ranks; an epoch's end is none by itself."""
        for value in ("1s", "00:00:00:01"):
            run = [f"val_check_interval={value}", "max_time=3s", "max_epochs=-1"]
            self.train("clock", *run, "devices=2", "overwrite=true", "model=mlp")
            times = [r["time_s"] for r in self.rows("clock") if "val/loss" in r]
            self.assertIn(len(times), (2, 3), times)
            for before, after in zip([0.0] + times, times):
                self.assertGreater(after - before, 0.5)  # one may end late, the next in time
        self.train("bad", "val_check_interval=2x", code=USAGE, expects=["val_check_interval 2x"])

    def test_the_clock_of_validation_over_several_starts(self):
        """Starts that are shorter than the interval do not put a validation off for ever."""
        run = ["val_check_interval=2s", "max_epochs=-1", "model=mlp"]
        self.train("parts", *run, "max_time=1.2s")
        self.assertEqual(self.steps_of("parts", "val/loss"), [])
        again = ["train", "classify", f"out={self.dir}/parts", "resume=true"]
        self.levin([*again, "max_time=2.4s"], OK)
        self.assertEqual(len(self.steps_of("parts", "val/loss")), 1)

    def test_throughput_is_of_training_alone(self):
        """Each step is followed by a validation that takes very much longer."""
        long = ["data.count=9000", "val_split=0.997", "eval_batch_size=1", "model=mlp"]
        self.train("rate", *long, "max_epochs=1", "val_check_interval=1")
        rows = self.rows("rate")
        rates = [r["throughput/samples_per_s"] for r in rows if "lr" in r]
        self.assertGreater(len(rates), 2)
        self.assertGreater(min(rates) / 8, 10 * len(rates) / rows[-1]["time_s"], rates)

    def test_what_is_validated(self):
        """The first chunks."""
        self.train("all", "max_epochs=1")
        self.train("six", "max_epochs=1", "limit_val_batches=6")
        self.train("half", "max_epochs=1", "limit_val_batches=0.5")
        self.train("three", "max_epochs=1", "limit_val_batches=3")
        last = {name: self.rows(name)[-1]["val/loss"] for name in ("all", "six", "half", "three")}
        self.assertEqual(last["all"], last["six"])
        self.assertEqual(last["half"], last["three"])
        self.assertNotEqual(last["all"], last["half"])

    def test_a_set_to_overfit(self):
        """The same samples in every epoch, in their order: a model learns them by heart."""
        self.train("fit", "max_epochs=60", "overfit_batches=1", "optim.lr=0.01", "model=mlp")
        self.assertGreater(self.rows("fit")[-1]["train/acc"], 0.99)
        self.assertEqual(self.rows("fit")[-1]["step"], 60)

    def test_before_the_first_step(self):
        """What the validation cannot read is found there, and nothing is trained before."""
        folder = f"{self.dir}/photos"
        photos(f"{folder}/train", "ab", 8)
        photos(f"{folder}/val", "ab", 20)
        for i in range(1, 20):  # more than a run leaves out
            with open(f"{folder}/val/b/{i}.png", "r+b") as f:
                f.truncate(60)
        arguments = [a for a in RUN if "data" not in a and "val_split" not in a]
        arguments += ["data=" + folder, "max_epochs=1"]
        for n, trains in (("0", True), ("1", True), ("20", False), ("-1", False), ("10", True)):
            out = f"{self.dir}/sanity{n}"
            self.levin(
                ["train", "classify", *arguments, f"out={out}", f"num_sanity_val_steps={n}"],
                FAILURE,
                ["val/b/"],
            )
            self.assertEqual('"train/loss_step"' in self.log_of(out), trains, n)

    def test_early_stopping(self):
        stops = [OVERFITS, "early_stopping.patience=2", "max_epochs=40", "optim.lr=0.03"]
        reported = self.train("stops", *stops)
        self.assertRegex(reported, r"early stopping: val/loss has not improved on \S+ for 2 val")
        losses = [r["val/loss"] for r in self.rows("stops") if "val/loss" in r]
        best = losses.index(min(losses))
        self.assertEqual(len(losses), best + 3)
        self.assertLess(len(losses), 40)
        more = len(losses) + 2
        reported = self.train("more", *stops, f"min_epochs={more}")
        self.assertIn("the run goes on to min_epochs", reported)
        self.assertEqual(self.rows("more")[-1]["epoch"], more)
        # a run that has ended goes on with more patience, as if it had always had it
        out, patient = f"out={self.dir}/stops", "early_stopping.patience=4"
        self.levin(
            ["train", "classify", out, "resume=true"],
            OK,
            ["nothing to do", "ended by early stopping; a larger early_stopping.patience"],
        )
        self.levin(["train", "classify", out, "resume=true", patient], OK)
        self.train("patient", *stops[:1], patient, *stops[2:])
        self.assert_same("stops", "patient")

    def test_resumed_with_another_monitor(self):
        """Early stopping and the plateau begin, and the rate stays what it is."""
        self.train(
            "run",
            OVERFITS,
            "max_epochs=4",
            "scheduler=plateau",
            "scheduler.patience=0",
            "scheduler.threshold=100",
            "early_stopping.stopping_threshold=1e9",
            "min_epochs=4",
        )
        resume = ["train", "classify", f"out={self.dir}/run", "resume=true"]
        self.levin(resume, OK, ["ended by max_epochs=4; a larger max_epochs"])
        expects = ["ended by early stopping; another early_stopping.stopping_threshold"]
        self.levin([*resume, "max_epochs=6"], OK, expects)
        expects = [
            "early_stopping.monitor or its mode is another one (min train/loss)",
            "scheduler.monitor or its mode is another one (min train/loss, it was min val/loss)",
        ]
        keys = ["early_stopping.monitor=train/loss", "scheduler.monitor=train/loss"]
        text = self.levin([*resume, "max_epochs=6", "min_epochs=0", *keys], OK, expects)
        self.assertIn("early stopping: train/loss is", "".join(text))
        rates = [r["lr"] for r in self.rows("run") if "lr" in r]
        self.assertEqual(rates[-1], min(rates))
        # another threshold: as if the run had always had it
        keys = ["early_stopping.stopping_threshold=-1", "max_epochs=6"]
        self.levin([*resume, *keys], OK)
        self.assertEqual(self.rows("run")[-1]["epoch"], 6)

    def test_resumed_where_it_was_stopped(self):
        """After every third step, of another day after others; validation after every third."""
        keys = [
            "max_epochs=6",
            "val_check_interval=3",
            "early_stopping.patience=3",
            OVERFITS,
            "optim.lr=0.03",
            "scheduler=plateau",
            "scheduler.patience=0",
        ]
        self.train("whole", *keys)
        last = self.rows("whole")[-1]["step"]
        self.assertLess(9, last)
        out = f"out={self.dir}/parts"
        self.train("parts", *keys, "max_steps=1")
        for step in of_today(range(2, last + 1), 3):  # not 2, the turns of this module
            self.levin(["train", "classify", out, "resume=true", f"max_steps={step}"], OK)
        self.levin(["train", "classify", out, "resume=true", "max_steps=-1"], OK)
        self.assert_same("whole", "parts")

    def test_ranks_have_the_same_bits(self):
        keys = ["max_epochs=3", "val_check_interval=0.34", "limit_val_batches=5", OVERFITS]
        keys += ["early_stopping.patience=1", "limit_train_batches=5"]
        self.train("one", *keys)
        for name, layout in (("ddp", "strategy=ddp"), ("dp", "strategy=dp")):
            self.train(name, *keys, "devices=2", "accelerator=cpu", layout)
            self.assert_same("one", name)

    def test_max_time(self):
        for name, layout in (("one", []), ("two", ["devices=2", "accelerator=cpu"])):
            began = time.monotonic()
            reported = self.train(name, "max_time=00:00:00:01", *layout)
            self.assertLess(1.0, time.monotonic() - began)
            self.assertIn("max_time is over after step", reported)
            step = self.rows(name)[-1]["step"]
            self.assertTrue(os.path.exists(f"{self.dir}/{name}/checkpoints/best.safetensors"))
            # the time before counts, and a longer one goes on
            again = ["train", "classify", f"out={self.dir}/{name}", "resume=true"]
            self.levin(again, OK, ["max_time is over"])
            self.assertEqual(self.rows(name)[-1]["step"], step)
            self.levin([*again, "max_time=1d", f"max_steps={step + 9}"], OK)
            self.assertEqual(self.rows(name)[-1]["step"], step + 9)

    def test_max_time_ends_a_validation(self):
        """One of minutes; what was trained is kept, and the run goes on with the validation."""
        long = ["data.count=1000000", "val_split=0.99999", "eval_batch_size=1", "model=mlp"]
        for name, layout in (
            ("one", []),
            ("two", ["devices=2", "accelerator=cpu"]),
            ("dp", ["devices=2", "accelerator=cpu", "strategy=dp"]),
        ):
            reported = self.train(name, "max_time=1s", *long, "num_sanity_val_steps=0", *layout)
            self.assertIn("max_time is over after step 2 (epoch 1)", reported)
            self.assertEqual(self.steps_of(name, "val/loss"), [])

    def test_max_time_counts_over_several_starts(self):
        """Time that no line of the log has, too: each stop is within a long validation."""
        long = ["data.count=1000000", "val_split=0.99999", "eval_batch_size=1", "model=mlp"]
        again = ["train", "classify", f"out={self.dir}/sum", "resume=true"]
        out = f"out={self.dir}/sum"
        run = ["train", "classify", *RUN, *long, out, "num_sanity_val_steps=0", "max_time=1d"]
        trained_s = [0.0]
        # the first is the longest: a start that counts from 0 has less than the one before it
        for command, begun, stay_s in (
            (run, '"step":2,', 1.2),
            (again, "resuming from", 0.1),
            (again, "resuming from", 0.1),
        ):
            with subprocess.Popen(
                [LEVIN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                before = self.written("sum").count(begun)
                while self.written("sum").count(begun) == before and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(stay_s)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(), SIGTERM)
            shown = self.levin(["ckpt", "show", f"{self.dir}/sum"], OK)[0]
            trained_s.append(int(re.search(r"trained_ns=(\d+)", shown)[1]) / 1e9)
            self.assertGreater(trained_s[-1], trained_s[-2])
        self.assertGreater(trained_s[-1], 1.2)
        self.levin([*again, "max_time=1s"], OK, ["max_time is over after step 2"])

    def test_an_epoch_has_one_row(self):
        """Also of a start that was killed between the row and the checkpoint behind it."""
        long = ["data.count=1000000", "val_split=0.99999", "eval_batch_size=1", "model=mlp"]
        run = [*long, "num_sanity_val_steps=0", "logger=csv", "max_epochs=1"]
        self.train("row", *run, "max_time=1s")
        with open(f"{self.dir}/row/metrics.jsonl", "a", encoding="utf-8") as f:
            f.write('{"step":2,"epoch":1,"time_s":1.5,"train/loss":1,"val/loss":1}\n')
        path = f"{self.dir}/row/metrics.csv"
        with open(path, encoding="utf-8") as f:
            names = f.readline().rstrip("\n").split(",")
        with open(path, "a", encoding="utf-8") as f:
            cells = {"step": "2", "epoch": "1", "time_s": "1.5", "train/loss_step": "7"}
            f.write(",".join(cells.get(name, "") for name in names) + "\n")
        again = ["train", "classify", f"out={self.dir}/row", "resume=true", "max_time=1d"]
        self.levin([*again, "limit_val_batches=2"], OK)
        self.assertEqual([r["step"] for r in self.rows("row")], [1, 2, 2])
        self.assertEqual(self.steps_of("row", "lr"), [1, 2])
        with open(path, encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 1 + 3)

    def test_which_end_comes_first(self):
        """max_epochs has a default only where no other end is given."""
        for run, steps, end in (
            ([], 20 * STEPS, "max_epochs=20"),
            (["max_steps=130"], 130, "max_steps=130"),
            (["max_steps=130", "max_epochs=2"], 2 * STEPS, "max_epochs=2"),
            (["max_steps=5", "max_epochs=2", "max_time=1d"], 5, "max_steps=5"),
        ):
            reported = self.train("end", *run, "overwrite=true", "model=mlp")
            self.assertIn(f"done after {steps} steps ({end}); ", reported)
        # what a resumed run was given still holds
        again = ["train", "classify", f"out={self.dir}/end", "resume=true"]
        self.levin([*again, "max_steps=19"], OK, ["done after 12 steps (max_epochs=2); "])
        again += ["max_epochs=-1", "max_steps=-1", "max_time=2s"]
        self.levin(again, OK, ["max_time is over", " steps (max_time); "])

    def profile(self, output):
        """Of each part: times, total in s and share; and the whole in s."""
        parts = {}
        head = re.search(r"profile: (\d+) steps in ([\d.]+) s\n", output)
        for line in output[head.end() :].splitlines():
            if row := re.fullmatch(r" +(\S.*?) +(\d+) +[\d.]+ +([\d.]+) +([\d.]+)", line):
                parts[row[1]] = (int(row[2]), float(row[3]), float(row[4]))
        return int(head[1]), float(head[2]), parts

    def test_profile(self):
        """Every moment belongs to one part. Rank 0 alone prints, and the run is the same."""
        run = ["max_epochs=2", "num_sanity_val_steps=0", "lanes=1"]
        self.assertNotIn("profile", self.train("plain", *run))
        steps, whole_s, parts = self.profile(self.train("timed", *run, "profiler=simple"))
        self.assert_same("plain", "timed")
        self.assertEqual(steps, 2 * STEPS)
        for part, times in (
            ("wait for data", 2 * 2 * STEPS),  # two micro-batches, one after the other
            ("forward", 2 * 2 * STEPS),
            ("backward", 2 * 2 * STEPS),
            ("exchange", 2 * STEPS),
            ("optimizer", 2 * STEPS),
            ("logging", 2 * STEPS),
            ("validation", 2),
        ):
            self.assertEqual(parts[part][0], times, part)
        # Each figure is rounded to a millisecond, which a short run has few of.
        rounding_s = 0.0005 * (len(parts) + 1)
        of_parts_s = sum(p[1] for p in parts.values())
        self.assertAlmostEqual(of_parts_s, whole_s, delta=0.05 * whole_s + rounding_s)
        self.assertAlmostEqual(sum(p[2] for p in parts.values()), 100, delta=1)
        shares = [p[2] for p in parts.values()]
        self.assertEqual(shares, sorted(shares, reverse=True))
        output = self.train("ranks", *run, "profiler=simple", "devices=2")
        self.assertEqual(output.count("profile:"), 1)
        self.train("x", "profiler=advanced", code=USAGE, expects=["none", "simple"])

    def flops(self, *run, sim=False):
        """Of a sample, and the utilization, as the first line has them."""
        name = f"flops{len(os.listdir(self.dir))}"
        env = {"LEVIN_SIM_DEVICES": "1"} if sim else None
        out = f"{self.dir}/{name}"
        self.levin(["train", "classify", *RUN, f"out={out}", *run], OK, env=env)
        row = next(r for r in self.rows(name) if "throughput/flops_per_s" in r)
        per_s = row["throughput/flops_per_s"]
        return per_s / row["throughput/samples_per_s"], per_s, row.get("throughput/mfu")

    def test_flops(self):
        """Two for each multiplication of forward and backward; images need no gradient."""
        mlp = 2 * (3 * (8 * 8 * 3 * 256 + 256 * 256 + 256 * 3) - 8 * 8 * 3 * 256)
        run = ["model=mlp", "max_epochs=1"]
        of_sample, per_s, utilization = self.flops(*run, "peak_flops=1e12")
        self.assertAlmostEqual(of_sample / mlp, 1, delta=1e-9)
        self.assertAlmostEqual(utilization / (per_s / 1e12), 1, delta=1e-9)
        of_sample, per_s, utilization = self.flops(*run, "devices=2", "peak_flops=1e12")
        self.assertAlmostEqual(of_sample / mlp, 1, delta=1e-9)
        self.assertAlmostEqual(utilization / (per_s / 2e12), 1, delta=1e-9)
        of_sample, _, utilization = self.flops(*run, "accelerator=sim", sim=True)
        self.assertAlmostEqual(of_sample / mlp, 1, delta=1e-9)
        self.assertIsNone(utilization)
        # torchvision's table has 1.81e9 products for 1000 classes; its first layer has 0.12e9
        resnet18 = 2 * (3 * (1814073344 - 512 * 1000 + 512 * 3) - 118013952)
        one = ["model=resnet18", "image_size=224", "batch_size=2", "max_steps=1", "val_split=0"]
        self.assertAlmostEqual(self.flops(*one)[0] / resnet18, 1, delta=1e-9)

    def test_a_signal_during_validation(self):
        """Validation within an epoch is not lost: it comes when the run goes on."""
        keys = ["max_epochs=1", "val_check_interval=2", "data.count=3000", "limit_train_batches=4"]
        keys += ["model=cnn", "image_size=24", "val_split=0.9", "num_sanity_val_steps=0"]
        self.train("whole", *keys)
        out = f"{self.dir}/cut"
        for _ in range(20):  # the run may be quicker than this test on a busy machine
            with subprocess.Popen(
                [LEVIN, "train", "classify", *RUN, *keys, f"out={out}", "overwrite=true"],
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            ) as p:
                while '"step":2,' not in self.log_of(out) and p.poll() is None:
                    time.sleep(0.001)
                p.send_signal(signal.SIGTERM)
            if p.returncode != OK:
                break
        self.assertEqual(p.returncode, SIGTERM)
        self.levin(["train", "classify", f"out={out}", "resume=true"], OK)
        self.assert_same("whole", "cut")

    def written(self, name):
        """What a run has logged and printed so far."""
        text = ""
        for file in ("metrics.jsonl", "train.log"):
            if os.path.exists(f"{self.dir}/{name}/{file}"):
                with open(f"{self.dir}/{name}/{file}", encoding="utf-8") as f:
                    text += f.read()
        return text

    def log_of(self, out):
        try:
            with open(f"{out}/metrics.jsonl", encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def test_fast_dev_run(self):
        """Everything once, and nothing is left behind; nothing is resumed so."""
        self.train("run", "max_steps=1")
        both = ["fast_dev_run=true", "resume=true"]
        self.train("run", *both, code=USAGE, expects=["give one of the two"])
        before = set(os.listdir(self.dir))
        os.mkdir(f"{self.dir}/dev")  # a run that is there is not looked at
        before.add("dev")
        for n, steps, devices in (("true", 1, 1), ("3", 3, 2)):
            layout = [f"devices={devices}", "accelerator=cpu"]
            reported = self.train("dev", f"fast_dev_run={n}", "max_epochs=9", *layout)
            self.assertRegex(reported, f"epoch 1 done at step {steps}: .*val/loss")
        self.assertEqual(set(os.listdir(self.dir)), before)
        self.assertEqual(os.listdir(f"{self.dir}/dev"), [])

    def test_a_monitor_that_is_not_there(self):
        """Found before the first step, and of a run that goes on before the next one."""
        message = "val/f1: the sanity validation before step {} has no such metric; it has val/loss"
        self.train("run", "max_epochs=1")
        for keys in (
            ["checkpoint.monitor=val/f1"],
            ["early_stopping.monitor=val/f1"],
            ["scheduler=plateau", "scheduler.monitor=val/f1"],
            ["checkpoint.save_top_k=1", "checkpoint.filename={val/f1}"],
        ):
            with self.subTest(keys):
                self.train("new", *keys, "overwrite=true", code=USAGE, expects=[message.format(1)])
                self.assertEqual(os.listdir(f"{self.dir}/new/checkpoints"), [])
        meant = "has no such metric; it has val/loss, val/acc; did you mean `val/{}`?"
        for key in ("checkpoint.monitor", "early_stopping.monitor"):
            for wrong, right in (("val/los", "loss"), ("val/accc", "acc"), ("val/Loss", "loss")):
                keys = [f"{key}={wrong}", "max_steps=6", "overwrite=true"]
                self.train("new", *keys, code=USAGE, expects=[meant.format(right)])
                self.assertEqual(os.listdir(f"{self.dir}/new/checkpoints"), [])
        resume = ["train", "classify", f"out={self.dir}/run", "resume=true", "max_epochs=3"]
        self.levin([*resume, "early_stopping.monitor=val/f1"], USAGE, [message.format(7)])
        self.assertEqual(self.rows("run")[-1]["epoch"], 1)
        self.levin([*resume, "early_stopping.monitor=val/acc"], OK)

    def test_what_cannot_be(self):
        for argument, expects in (
            ("limit_train_batches=0", "from 1 on"),
            ("limit_train_batches=0.1", "smallest that works: 0.167"),
            ("limit_train_batches=1.5", "expected a number of batches"),
            ("limit_val_batches=0.1", "smallest that works: 0.167"),
            ("limit_val_batches=-1", "expected a number of batches"),
            ("val_check_interval=7", "an epoch has 6 batches"),
            ("max_time=12:00", "days:hours:minutes:seconds"),
            ("max_time=0s", "days:hours:minutes:seconds"),
            ("fast_dev_run=-1", "expected true, false or a number"),
            ("early_stopping.monitor=loss", "is not val/NAME or train/NAME"),
            ("num_sanity_val_steps=-2", "expected a whole number, at least -1"),
            ("train_percent_check=1", "limit_train_batches=1 for batches"),
            ("overfit_pct=1", "overfit_pct=1.0 for all of the data"),
        ):
            self.train("bad", argument, code=USAGE, expects=[expects])
            self.assertFalse(os.path.exists(f"{self.dir}/bad"))
        self.train("no", OVERFITS, "val_split=0", code=USAGE, expects=["no validation set"])
        self.train(
            "named",
            "early_stopping.monitor=val/f1",
            "max_epochs=1",
            code=USAGE,
            expects=["early_stopping.monitor=val/f1: the sanity validation before step 1 has no"],
        )


if __name__ == "__main__":
    case.main(turns=2)
