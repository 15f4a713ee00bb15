"""What the tests of levin pretrain's methods share: a folder, the command in it, hashes of runs.

Takes the path of levin from the command line of the test that imports it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from rank_processes import drop_identity

LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()


class PretrainCase(unittest.TestCase):
    """One folder for all tests of a class; small: the keys of its runs."""

    small = []

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-pretrain-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)

    def levin(self, *arguments, code=0, env=None):
        done = run_levin(self.dir, *arguments, env=env)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def hashes(self, out, *arguments, env=None):
        self.levin("pretrain", *self.small, f"out={out}", *arguments, env=env)
        return self.levin("ckpt", "hash", out)

    def changed(self, one, two):
        """Weights that differ between two runs or files."""
        text = self.levin("ckpt", "diff", one, two, code=1)
        names = set(re.findall(r"^[\w./]+", text, re.M))
        return {n for n in names if n.startswith("model/") and "running" not in n}


class ApartCase(PretrainCase):
    """A folder for each test."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-pretrain-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)


def run_levin(folder, *arguments, env=None):
    return subprocess.run(
        [LEVIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=200,
        env=dict(os.environ, **(env or {})),
    )  # fmt: skip
