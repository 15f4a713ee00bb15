"""Weights in and out: predict of arrays, weights=, reset_head=, export; and all of it against
PyTorch where a Python with torch is.

usage: test_weights.py LEVIN [test names]
"""

import array
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
WAIT_S = 120


def read_safetensors(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    with open(path, "rb") as f:
        whole = f.read()
    n = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8 : 8 + n])
    meta = head.pop("__metadata__", {})
    return {
        k: (
            v["dtype"],
            v["shape"],
            whole[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]],
        )
        for k, v in head.items()
    }, meta


def write_safetensors(path, tensors):
    head, at, data = {}, 0, b""
    for name, (dtype, shape, content) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
        data += content
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


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


class Arrays(Case):
    def test_logits(self):
        shape, values = self.logits(f"model={self.run_dir}")
        self.assertEqual(shape, [5, 4])
        self.assertGreater(max(values) - min(values), 1e-3)
        for arguments in (["eval_batch_size=2"], ["eval_batch_size=5"]):
            self.close(self.logits(f"model={self.run_dir}", *arguments), (shape, values), 1e-5)
        self.assertEqual(
            self.logits(f"model={self.run_dir}/checkpoints/last.safetensors")[1], values
        )
        self.assertEqual(self.logits("model=cnn", f"weights={self.exported}")[1], values)
        self.assertEqual(self.logits("model=cnn", f"weights={self.run_dir}")[1], values)

    def test_integers_are_used_as_they_are(self):
        u8 = [i * 7 % 256 for i in range(2 * 12 * 12 * 3)]
        write_npy(f"{self.dir}/u8.npy", [2, 12, 12, 3], u8, "|u1")
        write_npy(f"{self.dir}/f32.npy", [2, 12, 12, 3], u8)
        model = f"model={self.run_dir}"
        reported = [
            "warning: ",
            "u8.npy holds uint8: the numbers are used as they are",
            "normalised as in training",
        ]
        self.assertEqual(
            self.logits(model, x=f"{self.dir}/u8.npy", expects=reported),
            self.logits(model, x=f"{self.dir}/f32.npy"),
        )

    def test_other_size_than_in_training(self):
        write_npy(f"{self.dir}/wide.npy", [1, 12, 16, 3], [0.5] * (12 * 16 * 3))
        self.logits(
            f"model={self.run_dir}",
            x=f"{self.dir}/wide.npy",
            expects=["warning: ", "12 x 16 (height x width)", "training were 12 x 12"],
        )

    def test_no_number(self):
        values = [0.5] * (2 * 12 * 12 * 3)
        values[12 * 12 * 3 + 5] = math.nan
        write_npy(f"{self.dir}/nan.npy", [2, 12, 12, 3], values)
        self.logits(
            f"model={self.run_dir}",
            x=f"{self.dir}/nan.npy",
            code=1,
            expects=["as a logit of image 1 of data=", "not finite"],
        )

    def test_refusals(self):
        model = f"model={self.run_dir}"
        write_npy(f"{self.dir}/flat.npy", [2, 432], [0.0] * 864)
        self.logits(
            model,
            x=f"{self.dir}/flat.npy",
            code=1,
            expects=["flat.npy is (2, 432)", "(N, height, width, 3)"],
        )
        self.levin(
            [
                "predict",
                "model=cnn",
                f"weights={self.exported}",
                f"data={self.x}",
                f"output={self.dir}/y.csv",
            ],
            64,
            ["y.csv", ".npy"],
        )
        self.logits(model, "sheet=a.png", code=64, expects=["sheet="])
        self.logits(
            "model=cn", f"weights={self.exported}", code=64, expects=["model=cn", "names a network"]
        )
        self.logits(
            "model=resnet18",
            f"weights={self.exported}",
            code=1,
            expects=["exported_last.safetensors has no fc.weight", "another network"],
        )
        self.logits(code=64, expects=["model= is missing"])
        self.logits(model, x=f"{self.dir}/none.npy", code=64, expects=["none.npy"])
        self.levin(
            ["predict", model, f"data={self.x}"],
            64,
            ["or give levin predict output=NAME.npy for plain logits"],
        )
        self.logits(
            f"model={self.exported}",
            "checkpoint=last",
            code=64,
            expects=["checkpoint=last chooses within a run directory"],
        )
        self.logits(
            "model=cnn",
            f"weights={self.exported}",
            "checkpoint=last",
            code=64,
            expects=["checkpoint=last chooses", "names a network"],
        )
        self.levin(
            ["eval", f"model={self.exported}", "checkpoint=best", "data=builtin:shapes"],
            64,
            ["checkpoint=best chooses within a run"],
        )
        self.levin(
            ["predict", "model=cnn", f"weights={self.exported}", f"data={self.dir}"],
            64,
            ["weights= has no names of classes"],
        )


