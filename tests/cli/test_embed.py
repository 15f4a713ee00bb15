"""levin predict embed: features of images as tables, arrays and files of PyTorch.

Every format holds the same numbers in the order of the images, and is equal to the byte on any
number of ranks. NumPy reads the arrays where it is there, else the test does.

usage: test_embed.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import ast
import csv
import io
import json
import math
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

from patterns import crop_middle, draw_patterns
from rank_processes import drop_identity
from small_png import write_pixels
from today import OfToday

LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()
FEATURES = 128  # of model=cnn


def read_npy(data):
    """(shape, values) of float32 or text."""
    try:
        import numpy
    except ImportError:
        assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
        [n] = struct.unpack("<H", data[8:10])
        head, rest = ast.literal_eval(data[10 : 10 + n].decode()), data[10 + n :]
        assert (10 + n) % 64 == 0 and not head["fortran_order"], head
        count = math.prod(head["shape"])
        if head["descr"] == "<f4":
            assert len(rest) == 4 * count, (len(rest), head)
            return head["shape"], list(struct.unpack(f"<{count}f", rest))
        width = 4 * int(head["descr"].removeprefix("<U"))
        assert len(rest) == width * count, (len(rest), head)
        text = [rest[i * width : (i + 1) * width].decode("utf-32-le") for i in range(count)]
        return head["shape"], [t.rstrip("\0") for t in text]
    array = numpy.load(io.BytesIO(data), allow_pickle=False)
    return array.shape, array.ravel().tolist()


def read_torch(path):
    """The dict of torch.save, tensors as (shape, values)."""
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            known = {
                "_rebuild_tensor_v2": lambda storage, at, shape, strides, *_: (shape, storage),
                "FloatStorage": "<f",
                "OrderedDict": dict,
            }
            return known[name]

        def persistent_load(self, pid):
            kind, dtype, key, place, count = pid
            assert (kind, dtype, place) == ("storage", "<f", "cpu"), pid
            return list(struct.unpack(f"<{count}f", archive.read(f"archive/data/{key}")))

    return Reader(io.BytesIO(archive.read("archive/data.pkl"))).load()


def eigenvalues(a):
    """Of a small symmetric matrix, by Jacobi's rotations."""
    n = len(a)
    for _ in range(12):
        for p in range(n):
            for q in range(p + 1, n):
                if abs(a[p][q]) < 1e-15:
                    continue
                turn = (a[q][q] - a[p][p]) / (2 * a[p][q])
                t = math.copysign(1, turn) / (abs(turn) + math.hypot(turn, 1))
                c = 1 / math.hypot(t, 1)
                s = t * c
                for row in a:
                    row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
                up, uq = a[p], a[q]
                a[p] = [c * x - s * y for x, y in zip(up, uq)]
                a[q] = [s * x + c * y for x, y in zip(up, uq)]
    return [a[i][i] for i in range(n)]


