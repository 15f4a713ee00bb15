"""levin eval linear: a linear classifier on the features of a pretrained backbone.

What it finds is what the same steps find in Python on the features that `predict embed` writes, and
has the same bits on every layout; and the words of `levin help` for it.

usage: test_linear.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import csv
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from rank_processes import drop_identity

LEVIN = os.path.abspath(sys.argv.pop(1))
ORDER = os.path.join(os.path.dirname(__file__), "..", "unit", "data", "order.py")
drop_identity()
SMALL = (
    "data=builtin:shapes data.count=32 image_size=8 model=cnn method_args.hidden_dim=32"
    " method_args.output_dim=16 batch_size=16 wgrad_threads=1 num_workers=1 quiet=true"
).split()


def run(folder, *arguments, code=0, env=None):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=200,
        env=dict(os.environ, **(env or {})),
    )  # fmt: skip
    assert done.returncode == code, f"{arguments}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


SIDE, KINDS = 8, 4
PARTS = {"train": 36, "t10k": 20}  # images that are used as they are: no view of them is resized


def write_idx(path, shape, values):
    with open(path, "wb") as f:
        f.write(struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(values))


def draw_digits(folder):
    """Noisy stripes of four kinds as IDX files; returns the classes of each part."""
    noise, labels = random.Random(5), {}
    os.makedirs(folder)
    for part, n in PARTS.items():
        labels[part] = [i % KINDS for i in range(n)]
        pixels = [
            min(
                255,
                90 * ((x * (label % 2 + 1) + y * (label // 2 + 1)) // 2 % 2) + noise.randrange(160),
            )
            for label in labels[part]
            for y in range(SIDE)
            for x in range(SIDE)
        ]
        write_idx(f"{folder}/{part}-images-idx3-ubyte", (n, SIDE, SIDE), pixels)
        write_idx(f"{folder}/{part}-labels-idx1-ubyte", (n,), labels[part])
    return labels


def standardized(rows, of):
    columns = list(zip(*of))
    means = [sum(c) / len(c) for c in columns]
    apart = [math.sqrt(sum((x - m) ** 2 for x in c) / len(c)) or 1 for c, m in zip(columns, means)]
    return [[(x - m) / s for x, m, s in zip(row, means, apart)] for row in rows]


def train(rows, labels, classes, batch, lr, epochs):
    """Weights with the bias behind them; the loss of the last epoch."""
    dim, n = len(rows[0]), len(rows)
    batch = min(batch, n)
    steps = n // batch
    rows = [[*row, 1.0] for row in rows]
    weight = [[0.0] * (dim + 1) for _ in range(classes)]
    speed = [[0.0] * (dim + 1) for _ in range(classes)]
    for epoch in range(epochs):
        text = subprocess.check_output([sys.executable, ORDER, *map(str, (n, n, 0, epoch, 0))])
        order, total = [int(x) for x in text.split()], 0.0
        for step in range(steps):
            gradient = [[0.0] * (dim + 1) for _ in range(classes)]
            for i in order[step * batch : (step + 1) * batch]:
                logits = [sum(a * b for a, b in zip(w, rows[i])) for w in weight]
                total_of = sum(math.exp(v - max(logits)) for v in logits)
                total += (math.log(total_of) + max(logits) - logits[labels[i]]) / batch
                for c in range(classes):
                    d = math.exp(logits[c] - max(logits)) / total_of - (c == labels[i])
                    gradient[c] = [g + d / batch * x for g, x in zip(gradient[c], rows[i])]
            t, last = epoch * steps + step, epochs * steps - 1
            rate = lr * batch / 256 * (0.001 + 0.999 * (1 + math.cos(math.pi * t / last)) / 2)
            for c in range(classes):
                speed[c] = [0.9 * v + g for v, g in zip(speed[c], gradient[c])]
                weight[c] = [w - rate * v for w, v in zip(weight[c], speed[c])]
    return weight, total / steps


class Linear(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-linear-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.labels = draw_digits(os.path.join(cls.dir, "parts"))
        run(cls.dir, "pretrain", *SMALL, "max_epochs=0", "knn.data=parts", "knn.k=3", "out=run")
        cls.use = ["model=run", "data=parts"]

    def levin(self, *arguments, **how):
        return run(self.dir, *arguments, **how)

    def found(self, *keys, **how):
        return re.search(
            "{.*}", self.levin("eval", "linear", *self.use, "json=true", *keys, **how)
        )[0]

    def features(self):
        self.levin("predict", "embed", *self.use, "output=features.csv", "overwrite=true")
        with open(f"{self.dir}/features.csv", encoding="utf-8") as f:
            rows = [[float(v) for v in row[1:]] for row in list(csv.reader(f))[1:]]
        n = PARTS["train"]
        return (rows[:n], self.labels["train"]), (rows[n:], self.labels["t10k"])

    def test_the_same_steps_in_python(self):
        (rows, labels), (queries, answers) = self.features()
        for batch, lr, whitens in ((8, 4, False), (100, 2, True)):
            x, y = rows, queries
            if whitens:
                x, y = standardized(rows, rows), standardized(queries, rows)
            weight, loss = train(x, labels, KINDS, batch, lr, 5)
            right = 0
            for row, answer in zip(y, answers):
                logits = [sum(a * b for a, b in zip(w, [*row, 1.0])) for w in weight]
                right += max(range(KINDS), key=lambda c: logits[c]) == answer
            keys = [f"batch_size={batch}", f"lr={lr}", "epochs=5"]
            found = json.loads(self.found(*keys, f"standardize={str(whitens).lower()}"))
            self.assertAlmostEqual(found["loss"], loss, 4)
            self.assertAlmostEqual(found["top1"], right / len(answers), 6)
            self.assertEqual((found["references"], found["n"]), (len(labels), len(answers)))
            self.assertEqual(found["batch_size"], min(batch, len(labels)))

    def test_every_layout_has_the_same_bits(self):
        keys = ["batch_size=8", "epochs=3", "lr=3"]
        one = self.found(*keys)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        for more, env in (
            (["devices=2"], None),
            (["devices=4", "strategy=dp", "eval_batch_size=5"], None),
            (["accelerator=sim", "devices=2"], sim),
        ):
            self.assertEqual(self.found(*keys, *more, env=env), one, more)
        self.assertNotEqual(self.found(*keys, "seed=1"), one)

    def test_a_classifier_that_diverges(self):
        keys = ["batch_size=8", "epochs=9", "lr=10", "json=true"]
        text = self.levin("eval", "linear", *self.use, *keys, "weight_decay=1e5", code=1)
        self.assertRegex(text, r"diverges in epoch \d of 9 .*lr=10 and weight_decay=100000")
        self.assertIn("a smaller lr or weight_decay", text)
        self.assertNotRegex(text, "top1|-nan")

    def test_mistakes(self):
        text = self.levin("eval", "linear", "epochs=0", "momentum=2", "k=3", code=64)
        self.assertIn("3 mistakes", text)
        self.assertIn("epochs", text)
        self.assertIn("levin eval linear --help", text)
        text = self.levin("eval", "linear", "data=parts", code=64)
        self.assertIn("model= is missing", text)

    def test_help_of_words(self):
        for command, key, other in (
            ("eval linear", "standardize", "temperature"),
            ("eval knn", "temperature", "standardize"),
            ("predict embed", "features", "val_split"),
        ):
            words = command.split()
            for line in (["help", *words], ["help", ".".join(words)], [*words, "--help"]):
                text = self.levin(*line)
                self.assertRegex(text, rf"usage: levin {command.split()[0]} \w+ model=", line)
                self.assertRegex(text, rf"(?m)^  {key} ", line)
                self.assertNotRegex(text, rf"(?m)^  {other} ", line)
            text = self.levin("help", *words, key)
            self.assertRegex(text, rf"(?m)^  {key} ")

    def test_an_untrained_network_is_measured(self):
        with open(f"{self.dir}/run/metrics.jsonl", encoding="utf-8") as f:
            [row] = map(json.loads, f)
        self.assertEqual(row["step"], 0)
        text = self.levin("eval", "knn", *self.use, "k=3", "json=true")
        self.assertEqual(json.loads(re.search("{.*}", text)[0])["top1"], round(row["val/knn"], 9))
        keys = ["max_epochs=0", "knn.data=parts", "knn.k=3", "devices=2", "overwrite=true"]
        self.levin("pretrain", *SMALL, *keys, "out=two")
        with open(f"{self.dir}/two/metrics.jsonl", encoding="utf-8") as f:
            [two] = map(json.loads, f)
        self.assertEqual(two["val/knn"], row["val/knn"])


if __name__ == "__main__":
    unittest.main()