class Weights(Case):
    def changed(self, name, change):
        tensors, _ = read_safetensors(self.exported)
        path = f"{self.dir}/{name}.safetensors"
        write_safetensors(path, change(tensors))
        return path

    def test_number_types_and_prefixes(self):
        want = self.logits(f"model={self.run_dir}")
        as_double = lambda d: struct.pack(f"<{len(d) // 4}d", *floats(d))
        counters = lambda t: {k: v for k, v in t.items() if v[0] == "I64"}
        convert = lambda t, kind, f: {
            **{k: (kind, s, f(d)) for k, (_, s, d) in t.items()},
            **counters(t),
        }
        for name, tolerance, change in (
            ("f64", 0, lambda t: convert(t, "F64", as_double)),
            ("f16", 2e-2, lambda t: convert(t, "F16", lambda d: half_of(d, "F16"))),
            ("bf16", 1e-1, lambda t: convert(t, "BF16", lambda d: half_of(d, "BF16"))),
            ("module", 0, lambda t: {f"module.{k}": v for k, v in t.items()}),
            ("model", 0, lambda t: {f"model.{k}": v for k, v in t.items()}),
            ("without", 0, lambda t: {k: v for k, v in t.items() if "num_batches" not in k}),
        ):
            self.close(
                self.logits("model=cnn", f"weights={self.changed(name, change)}"), want, tolerance
            )

    def test_what_does_not_fit_is_listed(self):
        def change(t):
            t = dict(t)
            del t["conv2.weight"]
            t["norm1.bias"] = ("F32", [3], bytes(12))
            t["extra"] = ("F32", [2, 2], bytes(16))
            return t

        path = self.changed("unfit", change)
        expects = [
            path,
            "1 missing: conv2.weight (64, 32, 3, 3)",
            "1 of another shape: norm1.bias is (3), this model needs (32)",
            "1 in the file that it has no place for: extra (2, 2)",
        ]
        self.levin(
            [
                "train",
                "classify",
                *self.shapes(f"{self.dir}/unfit"),
                "model=cnn",
                f"weights={path}",
            ],
            1,
            expects,
        )
        path = self.changed("more", lambda t: {**t, "extra": ("F32", [2, 2], bytes(16))})
        self.levin(
            ["train", "classify", *self.shapes(f"{self.dir}/more"), "model=cnn", f"weights={path}"],
            0,
            ["not used", "extra (2, 2)"],
        )
        path = self.changed(
            "whole", lambda t: {**t, "conv1.weight": ("I32", *t["conv1.weight"][1:])}
        )
        self.logits(
            "model=cnn",
            f"weights={path}",
            code=1,
            expects=["conv1.weight has elements of type i32"],
        )

    def test_what_was_loaded_is_confirmed(self):
        train = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/reported"),
            "model=cnn",
            "overwrite=true",
        ]
        own = f"weights={self.exported}"
        all_of_it = "17 of the model's 17 tensors are from it"
        self.levin([*train, own], 0, [f"{own}: {all_of_it}\n"])
        self.levin(
            [*train, own, "reset_head=true"],
            0,
            [
                f"{own}: 15 of the model's 17 tensors are from it; the last layer, head, "
                "is drawn again"
            ],
        )
        self.levin(
            [*train, f"weights={self.run_dir}"],
            0,
            [f"weights={self.run_dir}: {self.run_dir}/checkpoints/last.safetensors, {all_of_it}\n"],
        )
        path = self.changed("behind", lambda t: {f"model.{k}": v for k, v in t.items()})
        expects = [f"weights={path}: {all_of_it}, with names that begin with model."]
        self.levin([*train, f"weights={path}"], 0, expects)
        self.logits("model=cnn", f"weights={path}", expects=expects)
        path = self.changed(
            "more", lambda t: {**t, **{f"neck{i}.w": ("F32", [2], bytes(8)) for i in range(9)}}
        )
        printed = self.levin(
            [*train, f"weights={path}"], 0, [all_of_it, "neck0.w (2)", ", and 5 more"]
        )
        self.assertNotIn("neck5", printed)

    def test_other_networks_are_reported(self):
        """Tensors among those of the network are of another one; beside them of another head."""
        train = ["train", "classify", *self.shapes(f"{self.dir}/other"), "model=cnn"]
        for name, shape, what in (
            ("conv2.se.fc1.weight", [8, 64], "with squeeze and excitation, 1 tensor more"),
            ("norm1.more.weight", [2], "with 1 tensor more among those of this one"),
            ("reg_token", [1, 4, 8], "with register tokens, 1 tensor more"),
            ("head.2.weight", [4, 4], "with 1 tensor more"),
        ):
            extra = {name: ("F32", shape, bytes(4 * math.prod(shape)))}
            path = self.changed("foreign", lambda t: {**t, **extra})
            self.levin(
                [*train, f"weights={path}"],
                1,
                [path, "does not fit this model, cnn: it is of another network, " + what, name],
            )
            self.assertFalse(os.path.exists(f"{self.dir}/other"))
        for more in (
            {"conv2.total_ops": ("F32", [1], bytes(4))},
            {"projector.0.weight": ("F32", [2, 2], bytes(16))},
        ):
            self.levin(
                [
                    *train,
                    "overwrite=true",
                    f"weights={self.changed('beside', lambda t: {**t, **more})}",
                ],
                0,
                ["not used"],
            )
        self.levin(
            [*train, "overwrite=true", "reset_head=true", f"weights={path}"],
            0,
            ["the last layer, head, is drawn again"],
        )

    def test_a_folder_of_hugging_face(self):
        run, folder = f"{self.dir}/r18", f"{self.dir}/hf"
        arguments = [
            "data=builtin:shapes",
            "data.count=6",
            "data.classes=4",
            "image_size=32",
            "batch_size=6",
            "max_steps=1",
            "val_split=0",
            "model=resnet18",
        ]
        self.levin(["train", "classify", *arguments, f"out={run}"])
        os.mkdir(folder)
        shutil.copy(
            f"{run}/exported_models/exported_last.safetensors", f"{folder}/model.safetensors"
        )
        printed = self.levin(["plan", "train", "classify", *arguments, f"weights={folder}"])
        self.assertIn(f"weights={folder}: images as they were for it: ", printed)
        all_of_it = f"weights={folder}: {folder}/model.safetensors, 102 of the model's 102"
        for text, code, expects in (
            (None, 0, [all_of_it]),
            ("no JSON", 0, [all_of_it]),
            ('{"architecture": "resnet18"}', 0, [all_of_it]),
            (
                '{"architecture": "resnetblur18"}',
                1,
                ["another network than model=resnet18", "architecture=resnetblur18"],
            ),
        ):
            if text is not None:
                with open(f"{folder}/config.json", "w") as f:
                    f.write(text)
            self.logits("model=resnet18", f"weights={folder}", code=code, expects=expects)
        self.logits(
            "model=resnet18",
            f"weights={folder}/model.safetensors",
            code=1,
            expects=["architecture=resnetblur18"],
        )

    def test_reset_head(self):
        arguments = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/six", classes=6),
            "model=cnn",
            f"weights={self.exported}",
            "lr=0",
            "overwrite=true",
            "optim=sgd",
        ]
        self.levin(
            arguments, 1, ["head.weight is (4, 128), this model needs (6, 128)", "reset_head=true"]
        )
        self.levin([*arguments, "reset_head=true"], 0, ["the last layer, head, is drawn again"])
        old, new = (
            read_safetensors(self.exported)[0],
            read_safetensors(f"{self.dir}/six/exported_models/exported_last.safetensors")[0],
        )
        self.assertEqual(new["conv3.weight"], old["conv3.weight"])
        self.assertEqual(new["head.weight"][1], [6, 128])
        arguments = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/four"),
            "model=cnn",
            "lr=0",
            "overwrite=true",
            "optim=sgd",
        ]
        self.levin(
            [*arguments, "reset_head=true"], 64, ["reset_head=true is about the file of weights="]
        )
        self.levin(
            [*arguments, "reset_head=true", f"weights={self.exported}"]
        )  # also where the shapes would fit
        four = read_safetensors(f"{self.dir}/four/exported_models/exported_last.safetensors")[0]
        self.assertEqual(four["conv3.weight"], old["conv3.weight"])
        self.assertNotEqual(four["head.weight"], old["head.weight"])

    def test_pickles_are_refused(self):
        with open(f"{self.dir}/w.pth", "wb") as f:
            f.write(b"PK\3\4" + bytes(100))
        self.logits(
            "model=cnn",
            f"weights={self.dir}/w.pth",
            code=1,
            expects=["w.pth was written by torch.save", "safetensors.torch.save_file"],
        )