class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-embed-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        draw_patterns(f"{cls.dir}/photos", 5)
        os.rename(f"{cls.dir}/photos/rings/0.png", f"{cls.dir}/photos/rings/größe, 0.png")
        cls.levin(
            *"pretrain data=photos model=cnn image_size=32 batch_size=8 max_epochs=1".split(),
            *"num_workers=0 out=run".split(),
        )

    @classmethod
    def levin(cls, *arguments, code=0):
        done = subprocess.run([LEVIN, *arguments], cwd=cls.dir, capture_output=True, timeout=100)
        text = (done.stdout + done.stderr).decode()
        assert done.returncode == code, f"{arguments}\n{text}"
        return text

    def embed(self, *arguments, **how):
        return self.levin("predict", "embed", "model=run", "data=photos", *arguments, **how)

    def read(self, name):
        with open(f"{self.dir}/{name}", "rb") as f:
            return f.read()

    def table(self, name):
        """(columns, names, values) of float32"""
        columns, *rows = csv.reader(io.StringIO(self.read(name).decode()))
        width = FEATURES + 1
        texts = [float(x) for r in rows for x in r[1:width]]
        values = struct.unpack(f"<{len(texts)}f", struct.pack(f"<{len(texts)}f", *texts))
        return columns, [r[0] for r in rows], list(values)

    def test_every_format_has_the_same_numbers(self):
        self.embed("output=a.csv")
        columns, names, values = self.table("a.csv")
        embeddings = [f"embedding_{i}" for i in range(FEATURES)]
        self.assertEqual(columns, ["filename", *embeddings])
        self.assertEqual(names, sorted(names, key=os.fsencode))
        self.assertIn("rings/größe, 0.png", names)
        self.assertEqual(len(names), 20)
        self.assertGreater(len(set(values)), 1000)

        self.embed("output=lightly.csv", "format=lightly_csv")
        columns, *others = self.table("lightly.csv")
        self.assertEqual(columns, ["filenames", *embeddings, "labels"])
        self.assertEqual(others, [names, values])
        rows = list(csv.reader(io.StringIO(self.read("lightly.csv").decode())))
        self.assertEqual({row[-1] for row in rows[1:]}, {"0"})

        text = self.embed("output=a.npy")
        self.assertIn("features (20, 128) in a.npy", text)
        self.assertEqual(read_npy(self.read("a.npy")), ((20, FEATURES), values))
        self.embed("output=a.npz")
        archive = zipfile.ZipFile(f"{self.dir}/a.npz")
        self.assertIsNone(archive.testzip())
        self.assertEqual(archive.namelist(), ["embeddings.npy", "filenames.npy"])
        self.assertEqual(read_npy(archive.read("embeddings.npy")), ((20, FEATURES), values))
        self.assertEqual(read_npy(archive.read("filenames.npy")), ((20,), names))
        for name, more in (("a.pt", []), ("other.bin", ["format=torch"])):
            self.embed(f"output={name}", *more)
            found = read_torch(f"{self.dir}/{name}")
            self.assertEqual(found["filenames"], names)
            self.assertEqual(found["embeddings"], ((20, FEATURES), values))
        self.levin("ckpt", "convert", "a.pt", "a.safetensors")
        text = self.levin("ckpt", "show", "a.safetensors", "json=true")
        self.assertEqual(json.loads(text)["tensors"][0]["shape"], [20, FEATURES])
        self.embed("output=a.jsonl")
        rows = [json.loads(line) for line in self.read("a.jsonl").decode().splitlines()]
        self.assertEqual([row["sample"] for row in rows], names)

    def test_every_layout_has_the_same_bytes(self):
        for name, *more in (
            ("x.csv",),
            ("x.npy",),
            ("x.npz", "features=patches"),
            ("x.pt", "eval_batch_size=3"),
        ):
            self.embed(f"output={name}", *more)
            one = self.read(name)
            for n in (2, 4):
                self.embed(f"output={n}{name}", *more, f"devices={n}")
                self.assertTrue(self.read(f"{n}{name}") == one, (name, n))

    def test_patches_are_the_map_behind_the_pooling(self):
        self.embed("output=rows.npy")
        _, rows = read_npy(self.read("rows.npy"))
        text = self.embed("output=map.npy", "features=patches")
        self.assertIn("(20, 128, 8, 8) in map.npy", text)
        shape, values = read_npy(self.read("map.npy"))
        self.assertEqual(shape, (20, FEATURES, 8, 8))
        for i, x in enumerate(rows):
            self.assertAlmostEqual(sum(values[64 * i : 64 * i + 64]) / 64, x, 5)
        for output in ("output=map.csv", "output=-", "json=true"):
            text = self.embed(output, "features=patches", code=64)
            self.assertIn("use output=NAME.npy, .npz or .pt", text)

    def test_images_are_stretched(self):
        """As LightlyTrain's embed has it: nothing is cut off, whatever the sides."""
        white, black, n = b"\xff" * 3 * 32, bytes(3 * 32), FEATURES
        folder = pathlib.Path(self.dir, "sides")
        write_pixels(folder / "a.png", 32, white * 32)
        write_pixels(folder / "b.png", 32, (black + white + black) * 32, 96)
        write_pixels(folder / "c.png", 32, (white * 2 + black) * 16 + (black + white * 2) * 16, 96)
        stripes = b"".join(bytes([8 * y] * 3 * 32) for y in range(32))
        write_pixels(folder / "d.png", 32, stripes)
        write_pixels(folder / "e.png", 32, b"".join(bytes([8 * y] * 3 * 64) for y in range(32)), 64)
        self.embed("data=sides", "output=sides.npy")
        values = read_npy(self.read("sides.npy"))[1]
        a, b, c, d, e = (values[n * i : n * i + n] for i in range(5))
        self.assertEqual(len({tuple(x) for x in (a, b, c, d)}), 4)
        self.assertEqual(d, e)

    def test_sides_that_differ(self):
        """Height comes first, the width is stretched alone, and the maps have both sides."""
        folder = pathlib.Path(self.dir, "oblong")
        for name, width in (("a", 24), ("b", 48)):
            rows = b"".join(bytes([8 * y] * 3 * width) for y in range(16))
            write_pixels(folder / f"{name}.png", 16, rows, width)
        write_pixels(folder / "c.png", 16, b"".join(bytes([8 * x] * 3) for x in range(24)) * 16, 24)
        keys = ["data=oblong", "image_size=[16,24]"]
        text = self.embed(*keys, "features=patches", "output=oblong.npy")
        self.assertIn("(3, 128, 4, 6) in oblong.npy", text)
        shape, values = read_npy(self.read("oblong.npy"))
        self.assertEqual(shape, (3, FEATURES, 4, 6))
        a, b, c = (values[n : n + FEATURES * 24] for n in range(0, len(values), FEATURES * 24))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        self.embed(*keys, "features=patches", "output=oblong2.npy", "devices=2")
        self.assertTrue(self.read("oblong2.npy") == self.read("oblong.npy"))
        text = self.embed(*keys[:1], "image_size=[16,24,3]", code=64)
        self.assertIn("image_size has 3 numbers: give a side, or [height,width]", text)

    def test_a_file_that_is_there_is_not_replaced(self):
        for name, *more in (("there.csv",), ("there.bin", "format=npy")):
            with open(f"{self.dir}/{name}", "w", encoding="utf-8") as f:
                f.write("hours of work")
            text = self.embed(f"output={name}", *more, code=64)
            self.assertIn(f"output={name} exists: overwrite=true replaces it", text)
            self.assertEqual(self.read(name), b"hours of work")
            self.embed(f"output={name}", *more, "overwrite=true")
            self.assertNotEqual(self.read(name), b"hours of work")

    def test_an_unreadable_image_has_no_row(self):
        shutil.copytree(f"{self.dir}/photos", f"{self.dir}/bad")
        with open(f"{self.dir}/bad/checks/1.png", "r+b") as f:
            f.truncate(60)
        for n in (1, 2):
            text = self.levin(
                "predict", "embed", "model=run", "data=bad", f"output=bad{n}.npz",
                "on_error=skip", f"devices={n}",
            )  # fmt: skip
            self.assertIn("checks/1.png", text)
            archive = zipfile.ZipFile(f"{self.dir}/bad{n}.npz")
            shape, names = read_npy(archive.read("filenames.npy"))
            self.assertEqual(shape, (19,))
            self.assertNotIn("checks/1.png", names)
            self.assertEqual(read_npy(archive.read("embeddings.npy"))[0], (19, FEATURES))

    def test_effective_rank(self):
        """exp of the entropy of the normalised singular values of the references' unit rows."""
        parts = pathlib.Path(self.dir, "parts")
        draw_patterns(parts / "train", 5, 37)  # of which eval takes the middle 32
        draw_patterns(parts / "val", 2, 37)
        crop_middle(parts, f"{self.dir}/middle", 32)
        # fmt: off
        more = ["model=cnn", "image_size=32", "batch_size=8", "max_epochs=2", "micro_batches=2",
                "wgrad_threads=1", "method_args.hidden_dim=16", "data=photos", "num_workers=0",
                "knn.data=parts", "quiet=true", "overwrite=true", "out=ranked"]
        # fmt: on
        values = []
        for layout in ([], ["devices=2"], ["devices=2", "accelerator=sim"]):
            os.environ["LEVIN_SIM_DEVICES"] = "2"
            self.levin("pretrain", *more, *layout)
            records = map(json.loads, self.read("ranked/metrics.jsonl").decode().splitlines())
            values.append([r["val/effective_rank"] for r in records if "val/knn" in r])
        self.assertEqual(len(values[0]), 2)
        self.assertEqual(values[1], values[0])
        self.assertEqual(values[2], values[0])
        use = ["model=ranked", "checkpoint=last", "data=parts"]
        found = json.loads(self.levin("eval", "knn", *use, "json=true").splitlines()[0])
        self.assertEqual(found["effective_rank"], float(f"{values[0][-1]:.9g}"))
        self.levin("predict", "embed", *use[:-1], "data=middle", "output=parts.csv")
        _, names, numbers = self.table("parts.csv")
        rows = []
        for i, name in enumerate(names):
            row = numbers[FEATURES * i : FEATURES * (i + 1)]
            length = math.sqrt(sum(x * x for x in row))
            if name.startswith("train/"):
                rows.append([x / length for x in row])
        self.assertEqual(len(rows), found["references"])
        gram = [[sum(x * y for x, y in zip(a, b)) for b in rows] for a in rows]
        singular = [math.sqrt(max(x, 0)) for x in eigenvalues(gram)]
        parts = [x / sum(singular) for x in singular if x > 0]
        rank = math.exp(-sum(p * math.log(p) for p in parts))
        self.assertGreater(rank, 1.5)
        self.assertAlmostEqual(found["effective_rank"], rank, 3)

    def test_an_effective_rank_of_one_is_a_warning(self):
        for kind in ("a", "b"):
            os.makedirs(f"{self.dir}/copies/{kind}")
            for i in range(6):
                shutil.copy(f"{self.dir}/photos/checks/0.png", f"{self.dir}/copies/{kind}/{i}.png")
        more = ["data=photos", "model=cnn", "image_size=32", "batch_size=8", "max_epochs=3"]
        text = self.levin(
            "pretrain", *more, "num_workers=0", "knn.data=copies", "out=narrow", "knn.k=3"
        )
        self.assertEqual(text.count("the effective rank of those of knn.data= is 1, of at most"), 1)

    def test_names_and_formats_that_do_not_fit(self):
        for arguments, part in (
            (["format=npy"], "output=embeddings.csv ends as a table does; use output=NAME.npy"),
            (["format=npz", "json=true"], "JSON lines are format=jsonl"),
            (["output=x.h5"], "or format="),
            (["output=run"], "run"),
        ):
            self.assertIn(part, self.embed(*arguments, code=64))
        self.assertFalse(os.path.exists(f"{self.dir}/embeddings.csv"))

    def test_a_full_disk_leaves_the_file_that_is_there(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.embed("output=kept.npz")
        before = self.read("kept.npz")
        limit = f"ulimit -f 4; exec {LEVIN} predict embed model=run data=photos output=kept.npz"
        done = subprocess.run(
            ["sh", "-c", f"trap '' XFSZ; {limit} overwrite=true features=patches"], cwd=self.dir,
            capture_output=True, timeout=100,
        )  # fmt: skip
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"kept.npz", done.stderr)
        self.assertTrue(self.read("kept.npz") == before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=0, testLoader=OfToday(2))
