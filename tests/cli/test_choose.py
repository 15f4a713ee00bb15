"""levin eval choose=METRIC: the best checkpoint of a run, of images and of a recipe of one's own.
(test_gan_eval.py has the rest: kills, resumes, pruning, what is acceptable.)

usage: test_choose.py LEVIN MINE.C [test names]     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rank_processes import drop_identity
from small_png import write_png

drop_identity()
LEVIN, MINE = sys.argv.pop(1), sys.argv.pop(1)
FAILURE, USAGE = 1, 64
SHAPES = "data=builtin:shapes data.count=90 data.classes=3 image_size=8"
KEPT = "num_workers=0 quiet=true checkpoint.save_top_k=3 max_epochs=3"
HERE = ""


def setUpModule():
    global HERE
    HERE = tempfile.mkdtemp(prefix="levin-choose-")
    levin(f"train classify {SHAPES} model=mlp optim.lr=0.01 {KEPT} out=run")


def tearDownModule():
    shutil.rmtree(HERE)


def levin(arguments, code=0):
    done = subprocess.run(
        [LEVIN, *arguments.split()], cwd=HERE, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == code, f"levin {arguments}\n{done.stdout}{done.stderr}"
    return done


def hash_of(file):
    return levin(f"ckpt hash {file}").stdout


class Choose(unittest.TestCase):
    def run_of(self, name):
        shutil.copytree(os.path.join(HERE, "run"), os.path.join(HERE, name))
        return name

    def files_of(self, run):
        folder = os.path.join(HERE, run, "checkpoints")
        return sorted(f for f in os.listdir(folder) if f.startswith("epoch="))

    def check(self, run, use, metric, better, value_of):
        """The table has what eval finds of each file, and best is the best one's."""
        files = self.files_of(run)
        self.assertEqual(len(files), 3)
        found = {}
        for f in files:
            one = levin(f"eval {use} model={run}/checkpoints/{f} json=true").stdout
            found[int(f[6:10])] = value_of(json.loads(one))
        got = json.loads(levin(f"eval {use} model={run} choose={metric} json=true").stdout)
        self.assertEqual([e["epoch"] for e in got["epochs"]], sorted(found))
        for e in got["epochs"]:
            self.assertEqual(e[metric], found[e["epoch"]])
        self.assertGreater(len(set(found.values())), 1)
        self.assertEqual(got["best"], better(found, key=lambda k: (found[k],)))
        best = next(f for f in files if int(f[6:10]) == got["best"])
        self.assertEqual(
            hash_of(f"{run}/checkpoints/best.safetensors"), hash_of(f"{run}/checkpoints/{best}")
        )

    @staticmethod
    def reads(text):
        return len(re.findall(r"^reads \d+$", text, re.MULTILINE))

    def test_images(self):
        use = f"{SHAPES.rsplit(' ', 1)[0]} split=val"
        self.check(self.run_of("a"), use, "loss", min, lambda j: j["loss"])
        self.check("a", use, "macro_f1", max, lambda j: j["macro"]["f1"])
        more = "choose=loss choose.mode=max json=true"
        worst = json.loads(levin(f"eval {use} model=a {more}").stdout)
        scores = {e["epoch"]: e["loss"] for e in worst["epochs"]}
        self.assertEqual(worst["best"], max(scores, key=scores.get))
        self.assertIn("\nbest: epoch ", levin(f"eval {use} model=a choose=val/acc").stdout)
        levin(f"eval {use} model=a choose=loss prune=true")
        self.assertEqual(len(self.files_of("a")), 1)

    def test_a_recipe_of_ones_own(self):
        shutil.copy(MINE, os.path.join(HERE, "mine.c"))
        levin("cc mine.c")
        levin(f"train ./mine.so {KEPT} limit_train_batches=3 out=mine")
        done = levin("eval ./mine.so model=mine choose=wrong", USAGE)
        self.assertRegex(done.stderr, r"choose=wrong: the validation step logs no such metric; it ")
        self.check("mine", "./mine.so", "loss", min, lambda j: j["metrics"]["loss"])

    def test_a_metric_that_is_missing_before_one_is_measured(self):
        """Images: before one is read, and here none can be. A recipe: a warning after the first
        chunk, and an error after the first checkpoint."""
        for name, colour in (("a", (200, 0, 0)), ("b", (0, 200, 0))):
            for i in range(10):
                write_png(Path(HERE, "photos", name, f"{i}.png"), 8, colour)
        levin(f"train classify data=photos model=mlp image_size=8 {KEPT} out=photos-run")
        for file in Path(HERE, "photos").rglob("*.png"):
            file.write_bytes(file.read_bytes()[:60])
        use = "eval data=photos split=val model=photos-run"
        error = levin(f"{use} choose=fscore", USAGE).stderr
        self.assertIn("choose=fscore: must be acc, ", error)
        self.assertIn(".png", levin(f"{use} choose=acc", FAILURE).stderr)
        with open(MINE, encoding="utf-8") as f:
            text = f.read().replace(
                "const spirals *s = (const spirals *)dataset;\n",
                "const spirals *s = (const spirals *)dataset;\n"
                'fprintf(stderr, "reads %d\\n", (int)key->sample);\n',
                1,
            )
        with open(os.path.join(HERE, "reads.c"), "w", encoding="utf-8") as f:
            f.write("#include <stdio.h>\n" + text)
        levin("cc reads.c")
        levin(f"train ./reads.so {KEPT} limit_train_batches=3 out=reads")
        use = "eval ./reads.so model=reads eval_batch_size=20 num_workers=0"
        one = self.reads(levin(f"{use} split=val").stderr)
        good = levin(f"{use} choose=acc").stderr
        self.assertEqual(self.reads(good), 20 + 3 * one)
        self.assertNotIn("choose=acc: ", good)
        error = levin(f"{use} choose=wrong", USAGE).stderr
        self.assertEqual(self.reads(error), 20 + one)
        warning = "warning: choose=wrong: the validation step logs loss, acc in the first chunk; "
        self.assertEqual(self.reads(error.split(warning)[0]), 20)
        self.assertIn("no such metric; it has loss, acc", error)

    def test_a_metric_of_some_chunks(self):
        """It is chosen by as eval prints it, though the first chunk does not have it."""
        with open(MINE, encoding="utf-8") as f:
            text = f.read().replace(
                'lvn_log(step, "loss", loss);',
                'lvn_log(step, "loss", loss);\n'
                "if (batch->size < 30) {\n"
                'lvn_log(step, "late", loss);\n'
                "}",
                1,
            )
        with open(os.path.join(HERE, "late.c"), "w", encoding="utf-8") as f:
            f.write(text)
        levin("cc late.c")
        levin(f"train ./late.so {KEPT} eval_batch_size=30 limit_train_batches=3 out=late")
        self.check("late", "./late.so", "late", min, lambda j: j["metrics"]["late"])
        shown = levin("eval ./late.so model=late choose=val/late").stderr
        self.assertIn("choose=val/late: the validation step logs loss, acc in the first", shown)

    def test_a_key_of_that_name(self):
        """A recipe of before `choose` may have it as a key of its own."""
        with open(MINE, encoding="utf-8") as f:
            text = f.read().replace('"noise"', '"choose"')
        with open(os.path.join(HERE, "odd.c"), "w", encoding="utf-8") as f:
            f.write(text)
        levin("cc odd.c")
        levin("train ./odd.so num_workers=0 quiet=true max_steps=2 choose=0.1 out=odd")
        self.assertIn("loss", levin("eval ./odd.so model=odd choose=0.2").stdout)
        levin("predict ./odd.so model=odd output=odd.csv")

    def test_mistakes(self):
        use = f"eval {SHAPES.rsplit(' ', 1)[0]} split=val"
        for more, sentence in (
            ("model=run choose=fscore", "choose=fscore: must be acc, loss, top5_acc, macro_f1"),
            ("model=run choose=acc sheet=a.png", "with choose="),
            ("model=run/exported_models/exported_best.safetensors choose=acc", "not a run"),
            ("model=run choose.mode=max", "choose"),
        ):
            self.assertIn(sentence, levin(f"{use} {more}", USAGE).stderr, more)


if __name__ == "__main__":
    unittest.main()