class Export(Case):
    def test_file(self):
        out = f"{self.dir}/e.safetensors"
        self.levin(["export", f"run={self.run_dir}", f"output={out}"], 0, ["cnn with 4 classes"])
        tensors, meta = read_safetensors(out)
        self.assertEqual(tensors["conv2.weight"][1], [64, 32, 3, 3])
        self.assertEqual(tensors["norm1.num_batches_tracked"], ("I64", [], bytes(8)))
        self.assertEqual(meta["format"], "pt")
        self.assertEqual(
            tensors,
            read_safetensors(f"{self.run_dir}/exported_models/exported_last.safetensors")[0],
        )
        self.assertEqual(self.logits(f"model={out}"), self.logits(f"model={self.run_dir}"))
        for arguments in (
            [f"checkpoint={self.run_dir}/checkpoints/last.safetensors"],
            [f"model={self.run_dir}", "checkpoint=last", "card=false"],
        ):
            self.levin(["export", *arguments, f"output={out}"])
            self.assertEqual(read_safetensors(out)[0], tensors)
        self.levin(
            ["predict", f"model={out}", f"data={self.x}", f"output={self.dir}/y.npy"],
            1,
            ["is not a classifier of levin"],
        )

    def test_refusals(self):
        self.levin(["export"], 64, ["model= is missing"])
        self.levin(
            ["export", f"model={self.run_dir}", "checkpoint=x.safetensors"], 64, ["which one?"]
        )
        self.levin(
            ["export", f"model={self.exported}", "checkpoint=last"],
            64,
            ["checkpoint=last chooses within a run directory"],
        )
        self.levin(["export", f"model={self.dir}/none"], 1, ["none does not exist"])


