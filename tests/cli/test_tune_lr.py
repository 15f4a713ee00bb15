"""levin tune lr: what it suggests follows from the losses that it wrote, which are the same on any
layout; it ends where the loss rises, and writes two files and nothing else.

usage: test_tune_lr.py LEVIN [test names]
"""

import csv
import json
import math
import os
import re
import signal
import subprocess
import tempfile

import screen
from case import Case, FAILURE, LEVIN, main, OK, SIGINT, SIGTERM, USAGE, WAIT_S
from small_png import read_colours, read_rows

RESOURCE = 69
RUN = ["classify", "data=builtin:shapes", "data.count=120", "image_size=16", "model=mlp"]
RUN += ["batch_size=24", "micro_batches=2", "optim=sgd", "tune.steps=200", "tune.min_lr=1e-5"]
MARK = (0, 158, 115)  # of the suggestion, in the curve


def smooth(losses, steps):
    """At each point a weighted line through the neighbours: of the logarithm of loss + floor."""
    beside, first = max(steps // 12, 8), losses[: max(steps // 8, 8)]
    floor, out = 0.001 * sum(first) / len(first), []
    for i in range(len(losses)):
        near = range(max(i - beside, 0), min(i + beside + 1, len(losses)))
        weight = [(1 - (abs(j - i) / (beside + 1)) ** 3) ** 3 for j in near]
        value = [math.log(losses[j] + floor) for j in near]
        middle = sum(w * j for w, j in zip(weight, near)) / sum(weight)
        mean = sum(w * y for w, y in zip(weight, value)) / sum(weight)
        slope = sum(w * (j - middle) * (y - mean) for w, j, y in zip(weight, near, value))
        slope /= sum(w * (j - middle) ** 2 for w, j in zip(weight, near))
        out.append(math.exp(mean + slope * (i - middle)) - floor)
    return out


class TuneLr(Case):
    def tune(self, *arguments, code=OK, expects=(), env=None, look=False):
        """What it prints, and the rows that it wrote; look: self.colours of the curve."""
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            try:
                line = ["tune", "lr", *RUN, "tune.json=true", *arguments]
                out, _ = self.levin(line, code, expects, env=env)
                if not os.path.exists("lr_find.csv"):
                    self.assertEqual(os.listdir("."), [])
                    return out, []
                self.assertEqual(sorted(os.listdir(".")), ["lr_find.csv", "lr_find.png"])
                with open("lr_find.csv", encoding="utf-8") as f:
                    rows = [tuple(map(float, row.values())) for row in csv.DictReader(f)]
                if look:
                    self.assertEqual(read_rows("lr_find.png")[:2], (1920, 1200))
                    self.colours = read_colours("lr_find.png")
            finally:
                os.chdir(before)
        return json.loads(out) if code == OK else out, rows

    def test_a_signal_ends_it_within_a_step(self):
        for devices, strategy in ((1, "auto"), (2, "ddp"), (2, "dp")):
            for number, code in ((signal.SIGINT, SIGINT), (signal.SIGTERM, SIGTERM)):
                with self.subTest(devices=devices, strategy=strategy, number=number):
                    self.stop(number, code, f"devices={devices}", f"strategy={strategy}")
        self.stop(signal.SIGUSR1, FAILURE, "devices=1")  # 85 would promise a checkpoint

    def stop(self, number, code, *how):
        """In the middle, of which the progress line is the sign; nothing is written."""
        with tempfile.TemporaryDirectory() as empty:
            reader, writer = screen.open_terminal()
            line = [LEVIN, "tune", "lr", *RUN, *how, "tune.steps=100000", "tune.min_lr=1e-9"]
            run = subprocess.Popen(
                [*line, "tune.max_lr=1e-8"],
                cwd=empty,
                env={**os.environ, "TERM": "xterm"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=writer,
                start_new_session=True,
            )
            os.close(writer)
            shown = b""
            while not re.search(rb"step \d+/100000  loss_step [0-9.]+  lr [12][0-9.]*e-09 ", shown):
                shown += os.read(reader, 65536)
            run.send_signal(number)
            seen = int(re.findall(rb"step (\d+)/", shown)[-1])
            try:
                while piece := os.read(reader, 65536):
                    shown += piece
            except OSError:  # the terminal's other end is closed
                pass
            os.close(reader)
            self.assertEqual(run.communicate(timeout=WAIT_S)[0], b"")
            self.assertEqual(run.returncode, code, shown[-500:])
            end = re.search(rb"after step (\d+) of 100000: there is no suggestion", shown)
            self.assertIsNotNone(end, shown[-500:])
            self.assertLess(int(end[1]) - seen, 2000)  # the line is drawn ten times a second
            self.assertEqual(os.listdir(empty), [])

    def check(self, found, rows, steps):
        lr, losses, smoothed = zip(*rows)
        for mine, theirs in zip(smooth(losses, steps), smoothed):
            self.assertAlmostEqual(mine / theirs, 1, delta=1e-6)
        self.assertEqual(found["steps"], len(rows))
        at = min(range(len(lr)), key=lambda i: abs(lr[i] / found["optim.lr"] - 1))
        self.assertAlmostEqual(lr[at] / found["optim.lr"], 1, delta=1e-7)
        self.assertLess(at, smoothed.index(min(smoothed)))
        self.assertLess(smoothed[at], 0.97 * smoothed[0])

    def test_the_suggestion_lies_within_the_descent(self):
        found, rows = self.tune("tune.max_lr=0.1")
        self.check(found, rows, 200)
        self.assertEqual(len(rows), 200)
        self.assertFalse(found["stopped_early"])
        for i, (lr, _, _) in enumerate(rows):
            self.assertAlmostEqual(lr / (1e-5 * 1e4 ** (i / 199)), 1, delta=1e-7)
        _, rows = self.tune("tune.scale=linear", "tune.min_lr=0.1", "tune.steps=20", code=None)
        self.assertIn(len(rows), range(5, 21))  # the loss may rise before the last
        self.assertAlmostEqual(rows[4][0], 0.1 + 0.9 * 4 / 19)

    def test_noise_is_no_descent(self):
        """At such rates nothing changes."""
        out, rows = self.tune("tune.min_lr=1e-9", "tune.max_lr=1e-8", code=RESOURCE, look=True)
        self.assertEqual((out, len(rows)), ("", 200))
        self.assertNotIn(MARK, self.colours)
        self.tune(
            "tune.min_lr=1e-9",
            "tune.max_lr=1e-8",
            "tune.steps=13",
            "devices=2",
            code=RESOURCE,
            expects=["no clear descent: ", "standard errors", "more tune.steps (now 13)"],
        )

    def test_the_same_on_any_layout(self):
        short = ["tune.steps=30", "tune.min_lr=1e-4"]
        first = self.tune(*short, code=None)
        self.assertEqual(len(first[1]), 30)
        for how in (["devices=2"], ["devices=2", "strategy=sharded"], ["devices=2", "strategy=dp"]):
            self.assertEqual(self.tune(*short, *how, code=None), first, how)

    def test_the_curve(self):
        losses, smoothed = (0, 114, 178), (213, 94, 0)
        for how in (["tune.scale=exponential"], ["tune.scale=linear", "tune.max_lr=0.1"]):
            self.tune(*how, look=True)
            for colour in (losses, smoothed, MARK):
                self.assertGreater(self.colours.get(colour, 0), 49)  # a dot, and its legend

    def test_it_ends_where_the_loss_rises(self):
        found, rows = self.tune("tune.max_lr=1e6")
        self.check(found, rows, 200)
        self.assertTrue(found["stopped_early"])
        mean, means = 0.0, []
        for i, row in enumerate(rows):
            mean = 0.95 * mean + 0.05 * row[1]
            means.append(mean / (1 - 0.95 ** (i + 1)))
        self.assertGreater(means[-1], 4 * min(means[:-1]))
        self.assertLessEqual(means[-2], 4 * min(means[:-2]))

    def test_a_loss_that_is_not_finite_ends_it_on_all_ranks(self):
        for devices in (1, 2):
            self.tune(
                "tune.max_lr=1e30",
                "tune.steps=20",
                "tune.stop_above=0",
                f"devices={devices}",
                code=RESOURCE,
                expects=["a suggestion needs 13: a smaller tune.max_lr"],
            )

    def test_what_moves_the_rate_by_itself_has_no_part(self):
        first, rows = self.tune("tune.steps=20", code=None)
        self.assertEqual(len(rows), 20)
        self.assertTrue(all(math.isfinite(loss) for _, loss, _ in rows))
        for how in (
            ["scheduler=cosine", "scheduler.warmup_steps=5"],
            ["scheduler=plateau", "scheduler.monitor=val/loss"],
            ["early_stopping.monitor=val/loss"],
            ["optim.lr=7", "max_epochs=1"],
        ):
            self.assertEqual(self.tune("tune.steps=20", *how, code=None), (first, rows), how)

    def test_a_failure_leaves_nothing(self):
        for devices in (1, 2):
            self.tune("tune.csv=none/lr.csv", f"devices={devices}", code=1, expects=["none/lr.csv"])
            self.tune("model=nothing", f"devices={devices}", code=USAGE, expects=["`nothing`"])

    def test_help(self):
        self.assertIn("levin tune lr [RECIPE]", self.levin(["help", "tune", "lr"], OK)[0])
        one = self.levin(["help", "tune", "lr", "tune.steps"], OK)[0]
        self.assertIn("see smaller falls", one)
        self.assertNotIn("tune.csv", one)
        self.levin(["help", "tune", "colour"], USAGE, ["unknown key `colour`"])

    def test_what_is_refused(self):
        self.tune("tune.min_lr=2", code=USAGE, expects=["is not more than tune.min_lr=2"])
        self.tune("tune.steps=12", code=USAGE, expects=["tune.steps"])
        self.tune("resume=true", "out=run", code=USAGE, expects=["resume=true"])
        self.tune("tune.plot=lr.jpg", code=USAGE, expects=["lr.jpg", "ends in .png or .svg"])
        self.tune("tune.csv=none/lr.csv", code=1, expects=["none/lr.csv"])
        self.tune(
            "tune.plot=lr.png",
            code=FAILURE,
            expects=["tune.plot=: drawing needs cairo", "libcairo2 and fonts-dejavu-core"],
            env={"LEVIN_CAIRO_LIBRARY": "/none"},
        )

    def test_a_number_without_cairo(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                [LEVIN, "tune", "lr", *RUN, "tune.steps=20"],
                cwd=empty,
                capture_output=True,
                text=True,
                env={**os.environ, "LEVIN_CAIRO_LIBRARY": "/none"},
                timeout=100,
            )
            self.assertIn("warning: no plot: drawing needs cairo", done.stderr)
            self.assertEqual(len(os.listdir(empty)), 1, done.stdout + done.stderr)
            self.assertIn(os.listdir(empty)[0], done.stdout + done.stderr)

    def test_a_curve_in_svg(self):
        with tempfile.TemporaryDirectory() as empty:
            names = [f"tune.csv={empty}/lr.csv", f"tune.plot={empty}/lr.svg"]
            self.levin(["tune", "lr", *RUN, "tune.steps=20", *names], None)
            with open(f"{empty}/lr.svg", encoding="utf-8") as f:
                self.assertIn('<svg xmlns="http://www.w3.org/2000/svg"', f.read())

    def test_all_losses_before_the_rise_are_seen(self):
        """Also those that are far from the smoothed ones."""
        with tempfile.TemporaryDirectory() as empty:
            names = [f"tune.csv={empty}/lr.csv", f"tune.plot={empty}/lr.svg"]
            self.levin(["tune", "lr", *RUN, "tune.steps=60", "tune.max_lr=0.02", *names], None)
            with open(f"{empty}/lr.svg", encoding="utf-8") as f:
                dots = len(re.findall(r"fill[:=]\W*rgb\(0%, ?44\.7", f.read())) - 1  # the legend's
            with open(f"{empty}/lr.csv", encoding="utf-8") as f:
                smoothed = [float(row["smoothed"]) for row in csv.DictReader(f)]
        self.assertGreaterEqual(dots, 1 + smoothed.index(min(smoothed)))


if __name__ == "__main__":
    main(turns=2)
