"""tools/pinned-runs: a program equals itself, one that trains something else is found, and what
cannot be compared is refused.

usage: test_compare_runs.py LEVIN
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "pinned-runs"
LEVIN = Path(sys.argv.pop(1)).resolve()


def compare(*arguments):
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


class PinnedRuns(unittest.TestCase):
    def other(self, script):
        """A program in a folder with a liblevin.so."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.symlink(LEVIN.parent / "liblevin.so", Path(folder.name, "liblevin.so"))
        program = Path(folder.name, "levin")
        program.write_text(f"#!/bin/sh\n{script}\nexec {LEVIN} \"$@\"\n")
        program.chmod(0o755)
        return program

    def test_equal_programs(self):
        code, text = compare(LEVIN, self.other(""), "mlp")
        self.assertEqual((code, text), (0, "pinned-runs: 1 runs of two programs, 0 differ\n"))

    def test_another_training_is_found(self):
        code, text = compare(LEVIN, self.other('[ "$1" != train ] || set -- "$@" seed=1'), "mlp")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"^mlp +differs in .*checkpoints/last.safetensors \(hash\)")

    def test_one_line_for_a_run(self):
        code, text = compare(LEVIN, "lars")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"^lars( +[0-9a-f]{12}){3}\n$")

    def test_failures_and_mistakes_are_reported(self):
        code, text = compare(self.other("exit 9"), "mlp")
        self.assertEqual(code, 1)
        self.assertIn("FAILED", text)
        self.assertIn("exit code 9", text)
        self.assertIn("neither a file nor a run", compare(LEVIN, "no-run")[1])


if __name__ == "__main__":
    unittest.main()
