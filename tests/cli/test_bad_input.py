#!/usr/bin/env python3
"""Bad input end to end: somebody else's files, keys, disks and signals. Python's standard library only.

usage: test_bad_input.py LEVIN [test names]
Each case runs the program itself and looks at three things: the exit code (the table of src/core/exit_code.h), the message on
standard error (what, where, which value, what to do), and the files: nothing that was there is lost, nothing half written stays.
"""
import base64
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
OK, FAILURE, USAGE, REQUEUE, SIGINT, SIGTERM = 0, 1, 64, 85, 130, 143
WAIT_S = 60
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# 24 x 16 pixels: 8 columns of 250, then 16 of 20; blocks of one colour, so that decoding gives exactly these values.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PT"
    "gyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAQ"
    "ABgDAREAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhBy"
    "JxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKT"
    "lJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAA"
    "AAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRom"
    "JygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExc"
    "bHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwD3qgD4ZoAKAPuagD4ZoAKAP//Z"
)
GREY_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PT"
    "gyPC4zNDL/wAALCAAQABgBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIh"
    "MUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhI"
    "WGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/APeq"
    "+GaK+5q+GaK//9k="
)


def half(x, _):
    return (250,) * 3 if x < 8 else (20,) * 3


def png(path, width, height, pixel):
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    write(path, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def with_orientation(jpeg, value):
    """The JPEG with an Exif segment that says how it is to be turned."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHHI", 0x0112, 3, 1, value, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def photos(folder, classes=("cat", "dog"), n=6):
    """A folder of small pictures: the classes differ in their red."""
    for c, name in enumerate(classes):
        for i in range(n):
            png(f"{folder}/{name}/{i}.png", 20, 18, lambda x, y: (30 + 170 * c, (x * 5 + i * 9) % 256, y * 7))


def tree(folder):
    """Every file below with its content: what must not change."""
    return {os.path.relpath(os.path.join(d, f), folder): read(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="levin-bad-")
        os.chmod(cls.shared, 0o755)
        photos(f"{cls.shared}/photos")
        cls.model = f"{cls.shared}/model"
        done = subprocess.run([LEVIN] + cls.words(f"{cls.shared}/photos", cls.model), capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stderr
        cls.exported = f"{cls.model}/exported_models/exported_last.safetensors"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-bad-")
        os.chmod(self.dir, 0o777)
        self.out = f"{self.dir}/run"
        self.photos = f"{self.shared}/photos"
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    @staticmethod
    def words(data, out, *more):
        return ["train", "classify", f"data={data}", f"out={out}", "model=mlp", "image_size=16", "batch_size=6", "max_steps=2", *more]

    def levin(self, words, code, says=(), env=None, before=()):
        """Run it; `says`: pieces of the message on standard error. Returns standard output and standard error."""
        done = subprocess.run([*before, LEVIN, *words], capture_output=True, text=True, timeout=WAIT_S, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **(env or {})))
        told = f"levin {' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, told)
        for piece in says:
            self.assertIn(piece, done.stderr, told)
        if code != OK:
            self.assertTrue(any(line.startswith(("error: ", "stopped: ")) for line in done.stderr.splitlines()), told)
        self.assertNotIn("Sanitizer", done.stderr, told)
        self.assertNotIn("runtime error:", done.stderr, told)  # of the undefined-behaviour sanitizer
        return done.stdout, done.stderr

    def refused(self, words, says, code=USAGE):
        """A training that must not begin: no run directory appears."""
        self.levin(self.words(self.photos, self.out) + words, code, says)
        self.assertFalse(os.path.exists(self.out))

    def train(self, *more, data=None, code=OK, says=(), **how):
        return self.levin(self.words(data or self.photos, self.out, *more), code, says, **how)

    def hashes(self, out=None, which="last"):
        return self.levin(["ckpt", "hash", f"{out or self.out}/checkpoints/{which}.safetensors"], OK)[0]

    def no_leftovers(self, out=None):
        self.assertEqual([n for n in tree(out or self.out) if ".tmp" in n], [])

    def nobody(self):
        """The words before a command that make it an ordinary user's; skips where that cannot be arranged."""
        if os.getuid() != 0:
            return []
        if shutil.which("setpriv") is None:
            self.skipTest("root, and no setpriv to become somebody else")
        if subprocess.run([*NOBODY, LEVIN, "--version"], capture_output=True).returncode != 0:
            self.skipTest(f"an ordinary user cannot run {LEVIN}")
        return NOBODY

    def start(self, *more, **how):
        """A training without an end, returned when its first metrics are written."""
        words = ["train", "classify", "data=builtin:shapes", "data.count=60", f"out={self.out}", "model=mlp", "image_size=16", "batch_size=6",
                 "max_epochs=-1", "log_every_n_steps=1", *more]
        p = subprocess.Popen([*how.get("before", ()), LEVIN, *words], stdout=how.get("stdout", subprocess.DEVNULL), stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, p)
        saved = f"{self.out}/checkpoints/last.safetensors"
        self.wait_for(lambda: self.steps() >= 2 and (os.path.exists(saved) or not how.get("saved", True)), p)
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stderr.close()

    def steps(self):
        try:
            return max((json.loads(line)["step"] for line in read(f"{self.out}/metrics.jsonl").splitlines()), default=0)
        except (OSError, ValueError):
            return 0

    def wait_for(self, condition, p):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertIsNone(p.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), end, "nothing happened")
            time.sleep(0.01)

    def resume(self, steps, code=OK, says=()):
        return self.levin(["train", "classify", "data=builtin:shapes", f"out={self.out}", "resume=true", f"max_steps={steps}"], code, says)


