"""One of a thing is not "1 things": in what small runs print, and in the sources: a number in front
of a plural goes through lvni_core_plural, unless it is never 1. And numbers that are none have no
sign ("-nan").

usage: test_counts.py LEVIN [names]
"""

import glob
import os
import re
import subprocess
import unittest

from case import Case, FAILURE, LEVIN, OK, WAIT_S, main, png, read
from rank_processes import drop_identity

drop_identity()
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src")
THINGS = (
    "samples|images|classes|steps|epochs|micro-batches|ranks|cores|devices|tensors|parameters|"
    "predictions|labels|weights|checkpoints|files|rows|values|lanes"
)
ONE = re.compile(rf"(?<![\w.,:=/(-])1 (?:[a-z]+ )?({THINGS})\b")
# Of ranks and devices messages speak where there are several.
COUNTED = THINGS.replace("ranks|cores|devices|", "cores|")
NUMBER = re.compile(rf"%(?:l|ll|z|j)?(?:[diu]|\"\s*PRI[diu]64\s*\")(?: [a-z]+)? ({COUNTED})\b")

# Two or more, or a limit.
NEVER_ONE = [
    "a contact sheet of %d images",
    "take turns",
    "into training and validation, which takes minutes",
    "%d devices x %d accumulation",
    "%d units in %d stages",
    "of the work, %lld parameters",
    "x %lld accumulation steps",
    "%d devices cannot share",
    "cannot be cut into %d micro-batches",
    "group=%d does not divide %d micro-batches",
    "a confusion matrix at most %d",
    "make %lld micro-batches",
    "an epoch counts to",
    "the stream %s has %lld samples;",
    "%lld samples in steps",
    "the mean of %d files",
    "%s %lld x %lld = %lld samples",
    "names and layouts of PyTorch",
    "copying a batch of",
    "%ju open files a process",
    "%d steps in a row",
    "of the model's %d tensors",
    "of these %lld images",
    "none of its %lld images",
    "owns micro-batches %lld-%lld",
    "snprintf(identity, 96,",
    "%d samples each",
    "%lld parameters that the original's",
    'of the %d classes"',
]


class Sources(unittest.TestCase):
    maxDiff = None

    def test_counts_are_spelled_by_one_function(self):
        bad = []
        for path in glob.glob(f"{SOURCE}/**/*.c", recursive=True):
            if os.path.basename(os.path.dirname(path)) not in (
                "run",
                "report",
                "images",
                "tune",
                "classify",
                "gan",
                "user",
                "api",
                "trainer",
                "plan",
                "cli",
                "log",
            ):
                continue
            with open(path, encoding="utf-8") as f:
                lines = f.read().splitlines()
            for i, line in enumerate(lines):
                if NUMBER.search(line) and not any(known in line for known in NEVER_ONE):
                    bad.append(f"{os.path.basename(path)}:{i + 1}: {line.strip()}")
                if '== 1 ? "" : "s"' in line:
                    bad.append(f"{os.path.basename(path)}:{i + 1}: use lvni_core_plural")
        self.assertEqual(
            bad,
            [],
            "lvni_core_plural (core/str.h), or, where it is never 1, the list NEVER_ONE above",
        )


class Counts(Case):
    def one(self, *arguments, code=OK):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=self.dir, capture_output=True, text=True, timeout=WAIT_S
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        reported = done.stdout + done.stderr
        self.assertEqual(ONE.findall(reported), [], reported)
        return reported

    def test_one_of_everything(self):
        for name in ("train/cat", "train/dog", "val/cat"):
            png(f"{self.dir}/two/{name}/1.png", 20, 18, lambda x, y: (90, 10 * y, 9))
        arguments = [
            "train",
            "classify",
            "data=two",
            "model=mlp",
            "image_size=16",
            "batch_size=2",
            "max_epochs=1",
            "verbose=true",
            "micro_batches=1",
        ]
        self.assertIn("done after 1 step (max_epochs=1);", self.one(*arguments, "out=run"))
        self.assertIn("the run: 1 step, 1 epoch\n", self.one("plan", *arguments))
        self.assertIn("1 epoch is done", self.one("train", "classify", "out=run", "resume=true"))
        self.assertEqual(
            [
                line
                for line in read(f"{self.dir}/run/train.log").decode().splitlines()
                if ONE.search(line)
            ],
            [],
        )
        self.assertIn(
            "1 prediction in", self.one("predict", "model=run", "data=two/val", "output=p.csv")
        )
        self.one("eval", "model=run", "data=two", "split=val")
        self.one("export", "model=run", "output=m.safetensors")

    def test_nan_has_no_sign(self):
        arguments = [
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            "model=mlp",
            "image_size=16",
            "batch_size=10",
            "max_epochs=3",
            "out=run",
            "overwrite=true",
            "optim=sgd",
            "optim.lr=1e20",
        ]
        # 16-mixed skips steps, and its validations are warnings
        for precision, code in (("32-true", FAILURE), ("16-mixed", OK)):
            reported = self.one(*arguments, f"precision={precision}", code=code)
            self.assertIn(" is nan ", reported)
            self.assertNotIn(
                "-nan",
                reported
                + read(f"{self.dir}/run/train.log").decode()
                + read(f"{self.dir}/run/metrics.jsonl").decode(),
            )


if __name__ == "__main__":
    main()
