"""levin report SWEEP: the page of a sweep, on folders that are written by hand.

usage: test_sweep_page.py LEVIN [test names]
"""

import html
import os
import random
import re
import time

from case import USAGE, main, read, write
from sweep_folders import SweepCase


class SweepPage(SweepCase):
    def curve(self, i, values):
        rows = "".join(
            f'{{"step": {10 * k}, "epoch": {k}, "val/loss": {v}}}\n'
            for k, v in enumerate(values, 1)
        )
        os.makedirs(self.trial(i, "run"), exist_ok=True)
        write(self.trial(i, "run/metrics.jsonl"), rows.encode())

    def page(self):
        out, _ = self.levin(["report", self.sweep], 0)
        self.assertEqual(out, f"{self.sweep}/report.html\n")
        text = read(f"{self.sweep}/report.html")
        text = text.decode() if isinstance(text, bytes) else text
        self.assertIsNone(re.search(r'(src|href|action)=(?!"data:,")|url\(|@import|fetch\(', text))
        return text

    @staticmethod
    def svg(text, i):
        return re.findall(r"<svg.*?</svg>", text, re.S)[i]

    def test_a_sweep(self):
        rates, acts = ("0.001", "0.01", "1"), ("relu", "a<b")
        points = [{"lr": lr, "act": act} for lr in rates for act in acts]
        points[5].pop("act")
        self.plan(points, command=["levin", "train", "classify", "data=it's"])
        self.end(0, value=0.5)
        self.curve(0, [3, 2, 0.5])
        self.end(1, "pruned", value=0.75)
        self.curve(1, [4, 0.75])
        self.claim(2)
        self.curve(2, [2.5])
        self.end(3, "failed", exit_code=1, error="<script>alert(1)</script>")
        self.end(5, value=0.25)
        text = self.page()
        self.assertNotIn("<script>alert", text)
        self.assertIn("&lt;script&gt;alert", text)
        self.assertIn("6 trials: 1 pruned, 1 failed, 2 done, 1 running, 1 pending", text)
        command = html.unescape(re.search(r"<pre>(.*?)</pre>", text, re.S)[1])
        self.assertEqual(
            command.strip(), self.run_sweep("best", "print=command")[0].strip(), "best trial's"
        )
        lines = self.svg(text, 0)
        # Rates span three decades: equal distances of 0.001, 0.01 and, twice as far, 1.
        y = [float(re.search(rf'data-r={r}[^>]*d="M\d+ ([\d.]+)', lines)[1]) for r in (0, 1)]
        bottom, top = 288.0, 28.0
        self.assertEqual(y[0], top)  # the best has lr=1
        self.assertEqual(y[1], bottom)
        self.assertRegex(lines, r">none</text>")
        self.assertIn("a&lt;b</text>", lines)
        self.assertEqual(len(re.findall(r"<path", lines)), 6)
        self.assertEqual(len(re.findall(r"hsl", lines)), 3)  # with a value
        curves = self.svg(text, 1)
        self.assertEqual(
            sorted(re.findall(r'<g data-r=(\d) class="c(\d)"', curves)),
            [("1", "0"), ("2", "1"), ("3", "2")],
        )
        rows = re.findall(r"<tr data-r=(\d+)><td>(\d+)<td>(\w+)", text)
        self.assertEqual(rows[:3], [("0", "5", "done"), ("1", "0", "done"), ("2", "1", "pruned")])

    def test_logarithmic_where_it_was_drawn_so(self):
        self.plan(
            [{"a": v, "b": v} for v in ("10", "20", "40")],
            space=[["sample", "a=loguniform(10,40)"], ["sample", "b=uniform(10,40)"]],
        )
        for i in range(3):
            self.end(i, value=i)
        at = re.search(r'data-r=1[^>]*d="M60 ([\d.]+)L170 ([\d.]+)', self.svg(self.page(), 0))
        self.assertEqual(float(at[1]), 158.0)  # the middle by its logarithm
        self.assertEqual(float(at[2]), 201.3)  # a third

    def test_damaged(self):
        self.plan([{"lr": "0.1"}] * 4)
        self.end(0, value=0.5)
        write(self.trial(1, "trial.json"), b"{")
        write(self.trial(2, "claim.1"), b"\0\xff")
        os.remove(self.trial(3, "trial.json"))
        os.makedirs(self.trial(3, "run/metrics.jsonl"))
        text = self.page()
        self.assertIn("damaged: ", text)
        self.assertIn("trials/000001/trial.json", text)
        self.assertEqual(len(re.findall("<tr data-r", text)), 4)

    def test_nothing_has_begun(self):
        self.plan()
        text = self.page()
        self.assertIn("No trial has ended with a value", text)
        self.assertIn("No trial has logged the metric yet", text)

    def test_what_is_refused(self):
        self.plan()
        _, err = self.levin(["report", self.sweep, "format=png"], USAGE)
        self.assertIn("output=FILE.html", err)
        self.levin(["report", self.sweep, "data=x"], USAGE)

    def test_many_trials(self):
        """1,000 trials of 100 rows each in the slow run: no time is asserted, the size is."""
        n = 1000 if os.environ.get("LEVIN_TEST_SLOW") else 100
        draw = random.Random(1)
        points = [{f"p{k}": f"{10 ** draw.uniform(-5, 0):.6g}" for k in range(8)} for _ in range(n)]
        self.plan(points)
        for i in range(n):
            self.end(i, value=draw.random())
            self.curve(i, [draw.random() for _ in range(100)])
        begin = time.monotonic()
        text = self.page()
        print(f"{n} trials: {time.monotonic() - begin:.2f} s, {len(text) / 1e6:.2f} MB")
        self.assertEqual(len(re.findall("<tr data-r", text)), n)
        self.assertLessEqual(len(text), 3000 * n)


if __name__ == "__main__":
    main()