class Words(Case):
    """What a person types."""

    def test_no_words(self):
        out, _ = self.levin([], USAGE, ["a command is missing", "levin COMMAND"])
        self.assertIn("levin train classify data=DIR", out)

    def test_unknown_command(self):
        self.levin(["trian"], USAGE, ["unknown command trian", "did you mean train?", "levin help"])
        self.levin(["frobnicate"], USAGE, ["unknown command frobnicate", "levin help"])

    def test_unknown_recipe(self):
        self.levin(["train"], USAGE, ["which recipe?", "usage: levin train classify"])
        self.levin(["train", "clasify"], USAGE, ["unknown recipe clasify", "did you mean classify?", "usage:"])
        self.levin(["train", "frob"], USAGE, ["unknown recipe frob", "this version has classify"])
        self.levin(["train", "pose"], USAGE, ["the recipe pose comes with a later version"])
        self.levin(["plan", "tain"], USAGE, ["plan what?", "usage: levin plan train classify"])

    def test_unknown_key(self):
        self.refused(["bach_size=3"], ["unknown key `bach_size`", "did you mean `batch_size`?", "command line"])
        self.refused(["optim.lrr=3"], ["unknown key `optim.lrr`", "did you mean `optim.lr`?"])

    def test_no_key(self):
        self.refused(["lonely"], ["`lonely` is not understood", "key=value"])

    def test_wrong_type(self):
        self.refused(["batch_size=many"], ["batch_size `many`", "whole number", "at least 1", "command line"])
        self.refused(["optim.lr=nan"], ["optim.lr `nan`", "expected a number"])
        self.refused(["val_split=1"], ["val_split `1`", "at least 0 and below 1"])
        self.refused(["optim=sdg"], ["optim.name `sdg`", "sgd, adamw", "did you mean `sgd`?"])

    def test_too_large_for_an_int(self):
        """2^32 + 1 must not become 1."""
        for key in ("shards", "accumulate_grad_batches", "group"):
            self.refused([f"{key}=4294967297"], [f"{key} `4294967297`", "from 1 to 2147483647"])
        self.refused(["max_epochs=4294967297"], ["max_epochs `4294967297`", "from -1 to 2147483647"])
        self.refused(["seed=99999999999999999999"], ["seed `99999999999999999999`", "whole number"])

    def test_what_a_later_version_brings(self):
        for value in ("2", "9", "17", "-1", "[0,1]"):
            self.refused([f"devices={value}"], [f"devices {value}", "come with a later version", "devices=1", "command line"])
        self.refused(["gpus=4"], ["devices 4", "come with a later version"])
        self.refused(["precision=bf16-mixed"], ["precision bf16-mixed", "comes with a later version", "precision=32-true"])
        self.refused(["accelerator=gpu"], ["accelerator cuda", "come with a later version", "accelerator=cpu"])
        self.refused(["num_nodes=2"], ["num_nodes 2", "come with a later version"])

    def test_no_such_devices(self):
        self.refused(["devices=0"], ["devices 0", "expected how many devices"])
        self.refused(["devices=banana"], ["devices banana", "expected how many devices"])

    def test_a_run_without_steps(self):
        for key in ("max_steps", "max_epochs"):
            self.refused([f"{key}=0"], [f"{key} 0", "expected at least 1, or -1 for no limit", "command line"])

    def test_schedule_and_length(self):
        self.refused(["scheduler=cosine", "max_epochs=-1", "max_steps=-1"], ["scheduler=cosine", "has no end", "give max_epochs or max_steps"])
        self.refused(["scheduler=cosine", "scheduler.warmup_steps=2"], ["scheduler.warmup_steps=2", "the run's 2 steps", "max_steps"])
        self.refused(["scheduler=cosine", "max_epochs=1", "max_steps=-1", "scheduler.warmup_steps=9"], ["scheduler.warmup_steps=9", "the run's 2 steps"])
        self.train("scheduler=cosine", "scheduler.warmup_steps=1")
        self.train("scheduler.warmup_steps=9", "overwrite=true")

    def test_impossible_batch_plan(self):
        self.refused(["shards=7"], ["batch_size 6", "7 shards", "smallest that works: 7"])
        self.refused(["batch_size_per_device=4"], ["batch_size=6 and batch_size_per_device=4 disagree", "give one of them"])
        self.refused(["shards=4", "group=3"], ["group=3", "4 shards", "nearest that works: 2"])
        self.refused(["batch_size=40", "drop_last=true"], ["drop_last=true", "effective batch of 40", "drop_last=false"])

    def test_yaml(self):
        def told(text, *says):
            write(f"{self.dir}/job.yaml", text)
            self.refused([f"config={self.dir}/job.yaml"], says)

        told(b"batch_size: 4\nbach_size: 3\n", "unknown key `bach_size`", "did you mean `batch_size`?", "job.yaml:2")
        told(b"optim:\n  lr: fast\n", "optim.lr `fast`", "expected a number", "job.yaml:2")
        told(b"seed: 1\n\tx: 1\n", "job.yaml:2:1", "tab character")
        told(b"batch_size: 4\nbatch_size: 8\n", "job.yaml:2", "`batch_size` stands twice")
        told(b"seed: [1,\n", "job.yaml:")
        told(b"\0\1\2", "job.yaml")
        self.refused([f"config={self.dir}/none.yaml"], ["none.yaml", "No such file"])


