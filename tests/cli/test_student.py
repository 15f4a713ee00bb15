"""examples/08_student: a student, a teacher that follows it, queues and a function of them.

Learns from images of four patterns; has one hash on every layout, over every transport, when
killed and resumed, and in 16-mixed; the exported file has the teacher by name, and a new run takes
it, or begins with a copy of the student where a file has none.

usage: test_student.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
"""

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
from pathlib import Path

from patterns import draw_patterns
from rank_processes import drop_identity
from today import OfToday

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
ON_SIM = {**os.environ, "LEVIN_SIM_DEVICES": "2"}
PINNED = ("wgrad_threads=1", "quiet=true", "batch_size=32", "bank=100")
STEPS = ("max_epochs=2", "temperature_end=0.1", "micro_batches=5", "eval_batch_size=8")


def levin(*arguments, status=0):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=FOLDER, env=ON_SIM, capture_output=True, text=True, timeout=200
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def train(out, *arguments):
    levin("train", MINE, "data=patterns", f"out={out}", *PINNED, *arguments)
    return levin("ckpt", "hash", out)


def curve(out, name):
    lines = map(json.loads, Path(FOLDER, out, "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def mean(values):
    return sum(values) / len(values)


def read_tensors(path):
    """name: (shape, numbers) of a file of f32 tensors."""
    data = Path(FOLDER, path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + n + at for at in entry["data_offsets"])
        numbers = data[begin:end] if entry["dtype"] == "F32" else b""
        out[name] = (entry["shape"], struct.unpack(f"<{len(numbers) // 4}f", numbers))
    return out


class Student(unittest.TestCase):
    def test_prototypes_distinguish_classes(self):
        train("learned", "max_epochs=15", "micro_batches=1")
        losses, right = curve("learned", "train/loss"), curve("learned", "val/acc")
        self.assertLess(mean(losses[-3:]), losses[0], losses)
        self.assertGreater(mean(right[-3:]), 0.8, right)  # a quarter by chance
        shown = levin("eval", MINE, "model=learned", "checkpoint=last")
        self.assertIn(f"acc {right[-1]:.6g}\n", shown)
        levin("predict", MINE, "model=learned", "output=scores.csv")
        self.assertEqual(len(Path(FOLDER, "scores.csv").read_text().splitlines()), 1 + 48)

    def test_layouts_and_resume(self):
        layouts = {
            "one": ("lanes=1",),
            "lanes": ("lanes=3", "num_workers=2"),
            "ddp": ("devices=2", "strategy=ddp"),
            "net": ("devices=3", "strategy=ddp", "transport=net"),
            "dp": ("devices=3", "strategy=dp"),
            "sim": ("devices=2", "strategy=dp", "accelerator=sim"),
            "alone": ("accelerator=sim",),
            "parts": ("max_steps=8",),  # in the second epoch
        }
        hashes = {name: train(name, *STEPS, *layout) for name, layout in layouts.items()}
        levin("train", MINE, "resume=true", "out=parts", "max_steps=-1", "quiet=true", "devices=2")
        hashes["parts"] = levin("ckpt", "hash", "parts")
        whole = {name: text for name, text in hashes.items() if name != "parts"}
        self.assertEqual(len(set(whole.values())), 1, hashes)
        # the teacher of a run with an end at step 8 was on another curve until then
        self.assertNotEqual(hashes["parts"], hashes["one"])
        for name in ("train/loss", "val/acc"):
            values = {out: tuple(curve(out, name)) for out in whole}
            self.assertEqual(len(set(values.values())), 1, values)

    def test_killed_and_resumed(self):
        """With SIGKILL, somewhere: what the last checkpoint has is enough."""
        steps = ("max_epochs=6", "micro_batches=4", "checkpoint.every_n_steps=4")
        want = train("unbroken", *steps)
        last = Path(FOLDER, "killed", "checkpoints", "last.safetensors")
        arguments = ("train", MINE, "data=patterns", "out=killed", *PINNED, *steps)
        for _ in range(20):  # the run may be quicker than this test on a busy machine
            run = subprocess.Popen([LEVIN, *arguments, "overwrite=true"], cwd=FOLDER, env=ON_SIM)
            while run.poll() is None and not last.exists():
                time.sleep(0.002)
            run.send_signal(signal.SIGKILL)
            if run.wait() != 0:
                break
        self.assertEqual(run.returncode, -signal.SIGKILL)
        levin("train", MINE, "out=killed", "resume=true", "quiet=true", "lanes=2")
        self.assertEqual(levin("ckpt", "hash", "killed"), want)

    def test_low_precision(self):
        for precision in ("bf16-mixed", "16-mixed"):
            steps = (*STEPS, f"precision={precision}")
            layouts = {"one": (), "ddp": ("devices=2", "strategy=ddp"), "sim": ("accelerator=sim",)}
            hashes = {
                name: train(f"{precision}_{name}", *steps, *layout)
                for name, layout in layouts.items()
            }
            self.assertEqual(len(set(hashes.values())), 1, hashes)

    def test_files_have_the_teacher(self):
        train("files", *STEPS)
        levin("export", MINE, "model=files", "checkpoint=last", "output=files.safetensors")
        saved, made = read_tensors("files/checkpoints/last.safetensors"), read_tensors(
            "files.safetensors"
        )
        teacher, student = made["teacher.conv2.weight"], made["student.conv2.weight"]
        self.assertEqual(teacher[0], [32, 16, 3, 3])  # as the student's, and as PyTorch has it
        self.assertEqual(student[0], teacher[0])
        self.assertNotEqual(student[1], teacher[1])
        here = saved["model/teacher.conv2.weight"]  # (O, H, W, I)
        o, i, h, w = 5, 7, 2, 1
        self.assertEqual(
            teacher[1][((o * 16 + i) * 3 + h) * 3 + w], here[1][((o * 3 + h) * 3 + w) * 16 + i]
        )
        states = [name for name in saved if name.startswith("optim/")]
        self.assertTrue(any("student.conv2" in name for name in states))
        self.assertFalse(any("teacher" in name for name in states))
        levin("ckpt", "hash", "files")
        train("taken", "weights=files.safetensors", "max_steps=1", "optim.lr=0")
        taken = read_tensors("taken/checkpoints/last.safetensors")
        self.assertNotEqual(
            taken["model/teacher.out.weight"][1], taken["model/student.out.weight"][1]
        )
        self.drop_others("files.safetensors", "student.", "alone.safetensors")
        train("copied", "weights=alone.safetensors", "max_steps=1", "optim.lr=0")
        copied = read_tensors("copied/checkpoints/last.safetensors")
        self.assertEqual(
            copied["model/teacher.out.weight"][1], copied["model/student.out.weight"][1]
        )
        self.assertEqual(copied["model/student.out.weight"][1], made["student.out.weight"][1])

    def drop_others(self, path, begin, to):
        """A file of the tensors whose names begin so, and of means."""
        header, data = {}, b""
        for name, (shape, numbers) in read_tensors(path).items():
            if (name.startswith(begin) or name == "prototypes") and "tracked" not in name:
                at = len(data)
                data += struct.pack(f"<{len(numbers)}f", *numbers)
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, len(data)]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        Path(FOLDER, to).write_bytes(struct.pack("<Q", len(text)) + text + data)

    def test_keys_change_the_run(self):
        def trained(*keys):
            return train("keys_" + "_".join(keys), "max_steps=6", "micro_batches=2", *keys)

        keys = (
            "key=16",
            "bank=99",
            "temperature=0.5",
            "temperature_end=0.4",
            "min_scale=0.9",
            "image_size=24",
        )
        moments = ("teacher.momentum=0.9", "teacher.momentum_end=0.97")
        runs = [trained(), *map(trained, keys + moments)]
        self.assertEqual(len(set(runs)), len(runs), runs)

    def test_mistakes(self):
        def refused(*keys):
            return levin("train", MINE, "out=wrong", "data=patterns", *keys, status=64)

        self.assertIn("data= is missing", levin("train", MINE, "out=wrong", status=64))
        self.assertIn("at least 1, 1, and above 0", refused("temperature=0"))
        self.assertIn("at least 1, 1, and above 0", refused("temperature_end=-1"))
        endless = refused("temperature_end=0.1", "max_epochs=-1", "scheduler=constant")
        self.assertIn("number temperature of the model goes from 0.2 to 0.1 until", endless)
        shown = levin("train", MINE, "out=w", "data=patterns", "teacher.momentum=2", status=1)
        self.assertIn("a momentum from 2 to 1", shown)


with tempfile.TemporaryDirectory() as FOLDER:
    draw_patterns(Path(FOLDER, "patterns"), 60)
    shutil.copy(SOURCE, os.path.join(FOLDER, "student.c"))
    levin("cc", "student.c")
    MINE = "./student.so"
    unittest.main(testLoader=OfToday(2))
