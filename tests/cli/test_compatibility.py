"""Files of earlier versions: exported models, a checkpoint, a recipe in a shared object
(tests/compatibility, docs/compatibility.md).

usage: test_compatibility.py SOURCE LEVIN [test names]
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, LEVIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
FILES = os.path.join(SOURCE, "tests/compatibility")
sys.path.insert(0, FILES)
import make  # noqa: E402  pylint: disable=wrong-import-position

VERSIONS = sorted(name for name in os.listdir(FILES) if name[0].isdigit())
CLOSE = 1e-4  # relative: versions, processors and libraries round otherwise


class Compatibility(unittest.TestCase):
    def setUp(self):
        if platform.machine() != "x86_64":
            self.skipTest("the recipe in tests/compatibility is compiled for x86-64")
        self.folder = tempfile.mkdtemp(prefix="levin-compatibility-")
        self.addCleanup(shutil.rmtree, self.folder)

    def compare(self, was, now, where):
        if isinstance(was, dict):
            # Later versions may answer more.
            for key, value in was.items():
                self.assertIn(key, now, where)
                self.compare(value, now[key], f"{where}.{key}")
        elif isinstance(was, list):
            self.assertEqual(len(was), len(now), where)
            for i, value in enumerate(was):
                self.compare(value, now[i], f"{where}[{i}]")
        elif isinstance(was, float):
            self.assertAlmostEqual(was, now, delta=CLOSE * max(1.0, abs(was)), msg=where)
        elif number(was) is not None and number(now) is not None:
            self.compare(number(was), number(now), where)
        else:
            self.assertEqual(was, now, where)

    def test_answers(self):
        """What a version exported evaluates, predicts and hashes as it did then."""
        self.assertTrue(VERSIONS)
        for version in VERSIONS:
            kept = os.path.join(self.folder, version)
            shutil.copytree(os.path.join(FILES, version), kept)
            with open(os.path.join(kept, "answers.json"), encoding="utf-8") as f:
                self.compare(json.load(f), make.answers(LEVIN, kept), version)

    def test_resume(self):
        """A run of theirs goes on, and its recipe need not be compiled again."""
        for version in VERSIONS:
            kept = os.path.join(self.folder, version)
            shutil.copytree(os.path.join(FILES, version), kept)
            done = subprocess.run(
                [LEVIN, "train", "./mine.so", "out=run", "resume=true", "max_epochs=3"],
                cwd=kept,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("done after 120 steps", done.stdout)
            with open(os.path.join(kept, "run/metrics.jsonl"), encoding="utf-8") as f:
                losses = [json.loads(line).get("val/loss") for line in f]
            losses = [loss for loss in losses if loss is not None]
            self.assertEqual(len(losses), 3)
            self.assertLess(losses[2], losses[1])


def number(text):
    """The number in a cell of a table; None: it is none."""
    try:
        return float(text) if isinstance(text, str) else None
    except ValueError:
        return None


if __name__ == "__main__":
    unittest.main()