TORCH = """
import json, struct, sys
import numpy as np, torch, torchvision
step, folder, network = sys.argv[1:]
size = 64
if network.startswith("timm:"):
    import timm
    model = timm.create_model(network[5:], num_classes=7)
    size = 224 if "_224" in network else 64
else:
    model = getattr(torchvision.models, network)(num_classes=7)
def load(path):
    whole = open(path, "rb").read()
    n = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8:8 + n])
    head.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8"}
    found = {}
    for k, v in head.items():
        begin, end = (8 + n + offset for offset in v["data_offsets"])
        values = np.frombuffer(whole[begin:end], kinds[v["dtype"]])
        found[k] = torch.from_numpy(values.reshape(v["shape"]).copy())
    return found
torch.manual_seed(3)
if step == "make":
    model.train()
    for i in range(3):
        model(torch.randn(8, 3, size, size))  # running statistics of their own
    head, at, data = {}, 0, b""
    for k, v in model.state_dict().items():
        b = v.numpy().tobytes()
        dtype = "I64" if v.dtype == torch.int64 else "F32"
        head[k] = {"dtype": dtype, "shape": list(v.shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
        data += b
    text = json.dumps(head).encode()
    open(folder + "/w.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
    np.save(folder + "/x.npy", torch.randn(4, size, size, 3).numpy())
    weights = folder + "/w.safetensors"
else:
    weights = folder + "/back.safetensors"
model.load_state_dict(load(weights), strict=True)
model.eval()
with torch.no_grad():
    x = torch.from_numpy(np.load(folder + "/x.npy")).permute(0, 3, 1, 2)
    np.save(folder + "/want.npy", model(x).numpy())
"""