class Pictures(Case):
    """What lies in a data folder."""

    def test_missing_folder(self):
        self.refused([f"data={self.dir}/none"], [f"data={self.dir}/none: No such file", "give a folder with one sub-folder"], FAILURE)

    def test_a_file_is_no_folder(self):
        self.refused([f"data={self.photos}/cat/0.png"], ["0.png is a file", "one sub-folder of pictures per class"])

    def test_empty_folder(self):
        os.mkdir(f"{self.dir}/empty")
        self.refused([f"data={self.dir}/empty"], [f"{self.dir}/empty: no pictures (.jpg, .jpeg, .png)"])

    def test_one_class(self):
        photos(f"{self.dir}/one", ["cat"])
        self.refused([f"data={self.dir}/one"], [f"{self.dir}/one", "two or more classes, found 1: cat", "add a sub-folder"])

    def test_loose_pictures(self):
        self.refused([f"data={self.photos}/cat"], ["6 of 6 pictures lie in no class folder", "0.png"])

    def bad_picture(self, name, content, *says):
        """on_error=stop names the file, on_error=skip counts and names it and trains with the rest."""
        data = f"{self.dir}/data"
        photos(data)
        write(f"{data}/cat/{name}", content)
        self.train("val_split=0", "max_steps=3", data=data, code=FAILURE, says=[f"{data}/cat/{name}", "on_error=skip", *says])
        self.no_leftovers()
        _, told = self.train("val_split=0", "max_steps=-1", "max_epochs=2", "on_error=skip", "overwrite=true", data=data)
        self.assertEqual(told.count("1 unreadable sample left out (on_error=skip): cat/" + name), 1, told)
        self.assertIn("cat/" + name, read(f"{self.out}/train.log").decode())
        self.levin(["predict", f"model={self.out}", f"data={data}", f"output={self.dir}/p.csv"], FAILURE, [name, *says])
        self.assertFalse(os.path.exists(f"{self.dir}/p.csv"))
        self.levin(["predict", f"model={self.out}", f"data={data}", f"output={self.dir}/p.csv", "on_error=skip"], OK, [name])
        rows = read(f"{self.dir}/p.csv").decode().splitlines()
        self.assertEqual(len(rows), 1 + 12)
        self.assertFalse([r for r in rows if name in r])

    def test_zero_bytes(self):
        self.bad_picture("zero.jpg", b"", "the file is empty (0 bytes)")

    def test_truncated_jpeg(self):
        self.bad_picture("cut.jpg", JPEG[:-6], "damaged JPEG data", "Premature end")

    def test_no_picture_at_all(self):
        self.bad_picture("text.png", b"hello", "neither a JPEG nor a PNG", "5 bytes")

    def test_damaged_png(self):
        whole = read(f"{self.photos}/cat/0.png")
        self.bad_picture("cut.png", whole[:-20], "damaged PNG")

    def test_all_unreadable(self):
        data = f"{self.dir}/data"
        for c in ("cat", "dog"):
            for i in range(4):
                write(f"{data}/{c}/{i}.jpg", b"")
        says = ["8 unreadable samples left out", "error: none of the training samples", "8 samples"]
        self.train("val_split=0", "on_error=skip", data=data, code=FAILURE, says=says)
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])  # no model that learned nothing
        write(f"{self.dir}/p.csv", b"kept")
        use = [f"model={self.model}", f"data={data}", "on_error=skip"]
        self.levin(["predict", *use, f"output={self.dir}/p.csv"], FAILURE, [f"data={data}", "none of its 8 pictures could be read"])
        self.assertEqual(read(f"{self.dir}/p.csv"), b"kept")
        self.levin(["eval", *use], FAILURE, [f"data={data}", "none of its 8 pictures could be read"])

    def test_validation_all_unreadable(self):
        """With on_error=skip the run goes on, and the best model is the one of the best training loss."""
        data = f"{self.dir}/data"
        photos(f"{data}/train")
        write(f"{data}/val/cat/0.jpg", b"")
        self.train("max_steps=-1", "max_epochs=1", "on_error=skip", data=data, says=["1 unreadable sample left out", "val/cat/0.jpg"])
        self.assertEqual(self.hashes(), self.hashes(which="best"))

    def predictions(self, folder):
        self.levin(["predict", f"model={self.model}", f"data={folder}", f"output={self.dir}/p.csv"], OK)
        return dict(row.split(",", 1) for row in read(f"{self.dir}/p.csv").decode().splitlines()[1:])

    def test_grey_jpeg(self):
        """A JPEG in grey gives what the same picture in colour gives, and can be trained on."""
        data = f"{self.dir}/data"
        photos(data)
        write(f"{data}/cat/grey.jpg", GREY_JPEG)
        png(f"{data}/cat/grey.png", 24, 16, half)
        p = self.predictions(data)
        self.assertEqual(p["cat/grey.jpg"], p["cat/grey.png"])
        self.assertNotEqual(p["cat/grey.jpg"], p["cat/0.png"])
        self.train("max_epochs=1", data=data)

    def test_exif_rotation(self):
        """Turned as the camera says: the same prediction as for a picture that was turned before."""
        data = f"{self.dir}/turned"
        as_seen = {
            1: (24, 16, half),
            2: (24, 16, lambda x, y: half(23 - x, y)),
            3: (24, 16, lambda x, y: half(23 - x, 15 - y)),
            6: (16, 24, lambda x, y: half(y, x)),
            8: (16, 24, lambda x, y: half(23 - y, x)),
        }
        for value, (width, height, pixel) in as_seen.items():
            write(f"{data}/{value}.jpg", with_orientation(JPEG, value))
            png(f"{data}/{value}.png", width, height, pixel)
        p = self.predictions(data)
        for value in as_seen:
            self.assertEqual(p[f"{value}.jpg"], p[f"{value}.png"], f"orientation {value}")
        self.assertEqual(len({p[f"{v}.png"] for v in (1, 3, 6, 8)}), 4)  # they can be told apart

    def test_no_permission(self):
        data = f"{self.dir}/data"
        photos(data)
        who = self.nobody()
        os.chmod(f"{data}/cat/3.png", 0)
        says = [f"{data}/cat/3.png", "Permission denied", "on_error=skip"]
        self.train("val_split=0", data=data, code=FAILURE, says=says, before=who)
        self.train("val_split=0", "max_epochs=1", "on_error=skip", "overwrite=true", data=data, says=["left out (on_error=skip): cat/3.png"], before=who)
        os.chmod(f"{data}/dog", 0)
        self.train("overwrite=true", "on_error=skip", data=data, code=FAILURE, says=[f"{data}/dog", "Permission denied"], before=who)
        os.chmod(f"{data}/dog", 0o755)


