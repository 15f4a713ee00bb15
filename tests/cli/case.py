"""What the tests of the command share: a trained model, small images, ways to run the program and
to look at what it left.

Each case runs the program itself and looks at three things: the exit code (the table of
src/core/error.h), the message on standard error (what, where, which value, what to do), and the
files: nothing that was there is lost, nothing half written stays. Python's standard library only.
The program's path is the first argument, names of cases may follow.
"""

import base64
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

from today import OfToday

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
OK, FAILURE, USAGE, REQUEUE, SIGINT, SIGTERM = 0, 1, 64, 85, 130, 143
WAIT_S = 60
OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# 24 x 16 pixels: 8 columns of 250, then 16 of 20; blocks of one colour, so that decoding gives
# exactly these values.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwc"
    "KDcpLDAxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
    "MjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAQABgDAREAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcI"
    "CQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRol"
    "JicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ip"
    "qrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAA"
    "AAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLR"
    "ChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaX"
    "mJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEA"
    "PwD3qgD4ZoAKAPuagD4ZoAKAP//Z"
)
GREY_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwc"
    "KDcpLDAxNDQ0Hyc5PTgyPC4zNDL/wAALCAAQABgBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QA"
    "tRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0"
    "NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2"
    "t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/APeq+GaK+5q+GaK//9k="
)


def half(x, _):
    return (250,) * 3 if x < 8 else (20,) * 3


