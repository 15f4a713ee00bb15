"""The CUDA backend's own kernels on the host (accelerator=cudahost): they agree with ref, train as
the CPU does with one result on any layout, and what a driver can do wrong is a sentence.

usage: test_cuda_host.py LEVIN BACKEND_DIR [Kernels | Training | Failures, or names of tests]
BACKEND_DIR: folder of levin_backend_cudahost.so
LEVIN_TEST_ACCELERATOR=cuda: Training on a real GPU, whose ranks share one (tests/gpu/run)
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "support"))

from turns import of_today, turn_line

LEVIN, BACKENDS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
ACCELERATOR = os.environ.get("LEVIN_TEST_ACCELERATOR", "cudahost")
ON_HOST = ACCELERATOR == "cudahost"
OK, USAGE, RESOURCE = 0, 64, 69
RUN = [
    "data=builtin:shapes",
    "data.count=40",
    "image_size=8",
    "model=cnn",
    "batch_size=8",
    "devices=1",
    "micro_batches=4",
    "wgrad_threads=1",
    "eval_batch_size=8",
    "max_steps=4",
    "seed=3",
    "val_split=0.2",
    "log_every_n_steps=1",
    "quiet=true",
]
ADAMW = ["optim=adamw", "gradient_clip_val=1", "ema.decay=0.9", "model.dropout=0.1"]
FLAT = (
    "add lerp block_sumsq sgd trust adamw rmsprop lion lamb_moments lamb adafactor round_bf16 "
    "record apply_record append number seed decide finish"
).split()
WITHOUT_KERNEL = set()
PARTS = 3  # of the kernels one of them a day


def levin(*arguments, cwd=None, **environment):
    environment = {key: str(value) for key, value in environment.items()}
    return subprocess.run(
        [LEVIN, *arguments],
        cwd=cwd,
        env={**os.environ, "LEVIN_BACKEND_PATH": BACKENDS, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def find_ops():
    """Of `levin ops`: each op, and whether cudahost has a kernel."""
    lines = levin("ops").stdout.splitlines()
    at = lines[0].split().index(ACCELERATOR)
    rows = [line.split() for line in lines[1:]]
    return {row[0]: row[at] != "-" for row in rows if len(row) > at and re.match(r"\d", row[1])}


OPS = find_ops()


class Kernels(unittest.TestCase):
    """One test for each op and each function of flat buffers: test_relu, test_flat_adamw. A part
    of them each day, all with LEVIN_TEST_SLOW=1, one by its name."""

    def test_what_has_no_kernel(self):
        self.assertEqual({op for op, there in OPS.items() if not there}, WITHOUT_KERNEL)

    def check(self, name):
        done = levin("ops", "check", f"accelerator={ACCELERATOR}", name)
        self.assertRegex(
            done.stdout, rf"(?m)^{re.escape(name)} +passed ", f"{done.stdout}{done.stderr}"
        )
        self.assertEqual(done.returncode, OK, done.stderr)

    def check_fft(self, **environment):
        """By the stand-in for cuFFT (cufft_on_host.cpp)."""
        environment = {"CUDA_ON_HOST_CUFFT": f"{BACKENDS}/libcufft_on_host.so", **environment}
        check = ["ops", "check", f"accelerator={ACCELERATOR}", "fft"]
        return levin(*check, LEVIN_CUDA_DEBUG=1, **environment)

    def test_fft_by_cufft(self):
        done = self.check_fft()
        self.assertRegex(done.stdout, r"(?m)^fft +passed ", done.stderr)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("cuFFT 12000 transforms", done.stderr)
        self.assertNotIn("own kernel", done.stderr)

    def test_fft_that_cufft_refuses(self):
        for how, why in (("size", "CUFFT_INVALID_SIZE"), ("area", "its work area is too large")):
            done = self.check_fft(CUFFT_ON_HOST_FAIL=how)
            self.assertRegex(done.stdout, r"(?m)^fft +passed ", done.stderr)
            refused = f"cuFFT refuses a plan, the own kernel computes: {why}; 3 x (1, 211), "
            self.assertEqual(done.stderr.count(refused), 1, done.stderr)
        done = self.check_fft(CUDA_ON_HOST_CUFFT="libcufft_nowhere.so")
        self.assertRegex(done.stdout, r"(?m)^fft +passed ", done.stderr)
        self.assertIn("no cuFFT, own kernels transform: libcufft_nowhere.so: ", done.stderr)

    def test_fft_that_cufft_fails_in(self):
        for how, why in (("memory", "CUFFT_ALLOC_FAILED"), ("run", "CUFFT_EXEC_FAILED")):
            done = self.check_fft(CUFFT_ON_HOST_FAIL=how)
            self.assertNotEqual(done.returncode, OK)
            self.assertIn(f"cudahost:0: fft: cuFFT: {why}", done.stdout + done.stderr)
        done = self.check_fft(CUDA_ON_HOST_CUFFT="/dev/null")  # there, and no library
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("LEVIN_CUDA_LIBRARIES=off computes without", done.stdout + done.stderr)


def add_checks():
    names = [op for op, there in OPS.items() if there] + [f"flat.{name}" for name in FLAT]
    if not any(argument.startswith("Kernels.") for argument in sys.argv[3:]):
        print(turn_line(PARTS), flush=True)
        names = of_today(names, PARTS)
    for name in names:
        test = f"test_{name.replace('.', '_')}"
        setattr(Kernels, test, lambda self, name=name: self.check(name))


add_checks()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def levin(self, *arguments, status=OK, **environment):
        done = levin(*arguments, cwd=self.cwd, **{"CUDA_ON_HOST_DEVICES": 2, **environment})
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def train(self, out, *arguments, accelerator=ACCELERATOR, **more):
        own = [f"out={out}", f"accelerator={accelerator}"]
        return self.levin("train", "classify", *RUN, *own, *arguments, **more)

    def rows(self, out, name):
        lines = Path(self.cwd, out, "metrics.jsonl").read_text().splitlines()
        return [row[name] for row in map(json.loads, lines) if name in row]

    def state(self, out):
        """Without metadata, unlike `weights`: they have the choices of the run."""
        return self.levin("ckpt", "hash", out)

    def weights(self, out):
        (path,) = Path(self.cwd, out, "exported_models").glob("*last.safetensors")
        return hashlib.sha256(path.read_bytes()).hexdigest()


class Training(Case):
    def assert_as_cpu(self, *arguments, within, steps):
        for accelerator in ("cpu", ACCELERATOR):
            own = [f"max_steps={steps}", "val_check_interval=2", "overwrite=true"]
            self.train(accelerator, *arguments, *own, accelerator=accelerator)
        for name in ("train/loss_step", "val/loss", "grad_norm"):
            of_cpu, own = self.rows("cpu", name), self.rows(ACCELERATOR, name)
            self.assertEqual(len(of_cpu), len(own))
            self.assertGreater(len(of_cpu), 0, name)
            for a, b in zip(of_cpu, own):
                self.assertAlmostEqual(a, b, delta=within * abs(a), msg=f"{arguments}: {name}")

    def test_it_learns_what_the_cpu_learns(self):
        self.assert_as_cpu(*ADAMW, "label_smoothing=0.1", within=1e-4, steps=4)

    def test_optimizers(self):
        settings = {
            "sgd": ["optim.lr=0.05", "optim.momentum=0.9"],
            "lars": ["optim.momentum=0.9", "gradient_clip_val=1"],
            "lamb": [],
            "adafactor": [],
        }
        for optim, arguments in settings.items():
            with self.subTest(optim):
                self.assert_as_cpu(f"optim={optim}", *arguments, within=1e-4, steps=2)

    def test_16_bits(self):
        for precision in ("bf16-mixed", "16-mixed"):
            with self.subTest(precision):
                self.assert_as_cpu(*ADAMW, f"precision={precision}", within=3e-2, steps=2)

    def test_tf32(self):
        """Products of rounded factors: near the others, and not the same."""
        self.train("f32", *ADAMW)
        self.train("tf32", *ADAMW, "tf32=true")
        self.assertNotEqual(self.weights("tf32"), self.weights("f32"))
        for a, b in zip(self.rows("f32", "grad_norm"), self.rows("tf32", "grad_norm")):
            self.assertAlmostEqual(a, b, delta=2e-2 * abs(a))
        points = {}
        for tf32 in ("false", "true"):
            self.levin(
                *("predict", "model=f32", "data=builtin:shapes", "output=p.csv", f"tf32={tf32}"),
                *("probabilities=true", f"accelerator={ACCELERATOR}"),
            )
            points[tf32] = (self.cwd / "p.csv").read_text()
        self.assertNotEqual(points["true"], points["false"])

    def test_one_result_on_any_layout(self):
        self.train("one", *ADAMW)
        layouts = {
            "again": [],
            "lanes": ["lanes=2"],
            "processes": ["devices=2"],
            "threads": ["devices=2", "strategy=dp"],
        }
        if not ON_HOST:
            layouts["processes"] = ["devices=[0,0]", "allow_shared_device=true"]
            layouts["four"] = ["devices=[0,0,0,0]", "allow_shared_device=true"]
            del layouts["threads"]
        for out, arguments in layouts.items():
            with self.subTest(out):
                self.train(out, *ADAMW, *arguments)
                self.assertEqual(self.weights(out), self.weights("one"))

    def test_autotune(self):
        """What is given the choices of a run has its bits; on the host there is one algorithm.
        tests/gpu/run prints the choices."""
        reported = self.train("tuned", *ADAMW, "autotune=true", "quiet=false")
        config = (self.cwd / "tuned" / "config.yaml").read_text()
        (pins,) = re.findall(r"^pins: (\[.*\])$", config, re.M)
        pins = "pins=" + pins.replace('"', "").replace(" ", "")
        (line,) = re.findall(r"autotune=true.*", reported)
        print(line, pins, sep="\n", file=sys.stderr)
        if ON_HOST:
            self.assertIn("has no effect", line)
            self.train("plain", *ADAMW)
            self.assertEqual(self.state("tuned"), self.state("plain"))
        ranks = ["devices=2"] if ON_HOST else ["devices=[0,0]", "allow_shared_device=true"]
        self.train("given", *ADAMW, pins, *ranks)
        self.train("half", *ADAMW, pins, "autotune=true", "max_steps=2")
        self.levin("train", "classify", "out=half", "resume=true", "max_steps=4", "quiet=true")
        for out in ("given", "half"):
            self.assertEqual(self.state(out), self.state("tuned"), out)

    def test_the_host_waits_for_no_step(self):
        """As often in twelve steps of an epoch as in six: a step's numbers are read when the next
        one is submitted, whether it is replayed or not. tests/gpu/run prints the counts."""
        counts = {}
        for graph in ("off",) if ON_HOST else ("off", "on"):
            for steps in (6, 12):
                own = [f"max_steps={steps}", f"cuda_graph={graph}", "overwrite=true"]
                own += ["data.count=200", "limit_val_batches=0"]
                reported = self.train("run", *ADAMW, *own, LEVIN_CUDA_DEBUG=1)
                (counts[steps],) = re.findall(
                    rf"{ACCELERATOR}:0: host waits for the newest command: kernels (\d+), ",
                    reported,
                )
            print(f"cuda_graph={graph}: host waits in 6 and 12 steps: {counts}", file=sys.stderr)
            self.assertEqual(counts[6], counts[12], graph)
            self.assertGreater(int(counts[6]), 0, graph)

    def test_stopped_and_resumed(self):
        self.train("whole", *ADAMW)
        self.train("half", *ADAMW, "max_steps=2")
        resumed = ["train", "classify", "out=half", "resume=true", "max_steps=4", "quiet=true"]
        self.assertNotIn("not reproducible", self.levin(*resumed))
        self.assertEqual(self.weights("half"), self.weights("whole"))


@unittest.skipUnless(ON_HOST, "a GPU does not fail on request")
class Failures(Case):
    def test_no_device(self):
        """With the versions that there are and that are needed, before there is a run."""
        for how, visible, text in (
            ("no_driver", None, r"no NVIDIA driver is loaded here \(libcuda\.so\.1\).*CUDA 13\.0"),
            ("old_driver", None, r"the NVIDIA driver is for CUDA 11\.4, .* CUDA 13\.0 or newer"),
            ("old_device", None, r"device 0 has compute capability 7\.0, .* needs 8\.0 \(A100\)"),
            ("no_device", None, r"the NVIDIA driver shows no device \(CUDA_VISIBLE_DEVICES is not"),
            ("no_device", "7", r"the NVIDIA driver shows no device \(CUDA_VISIBLE_DEVICES=7\)"),
        ):
            more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            reported = self.train("run", status=RESOURCE, CUDA_ON_HOST_FAIL=how, **more)
            self.assertRegex(reported, rf"^error: cudahost: {text}")
            self.assertEqual(reported.count("error"), 1, reported)
            self.assertFalse((self.cwd / "run").exists())

    def test_more_devices_than_there_are(self):
        reported = self.train("run", "devices=3", status=USAGE)
        self.assertIn("only 2 devices are visible", reported)

    def test_lost_device(self):
        """While it is opened, and in a step: of that nothing is saved."""
        lost = "error: cudahost:[01]: .*unspecified launch failure \\(cudaErrorLaunchFailure\\)"
        reported = self.train("run", status=RESOURCE, CUDA_ON_HOST_FAIL="lost")
        self.assertRegex(reported, lost)
        for arguments in ([], ["devices=2", "strategy=dp"]):
            reported = self.train(
                "run",
                *arguments,
                "overwrite=true",
                status=RESOURCE,
                CUDA_ON_HOST_FAIL="lost",
                CUDA_ON_HOST_FAIL_AFTER=80,
            )
            self.assertRegex(
                reported, f"{lost} at or before .*; the device cannot be used any more by this"
            )
            for folder in ("checkpoints", "exported_models"):
                self.assertEqual(os.listdir(self.cwd / "run" / folder), [], arguments)

    def test_memory_that_runs_out(self):
        """The sentence names the device, its memory and the op; there is no checkpoint."""
        large = ["image_size=64", "batch_size=40", "micro_batches=1"]
        reported = self.train("run", *large, status=RESOURCE, CUDA_ON_HOST_MEMORY=30 << 20)
        self.assertRegex(reported, "warning: the run takes .* of cudahost:0, which has 15 MiB")
        self.assertRegex(
            reported, "error: cudahost:0 is out of memory: .*, and .* of its 15 MiB are in use"
        )
        self.assertIn("in step 0, micro-batch 0", reported)
        self.assertEqual(os.listdir(self.cwd / "run/checkpoints"), [])
        reported = self.train("run", "overwrite=true", status=RESOURCE, CUDA_ON_HOST_MEMORY=1 << 20)
        self.assertIn("error: cudahost:0 is out of memory: ", reported)
        self.assertIn("in building model cnn", reported)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