class Out(Case):
    """Where a run is written."""

    def test_exists(self):
        self.train()
        before = tree(self.out)
        self.train(code=USAGE, says=[f"out={self.out} exists", "resume=true continues", "overwrite=true replaces"])
        self.train("resume=true", "overwrite=true", code=USAGE, says=["resume=true and overwrite=true exclude each other"])
        self.assertEqual(tree(self.out), before)
        write(f"{self.out}/notes.txt", b"mine")
        write(f"{self.out}/checkpoints/last.safetensors.tmp-1", b"of a killed process")
        self.train("overwrite=true", "seed=5")
        self.assertNotEqual(read(f"{self.out}/checkpoints/last.safetensors"), before["checkpoints/last.safetensors"])
        self.assertEqual(read(f"{self.out}/notes.txt"), b"mine")
        self.no_leftovers()

    def test_only_the_own_files_are_overwritten(self):
        """A name that ends like one of ours is not ours."""
        self.train()
        mine = [f"{self.out}/{name}" for name in ("pretrain.log", "base_config.yaml", "old_metrics.jsonl", "pretrain.log.tmp-12", "weights.safetensors")]
        for path in mine:
            write(path, b"mine")
        write(f"{self.out}/train.log.tmp-12", b"of a killed process")
        self.train("overwrite=true")
        self.assertEqual([path for path in mine if not os.path.exists(path)], [])
        self.assertFalse(os.path.exists(f"{self.out}/train.log.tmp-12"))

    def test_an_empty_folder_will_do(self):
        os.mkdir(self.out)
        self.train()

    def test_refused_words_do_not_overwrite(self):
        self.train()
        before = tree(self.out)
        self.train("overwrite=true", "shards=9", code=USAGE)
        self.train("overwrite=true", data=f"{self.dir}/none", code=FAILURE)
        self.train("overwrite=true", f"weights={self.dir}/none", code=FAILURE, says=[f"{self.dir}/none"])
        self.assertEqual(tree(self.out), before)

    def test_is_a_file(self):
        write(self.out, b"precious")
        for more in ([], ["overwrite=true"], ["resume=true"]):
            self.train(*more, code=USAGE, says=[f"out={self.out} is a file", "a run needs a directory"])
        self.assertEqual(read(self.out), b"precious")
        self.levin(self.words(self.photos, f"{self.out}/below"), FAILURE, [self.out, "Not a directory"])
        self.assertEqual(read(self.out), b"precious")

    def test_read_only(self):
        who = self.nobody()
        os.mkdir(self.out)
        os.chmod(self.out, 0o555)
        self.train(code=FAILURE, says=[self.out, "Permission denied", "check the permissions or choose another place"], before=who)
        self.assertEqual(os.listdir(self.out), [])
        self.levin(["predict", f"model={self.model}", f"data={self.photos}", f"output={self.out}/p.csv"], FAILURE,
                   [f"{self.out}/p.csv", "Permission denied"], before=who)
        self.assertEqual(os.listdir(self.out), [])

    def mount(self, size):
        os.mkdir(f"{self.dir}/small")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", f"{self.dir}/small"], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", f"{self.dir}/small"])
        self.out = f"{self.dir}/small/run"

    def fill(self, leave):
        """Leaves that many bytes free."""
        info = os.statvfs(f"{self.dir}/small")
        with open(f"{self.dir}/small/filler", "wb") as f:
            f.write(b"\0" * (info.f_bavail * info.f_bsize - leave))

    def test_64_kilobytes(self):
        """The checkpoint does not fit: an error, and no half of it."""
        self.mount("64k")
        says = ["error: cannot write", "checkpoints/last.safetensors", "No space left on device", "free some space"]
        self.train(code=FAILURE, says=says)
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])
        self.no_leftovers()
        self.assertIn(b"No space left", read(f"{self.out}/train.log"))

    def test_fills_up(self):
        """The old checkpoint and the old model stay whole, and the run can go on when there is space again."""
        self.mount("12m")
        self.train()
        kept, old = self.hashes(), tree(self.out)
        for leave in (65536, 0):
            self.fill(leave)
            self.train("resume=true", "max_steps=4", code=FAILURE, says=["No space left on device", "free some space"])
            os.remove(f"{self.dir}/small/filler")
            self.assertEqual(self.hashes(), kept)
            for name in old:
                if name.endswith(".safetensors"):
                    self.assertEqual(read(f"{self.out}/{name}"), old[name], name)
            self.no_leftovers()
        self.train("resume=true", "max_steps=4", says=["resuming from", "step 2"])
        whole = f"{self.dir}/whole"
        self.levin(self.words(self.photos, whole, "max_steps=4"), OK)
        self.assertEqual(self.hashes(), self.hashes(whole))  # as if nothing had happened

    def test_predictions_fill_up(self):
        self.mount("64k")
        table = f"{self.dir}/small/p.csv"
        write(table, b"old")
        self.fill(0)
        self.levin(["predict", f"model={self.model}", f"data={self.photos}", f"output={table}"], FAILURE, [table, "No space left on device"])
        self.assertEqual(read(table), b"old")
        self.assertEqual(sorted(os.listdir(f"{self.dir}/small")), ["filler", "p.csv"])


