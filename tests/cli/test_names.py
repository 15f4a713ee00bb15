#!/usr/bin/env python3
"""Names with control characters, other encodings and characters that cannot be seen: of classes,
images, folders, tensors and programs. None reaches a terminal, a log or a file raw; a class is the
same one in train, eval, predict and after resume, and its bytes can be recovered.

usage: test_names.py LEVIN [test names]
"""

import csv
import io
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unicodedata
import unittest

from case import LEVIN, WAIT_S, OK, FAILURE, USAGE, main, png

# What a folder may be called; the class of each: its bytes escaped.
CLASSES = {
    b"caf\xe9": r"caf\xe9",  # Latin-1
    b"esc\x1b[31m\x1b]0;title\x07": r"esc\x1b[31m\x1b]0;title\x07",
    b"line\n[2026-01-01 00:00:00,000][INFO] no": r"line\x0a[2026-01-01 00:00:00,000][INFO] no",
    b"\xc2\x9b2J c1": r"\xc2\x9b2J c1",
    "\u202egpj.exe".encode(): r"\xe2\x80\xaegpj.exe",
    b'quo"te, comma\r': r'quo"te, comma\x0d',
    rb"caf\xe9": r"caf\x5cxe9",  # these eight characters
    "Zürich ねこ".encode(): "Zürich ねこ",
}


