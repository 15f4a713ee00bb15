"""levin tune lr: what it suggests follows from the losses that it wrote, which are the same on any
layout; it ends where the loss rises, and writes two files and nothing else.

usage: test_tune_lr.py LEVIN [test names]
"""

import csv
import json
import math
import os
import tempfile

from bad_support import Case, main, OK, USAGE
from small_png import read_colours, read_rows

RESOURCE = 69
RUN = ["classify", "data=builtin:shapes", "data.count=120", "image_size=16", "model=cnn"]
RUN += ["batch_size=24", "micro_batches=2", "optim=sgd"]


def smooth(losses):
    average, out = 0.0, []
    for i, loss in enumerate(losses):
        average = 0.98 * average + 0.02 * loss
        out.append(average / (1 - 0.98 ** (i + 1)))
    return out


def suggest(lr, smoothed):
    """The rate where the curve falls most steeply: numpy.gradient over log10(lr), written out."""
    x, y = [math.log10(x) for x in lr[10:-1]], smoothed[10:-1]
    slope = [(y[1] - y[0]) / (x[1] - x[0])]
    for i in range(1, len(x) - 1):
        a, b = x[i] - x[i - 1], x[i + 1] - x[i]
        slope.append(
            (a * a * y[i + 1] + (b * b - a * a) * y[i] - b * b * y[i - 1]) / (a * b * (a + b))
        )
    slope.append((y[-1] - y[-2]) / (x[-1] - x[-2]))
    return lr[10 + slope.index(min(slope))]


class TuneLr(Case):
    def tune(self, *arguments, code=OK, expects=(), env=None, look=False):
        """What it prints, and the rows that it wrote; look: self.colours of the curve."""
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            try:
                out, _ = self.levin(
                    ["tune", "lr", *RUN, "tune.json=true", *arguments], code, expects, env=env
                )
                if not os.path.exists("lr_find.csv"):
                    self.assertEqual(os.listdir("."), [])
                    return out, []
                self.assertEqual(sorted(os.listdir(".")), ["lr_find.csv", "lr_find.png"])
                with open("lr_find.csv", encoding="utf-8") as f:
                    rows = [tuple(map(float, row.values())) for row in csv.DictReader(f)]
                self.assertEqual(read_rows("lr_find.png")[:2], (960, 600))
                self.colours = read_colours("lr_find.png") if look else {}
            finally:
                os.chdir(before)
        return json.loads(out) if code == OK else out, rows

    def check(self, found, rows):
        lr, losses, smoothed = zip(*rows)
        for mine, theirs in zip(smooth(losses), smoothed):
            self.assertAlmostEqual(mine / theirs, 1, delta=1e-7)
        self.assertAlmostEqual(found["optim.lr"] / suggest(lr, smoothed), 1, delta=1e-7)
        self.assertEqual(found["steps"], len(rows))

    def test_the_suggestion_follows_from_the_losses(self):
        found, rows = self.tune()
        self.check(found, rows)
        self.assertFalse(found["stopped_early"])
        for i, (lr, _, _) in enumerate(rows):
            self.assertAlmostEqual(
                lr / (1e-8 if i == 0 else 1e-8 ** (1 - (i + 1) / 100)), 1, delta=1e-7
            )
        found, rows = self.tune("tune.scale=linear", "tune.min_lr=0.1", "tune.steps=20")
        self.check(found, rows)
        self.assertAlmostEqual(rows[4][0], 0.1 + 0.9 * 5 / 20)

    def test_the_same_on_any_layout(self):
        first = self.tune("tune.steps=30", "tune.min_lr=1e-4")
        for how in (["devices=2"], ["devices=2", "strategy=sharded"], ["devices=2", "strategy=dp"]):
            self.assertEqual(self.tune("tune.steps=30", "tune.min_lr=1e-4", *how), first, how)

    def test_the_curve(self):
        losses, smoothed, mark = (0, 114, 178), (213, 94, 0), (0, 158, 115)
        for scale in ("exponential", "linear"):
            self.tune("tune.steps=13", f"tune.scale={scale}", look=True)
            for colour in (losses, smoothed, mark):
                self.assertGreater(self.colours.get(colour, 0), 49)  # a dot, and its legend
        self.tune(
            "tune.max_lr=1e30", "tune.steps=20", "tune.stop_above=0", code=RESOURCE, look=True
        )
        self.assertNotIn(mark, self.colours)

    def test_it_ends_where_the_loss_rises(self):
        found, rows = self.tune("tune.max_lr=1e6")
        self.check(found, rows)
        self.assertTrue(found["stopped_early"])
        smoothed = [row[2] for row in rows]
        self.assertGreater(smoothed[-1], 4 * min(smoothed[:-1]))
        self.assertLessEqual(smoothed[-2], 4 * min(smoothed[:-2]))

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
        first, rows = self.tune("tune.steps=20")
        self.assertTrue(all(math.isfinite(loss) for _, loss, _ in rows))
        for how in (
            ["scheduler=cosine", "scheduler.warmup_steps=5"],
            ["scheduler=plateau", "scheduler.monitor=val/loss"],
            ["early_stopping.monitor=val/loss"],
            ["optim.lr=7", "max_epochs=1"],
        ):
            self.assertEqual(self.tune("tune.steps=20", *how), (first, rows), how)

    def test_a_failure_leaves_nothing(self):
        for devices in (1, 2):
            self.tune("tune.csv=none/lr.csv", f"devices={devices}", code=1, expects=["none/lr.csv"])
            self.tune("model=nothing", f"devices={devices}", code=USAGE, expects=["`nothing`"])

    def test_help(self):
        self.assertIn("levin tune lr [RECIPE]", self.levin(["help", "tune", "lr"], OK)[0])
        one = self.levin(["help", "tune", "lr", "tune.steps"], OK)[0]
        self.assertIn("leaves out the first 10", one)
        self.assertNotIn("tune.csv", one)
        self.levin(["help", "tune", "colour"], USAGE, ["unknown key `colour`"])

    def test_what_is_refused(self):
        self.tune("tune.min_lr=2", code=USAGE, expects=["is not more than tune.min_lr=2"])
        self.tune("tune.steps=12", code=USAGE, expects=["tune.steps"])
        self.tune("resume=true", "out=run", code=USAGE, expects=["resume=true"])
        self.tune("tune.plot=lr.svg", code=USAGE, expects=["lr.svg", "ends in .png"])
        self.tune("tune.csv=none/lr.csv", code=1, expects=["none/lr.csv"])


if __name__ == "__main__":
    main()