class Stops(Case):
    """What ends a run in the middle."""

    def test_loss_is_not_finite(self):
        self.train("max_steps=1", "checkpoint.every_n_steps=1")
        kept, files = self.hashes(), tree(self.out)
        self.train("resume=true", "optim.lr=1e30", "max_steps=9", code=FAILURE,
                   says=["the validation loss is", "after step 2", "smaller optim.lr", f"{self.out}/checkpoints/last.safetensors keeps step 1"])
        self.assertEqual(self.hashes(), kept)
        for name in files:
            if name.endswith(".safetensors"):
                self.assertEqual(read(f"{self.out}/{name}"), files[name], name)
        self.no_leftovers()
        self.levin(["eval", f"model={self.out}", f"data={self.photos}"], OK)
        self.train("resume=true", "optim.lr=0.001", "max_steps=4", says=["resuming from", "step 1"])

    def test_loss_is_not_finite_without_validation(self):
        self.train("val_split=0", "max_steps=1")
        self.train("val_split=0", "resume=true", "max_steps=2")
        kept = self.hashes()
        self.train("val_split=0", "resume=true", "optim.lr=1e30", "max_steps=-1", code=FAILURE,
                   says=["the loss is", "at step 3", "smaller optim.lr", f"{self.out}/checkpoints/last.safetensors keeps step 2"])
        self.assertEqual(self.hashes(), kept)

    def test_loss_is_not_finite_at_once(self):
        self.train("optim.lr=1e30", "max_steps=9", code=FAILURE, says=["the loss is", "smaller optim.lr", "no checkpoint was written before"])
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])

    def test_weights_are_not_finite(self):
        """The last step breaks the weights: no loss shows it any more, but they must not become the checkpoint."""
        self.train("val_split=0", "max_steps=1")
        kept = self.hashes()
        self.train("val_split=0", "resume=true", "optim.lr=1e39", code=FAILURE, says=["is not finite after step 2", "smaller optim.lr", "keeps step 1"])
        self.assertEqual(self.hashes(), kept)
        self.levin(["eval", f"model={self.out}", f"data={self.photos}"], OK)

    def stopped_by(self, number, code, name):
        p = self.start()
        before = self.steps()
        p.send_signal(number)
        _, told = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, code, told)
        self.assertIn(f"stopped: {name} after step", told)
        self.assertIn("resume=true goes on from there", told)
        self.no_leftovers()
        done = self.steps()
        self.assertGreaterEqual(done, before)
        hashes = self.hashes()
        self.resume(done, says=[f"step {done},"])  # it is at this step: nothing is repeated, nothing is to do
        self.assertEqual(self.hashes(), hashes)
        self.resume(done + 3, says=["resuming from", f"step {done},"])
        self.assertEqual(self.steps(), done + 3)
        return done + 3

    def test_ctrl_c(self):
        steps = self.stopped_by(signal.SIGINT, SIGINT, "Ctrl-C")
        stopped, self.out = self.hashes(), f"{self.dir}/whole"
        words = ["data=builtin:shapes", "data.count=60", f"out={self.out}", "model=mlp", "image_size=16", "batch_size=6", "max_epochs=-1"]
        self.levin(["train", "classify", *words, f"max_steps={steps}"], OK)
        self.assertEqual(self.hashes(), stopped)  # the same bits as without the stop

    def test_sigterm(self):
        self.stopped_by(signal.SIGTERM, SIGTERM, "SIGTERM")

    def test_sigusr1(self):
        self.stopped_by(signal.SIGUSR1, REQUEUE, "SIGUSR1")

    def test_stopped_but_cannot_save(self):
        """130 and 143 say who stopped the run, 85 promises a checkpoint."""
        who = self.nobody()
        for number, code, says in ((signal.SIGINT, SIGINT, "stopped: Ctrl-C"), (signal.SIGUSR1, FAILURE, "error: cannot create")):
            self.out = f"{self.dir}/run{code}"
            p = self.start("data.count=100000", before=who, saved=False)
            os.chmod(f"{self.out}/checkpoints", 0o555)
            p.send_signal(number)
            _, told = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, code, told)
            self.assertIn(says, told)
            self.assertIn("checkpoints/last.safetensors\": Permission denied", told)
            self.assertEqual("but the checkpoint could not be saved" in told, code == SIGINT, told)

    def test_kill_9(self):
        p = self.start("checkpoint.every_n_steps=1")
        p.kill()
        p.wait()
        self.assertEqual(p.returncode, -signal.SIGKILL)
        hashes = self.hashes()  # whole, whatever was being written
        self.assertIn("weights", hashes)
        write(f"{self.out}/checkpoints/last.safetensors.tmp-4711", b"half a checkpoint")
        write(f"{self.out}/exported_models/exported_last.safetensors.tmp-4711", b"half a model")
        done = self.steps()
        self.resume(done + 3, says=["resuming from"])
        self.assertEqual(self.steps(), done + 3)
        lines = [json.loads(line)["step"] for line in read(f"{self.out}/metrics.jsonl").splitlines()]
        self.assertEqual(lines, sorted(lines))
        self.no_leftovers()

    def test_reader_goes_away(self):
        """levin train ... | head"""
        reader, writer = os.pipe()
        p = self.start(stdout=writer)
        os.close(writer)
        os.close(reader)
        here = self.steps()
        self.wait_for(lambda: self.steps() > here + 2, p)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGTERM)