def png(path, width, height, pixel):
    rows = b"".join(
        b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height)
    )

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    write(
        path,
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b""),
    )


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def with_orientation(jpeg, value):
    """The JPEG with an Exif segment: how it is to be turned."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHHI", 0x0112, 3, 1, value, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def photos(folder, classes=("cat", "dog"), n=6):
    """A folder of small images: the classes differ in their red."""
    for c, name in enumerate(classes):
        for i in range(n):
            png(
                f"{folder}/{name}/{i}.png",
                20,
                18,
                lambda x, y: (30 + 170 * c, (x * 5 + i * 9) % 256, y * 7),
            )


def tree(folder):
    """Every file below with its content: what must not change."""
    return {
        os.path.relpath(os.path.join(d, f), folder): read(os.path.join(d, f))
        for d, _, files in os.walk(folder)
        for f in files
    }


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="levin-case-")
        os.chmod(cls.shared, 0o755)
        photos(f"{cls.shared}/photos")
        cls.model = f"{cls.shared}/model"
        done = subprocess.run(
            [LEVIN] + cls.arguments(f"{cls.shared}/photos", cls.model),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, done.stderr
        cls.exported = f"{cls.model}/exported_models/exported_last.safetensors"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-case-")
        os.chmod(self.dir, 0o777)
        self.out = f"{self.dir}/run"
        self.photos = f"{self.shared}/photos"
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    @staticmethod
    def arguments(data, out, *more):
        return [
            "train",
            "classify",
            f"data={data}",
            f"out={out}",
            "model=mlp",
            "image_size=16",
            "batch_size=6",
            "max_steps=2",
            *more,
        ]

    def levin(self, arguments, code, expects=(), env=None, before=()):
        """Run it; `expects`: pieces of the message on standard error; of a run that succeeds, which
        reports on standard output, on either. Returns standard output and standard error. code
        None: any."""
        done = subprocess.run(
            [*before, LEVIN, *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ, **(env or {})),
        )
        reported = (
            f"levin {' '.join(arguments)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        if code is not None:
            self.assertEqual(done.returncode, code, reported)
        for piece in expects:
            self.assertIn(
                piece, done.stdout + done.stderr if done.returncode == OK else done.stderr, reported
            )
        if done.returncode != OK:
            self.assertTrue(
                any(
                    line.startswith(("error: ", "stopped: ", "levin: error "))
                    for line in done.stderr.splitlines()
                ),
                reported,
            )
        self.assertNotIn("Sanitizer", done.stderr, reported)
        self.assertNotIn(
            "runtime error:", done.stderr, reported
        )  # of the undefined-behaviour sanitizer
        return done.stdout, done.stderr

    def refused(self, arguments, expects, code=USAGE):
        """A training that must not begin: no run directory appears."""
        self.levin(self.arguments(self.photos, self.out) + arguments, code, expects)
        self.assertFalse(os.path.exists(self.out))

    def train(self, *more, data=None, code=OK, expects=(), **how):
        return self.levin(
            self.arguments(data or self.photos, self.out, *more), code, expects, **how
        )

    def keeps_the_sentence(self, reported):
        """train.log ends with the error that was printed."""
        printed = [
            line.split(": ", 1)[1] for line in reported.splitlines() if line.startswith("error: ")
        ]
        kept = [
            line.split("][ERROR] ", 1)[1]
            for line in read(f"{self.out}/train.log").decode().splitlines()
            if "][ERROR] " in line
        ]
        frames = [line for line in reported.splitlines() if line.startswith("  in ")]
        self.assertEqual(len(printed), 1, reported)
        self.assertEqual(kept, printed + frames)

    def hashes(self, out=None, which="last"):
        return self.levin(
            ["ckpt", "hash", f"{out or self.out}/checkpoints/{which}.safetensors"], OK
        )[0]

    @staticmethod
    def reproducible_metrics(out):
        """metrics.jsonl without times and what belongs to one process."""
        return re.sub(
            rb'"(?:time_s|throughput/[a-z_]*|memory/[a-z_]*)": *[-0-9.e+]+,? *',
            b"",
            read(f"{out}/metrics.jsonl"),
        )

    def no_leftovers(self, out=None):
        self.assertEqual([n for n in tree(out or self.out) if ".tmp" in n], [])

    def mount(self, size):
        """A file system of its own, and self.out on it."""
        os.mkdir(f"{self.dir}/small")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", f"{self.dir}/small"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            self.skipTest(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", f"{self.dir}/small"])
        self.out = f"{self.dir}/small/run"

    def fill(self, leave):
        """Leaves that many bytes free."""
        info = os.statvfs(f"{self.dir}/small")
        with open(f"{self.dir}/small/filler", "wb") as f:
            f.write(b"\0" * (info.f_bavail * info.f_bsize - leave))

    def other_user(self):
        """The words before a command that make it an ordinary user's; skips where that cannot be
        arranged."""
        if os.getuid() != 0:
            return []
        if shutil.which("setpriv") is None:
            self.skipTest("root, and no setpriv to become another user")
        if subprocess.run([*OTHER_USER, LEVIN, "--version"], capture_output=True).returncode != 0:
            self.skipTest(f"an ordinary user cannot run {LEVIN}")
        return OTHER_USER

    def start(self, *more, **how):
        """A training without an end, returned when its first metrics are written."""
        arguments = [
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            f"out={self.out}",
            "model=mlp",
            "image_size=16",
            "batch_size=6",
            "max_epochs=-1",
            "log_every_n_steps=1",
            *more,
        ]
        p = subprocess.Popen(
            [*how.get("before", ()), LEVIN, *arguments],
            stdout=how.get("stdout", subprocess.DEVNULL),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, p)
        saved = f"{self.out}/checkpoints/last.safetensors"
        self.wait_for(
            lambda: self.steps() >= 2 and (os.path.exists(saved) or not how.get("saved", True)), p
        )
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stderr.close()

    def steps(self):
        try:
            return max(
                (
                    json.loads(line)["step"]
                    for line in read(f"{self.out}/metrics.jsonl").splitlines()
                ),
                default=0,
            )
        except (OSError, ValueError):
            return 0

    def wait_for(self, condition, p):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertIsNone(p.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), end, "nothing happened")
            time.sleep(0.01)

    def resume(self, steps, code=OK, expects=()):
        return self.levin(
            [
                "train",
                "classify",
                "data=builtin:shapes",
                f"out={self.out}",
                "resume=true",
                f"max_steps={steps}",
            ],
            code,
            expects,
        )


def main(turns=1):
    """turns: so many days until each test of a long module has run (turns.py)."""
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [test names]")
    # A shell's background job ignores the first two, nohup the third; both hand that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    unittest.main(verbosity=1, testLoader=OfToday(turns))
