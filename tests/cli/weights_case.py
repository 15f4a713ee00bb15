"""What the tests of arrays and weights share: a small trained model, and files of numpy and
safetensors read and written without levin. Python's standard library only.
"""

import array
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

from safetensors_files import read_safetensors, write_safetensors
from today import OfToday

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
WAIT_S = 120


def write_torch(path, tensors, prefix=""):
    """A file as torch.save writes it, as Lightning has it with a prefix; without PyTorch. tensors:
    name -> (dtype, shape, bytes), or a dict of these."""
    types = {"F32": ("Float", 4), "F64": ("Double", 8), "I64": ("Long", 8)}
    text = lambda t: b"X" + struct.pack("<I", len(t)) + t.encode()
    number = lambda i: b"J" + struct.pack("<i", i)
    row = lambda numbers: b"(" + b"".join(map(number, numbers)) + b"t"
    storages = []

    def tensor(dtype, shape, content):
        kind, size = types[dtype]
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        storages.append(content)
        state = b"ctorch._utils\n_rebuild_tensor_v2\n(("
        state += text("storage") + f"ctorch\n{kind}Storage\n".encode()
        state += text(str(len(storages) - 1)) + text("cpu") + number(math.prod(shape)) + b"tQ"
        return state + number(0) + row(shape) + row(strides) + b"\x89}tR"

    def entries(state):
        value = lambda v: entries(v) if isinstance(v, dict) else tensor(*v)
        return b"}(" + b"".join(text(prefix + k) + value(v) for k, v in state.items()) + b"u"

    state = entries(tensors)
    if prefix:
        state = b"}(" + text("epoch") + number(1) + text("state_dict") + state + b"u"
    with zipfile.ZipFile(path, "w") as f:
        f.writestr("archive/data.pkl", b"\x80\x02" + state + b".")
        for i, content in enumerate(storages):
            f.writestr(f"archive/data/{i}", content)


def write_npy(path, shape, values, kind="<f4"):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(array.array({"<f4": "f", "|u1": "B"}[kind], values).tobytes())


def read_npy(path):
    with open(path, "rb") as f:
        whole = f.read()
    n = struct.unpack("<H", whole[8:10])[0]
    head = whole[10 : 10 + n].decode()
    shape = [int(k) for k in head[head.index("(") + 1 : head.index(")")].split(",") if k.strip()]
    return shape, array.array("f", whole[10 + n :])


def floats(data):
    return array.array("f", data)


def half_of(data, kind):
    """f32 bytes as f16 or as the upper half of f32 (bf16, cut off)."""
    values = floats(data)
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(data[4 * i + 2 : 4 * i + 4] for i in range(len(values)))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-weights-")
        cls.run_dir = f"{cls.dir}/run"
        cls.levin(["train", "classify", *cls.shapes(cls.run_dir), "model=cnn"])
        cls.exported = f"{cls.run_dir}/exported_models/exported_last.safetensors"
        cls.x = f"{cls.dir}/x.npy"
        write_npy(cls.x, [5, 12, 12, 3], [math.sin(0.37 * i) for i in range(5 * 12 * 12 * 3)])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    @staticmethod
    def shapes(out, *more, classes=4):
        return [
            "data=builtin:shapes",
            "data.count=40",
            f"data.classes={classes}",
            "image_size=12",
            "batch_size=8",
            "max_steps=2",
            "val_split=0",
            f"out={out}",
            *more,
        ]

    @staticmethod
    def levin(arguments, code=0, expects=()):
        done = subprocess.run(
            [LEVIN, *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            stdin=subprocess.DEVNULL,
        )
        reported = (
            f"levin {' '.join(arguments)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        if done.returncode != code or any(
            piece not in done.stdout + done.stderr for piece in expects
        ):
            raise AssertionError(f"{reported}\nexpected: exit code {code}, {expects}")
        return done.stdout + done.stderr

    def logits(self, *arguments, x=None, code=0, expects=()):
        y = f"{self.dir}/y.npy"
        if os.path.exists(y):
            os.remove(y)
        self.levin(["predict", f"data={x or self.x}", f"output={y}", *arguments], code, expects)
        if code != 0:
            self.assertFalse(os.path.exists(y))
            return None
        return read_npy(y)

    def close(self, a, b, tolerance):
        self.assertEqual(a[0], b[0])
        most = max(abs(v) for v in b[1])
        self.assertLessEqual(max(abs(u - v) for u, v in zip(a[1], b[1])), tolerance * most)


def main(turns=1):
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [test names]")
    unittest.main(verbosity=1, testLoader=OfToday(turns))