class Resume(Case):
    """A run directory in a bad state."""

    def spoil(self, which, at=-50):
        """One bit of a file of its own (best may be a second name of last)."""
        path = f"{self.out}/checkpoints/{which}.safetensors"
        data = bytearray(read(path))
        data[at] ^= 1
        os.remove(path)
        write(path, bytes(data))

    def test_nothing_there(self):
        self.train("resume=true", code=USAGE, says=[f"there is no run to resume in {self.out}"])
        self.levin(self.words(self.photos, self.out, "resume=true")[:2] + ["resume=true"], USAGE, ["data= is missing"])
        self.levin(["train", "classify", f"data={self.photos}", "resume=true"], USAGE, ["resume=true needs out=DIR"])

    def test_no_checkpoint_yet(self):
        self.train()
        shutil.rmtree(f"{self.out}/checkpoints")
        self.train("resume=true", says=["has no checkpoint yet", "starts from its beginning"])

    def test_a_run_that_trains_nothing_writes_nothing(self):
        self.train()
        before = read(f"{self.out}/config.yaml")
        self.train("resume=true", "optim.lr=5", says=["nothing to do", "optim.lr is 5"])
        self.assertEqual(read(f"{self.out}/config.yaml"), before)

    def test_changed_keys_are_told(self):
        self.train()
        _, told = self.train("resume=true", "max_steps=4", "optim.lr=0.002",
                             says=["warning: optim.lr is 0.002 from here on; so far this run had 0.001"])
        self.assertNotIn("max_steps is", told)

    def test_two_processes_in_one_run(self):
        os.mkdir(self.out)
        holder = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        self.train(code=USAGE, says=["another process is training in", self.out])
        self.assertEqual(os.listdir(self.out), [])
        os.close(holder)
        self.train()

    def test_overwrite_replaces_runs_only(self):
        os.mkdir(self.out)
        write(f"{self.out}/thesis.txt", b"do not touch")
        self.train("overwrite=true", code=USAGE, says=["is no run directory", "overwrite=true replaces runs only"])
        self.assertEqual(os.listdir(self.out), ["thesis.txt"])

    def test_newest_is_damaged(self):
        """Falls back to the newest that is whole, and says so."""
        self.train("max_steps=-1", "max_epochs=1")  # best and last: step 2
        shutil.copy(f"{self.out}/checkpoints/best.safetensors", f"{self.dir}/older")
        self.train("max_steps=3", "max_epochs=9", "resume=true")
        shutil.move(f"{self.dir}/older", f"{self.out}/checkpoints/best.safetensors")
        goal = self.hashes()
        self.spoil("last")
        self.train("max_steps=3", "max_epochs=9", "resume=true",
                   says=["warning: checkpoint passed over", "last.safetensors", "does not match its checksum", "resuming from", "best.safetensors: step 2"])
        self.assertEqual(self.hashes(), goal)

    def test_all_are_damaged(self):
        self.train()
        self.spoil("best")
        self.spoil("last", at=9)
        before = tree(f"{self.out}/checkpoints")
        config = read(f"{self.out}/config.yaml")
        self.train("resume=true", code=FAILURE, says=["none of its 2 checkpoints can be used", "overwrite=true", "checksum"])
        self.assertEqual(tree(f"{self.out}/checkpoints"), before)
        self.assertEqual(read(f"{self.out}/config.yaml"), config)

    def test_weights_have_moved(self):
        """The checkpoint has what came of them."""
        shutil.copy(self.exported, f"{self.dir}/start.safetensors")
        self.train(f"weights={self.dir}/start.safetensors", "max_steps=4", "max_epochs=9")
        goal = self.hashes()
        self.train("overwrite=true", f"weights={self.dir}/start.safetensors", "max_steps=2", "max_epochs=9")
        os.remove(f"{self.dir}/start.safetensors")
        self.train("resume=true", "max_steps=4", "max_epochs=9", says=["resuming from"])
        self.assertEqual(self.hashes(), goal)
        shutil.rmtree(f"{self.out}/checkpoints")  # now they are needed
        self.train("resume=true", code=FAILURE, says=[f"{self.dir}/start.safetensors"])

    def test_the_end_has_moved(self):
        """The same step of a cosine has another learning rate then: said, once."""
        self.train("scheduler=cosine", "max_epochs=3", "max_steps=-1", "optim.lr=0.01")  # 2 steps each
        _, told = self.train("resume=true", "max_epochs=4", "max_steps=-1", says=["scheduler=cosine ends at step 8 now, at step 6 in the saved run"])
        self.assertEqual(told.count("another curve"), 1)
        _, told = self.train("resume=true", "max_epochs=4", "max_steps=-1")
        self.assertNotIn("another curve", told)

    def test_layout_is_not_saved(self):
        """What a resumed run takes over is what its bits hang on: devices, and no lanes or threads."""
        self.train("lanes=1", "num_workers=1", "shards=2", "max_epochs=9")
        config = read(f"{self.out}/config.yaml").decode()
        for line in ("accelerator: cpu", "strategy: single", "shards: 2"):
            self.assertIn(line, config.splitlines())
        self.assertRegex(config, r'(?m)^devices: "?1"?$')
        self.assertNotRegex(config, r"(?m)^(lanes|num_workers):")
        whole = read(f"{self.out}/checkpoints/last.safetensors")
        head = json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]])
        saved = json.loads(head["__metadata__"]["levin.config"])
        self.assertEqual([saved.get(key) for key in ("accelerator", "devices", "strategy", "shards")], ["cpu", "1", "single", 2])
        self.assertEqual([key for key in ("lanes", "num_workers") if key in saved], [])
        write(f"{self.out}/config.yaml", (config + "lanes: 64\nnum_workers: 256\n").encode())  # as early versions wrote it
        self.train("resume=true", "max_steps=4")
        self.assertNotRegex(read(f"{self.out}/config.yaml").decode(), r"(?m)^(lanes|num_workers):")

    def test_keys_that_do_not_fit(self):
        """They are refused and leave the run as it was."""
        self.train()
        config, hashes = read(f"{self.out}/config.yaml"), self.hashes()
        for word, says in (("model=cnn", "another model"), ("optim=sgd", "another optimizer: give optim.name")):
            self.train("resume=true", word, "max_steps=4", code=USAGE, says=["last.safetensors", says, "weights="])
            self.assertEqual(read(f"{self.out}/config.yaml"), config)
            self.assertEqual(self.hashes(), hashes)
        self.levin(["train", "classify", f"data={self.photos}", f"out={self.out}", "resume=true", "max_steps=4"], OK, ["resuming from"])


