"""Runs the indented commands of docs/*.md as they are written, in one folder that has what they
speak of.

usage: test_docs.py SOURCE_DIR LEVIN

A command is a line of four blanks and `levin ...` or `build/levin ...`. Trainings, also
those of a sweep, get max_steps=2 and, where they name none, an out of their own, those on photos
small images; all else is as it stands there. The commands of README.md are run by test_readme.py.
"""

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from small_png import write_png

SOURCE, LEVIN = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
COMMAND = re.compile(r"^    (?:build/)?levin ([^#\n]+)", re.M)
# A file of another site, which must have the content that its name holds: the test has none.
PUBLISHED = re.compile(r"weights=\S+-[0-9a-f]{8}\.(pth|safetensors)")
FIRST = ["tour.md"]  # trains the run that others use
KNOWN = 7


def npy(path, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + data)


def idx(path, shape, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data)


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cwd = Path(folder.name)
        cls.prepare()

    @classmethod
    def levin(cls, arguments):
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=cls.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return (
            done.returncode,
            f"levin {' '.join(arguments)}\nexit code {done.returncode}\n{done.stdout}",
        )

    @classmethod
    def prepare(cls):
        for i in range(8):
            write_png(cls.cwd / f"photos/blue/{i}.png", 80, (10, 20 + 5 * i, 200))
            write_png(cls.cwd / f"photos/red/{i}.png", 80, (200, 20 + 5 * i, 10))
        pixels, labels = bytes(i * 37 % 251 for i in range(40 * 28 * 28)), bytes(
            i % 10 for i in range(40)
        )
        for part in ("train", "t10k"):
            idx(cls.cwd / f"mnist/{part}-images-idx3-ubyte", (40, 28, 28), pixels)
            idx(cls.cwd / f"mnist/{part}-labels-idx1-ubyte", (40,), labels)
        (cls.cwd / "train.py").write_text(
            "import os\nprint(os.environ['RANK'])\n", encoding="ascii"
        )
        npy(cls.cwd / "images.npy", "|u1", (40, 28, 28), pixels)
        npy(cls.cwd / "labels.npy", "|u1", (40,), labels)
        npy(
            cls.cwd / "x.npy",
            "<f4",
            (2, 32, 32, 3),
            struct.pack("<6144f", *(i % 7 / 7 for i in range(6144))),
        )
        made = [
            "data=builtin:shapes",
            "data.count=16",
            "model=resnet18",
            "batch_size=8",
            "max_steps=1",
            "val_split=0",
            "out=made",
        ]
        for arguments in (
            ["train", "classify", *made],
            ["export", "model=made", "output=resnet18.safetensors", "card=false"],
        ):
            code, reported = cls.levin(arguments)
            assert code == 0, reported

    def test_every_command(self):
        files = sorted(
            (SOURCE / "docs").glob("*.md"), key=lambda path: (path.name not in FIRST, path.name)
        )
        commands = [
            (path.name, line)
            for path in files
            if path.name != "config.md"
            for line in COMMAND.findall(path.read_text())
        ]
        self.assertGreaterEqual(len(commands), KNOWN)
        for i, (name, line) in enumerate(commands):
            arguments = shlex.split(PUBLISHED.sub("weights=resnet18.safetensors", line))
            if "accelerator=gpu" in arguments and not os.path.exists("/dev/nvidiactl"):
                arguments = [a for a in arguments if not a.startswith("devices=")]
                arguments[arguments.index("accelerator=gpu")] = "accelerator=cpu"
            if arguments[0] == "train" or arguments[:2] == ["sweep", "train"]:
                arguments += ["max_steps=2"] + ([] if "out=" in line else [f"out=out/docs{i}"])
                if "data=photos" in arguments and "image_size=" not in line:
                    arguments += ["image_size=32"]
            with self.subTest(file=name, command=line):
                code, reported = self.levin(arguments)
                self.assertEqual(code, 0, reported)
                for argument in arguments:
                    if argument.startswith("output="):
                        self.assertGreater(os.path.getsize(self.cwd / argument[7:]), 0)

    @unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
    def test_configuration_of_pose(self):
        """That of docs/pose.md, on a project of its names, with smaller frames and batches."""
        text = re.search(r"```yaml\n(.*?)```", (SOURCE / "docs/pose.md").read_text(), re.S)[1]
        names = re.sub(r"\s", "", re.search(r"keypoint_names: \[(.*?)\]", text, re.S)[1]).split(",")
        (self.cwd / "mouse.yaml").write_text(text, encoding="ascii")
        project = self.cwd / "mirror-mouse-example"
        rows = [["scorer"] + ["me"] * 34, ["bodyparts"] + [n for n in names for _ in "xy"]]
        rows += [["coords"] + ["x", "y"] * 17]
        for i in range(40):
            write_png(project / f"labeled-data/img{i:02}.png", 96, (3 * i, 90, 200 - 4 * i))
            at = [str((7 * i * (k + 1) + 11 * k * k) % 96) for k in range(34)]
            rows += [[f"labeled-data/img{i:02}.png", *at]]
        (project / "CollectedData.csv").write_text("".join(",".join(r) + "\n" for r in rows))
        (project / "videos").mkdir()
        make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=96x96:rate=25"]
        make += ["-frames:v", "20", "-c:v", "mjpeg", project / "videos/a.mov"]
        subprocess.run(make, check=True)
        small = ["data.image_resize_dims.height=128", "data.image_resize_dims.width=128"]
        small += ["training.train_batch_size=2", "model.backbone=resnet18", "max_steps=1"]
        small += ["dali.base.train.sequence_length=2"]
        code, reported = self.levin(["train", "pose", "config=mouse.yaml", "out=mouse", *small])
        self.assertEqual(code, 0, reported)
        for name in ("predictions.csv", "video_preds/a.csv", "video_preds/labeled_videos"):
            self.assertTrue((self.cwd / "mouse" / name).exists(), reported)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
