"""Runs the commands of README.md, in order, in one folder, as a newcomer would.

usage: test_readme.py SOURCE_DIR BUILD_DIR

A block ```sh behind a line <!-- tested: name --> is run; the ```text block that follows it, if any,
must be lines of its output, numbers apart. Other ```sh blocks may only hold `make TARGET` with
targets of the Makefile. The long training of the first block has all of its images on one day of
four; with fewer of them it prints the same lines.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "support"))

from small_png import write_png
from turns import turn_line, turn_of

SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
README = (SOURCE / "README.md").read_text()
BLOCK = re.compile(
    r"(?:^<!-- tested: (\w+) -->\n)?^```sh\n(.*?)^```\n(?:^```text\n(.*?)^```\n)?", re.S | re.M
)
FIRST_SCREEN = README[: README.index("\n## ")]
NUMBER = re.compile(r"\d+(\.\d+)?")
PARTS = 4
WHOLE = turn_of(PARTS) in (None, 1)
FEWER = {} if WHOLE else {"first": ("out=out/first", "out=out/first data.count=240")}


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cwd = Path(folder.name)
        (cls.cwd / "build").symlink_to(BUILD)
        for name in ("include", "examples"):
            (cls.cwd / name).symlink_to(SOURCE / name)
        for i in range(12):
            write_png(cls.cwd / f"photos/blue/{i:02}.png", 90, (10, 20 + 5 * i, 200))
            write_png(cls.cwd / f"photos/red/{i:02}.png", 90, (200, 20 + 5 * i, 10))
        # a job of Slurm: as many ranks of this machine
        (cls.cwd / "srun").write_text('#!/bin/sh\nshift 2\nexec build/levin launch -n 2 -- "$@"\n')
        (cls.cwd / "srun").chmod(0o755)
        cls.output = {}
        for name, commands, _ in BLOCK.findall(README):
            if name:
                as_shown, fewer = FEWER.get(name, ("", ""))
                assert as_shown in commands, commands
                commands = commands.replace(as_shown, fewer)
                done = subprocess.run(
                    ["sh", "-e", "-c", commands],
                    cwd=cls.cwd,
                    env=os.environ | {"PATH": f"{cls.cwd}:{os.environ['PATH']}"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    raise AssertionError(
                        f"README block {name} ended with "
                        f"{done.returncode}:\n{commands}{done.stdout}"
                    )
                cls.output[name] = done.stdout

    def test_every_block_is_run_or_is_a_make_target(self):
        self.assertEqual(README.count("```sh\n"), len(BLOCK.findall(README)))
        targets = re.findall(r"^([a-z-]+):", (SOURCE / "Makefile").read_text(), re.M)
        for name, commands, _ in BLOCK.findall(README):
            for line in [] if name else commands.splitlines():
                match = re.fullmatch(r"make ([a-z]+)(\s+#.*)?", line)
                self.assertIsNotNone(match, line)
                self.assertIn(match.group(1), targets)

    def test_the_first_screen_has_a_path_for_each_reader(self):
        """Of two or three lines that are run; photos is in test_predictions_and_page, too."""
        paths = {name: text.splitlines() for name, text, _ in BLOCK.findall(FIRST_SCREEN)}
        self.assertEqual(list(paths), ["photos", "lightning", "cluster", "program"])
        for name, lines in paths.items():
            self.assertIn(len(lines), (2, 3), name)
        self.assertIn("epoch 4 done", self.output["lightning"])
        self.assertIn("2 ranks", self.output["cluster"])
        self.assertIn("epoch 6 done", self.output["cluster"])
        self.assertIn("done after", self.output["program"])

    def test_the_output_is_as_shown(self):
        shown = [(name, text) for name, _, text in BLOCK.findall(README) if text]
        self.assertEqual([name for name, _ in shown], ["first"])
        for name, text in shown:
            shapes = {NUMBER.sub("#", line) for line in self.output[name].splitlines()}
            for line in text.splitlines():
                self.assertIn(NUMBER.sub("#", line), shapes)
        accuracy = [float(a) for a in re.findall(r"val/acc (\S+)", self.output["first"])]
        self.assertEqual(len(accuracy), 12)
        if WHOLE:  # shown: 0.9776; other processors round otherwise
            self.assertGreaterEqual(accuracy[-1], 0.93)

    def test_the_run_directory_is_as_described(self):
        tree = re.findall(r"^[├└]── (\S+)", FIRST_SCREEN, re.M)
        both = [t.replace("{best,last}", w) for t in tree for w in ("best", "last")]
        self.assertEqual(len(set(both)), 8)
        for name in both:
            self.assertTrue((self.cwd / "out/mine" / name).is_file(), name)
        self.assertTrue((self.cwd / "out/four/logs").is_dir())
        self.assertFalse((self.cwd / "out/four/errors").exists())  # nothing has failed

    def test_comments_of_examples_compile_them(self):
        """As pasted, line by line: each command is whole, and makes the file that it names."""
        sources = [*sorted(SOURCE.glob("examples/*/*.c"))]
        sources = [path for path in sources if "06_backend" not in str(path)]  # has a Makefile
        environment = os.environ | {"PATH": f"{BUILD}:{os.environ['PATH']}"}
        for path in sources:
            head = path.read_text().partition("*/")[0].replace("\\\n *", " ")
            lines = [line.removeprefix(" *   ").strip() for line in head.splitlines()]
            commands = [line for line in lines if re.match(r"(levin )?cc ", line)]
            self.assertEqual(len(commands), 1, path)
            done = subprocess.run(
                ["sh", "-e", "-c", commands[0]],
                cwd=self.cwd,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, f"{commands[0]}\n{done.stderr}")
            output = commands[0].split(" -o ")[1]
            self.assertTrue(os.access(self.cwd / output, os.X_OK), output)
            if commands[0].startswith("cc "):
                self.assertTrue(any(line.startswith(f"./{output}") for line in lines), path)

    def test_predictions_and_page(self):
        with open(self.cwd / "pred.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["file", "class", "probability"])
        self.assertEqual(len(rows), 24)
        self.assertTrue(all(Path(row["file"]).parent.name == row["class"] for row in rows))
        self.assertIn("(4 of 4 right)", self.output["use"])
        self.assertEqual((self.cwd / "page.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_resume_goes_on(self):
        self.assertIn(
            "resuming from out/mine/checkpoints/last.safetensors: step 30, epoch 31",
            self.output["resume"],
        )
        self.assertIn("epoch 40 done at step 40", self.output["resume"])

    def test_the_hashes_are_equal(self):
        for block in ("reproducible", "devices"):
            lines = [
                line
                for line in self.output[block].splitlines()
                if line.startswith(("weights ", "state "))
            ]
            self.assertEqual(len(lines), 4, block)
            self.assertEqual(lines[:2], lines[2:], block)

    def test_links_lead_somewhere(self):
        for path in [
            SOURCE / "README.md",
            SOURCE / "CONTRIBUTING.md",
            *sorted((SOURCE / "docs").glob("*.md")),
        ]:
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
                self.assertTrue((path.parent / link).exists(), f"{path.name}: {link}")

    def test_the_image_is_small(self):
        self.assertLess(os.path.getsize(SOURCE / "docs/images/demo.png"), 200_000)

    def test_files_named_in_the_tour_exist(self):
        for path in sorted((SOURCE / "docs").glob("*.md")):
            for name in re.findall(
                r"`((?:src|tests|tools|include|bench|examples)/[\w./-]+\.\w+)`", path.read_text()
            ):
                self.assertTrue((SOURCE / name).is_file(), f"{path.name}: {name}")


if __name__ == "__main__":
    print(f"the whole of the first block: {turn_line(PARTS)}", flush=True)
    unittest.main(argv=sys.argv[:1])