def raw(name):
    """The bytes of an escaped name."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), name.encode())


def hidden(text):
    """Characters that no line may have: controls, line separators, bidirectional, invisible."""
    kinds = {c: unicodedata.category(c) for c in text if c not in "\u200c\u200d"}
    return [c for c, kind in kinds.items() if kind in ("Cc", "Cf", "Zl", "Zp")]


class Names(unittest.TestCase):
    def setUp(self):
        self.dir = os.fsencode(tempfile.mkdtemp(prefix="levin-names-")) + b"/d\xff\x1b[2J"
        os.mkdir(self.dir)
        self.addCleanup(shutil.rmtree, os.path.dirname(self.dir))

    def clean(self, data, what):
        text = data.decode()  # anything that is not UTF-8 fails here
        for line in text.split("\n"):
            self.assertEqual(hidden(line), [], f"{what}: {line!r}")
        return text

    def levin(self, *arguments, code=OK, before=(), expects=()):
        done = subprocess.run(
            [*before, LEVIN, *arguments],
            capture_output=True,
            timeout=WAIT_S,
            stdin=subprocess.DEVNULL,
        )
        reported = done.stdout + done.stderr
        if code is not None:
            self.assertEqual(done.returncode, code, reported.decode(errors="replace"))
        for piece in expects:
            self.assertIn(piece, reported.decode(errors="replace"))
        return self.clean(reported, arguments)

    def photos(self):
        folder = self.dir + b"/photos"
        for c, name in enumerate(CLASSES):
            for i in range(4):
                path = folder + b"/" + name + b"/\x1b[1m\xfe %d.png" % i
                png(os.fsdecode(path), 20, 18, lambda x, y: (30 * c, x * 5, y * 7))
            with open(folder + b"/" + name + b"/note.\x1b[2J\xe9", "wb"):
                pass  # ignored, and reported
        return folder

    def train(self, *more, **how):
        out = b"out=" + self.dir + b"/run"
        return self.levin(b"train", b"classify", out, b"model=mlp", b"image_size=8", *more, **how)

    def test_a_class_is_the_same_everywhere(self):
        photos, run = self.photos(), self.dir + b"/run"
        self.levin(
            b"plan",
            b"train",
            b"classify",
            b"data=" + photos,
            b"model=mlp",
            b"image_size=8",
            b"batch_size=4",
        )
        self.train(b"data=" + photos, b"max_steps=2", b"batch_size=4")
        # Whatever the run left as text is clean, and valid.
        for name in (b"train.log", b"config.yaml", b"metrics.jsonl", b"data.index"):
            with open(run + b"/" + name, "rb") as f:
                self.clean(f.read(), name)
        with open(run + b"/metrics.jsonl") as f:
            self.assertTrue(all(json.loads(line)["step"] >= 0 for line in f))
        with open(run + b"/exported_models/exported_last.safetensors", "rb") as f:
            header = f.read(struct.unpack("<Q", f.read(8))[0]).decode()
        meta = json.loads(header)["__metadata__"]
        card = json.loads(next(v for v in meta.values() if '"classes"' in v))
        self.assertEqual([raw(c) for c in card["classes"]], sorted(CLASSES))
        self.assertEqual(set(card["classes"]), set(CLASSES.values()))

        # The configuration that is read again names the same data, and the run goes on.
        before = self.levin(b"ckpt", b"hash", run)
        os.rename(run, self.dir + b"/first")
        first = b"config=" + self.dir + b"/first/config.yaml"
        self.levin(b"train", b"classify", first, b"out=" + run)
        self.assertEqual(self.levin(b"ckpt", b"hash", run), before)
        self.levin(b"train", b"classify", b"out=" + run, b"resume=true", b"max_steps=3")

        reported = self.levin(
            b"eval",
            b"model=" + run,
            b"data=" + photos,
            b"split=val",
            b"sheet=" + self.dir + b"/page.png",
        )
        for name in CLASSES.values():
            self.assertIn(f"  {name} ", reported)
        self.check_rows(run, photos)

    def check_rows(self, run, photos):
        files = {
            n + b"/" + f
            for n in CLASSES
            for f in os.listdir(photos + b"/" + n)
            if f[-4:] == b".png"
        }
        for kind in (b"csv", b"jsonl"):
            out = self.dir + b"/pred." + kind
            self.levin(b"predict", b"model=" + run, b"data=" + photos, b"output=" + out)
            with open(out, "rb") as f:
                text = self.clean(f.read(), out)
            rows = list(
                csv.DictReader(io.StringIO(text))
                if kind == b"csv"
                else map(json.loads, text.splitlines())
            )
            self.assertEqual({raw(r["file"]) for r in rows}, files)
            self.assertLessEqual({r["class"] for r in rows}, set(CLASSES.values()))

    def test_errors_and_warnings(self):
        photos, name = self.photos(), next(iter(CLASSES))
        self.train(
            b"data=" + photos + b"/no\nsuch\x1b[31m", code=USAGE, expects=[r"no\x0asuch\x1b[31m"]
        )
        self.train(b"data=" + photos, b"optim=\x1b]0;x\x07", code=USAGE)
        self.train(b"data=" + photos, b"\xc2\x9bkey=1", code=USAGE)
        self.train(b"config=" + self.dir + b"/no\n.yaml", b"data=" + photos, code=USAGE)
        self.train(b"data=" + photos, b"weights=" + self.tensors(), b"max_steps=1", code=None)
        bad = photos + b"/" + name + b"/bad\n\x1b[0m.png"
        with open(bad, "wb") as f:
            f.write(b"no image")
        few, expects = [b"data=" + photos, b"max_steps=1", b"batch_size=4"], [r"bad\x0a\x1b[0m.png"]
        self.train(*few, code=FAILURE, expects=expects)
        self.train(*few, b"on_error=skip", expects=expects)
        with open(self.dir + b"/run/train.log", "rb") as f:
            self.clean(f.read(), "train.log")
        self.levin(b"no\x1bcommand", code=USAGE)
        self.levin(b"help", b"\x1b[2J", code=USAGE)
        self.levin(b"ops", b"\x1b[2J", code=USAGE)
        self.levin(b"train", b"\x1b[2J", code=USAGE)
        self.levin(b"slurm", b"\x1b[2J", code=USAGE)

    def tensors(self):
        """A safetensors file whose tensor has a name that sets the title of a terminal."""
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        head = json.dumps({"\x1b]0;title\x07\n\u202e.weight": entry}).encode()
        path = self.dir + b"/strange.safetensors"
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + bytes(4))
        return path

    def test_the_launcher(self):
        os.chdir(self.dir)
        self.addCleanup(os.chdir, "/")
        self.levin(b"launch", b"-n", b"2", b"--", self.dir + b"/no\nsuch\x1b program", code=None)
        self.levin(b"launch", b"-n", b"2", b"--dry-run", b"--", b"echo", b"\x1b[2J", code=None)
        # What the program itself prints is its own.
        line = b"\x1b[31mred\x1b[0m \xff\xc2\x9b"
        done = subprocess.run(
            [LEVIN, b"launch", b"-n", b"1", b"--", b"printf", line + b"\\n"],
            capture_output=True,
            timeout=WAIT_S,
            cwd=self.dir,
        )
        self.assertEqual((done.returncode, done.stdout), (0, line + b"\n"))


if __name__ == "__main__":
    main()