class Torch(Case):
    """Needs a Python with torch and torchvision."""

    @classmethod
    def setUpClass(cls):
        for python in (sys.executable, "/usr/bin/python3"):
            if (
                subprocess.run(
                    [python, "-c", "import torch, torchvision"], capture_output=True
                ).returncode
                == 0
            ):
                cls.python = python
                super().setUpClass()
                return
        raise unittest.SkipTest("no Python with torch and torchvision here")

    def torch(self, step, network):
        done = subprocess.run(
            [self.python, "-c", TORCH, step, self.dir, network],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=dict(os.environ, OMP_NUM_THREADS="2"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_npy(f"{self.dir}/want.npy")

    def test_resnet18_there_and_back(self):
        want = self.torch("make", "resnet18")
        self.close(
            self.logits(
                "model=resnet18", f"weights={self.dir}/w.safetensors", x=f"{self.dir}/x.npy"
            ),
            want,
            1e-5,
        )
        self.levin(
            [
                "train",
                "classify",
                *self.shapes(
                    f"{self.dir}/r18",
                    "model=resnet18",
                    f"weights={self.dir}/w.safetensors",
                    classes=7,
                ),
            ]
        )
        self.levin(["export", f"model={self.dir}/r18", f"output={self.dir}/back.safetensors"])
        want = self.torch("back", "resnet18")
        self.close(self.logits(f"model={self.dir}/r18", x=f"{self.dir}/x.npy"), want, 1e-5)

    def test_timm(self):
        """The same network by another library; one that is called alike and is another."""
        if not os.environ.get("LEVIN_TEST_SLOW"):
            self.skipTest("it takes minutes, set LEVIN_TEST_SLOW=1 to run it")
        if subprocess.run([self.python, "-c", "import timm"], capture_output=True).returncode != 0:
            self.skipTest("no timm here")
        w = f"{self.dir}/w.safetensors"
        for ours, theirs in (("resnet34", "resnet34"), ("vit_s_16", "deit_small_patch16_224")):
            want = self.torch("make", f"timm:{theirs}")
            self.close(
                self.logits(f"model={ours}", f"weights={w}", x=f"{self.dir}/x.npy"), want, 1e-5
            )
        for ours, theirs, what in (
            ("resnet50", "resnet50d", "a stem of three convolutions"),
            ("resnet18", "seresnet18", "squeeze and excitation"),
            ("resnet18", "resnet34", "layer1.2.bn1.bias"),
            ("vit_s_16", "vit_small_patch16_36x1_224", "layer scale"),
        ):
            self.torch("make", f"timm:{theirs}")
            self.logits(
                f"model={ours}",
                f"weights={w}",
                x=f"{self.dir}/x.npy",
                code=1,
                expects=["w.safetensors does not fit this model", what],
            )


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [test names]")
    unittest.main(verbosity=1)
