"""The example backend, built outside of the tree from public headers alone: it trains with
`accelerator=example`, and what it lacks fails by name.

Its memory cannot be read by the host (the pages are mapped without access), so each run here also
shows that nothing above the table of a backend touches it.

usage: test_backend_example.py SOURCE_DIR LEVIN CC
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from today import OfToday

SOURCE, LEVIN, CC = Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]), sys.argv[3]
OK, FAILURE, USAGE, RESOURCE = 0, 1, 64, 69
RUN = [
    "data=builtin:shapes",
    "data.count=60",
    "image_size=16",
    "model=cnn",
    "batch_size=12",
    "devices=1",
    "micro_batches=4",
    "wgrad_threads=1",
    "eval_batch_size=12",
    "max_steps=6",
    "seed=3",
    "val_split=0.2",
    "log_every_n_steps=1",
    "quiet=true",
]
BROKEN = """#include <levin/backend.h>
#include <string.h>
static lvn_backend table = {.version = LVN_BACKEND_VERSION + %(version)d,
                            .table_size = sizeof(lvn_backend),
                            .name = "%(name)s"};
LVN_API const lvn_backend *lvn_backend_table(void);
const lvn_backend *lvn_backend_table(void) { return &table; }
"""


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.backends = Path(folder.name, "backends")
        cls.backends.mkdir()
        copy = shutil.copytree(SOURCE / "examples/06_backend", Path(folder.name, "copy"))
        cls.headers = shutil.copytree(SOURCE / "include", Path(folder.name, "include"))
        cls.cflags = f"-I{cls.headers}"
        cls.make(copy, cls.backends)

    @classmethod
    def make(cls, source, out):
        made = subprocess.run(
            ["make", "-s", "-C", source, f"OUT={out}", f"HEADERS={cls.headers}", f"CC={CC}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def levin(self, *arguments, status=OK, path=None, devices=2):
        environment = dict(
            os.environ,
            LEVIN_BACKEND_PATH=str(self.backends if path is None else path),
            EXAMPLE_DEVICES=str(devices),
        )
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=self.cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def train(self, out, *arguments, accelerator="example", **more):
        return self.levin(
            *("train", "classify", *RUN, f"out={out}", f"accelerator={accelerator}", *arguments),
            **more,
        )

    def rows(self, out, name):
        lines = Path(self.cwd, out, "metrics.jsonl").read_text().splitlines()
        return [row[name] for row in map(json.loads, lines) if name in row]

    def weights(self, out):
        (path,) = Path(self.cwd, out, "exported_models").glob("*last.safetensors")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def library(self, name, text, file=None):
        folder = self.cwd / "other"
        folder.mkdir(exist_ok=True)
        (folder / "other.c").write_text(text)
        subprocess.run(
            [CC, "-shared", "-fPIC", self.cflags, folder / "other.c"]
            + ["-o", folder / (file or f"levin_backend_{name}.so")],
            check=True,
        )
        return folder

    # ---- training ----

    def test_it_learns_what_the_cpu_learns(self):
        adamw = ["optim=adamw", "gradient_clip_val=1", "ema.decay=0.9"]
        lars = ["optim=lars", "optim.momentum=0.9", "gradient_clip_val=1"]
        for optim in (["optim=sgd", "optim.lr=0.05"], adamw, lars):
            arguments = [*optim, "model.dropout=0.1", "label_smoothing=0.1", "overwrite=true"]
            for accelerator in ("cpu", "example"):
                self.train(accelerator, *arguments, accelerator=accelerator)
            for name in ("train/loss_step", "val/loss", "grad_norm"):
                of_cpu, own = self.rows("cpu", name), self.rows("example", name)
                self.assertEqual(len(of_cpu), len(own))
                self.assertGreater(len(of_cpu), 0, name)
                for a, b in zip(of_cpu, own):
                    # what relu and max pooling choose may flip at a rounding
                    self.assertAlmostEqual(a, b, delta=5e-4 * abs(a), msg=name)

    def test_one_result_on_any_layout(self):
        self.train("one")
        layouts = {
            "again": [],
            "lanes": ["lanes=2"],
            "processes": ["devices=2"],
            "threads": ["devices=2", "strategy=dp"],
            "listed": ["devices=[1,0]"],
            "all": ["devices=-1"],
        }
        for out, arguments in layouts.items():
            self.train(out, *arguments)
            self.assertEqual(self.weights(out), self.weights("one"), out)

    def test_stopped_and_resumed(self):
        self.train("whole")
        self.train("half", "max_steps=3")
        resumed = ["train", "classify", "out=half", "resume=true", "max_steps=6", "quiet=true"]
        reported = self.levin(*resumed)
        self.assertNotIn("not reproducible", reported)
        self.assertEqual(self.weights("half"), self.weights("whole"))
        self.train("other", "max_steps=3")
        resumed[2] = "out=other"
        reported = self.levin(*resumed, "accelerator=cpu")
        self.assertRegex(reported, "not reproducible: .*was written on levin.* example 1, plain")

    def test_predict_and_eval(self):
        self.train("run")
        arguments = ["model=run", "data=builtin:shapes", "data.count=20"]
        rows = []
        for accelerator in ("cpu", "example"):
            output = f"{accelerator}.csv"
            self.levin("predict", *arguments, f"accelerator={accelerator}", f"output={output}")
            rows.append([line.split(",") for line in (self.cwd / output).read_text().splitlines()])
        self.assertEqual([len(row) for row in rows[0]], [len(row) for row in rows[1]])
        self.assertEqual(rows[0][0], rows[1][0])
        self.assertEqual(
            *(
                self.levin("eval", *arguments, f"accelerator={accelerator}")
                for accelerator in ("cpu", "example")
            )
        )

    def test_it_is_named(self):
        reported = self.levin("plan", "train", "classify", *RUN, "accelerator=example")
        self.assertIn("device: example:0, example device, 512 MiB", reported)
        self.assertIn("of it on example:0", reported)
        reported = self.train("run", "devices=2", "quiet=false")
        self.assertIn("device: example:0, example device, 512 MiB", reported)
        self.assertIn("devices example:0,example:1", reported)
        self.assertIn("accelerator: example", (self.cwd / "run/config.yaml").read_text())
        self.assertRegex(
            self.levin("ops"), r"(?m)^op +in +out +cpu +ref +sim +(cuda +)?example +mixed"
        )
        self.assertRegex(self.levin("ops"), r"(?m)^conv2d +2-3 +1 +sb +sbhd +sbd +(sbh? +)?s ")
        self.assertIn("  example     no kernel\n", self.levin("ops", "relu"))
        self.assertIn("  example     f32\n", self.levin("ops", "linear"))

    # ---- levin ops check ----

    def verdicts(self, *arguments, **more):
        reported = self.levin("ops", "check", "accelerator=example", *arguments, **more)
        rows = re.findall(r"(?m)^([\w.]+) +(passed|failed|not supported) +(.*)$", reported)
        return {name: (verdict, text) for name, verdict, text in rows}, reported

    def test_every_kernel_agrees_with_ref(self):
        found, reported = self.verdicts()
        example = SOURCE / "examples/06_backend"
        kernels = re.findall(r"ROW\((\w+)\),", (example / "kernels.c").read_text())
        flat = re.findall(r"\.(\w+) = \w+[,}]", (example / "flat.c").read_text())
        for name in kernels + [f"flat.{name}" for name in flat]:
            self.assertEqual(found[name][0], "passed", reported)
        self.assertEqual(found["relu"], ("not supported", "no kernel"))
        self.assertRegex(found["conv2d"][1], r"^16 in f32, 3 not supported; largest error \d+% of")
        self.assertRegex(reported, r"^example:0: .*\n")
        lacks = sum(verdict == "not supported" for verdict, _ in found.values())
        self.assertIn(f"\n{len(found) - lacks} passed, 0 failed, {lacks} not supported\n", reported)
        some, _ = self.verdicts("flat.add", "linear", "relu")
        self.assertEqual(list(some), ["flat.add", "relu", "linear"])

    def test_wrong_kernels_are_found(self):
        """Each edit is a mistake of its own kind in a copy of the example."""
        all_of_y = "e < lvn_numel(y); e++"
        edits = {  # what is there, what becomes of it, what is reported
            "scale": (" + (float)attr->add", "", "output 0: .* elements are wrong, largest error"),
            "mean": ("memset(sum, 0, args->workspace_bytes);", "", "output 0"),
            "expand": (
                all_of_y + ") {\n        to[e]",
                all_of_y.replace("<", "<=") + ") {\n        to[e]",
                "output 0 wrote behind the end of its memory",
            ),
            "softmax": (
                "y[c] /= sum;",
                "static int calls;\n            y[c] /= calls++ % 2 ? sum : sum * 1.0000002f;",
                "output 0 has other bits in a second run",
            ),
            "dropout": ("lvn_philox_resolve(&stream);", "", "other bits with rng.a_there"),
            "max_pool2d_grad": (
                "] += dy[e];",
                "] += dy[e], changeable(args, 0)[e] = 0.0f;",
                "the kernel changed input 0",
            ),
            "linear_grad_weight": (
                "dy, lvn_size(args->in[0], 0), o",
                "dy, lvn_size(args->in[0], 0) - 1, o",
                "output 1: ",
            ),
            "flat.lerp": (
                "step == NULL || step->updated)",
                "step == NULL || step->updated >= 0)",
                "a without an update 1 of 3 is",
            ),
            "flat.adamw": ("(1.0f - b2) * g * g;", "(1.0f - b1) * g * g;", "v 0 of 1 is"),
            "flat.lamb": ("p->lr * *p->trust", "p->lr", "w 0 of 1 is"),
            "flat.adafactor": ("/ p->rows * p->inner + k]", "/ p->rows]", "w 0 of 3 is"),
            "flat.rmsprop": ("square - mean[i] * mean[i]", "square - mean[i]", "w 0 of 1 is"),
            "flat.lion": (
                "(float)((c > 0.0f) - (c < 0.0f))",
                "(c >= 0.0f ? 1.0f : -1.0f)",
                "w 2 of 3 is",
            ),
            "flat.decide": (
                "sqrt(sum_pairs(example_mine(sums), n))",
                "sqrt(sum_pairs(example_mine(sums), n) * 1.0000001)",
                "of 1 sums, clip 0 and the loss 0.7",
            ),
            "flat.trust": (
                "sqrt(sum_pairs(example_mine(of_g), n)),",
                "0.5 * sqrt(sum_pairs(example_mine(of_g), n)),",
                "the trust ratio of tensor 0 of 1 is",
            ),
            "flat.record": (
                "to[n] = weight",
                "to[n] = to[n + 1] = weight",
                "flat.record wrote behind the end of its memory",
            ),
        }
        copy = shutil.copytree(SOURCE / "examples/06_backend", self.cwd / "wrong")
        for name, (right, wrong, _) in edits.items():
            path = copy / ("flat.c" if name.startswith("flat.") else "kernels.c")
            text = path.read_text()
            self.assertEqual(text.count(right), 1, name)
            path.write_text(text.replace(right, wrong))
        self.make(copy, copy)
        found, reported = self.verdicts(path=copy, status=FAILURE)
        wrong = [name for name, (verdict, _) in found.items() if verdict == "failed"]
        self.assertEqual(sorted(wrong), sorted(edits), reported)
        for name, (_, _, text) in edits.items():
            self.assertRegex(found[name][1], text)
        self.assertIn(f", {len(edits)} failed, ", reported)
        found, reported = self.verdicts(
            "seconds=2", "linear_grad_weight", "linear", path=copy, status=FAILURE
        )
        self.assertEqual(found["linear_grad_weight"][0], "failed", reported)
        self.assertEqual(found["linear"][0], "passed", reported)
        again = re.search(  # a shape that failed, and how to have it again
            r"(?m)^failed: linear_grad_weight of (.*) in f32, (seed=\d+) (first=\d+)\n  case",
            reported,
        )
        _, reported = self.verdicts(
            "seconds=1", *again.groups()[1:], "linear_grad_weight", path=copy, status=FAILURE
        )
        self.assertIn(f"failed: linear_grad_weight of {again[1]} in f32", reported)

    def test_what_cannot_be_checked(self):
        for arguments, text in {
            ("check",): "usage: levin ops",
            ("check", "conv2d"): "accelerator=NAME comes first",
            ("check", "accelerator=example", "conv3d"): "did you mean conv2d",
            ("check", "accelerator=other"): "there is no backend other",
            ("check", "accelerator=example:7"): "there is no device example:7; example has 2",
        }.items():
            status = USAGE if "no " not in text else FAILURE
            self.assertIn(text, self.levin("ops", *arguments, status=status))

    # ---- what it lacks ----

    def assert_nothing_saved(self, out):
        self.assertEqual(os.listdir(self.cwd / out / "checkpoints"), [])
        self.assertEqual(os.listdir(self.cwd / out / "exported_models"), [])

    def test_kernels_that_it_lacks(self):
        """All of a step, before there is a run; by the plan, too."""
        lacks = "error: the backend example has no kernel for relu, relu_grad; `levin ops` lists"
        mlp = ["train", "classify", *RUN, "accelerator=example", "model=mlp"]
        self.assertIn(lacks, self.train("run", "model=mlp", status=USAGE))
        self.assertIn(lacks, self.train("run", "model=mlp", "devices=2", status=USAGE))
        self.assertIn(lacks, self.levin("plan", *mlp, status=USAGE))
        self.assertFalse((self.cwd / "run").exists())
        self.train("cpu", "model=mlp", accelerator="cpu")
        use = ["model=cpu", "data=builtin:shapes", "data.count=20", "accelerator=example"]
        self.assertIn(
            "error: the backend example has no kernel for relu with the inputs f32 (20, 256); "
            "`levin ops` lists what each backend has",
            self.levin("eval", *use, status=FAILURE),
        )

    def test_arguments_that_its_kernels_do_not_take(self):
        reported = self.train("run", "model=resnet18", "image_size=32", status=USAGE)
        self.assertRegex(
            reported,
            r"has no kernel for add, nor for batch_norm_train with the inputs f32 \(3, 8, 8, 64\), "
            r"f32 \(64\), f32 \(64\), f32 \(3, 8, 8, 64\), nor for batch_norm_train_grad with ",
        )
        reported = self.train("run", "precision=bf16-mixed", status=USAGE)
        self.assertIn("the backend example has no kernel for cast; ", reported)
        self.assertFalse((self.cwd / "run").exists())

    def test_memory_that_runs_out(self):
        """What the table's `take` refuses is an error with a sentence, not the end of a process."""
        large = ["image_size=256", "batch_size=60", "micro_batches=1", "num_sanity_val_steps=0"]
        reported = self.train("run", *large, status=RESOURCE)
        self.assertIn("example:0 is out of memory: ", reported)
        self.assertIn("of its 512 MiB are in use", reported)
        self.assert_nothing_saved("run")

    # ---- what is not there ----

    def test_no_such_backend_or_device(self):
        reported = self.train("run", accelerator="exemple", status=RESOURCE)
        self.assertIn(
            "error: accelerator=exemple: there is no backend exemple: no levin_backend_exemple.so "
            "beside levin, nor in "
            f"LEVIN_BACKEND_PATH ({self.backends}); use auto, cpu, gpu, sim, ",
            reported,
        )
        self.assertRegex(reported, "sim, (cuda, )?example\n")
        self.assertRegex(
            self.train("run", status=RESOURCE, path=""),
            r"nor in LEVIN_BACKEND_PATH \(which is not set\); use auto, cpu, gpu, sim(, cuda)?\n",
        )
        self.assertIn(
            "the backend example finds no device here; use accelerator=cpu",
            self.train("run", status=RESOURCE, devices=0),
        )
        self.assertIn(
            "EXAMPLE_DEVICES=99: it must be 0 to 8",
            self.train("run", status=FAILURE, devices=99),
        )
        self.assertIn("only 2 devices are visible", self.train("run", "devices=3", status=USAGE))
        self.assertIn("has no devices", self.train("run", accelerator="dry", status=USAGE))
        self.assertIn("expected one of", self.train("run", accelerator="Example", status=USAGE))
        self.assertFalse((self.cwd / "run").exists())

    def test_shared_objects_that_are_no_backends(self):
        cases = {
            "older": (
                BROKEN % {"version": -1, "name": "older"},
                r"is a backend of version \d+ with a table of \d+ bytes; this levin needs version",
            ),
            "named": (
                BROKEN % {"version": 0, "name": "other"},
                r"calls itself other; its file name must be levin_backend_other\.so",
            ),
            "part": (
                BROKEN % {"version": 0, "name": "part"},
                "all functions of its table except supports and captures: count is NULL",
            ),
            "plain": ("int x;\n", "does not export lvn_backend_table: it is not a backend"),
            "needs": (
                "#include <levin/backend.h>\nLVN_API const lvn_backend *lvn_backend_table(void);\n"
                "extern const lvn_backend *there_is_no_such_symbol(void);\n"
                "const lvn_backend *lvn_backend_table(void)\n"
                "{ return there_is_no_such_symbol(); }\n",
                "the backend needs cannot be loaded: .*there_is_no_such_symbol",
            ),
        }
        for name, (text, expected) in cases.items():
            folder = self.library(name, text)
            reported = self.train("run", accelerator=name, path=folder, status=FAILURE)
            self.assertRegex(reported, expected)
        (folder / "levin_backend_text.so").write_text("no library")
        reported = self.train("run", accelerator="text", path=folder, status=FAILURE)
        self.assertRegex(reported, "the backend text cannot be loaded: ")
        self.assertFalse((self.cwd / "run").exists())
        # the table is printed all the same, with a line for each
        reported = self.levin("ops", path=folder)
        self.assertEqual(len(re.findall("(?m)^warning: ", reported)), len(cases) + 1)
        self.assertRegex(reported, r"(?m)^op +in +out +cpu +ref +sim +(cuda +)?mixed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testLoader=OfToday(2))
