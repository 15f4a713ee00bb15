"""levin ckpt verify, show, diff, average and convert, on the files of real trainings and on
damaged copies: exit codes, lines and JSON. What they print and write is compared with what
Python reads from the same files."""

import json
import math
import os
import shutil
import struct
import subprocess
import zipfile

from weights_case import (
    LEVIN,
    Case,
    floats,
    main,
    read_safetensors,
    write_safetensors,
    write_torch,
)

OK, FAILURE, USAGE = 0, 1, 64
WAIT_S = 60


def header_end(path):
    with open(path, "rb") as f:
        return 8 + struct.unpack("<Q", f.read(8))[0]


class CkptCase(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.last = f"{cls.run_dir}/checkpoints/last.safetensors"

    def ckpt(self, *arguments, code=OK, error=()):
        """Standard output; each of `error` stands on standard error, which is empty without."""
        done = subprocess.run(
            [LEVIN, "ckpt", *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            stdin=subprocess.DEVNULL,
        )
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        for piece in error:
            self.assertIn(piece, done.stderr)
        if not error:
            self.assertEqual(done.stderr, "")
        return done.stdout

    def copy(self, name, source=None):
        path = f"{self.dir}/{self.id().rsplit('.')[-1]}-{name}"
        shutil.copy(source or self.last, path)
        return path

    def flipped(self, name, at, source=None):
        path = self.copy(name, source)
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1]))
        return path