class Models(Case):
    """predict and eval."""

    def predict(self, model, says, code=FAILURE, data=None):
        output = f"{self.dir}/p.csv"
        self.levin(["predict", f"model={model}", f"data={data or self.photos}", f"output={output}"], code, says)
        self.assertFalse(os.path.exists(output))

    def test_missing(self):
        self.predict(f"{self.dir}/none", [f"{self.dir}/none does not exist", "a run directory or an exported .safetensors file"])
        self.levin(["predict", f"data={self.photos}"], USAGE, ["model= is missing"])
        self.levin(["predict", f"model={self.model}"], USAGE, ["data= is missing"])
        self.levin(["eval", f"model={self.model}", f"data={self.dir}/none"], FAILURE, [f"data={self.dir}/none: No such file"])
        self.levin(["predict", f"model={self.model}", "ouput=x"], USAGE, ["unknown key `ouput`", "did you mean `output`?"])

    def test_of_another_kind(self):
        self.predict(f"{self.model}/checkpoints/last.safetensors", ["is no classifier exported by levin", "run directory", "exported_models/"])
        self.predict(f"{self.model}/config.yaml", ["config.yaml", "no safetensors file"])
        self.predict(self.dir, [f"{self.dir}: cannot read: it is no file"])

    def crafted(self, name, card=None, change=lambda data: data):
        """An exported model without checksums, as another program may write it."""
        whole = read(self.exported)
        n = struct.unpack("<Q", whole[:8])[0]
        head = json.loads(whole[8:8 + n])
        own = json.loads(head["__metadata__"]["classifier"])
        head["__metadata__"] = {"format": "pt", "classifier": json.dumps({**own, **(card or {})})}
        text = json.dumps(head).encode()
        path = f"{self.dir}/{name}.safetensors"
        write(path, struct.pack("<Q", len(text)) + text + change(whole[8 + n:]))
        return path

    def test_corrupted(self):
        whole = read(self.exported)
        path = f"{self.dir}/m.safetensors"
        for content, says in ((b"", "0 bytes are too few"), (whole[:2000], "cut off or damaged"), (whole[:-4], "cut off"),
                              (whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:], "does not match its checksum"),
                              (whole[:9] + b"\xff" + whole[10:], "the header is damaged")):
            write(path, content)
            self.predict(path, [path, says])

    def test_description_is_nonsense(self):
        for key, value in (("image_size", 0), ("image_size", -5), ("image_size", 10**9), ("dropout", 7), ("eval_crop", -3), ("std", [0, 1, 1])):
            path = self.crafted("m", {key: value})
            self.predict(path, [path, "its description of the model says", key])
        self.predict(self.crafted("m", {"mean": []}), ["its description of the model is not complete"])
        self.predict(self.crafted("m", {"classes": ["a"]}), ["tensor head.weight is (2, ", "this model needs (1, "])
        self.predict(self.crafted("m", {"model": "vgg"}), ["holds a model vgg", "does not know"])

    def test_weights_are_not_finite(self):
        path = self.crafted("m", change=lambda data: b"\0\0\xc0\x7f" * (len(data) // 4))
        self.predict(path, [path, "weights are not finite"])
        self.levin(["eval", f"model={path}", f"data={self.photos}"], FAILURE, [path, "weights are not finite"])

    def test_team_of_the_training(self):
        """Where forward passes see the team, predict and eval must use the one of the training."""
        def team(path):
            whole = read(path)
            head = json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]])
            return json.loads(head["__metadata__"]["classifier"])["wgrad_threads"]

        self.train("wgrad_threads=3", "shards=2")
        self.assertEqual(team(f"{self.out}/exported_models/exported_last.safetensors"), 3)
        for value in (0, 17, "3"):
            path = self.crafted("m", {"wgrad_threads": value})
            self.predict(path, [path, "its description of the model says wgrad_threads", "from 1 to 16"])
        whole = read(self.exported)
        head = json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]])
        card = json.loads(head["__metadata__"]["classifier"])
        del card["wgrad_threads"]  # of an early version: 1
        head["__metadata__"] = {"format": "pt", "classifier": json.dumps(card)}
        text = json.dumps(head).encode()
        write(f"{self.dir}/early.safetensors", struct.pack("<Q", len(text)) + text + whole[8 + struct.unpack("<Q", whole[:8])[0]:])
        self.levin(["predict", f"model={self.dir}/early.safetensors", f"data={self.photos}", f"output={self.dir}/p.csv"], OK)

    def test_more_classes_than_the_model(self):
        """predict does not know labels: a page of pictures must not look for their names."""
        shapes = ["data=builtin:shapes", "data.count=40"]
        self.levin(["train", "classify", *shapes, "data.classes=3", f"out={self.out}", "model=mlp", "image_size=16", "max_steps=1"], OK)
        self.levin(["predict", f"model={self.out}", *shapes, "data.classes=8", f"sheet={self.dir}/s.png", f"output={self.dir}/p.csv"], OK)
        self.assertEqual(read(f"{self.dir}/s.png")[:4], b"\x89PNG")
        self.assertEqual(len(read(f"{self.dir}/p.csv").splitlines()), 1 + 40)
        self.levin(["eval", f"model={self.out}", *shapes, "data.classes=8", f"sheet={self.dir}/t.png"], FAILURE, ["data.classes=3"])

    def test_page(self):
        use = ["eval", f"model={self.model}", f"data={self.photos}"]
        self.levin([*use, f"sheet={self.dir}/page.jpg"], USAGE, [f"sheet={self.dir}/page.jpg", "ends in .png"])
        self.levin([*use, f"sheet={self.dir}/page.png/"], USAGE, ["ends in .png"])
        said, _ = self.levin([*use, f"sheet={self.dir}/none/page.png"], FAILURE, [f"{self.dir}/none/page.png"])
        self.assertRegex(said, r"^acc [01]\.\d{4}  loss \d+\.\d{4}  \(\d+ of 12 right\)\n  cat  \d/6 ")  # the page's trouble costs no result
        said, _ = self.levin([*use, f"sheet={self.dir}/page.PNG"], OK)
        self.assertTrue(said.endswith(f"\nsheet in {self.dir}/page.PNG\n"), said)
        self.assertEqual(read(f"{self.dir}/page.PNG")[:4], b"\x89PNG")

    def test_split(self):
        """12 pictures, 5 of each 6 trained on."""
        def of(*words, model=self.model, code=OK, says=()):
            return self.levin(["eval", f"model={model}", *words], code, says)

        note = "pictures were trained on"
        self.assertIn(" of 2 right)", of(f"data={self.photos}", "split=val")[0])
        self.assertIn(" of 10 right)", of(f"data={self.photos}", "split=train")[0])
        said, told = of(f"data={self.photos}")
        self.assertIn(" of 12 right)", said)
        self.assertIn(f"note: 10 of these 12 {note}; split=val measures the others\n", told)
        moved = f"{self.dir}/moved"
        shutil.copytree(self.photos, moved)
        self.assertIn(f"10 of these 12 {note}", of(f"data={moved}")[1])
        png(f"{moved}/cat/more.png", 20, 18, lambda x, y: (x, y, 0))
        self.assertNotIn(note, of(f"data={moved}")[1])
        of(f"data={moved}", "split=val", code=USAGE, says=["split=val", moved, "here 13 pictures ", "then 12 pictures ", "split=all"])
        of(f"data={self.photos}", "split=test", code=USAGE, says=["split", "one of all, train, val"])

        own = f"{self.dir}/own"  # a folder with its own parts
        photos(f"{own}/train")
        photos(f"{own}/val", n=3)
        self.assertIn(" of 6 right)", of(f"data={own}", "split=val")[0])
        self.train(data=own)
        self.assertIn(f"12 of these 18 {note}", of(f"data={own}", model=self.out)[1])

        shapes = ["data=builtin:shapes", "data.count=30", "data.classes=3"]
        self.train(*shapes, "overwrite=true", "val_split=0")
        self.assertIn(f"all of these 30 {note}", of(*shapes, model=self.out)[1])
        self.assertNotIn(note, of(*shapes, "data.seed=1", model=self.out)[1])
        of(*shapes, "split=val", model=self.out, code=USAGE, says=["split=val: this part has no pictures", "val_split of the training was 0"])

    def test_split_is_not_recorded(self):
        path = self.crafted("m", {"data": None})  # as in early versions
        use = ["eval", f"model={path}", f"data={self.photos}"]
        self.assertNotIn("trained on", self.levin(use, OK)[1])
        self.levin([*use, "split=val"], USAGE, [path, "does not record its split", "split=all"])
        for key, value in (("val_split", 1), ("val_split", "x"), ("seed", -1), ("seed", 0.5)):
            self.predict(self.crafted("m", {key: value}), ["its description of the model says " + key])

    def test_unknown_classes(self):
        data = f"{self.dir}/data"
        photos(data, ["cat", "wolf"])
        self.levin(["eval", f"model={self.model}", f"data={data}"], FAILURE, [data, "the class wolf", "not trained on", "cat ... dog", "rename or remove"])
        self.levin(["eval", f"model={self.model}", "data=builtin:shapes"], FAILURE, ["the model knows 2 classes", "data.classes=2"])


class Environment(Case):
    def test_hostile_openmp(self):
        """Limits and dynamic teams of OpenMP would drop parts of a gradient: the command does not let them."""
        words = ["model=cnn", "wgrad_threads=2", "shards=2", "max_steps=1", "val_split=0"]
        want = None
        for n, env in enumerate(({}, {"OMP_NUM_THREADS": "1", "OMP_DYNAMIC": "true"}, {"OMP_THREAD_LIMIT": "1"},
                                 {"OMP_MAX_ACTIVE_LEVELS": "0", "OMP_NESTED": "false", "OMP_SCHEDULE": "dynamic,1", "OMP_PROC_BIND": "true",
                                  "OMP_PLACES": "{0}", "GOMP_CPU_AFFINITY": "0", "OMP_STACKSIZE": "nonsense", "OMP_WAIT_POLICY": "active"})):
            self.out = f"{self.dir}/run{n}"
            self.train(*words, env=env)
            want = want or self.hashes()
            self.assertEqual(self.hashes(), want, str(env))


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit("usage: test_bad_input.py LEVIN [test names]")
    unittest.main(verbosity=1)