class Verify(CkptCase):
    def test_a_checkpoint_and_weights(self):
        tensors, _ = read_safetensors(self.last)
        line = self.ckpt("verify", self.last)
        self.assertIn(f"{self.last}: complete: step 2, ", line)
        self.assertIn(f"finished, {len(tensors)} tensors, ", line)
        line = self.ckpt("verify", self.exported)
        self.assertIn(f"{self.exported}: complete: weights, ", line)
        self.assertNotIn("no checksums", line)

    def test_a_run_is_all_its_checkpoints(self):
        names = sorted(os.listdir(f"{self.run_dir}/checkpoints"))
        lines = self.ckpt("verify", self.run_dir).splitlines()
        self.assertEqual(
            [line.split(": ")[0] for line in lines],
            [f"{self.run_dir}/checkpoints/{name}" for name in names],
        )

    def test_json(self):
        data = self.copy("cut.safetensors")
        os.truncate(data, os.path.getsize(data) - 1)
        lines = self.ckpt(
            "verify", "json=true", self.last, data, self.exported, code=FAILURE, error=["cut.safe"]
        )
        one, two, three = map(json.loads, lines.splitlines())
        tensors, _ = read_safetensors(self.last)
        self.assertEqual(
            one,
            {
                "file": self.last,
                "complete": True,
                "kind": "checkpoint",
                "checksums": True,
                "step": 2,
                "epochs_done": one["epochs_done"],
                "finished": True,
                "tensors": len(tensors),
                "bytes": sum(len(data) for _, _, data in tensors.values()),
                "unread": 0,
            },
        )
        self.assertEqual(two, {"file": data, "complete": False})
        self.assertEqual((three["kind"], three["complete"]), ("weights", True))
        self.assertNotIn("{", self.ckpt("verify", "json=false", self.last))

    def test_every_damage_is_found(self):
        """One bit anywhere: in the length, the header, the padding, the tensors."""
        end, size = header_end(self.last), os.path.getsize(self.last)
        places = [0, 3, 8, 9, *range(20, end, max(1, end // 12)), end, (end + size) // 2, size - 1]
        for at in places:
            path = self.flipped("flip.safetensors", at)
            self.assertEqual(self.ckpt("verify", path, code=FAILURE, error=[path]), "", at)
        for size in (0, 7, 8, end // 2, end, size - 1):
            path = self.copy("cut.safetensors")
            os.truncate(path, size)
            self.assertEqual(self.ckpt("verify", path, code=FAILURE, error=[path]), "", size)

    def test_the_damaged_tensors_are_named(self):
        with open(self.last, "rb") as f:
            head = json.loads(f.read(header_end(self.last))[8:])
        head.pop("__metadata__")
        name, entry = max(head.items(), key=lambda item: item[1]["data_offsets"][0])
        path = self.flipped("t.safetensors", header_end(self.last) + entry["data_offsets"][0])
        self.ckpt("verify", path, code=FAILURE, error=[f"{path}: the checksum of {name} does not"])
        # the others are shown all the same
        shown = self.ckpt("show", path, code=FAILURE, error=[f"the checksum of {name} does not"])
        self.assertIn(f"  {next(iter(head))}  ", shown)

    def test_the_others_are_verified_all_the_same(self):
        path = self.flipped("t.safetensors", os.path.getsize(self.last) - 1)
        none = f"{self.dir}/none.safetensors"
        lines = self.ckpt("verify", path, none, self.last, code=FAILURE, error=[path, none])
        self.assertEqual([line.split(": ")[0] for line in lines.splitlines()], [self.last])

    def test_files_of_others(self):
        path = f"{self.dir}/others.safetensors"
        write_safetensors(path, {"a": ("F32", [2], b"\0" * 8)})
        self.assertIn("it has no checksums", self.ckpt("verify", path))
        self.ckpt("verify", __file__, code=FAILURE, error=[__file__])

    def test_missing(self):
        os.makedirs(f"{self.dir}/empty/checkpoints")
        self.ckpt("verify", f"{self.dir}/none", code=FAILURE, error=[f"{self.dir}/none: cannot"])
        expects = ["empty is a folder without checkpoints/*.safetensors"]
        self.ckpt("verify", f"{self.dir}/empty", code=FAILURE, error=expects)

    def test_wrong_arguments(self):
        for arguments, expects in (
            ([], "usage: levin ckpt verify"),
            (["frobnicate", self.last], "there is no levin ckpt frobnicate"),
            (["verify"], "levin ckpt verify: 0 paths given, it takes at least 1"),
            (["show", self.last, self.last], "levin ckpt show: 2 paths given, it takes 1"),
            (["verify", "jsn=true", self.last], "levin ckpt verify does not take jsn=true"),
            (["verify", "--all", self.last], "levin ckpt verify does not take --all"),
            (["verify", "json=maybe", self.last], "json `maybe`: expected true or false"),
            (["hash", "json=true", self.last], "levin ckpt hash does not take json=true"),
            (["verify", ""], "does not take an empty path"),
        ):
            self.assertEqual(self.ckpt(*arguments, code=USAGE, error=[expects]), "")
        path = self.copy("a=b.safetensors")
        self.assertIn("complete", self.ckpt("verify", path))


class Show(CkptCase):
    def test_json(self):
        for path in (self.last, self.exported):
            shown = json.loads(self.ckpt("show", path, "--json"))
            tensors, meta = read_safetensors(path)
            self.assertEqual(shown["file"], path)
            self.assertEqual(
                shown["metadata"],
                {k: v for k, v in meta.items() if not k.endswith(("checksums", "checksum"))},
            )
            self.assertEqual([t["name"] for t in shown["tensors"]], sorted(tensors))
            self.assertEqual(shown["bytes"], sum(len(data) for _, _, data in tensors.values()))
            for t in shown["tensors"]:
                dtype, shape, data = tensors[t["name"]]
                self.assertEqual((t["dtype"].upper(), t["shape"]), (dtype, shape))
                values = floats(data)
                self.assertEqual((t["min"], t["max"]), (min(values), max(values)))
                norm = math.sqrt(math.fsum(v * v for v in values))
                self.assertAlmostEqual(t["norm"], norm, delta=1e-9 * norm)

    def test_lines(self):
        tensors, meta = read_safetensors(self.last)
        lines = self.ckpt("show", self.run_dir).splitlines()
        self.assertIn(f"{self.last}: checkpoint, {len(tensors)} tensors, ", lines[0])
        self.assertIn("  levin.step: 2", lines)
        config = json.loads(meta["levin.config"])
        self.assertIn(f"  levin.config.batch_size: {config['batch_size']}", lines)
        self.assertEqual(config["image_size"], 12)
        self.assertIn("  levin.config.image_size: 12", lines)
        for name, (dtype, _, _) in tensors.items():
            self.assertEqual(sum(s.startswith(f"  {name}  {dtype.lower()} ") for s in lines), 1)

    def test_types_and_special_values(self):
        path = f"{self.dir}/types.safetensors"
        nan, inf = struct.pack("<f", math.nan), struct.pack("<f", math.inf)
        write_safetensors(
            path,
            {
                "a": ("F64", [2], struct.pack("<2d", 3.0, -4.0)),
                "b": ("F16", [], struct.pack("<e", 0.5)),
                "c": ("BF16", [1], b"\x80\xbf"),
                "d": ("I64", [1], struct.pack("<q", -7)),
                "e": ("I32", [1], struct.pack("<i", -8)),
                "f": ("U8", [3], b"\x01\x02\x02"),
                "g": ("BOOL", [1], b"\x01"),
                "h": ("F32", [2], nan + inf),
                "i": ("F32", [1], inf),
                "j": ("F32", [0, 3], b""),
            },
        )
        shown = {t["name"]: t for t in json.loads(self.ckpt("show", path, "json=1"))["tensors"]}
        found = {k: (t["norm"], t["min"], t["max"]) for k, t in shown.items()}
        none = (None, None, None)
        self.assertEqual(
            found,
            {
                "a": (5, -4, 3),
                "b": (0.5, 0.5, 0.5),
                "c": (1, -1, -1),
                "d": (7, -7, -7),
                "e": (8, -8, -8),
                "f": (3, 1, 2),
                "g": (1, 1, 1),
                "h": none,
                "i": none,
                "j": (0, None, None),
            },
        )
        self.assertIn("norm nan, nan to nan", self.ckpt("show", path))

    def test_missing(self):
        expects = ["is a folder without checkpoints/last.safetensors"]
        self.ckpt("show", self.dir, code=FAILURE, error=expects)
        self.ckpt("show", f"{self.dir}/none", code=FAILURE, error=[f"{self.dir}/none: cannot"])


class Diff(CkptCase):
    def diff(self, *arguments):
        lines = self.ckpt("diff", *arguments, "json=true", code=FAILURE).splitlines()
        return {one["name"]: one for one in map(json.loads, lines)}

    def two(self, a, b):
        """The paths of two files with these tensors."""
        paths = [f"{self.dir}/{side}.safetensors" for side in "ab"]
        for path, tensors in zip(paths, (a, b)):
            write_safetensors(path, tensors)
        return paths

    def test_equal_runs(self):
        other = f"{self.dir}/other"
        self.levin(["train", "classify", *self.shapes(other), "model=cnn", "lanes=3"])
        self.assertEqual(self.ckpt("diff", self.run_dir, other), "")
        self.assertEqual(self.ckpt("diff", self.last, self.copy("same.safetensors")), "")

    def test_another_run(self):
        """Every number against those that Python finds in the files."""
        other = f"{self.dir}/longer"
        self.levin(["train", "classify", *self.shapes(other), "model=cnn", "max_steps=3"])
        found = self.diff(self.run_dir, other)
        a, _ = read_safetensors(self.last)
        b, meta = read_safetensors(f"{other}/checkpoints/last.safetensors")
        step = found.pop("levin.step")
        self.assertEqual((step["differs"], step["a"], step["b"]), ("metadata", "2", "3"))
        seen = found.pop("levin.samples_seen")
        self.assertEqual(seen["b"], meta["levin.samples_seen"])
        found.pop("levin.schedule", None)
        self.assertEqual(set(found), {name for name in a if a[name] != b[name]})
        for name, one in found.items():
            x, y = floats(a[name][2]), floats(b[name][2])
            pairs = [(u, v) for u, v in zip(x, y) if u != v]
            self.assertEqual((one["elements"], one["different"]), (len(x), len(pairs)))
            self.assertEqual((one["a"], one["b"]), pairs[0])
            self.assertEqual(one["max_abs"], max(abs(u - v) for u, v in pairs))
            most = max(abs(u - v) / max(abs(u), abs(v)) for u, v in pairs)
            self.assertAlmostEqual(one["max_rel"], most, delta=1e-12)
        lines = self.ckpt("diff", self.run_dir, other, code=FAILURE).splitlines()
        self.assertTrue(lines[0].startswith(f"{min(found)}: "), lines[0])
        self.assertEqual(lines[-1], f"{len(found)} of {len(a)} tensors differ")

    def test_one_element(self):
        data = struct.pack("<6f", *range(6))
        changed = struct.pack("<6f", 0, 1, 2, 3, 4.5, 5)
        paths = self.two({"w": ("F32", [2, 3], data)}, {"w": ("F32", [2, 3], changed)})
        self.assertEqual(
            self.ckpt("diff", *paths, code=FAILURE),
            "w: 1 of 6 elements differs, by at most 0.5 (relative 0.111); the first at (1, 1): 4"
            " and 4.5\n1 of 1 tensor differs\n",
        )

    def test_presence_shape_and_type(self):
        two, three = b"\0" * 8, b"\0" * 12
        paths = self.two(
            {"a": ("F32", [2], two), "b": ("F32", [3], three), "c": ("F32", [2], two)},
            {"b": ("F32", [1, 3], three), "c": ("I32", [2], two), "d": ("F32", [2], two)},
        )
        a, b = paths
        self.assertEqual(
            self.ckpt("diff", *paths, code=FAILURE).splitlines(),
            [
                f"a: only in {a}",
                "b: (3) and (1, 3)",
                "c: f32 and i32",
                f"d: only in {b}",
                "4 of 4 tensors differ",
            ],
        )
        self.assertEqual(self.diff(*paths)["d"]["only_in"], b)

    def test_special_values(self):
        """NaN of the same bits is equal; other bits of one value differ by 0."""
        nan, inf, zero, minus = (struct.pack("<f", v) for v in (math.nan, math.inf, 0.0, -0.0))
        paths = self.two(
            {"a": ("F32", [1], nan), "b": ("F32", [1], zero), "c": ("F32", [1], zero)},
            {"a": ("F32", [1], nan), "b": ("F32", [1], minus), "c": ("F32", [1], inf)},
        )
        found = self.diff(*paths)
        self.assertEqual(set(found), {"b", "c"})
        self.assertEqual((found["b"]["max_abs"], found["b"]["different"]), (0, 1))
        self.assertEqual((found["c"]["max_abs"], found["c"]["a"], found["c"]["b"]), (None, 0, None))

    def test_damaged_and_missing(self):
        path = self.flipped("t.safetensors", os.path.getsize(self.last) - 1)
        lines = self.ckpt("diff", self.last, path, code=FAILURE, error=[f"error: {path}: the"])
        self.assertIn("1 of ", lines)
        # two equal files, both damaged, are not equal checkpoints
        self.ckpt("diff", path, path, code=FAILURE, error=[f"error: {path}: the checksum of "])
        none = f"{self.dir}/none"
        self.ckpt("diff", self.last, none, code=FAILURE, error=[f"error: {none}: cannot open"])
        self.ckpt("diff", none, self.last, code=FAILURE, error=[f"error: {none}: cannot open"])
        expects = ["levin ckpt diff: 1 path given, it takes 2"]
        self.ckpt("diff", self.last, code=USAGE, error=expects)


class OtherTypes(CkptCase):
    """Tensors of types and forms that levin does not have, in files of other programs: whatever
    speaks about the whole file speaks about them."""

    W = {"w": ("F32", [1], b"\0" * 4)}
    Q = {
        "a": ("I8", [3], b"\1\2\3"),
        "q": ("F8_E4M3", [1, 2], b"\4\5"),
        "z": ("U8", [1] * 7, b"\6"),
    }

    def file(self, name, tensors):
        path = f"{self.dir}/other-{name}.safetensors"
        write_safetensors(path, tensors)
        return path

    def test_diff(self):
        """Bytes, type, shape and presence, in the order of the names."""
        one = self.file("1", self.W | self.Q)
        self.assertEqual(self.ckpt("diff", one, self.file("2", self.W | self.Q)), "")
        for name, tensor, line, differs in (
            ("a", ("I8", [3], b"\1\0\0"), "2 of 3 bytes differ; levin does not read", "bytes"),
            ("z", ("U8", [1] * 7, b"\7"), "1 of 1 byte differs; levin does not read", "bytes"),
            ("a", ("F8_E5M2", [3], b"\1\2\3"), "I8 and F8_E5M2", "dtype"),
            ("a", ("U8", [3], b"\1\2\3"), "I8 and u8", "dtype"),
            ("q", ("F8_E4M3", [2, 1], b"\4\5"), "(1, 2) and (2, 1)", "shape"),
            ("z", ("U8", [1] * 8, b"\6"), "and (1, 1, 1, 1, 1, 1, 1, 1)", "shape"),
            ("z", ("U8", [1], b"\6"), "(1, 1, 1, 1, 1, 1, 1) and (1)", "shape"),
            ("w", ("G32", [1], b"\0" * 4), "f32 and G32", "dtype"),
        ):
            two = self.file("2", self.W | self.Q | {name: tensor})
            lines = self.ckpt("diff", one, two, code=FAILURE).splitlines()
            self.assertTrue(lines[0].startswith(f"{name}: "), lines)
            self.assertIn(line, lines[0])
            self.assertEqual(lines[1:], ["1 of 4 tensors differs"])
            found = json.loads(self.ckpt("diff", one, two, "json=true", code=FAILURE))
            self.assertEqual((found["name"], found["differs"]), (name, differs))
        two = self.file("2", self.W)
        lines = [f"{name}: only in {one}" for name in "aqz"] + ["3 of 4 tensors differ"]
        self.assertEqual(self.ckpt("diff", one, two, code=FAILURE).splitlines(), lines)

    def test_verify_and_show(self):
        path = self.file("1", self.W | self.Q)
        line = self.ckpt("verify", path)
        self.assertIn("complete: weights, 4 tensors, 0.00977 KiB", line)
        self.assertIn(
            "; levin does not read a (1 axis, type I8), q (2 axes, type F8_E4M3), z (7 axes, type"
            " U8)\n",
            line,
        )
        found = json.loads(self.ckpt("verify", path, "json=true"))
        self.assertEqual((found["tensors"], found["bytes"], found["unread"]), (4, 10, 3))
        shown = self.ckpt("show", path)
        self.assertIn("weights, 4 tensors, 0.00977 KiB", shown)
        self.assertIn("  q  2 axes, type F8_E4M3, which levin does not read\n", shown)
        found = json.loads(self.ckpt("show", path, "json=true"))
        self.assertEqual([t["name"] for t in found["tensors"]], ["a", "q", "w", "z"])
        q = {"name": "q", "dtype": "F8_E4M3", "shape": [1, 2]}
        self.assertEqual(found["tensors"][1], q | {"norm": None, "min": None, "max": None})
        self.assertEqual(found["tensors"][3]["shape"], [1] * 7)

    def test_hash(self):
        """Equal files have equal hashes, and any difference shows in both."""
        one = self.ckpt("hash", self.file("1", self.W | self.Q))
        self.assertEqual(one, self.ckpt("hash", self.file("2", self.W | self.Q)))
        for name, tensor in (
            ("a", ("I8", [3], b"\1\2\4")),
            ("a", ("F8_E5M2", [3], b"\1\2\3")),
            ("q", ("F8_E4M3", [2, 1], b"\4\5")),
            ("b", ("I8", [1], b"\0")),
        ):
            two = self.ckpt("hash", self.file("2", self.W | self.Q | {name: tensor}))
            for a, b in zip(one.splitlines(), two.splitlines()):
                self.assertNotEqual(a, b)

    def test_average(self):
        """Neither left out nor guessed, in whichever file it is."""
        plain, out = self.file("1", self.W), f"{self.dir}/other-mean.safetensors"
        for name, tensor in self.Q.items():
            path = self.file("2", self.W | {name: tensor})
            for paths in ((plain, path), (path, plain), (path, path)):
                expects = f"{path}: tensor {name} ("
                self.ckpt("average", *paths, f"out={out}", code=FAILURE, error=[expects])
                self.assertFalse(os.path.exists(out))

    def test_a_type_of_levins_own_file_is_damaged(self):
        """The checksum of the header covers it, whatever the rest of the header is."""
        with open(self.exported, "rb") as f:
            data = f.read()
        path = f"{self.dir}/other-damaged.safetensors"
        head = json.loads(data[8 : header_end(self.exported)])
        head["more"] = {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}
        for text in (json.dumps(head).encode(), data[8:].replace(b'"F32"', b'"G32"', 1)):
            rest = data[header_end(self.exported) :] if text[-1:] == b"}" else b""
            length = len(text) if rest else header_end(self.exported) - 8
            with open(path, "wb") as f:
                f.write(struct.pack("<Q", length) + text + rest)
            for command in (["verify", path], ["diff", path, path], ["show", path], ["hash", path]):
                self.ckpt(*command, code=FAILURE, error=["checksum of "])


class Convert(CkptCase):
    def test_there_and_back(self):
        """Names, types, shapes and values stay; weights= takes the result."""
        want, _ = read_safetensors(self.exported)
        there, back = f"{self.dir}/there.pt", f"{self.dir}/back.safetensors"
        line = self.ckpt("convert", self.exported, there)
        self.assertIn(f"{there}: {len(want)} tensors, ", line)
        for command in (["verify", there], ["show", there], ["diff", there, self.last]):
            advice = ["as torch.save of PyTorch writes", f"levin ckpt convert {there} W"]
            self.ckpt(*command, code=FAILURE, error=advice)
        self.ckpt("convert", there, back)
        found, meta = read_safetensors(back)
        self.assertEqual(found, want)
        self.assertEqual(meta["format"], "pt")
        self.assertEqual(
            self.logits("model=cnn", f"weights={there}"),
            self.logits("model=cnn", f"weights={self.exported}"),
        )
        with zipfile.ZipFile(there) as archive:
            self.assertIsNone(archive.testzip())

    def test_the_state_dict_of_a_checkpoint_of_lightning(self):
        want, _ = read_safetensors(self.exported)
        write_torch(f"{self.dir}/l.ckpt", want, "model.")
        self.ckpt("convert", f"{self.dir}/l.ckpt", f"{self.dir}/l.safetensors")
        found, _ = read_safetensors(f"{self.dir}/l.safetensors")
        self.assertEqual(found, {f"model.{name}": t for name, t in want.items()})

    def test_refusals(self):
        out = f"{self.dir}/none.pt"
        best = f"{self.run_dir}/exported_models/exported_best.safetensors"
        for arguments, code, expects in (
            ([self.last, out], 64, "is a checkpoint, which has layouts of its own"),
            ([self.exported, f"{self.dir}/none.bin"], 64, "the ending is the format"),
            ([self.exported, f"{self.dir}/none.safetensors"], 1, "does not begin as a file of"),
            ([f"{self.dir}/missing.pt", out], 1, "missing.pt: cannot open"),
            ([self.exported], 64, "1 path given, it takes 2"),
            ([self.run_dir, out], 64, f"its exported model: levin ckpt convert {best} {out}"),
            ([self.dir, out], 64, "one file is converted, of weights or of a run's"),
        ):
            self.levin(["ckpt", "convert", *arguments], code, [expects])
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("none")], [])


class Average(CkptCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = [cls.run_dir]
        for seed in (1, 2):
            cls.runs.append(f"{cls.dir}/seed{seed}")
            cls.levin(["train", "classify", *cls.shapes(cls.runs[-1]), "model=cnn", f"seed={seed}"])
        cls.exports = [f"{run}/exported_models/exported_last.safetensors" for run in cls.runs]

    def average(self, *paths, name="mean.safetensors"):
        out = f"{self.dir}/{name}"
        line = self.ckpt("average", *paths, f"out={out}")
        self.assertTrue(line.startswith(f"{out}: the mean of {len(paths)} files, "), line)
        return out

    def refused(self, *paths, expects, code=FAILURE):
        out = f"{self.dir}/refused.safetensors"
        self.ckpt("average", *paths, f"out={out}", code=code, error=[expects])
        self.assertFalse(os.path.exists(out))

    def means(self, files):
        """name -> bytes, in f64 from the least value to the greatest."""
        result = {}
        for name, (_, _, data) in files[0].items():
            columns = zip(*(floats(file[name][2]) for file in files))
            values = [sum(sorted(column)[1:], min(column)) / len(files) for column in columns]
            result[name] = struct.pack(f"<{len(values)}f", *values)
        return result

    def test_checkpoints(self):
        out = self.average(*self.runs)
        tensors, meta = read_safetensors(out)
        files = [read_safetensors(f"{run}/checkpoints/last.safetensors")[0] for run in self.runs]
        files = [{k: t for k, t in file.items() if k.startswith("model/")} for file in files]
        self.assertEqual({k: data for k, (_, _, data) in tensors.items()}, self.means(files))
        self.assertEqual(meta["averaged"], "3")
        self.assertIn("complete: step 2", self.ckpt("verify", out))

    def test_exported_models(self):
        out = self.average(*self.exports)
        tensors, _ = read_safetensors(out)
        files = [read_safetensors(path)[0] for path in self.exports]
        self.assertEqual({k: data for k, (_, _, data) in tensors.items()}, self.means(files))

    def test_the_order_of_the_files_does_not_matter(self):
        a, b, c = self.runs
        hashes = [
            self.ckpt("hash", self.average(*order, name="order.safetensors"))
            for order in ((a, b, c), (c, b, a), (b, a, c), (c, a, b))
        ]
        self.assertEqual(len(set(hashes)), 1)
        self.assertNotEqual(hashes[0], self.ckpt("hash", self.average(a, b)))

    def test_the_result_is_used(self):
        """By weights= and model=; means of checkpoints and of exported models are one model."""
        of_runs = self.average(*self.runs, name="runs.safetensors")
        of_exports = self.average(*self.exports, name="exports.safetensors")
        found = [
            self.logits(*use)
            for use in (
                [f"model={of_runs}"],
                [f"model={of_exports}"],
                ["model=cnn", f"weights={of_runs}"],
                ["model=cnn", f"weights={of_exports}"],
            )
        ]
        self.assertEqual(found[1:], found[:1] * 3)
        self.assertNotEqual(found[0], self.logits(f"model={self.exported}"))
        out = f"{self.dir}/next"
        arguments = [*self.shapes(out), "model=cnn", f"weights={of_runs}"]
        self.levin(["train", "classify", *arguments], expects=["tensors are from it"])

    def test_running_averages(self):
        """Of runs with ema.decay both weights and their averages get a mean; model= shows those."""
        runs = []
        for seed in (3, 4):
            runs.append(f"{self.dir}/ema{seed}")
            arguments = [*self.shapes(runs[-1]), "model=cnn", f"seed={seed}", "ema.decay=0.9"]
            self.levin(["train", "classify", *arguments])
        tensors, _ = read_safetensors(self.average(*runs))
        names = {name.split("/")[0] + "/" + name.split("/")[1] for name in tensors}
        self.assertIn("trainer/ema", names)
        self.assertFalse([name for name in tensors if name.startswith("optim/")])
        files = [read_safetensors(f"{run}/checkpoints/last.safetensors")[0] for run in runs]
        files = [{k: file[k] for k in tensors} for file in files]
        self.assertEqual({k: data for k, (_, _, data) in tensors.items()}, self.means(files))
        exports = [f"{run}/exported_models/exported_last.safetensors" for run in runs]
        shown = self.logits(f"model={self.dir}/mean.safetensors")
        self.assertEqual(shown, self.logits(f"model={self.average(*exports)}"))

    def test_types(self):
        paths = []
        for i, (x, n, u) in enumerate(((1.0, 3, 0), (2.5, 4, 1), (4.0, 6, 1))):
            paths.append(f"{self.dir}/types{i}.safetensors")
            write_safetensors(
                paths[-1],
                {
                    "a": ("F64", [1], struct.pack("<d", x)),
                    "b": ("F16", [1], struct.pack("<e", x)),
                    "c": ("BF16", [1], struct.pack("<f", x)[2:]),
                    "d": ("I64", [2], struct.pack("<2q", n, -n)),
                    "e": ("I32", [1], struct.pack("<i", n)),
                    "f": ("BOOL", [1], bytes([u])),
                    "g": ("F32", [2], struct.pack("<2f", x, math.nan if i == 1 else x)),
                    "h": ("F32", [0], b""),
                },
            )
        found = {k: data for k, (_, _, data) in read_safetensors(self.average(*paths))[0].items()}
        self.assertTrue(math.isnan(struct.unpack("<2f", found.pop("g"))[1]))
        self.assertEqual(
            found,
            {
                "a": struct.pack("<d", 2.5),
                "b": struct.pack("<e", 2.5),
                "c": struct.pack("<f", 2.5)[2:],
                "d": struct.pack("<2q", 4, -4),
                "e": struct.pack("<i", 4),
                "f": b"\1",
                "h": b"",
            },
        )

    def test_what_has_no_mean(self):
        other = f"{self.dir}/five"
        self.levin(["train", "classify", *self.shapes(other, classes=5), "model=cnn"])
        sentence = "only weights of one network have a mean"
        self.refused(*self.runs, other, expects=sentence)
        mlp = f"{self.dir}/mlp"
        self.levin(["train", "classify", *self.shapes(mlp), "model=mlp"])
        self.refused(self.run_dir, mlp, expects=sentence)
        self.refused(self.run_dir, self.exports[1], expects="give files of one kind")
        more = f"{self.dir}/more.safetensors"
        tensors, _ = read_safetensors(self.exported)
        write_safetensors(more, tensors | {"extra": ("F32", [1], b"\0" * 4)})
        for paths in ((self.exported, more), (more, self.exported)):
            self.refused(*paths, expects=f"{self.exported} has no tensor extra, which {more} has")

    def test_one_shape_of_many_tensors(self):
        """Its 400,000 items are not looked at again for each of 100,000 tensors."""
        text = lambda t: b"X" + struct.pack("<I", len(t)) + t.encode()
        number = lambda i: b"J" + struct.pack("<i", i)
        storage = text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
        state = [b"}("]
        for i in range(100000):
            shape = b"h\x00" if i > 0 else b"(" + number(1) * 400000 + b"tq\x00"
            state.append(text(f"t{i}") + b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage)
            state.append(number(1) + b"tQ" + number(0) + shape + b"h\x00\x89}tR")
        with zipfile.ZipFile(f"{self.dir}/many.pt", "w") as f:
            f.writestr("archive/data.pkl", b"\x80\x02" + b"".join(state) + b"u.")
            f.writestr("archive/data/0", bytes(4))
        convert = ["ckpt", "convert", f"{self.dir}/many.pt", f"{self.dir}/many.safetensors"]
        self.assertIn("many.pt: its pickle has more than", "".join(self.levin(convert, FAILURE)))

    def test_damaged_missing_and_wrong_arguments(self):
        path = self.flipped("t.safetensors", os.path.getsize(self.last) - 1)
        self.refused(self.last, path, expects=f"{path}: tensor ")
        self.refused(self.last, f"{self.dir}/none", expects=f"{self.dir}/none: cannot open")
        self.refused(self.last, code=USAGE, expects="1 path given, it takes at least 2")
        two = self.runs[:2]
        for arguments in (two, [*two, "out="], [*two, "--out"]):
            self.ckpt("average", *arguments, code=USAGE, error=["out=FILE is missing"])
        place = f"{self.dir}/no/such/mean.safetensors"
        self.ckpt("average", *two, f"out={place}", code=FAILURE, error=[place])


if __name__ == "__main__":
    main()
