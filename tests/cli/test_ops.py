"""`levin ops` prints the op table.

usage: test_ops.py SOURCE_DIR LEVIN
"""

import os
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

SOURCE, LEVIN = Path(sys.argv[1]), sys.argv[2]
ROW = re.compile(r'^LVNI_OP\((\w+), (\d), (\d), (\w+), ([\w|* ]+), "(.*)"\)$', re.M)
ROWS = ROW.findall((SOURCE / "src/kernels/ops.def").read_text())

SECOND = re.findall(r"^LVNI_SECOND\((\w+)\)$", (SOURCE / "src/ops/second.def").read_text(), re.M)


def levin(*arguments, status=0, **env):
    done = subprocess.run(
        [LEVIN, *arguments],
        env=dict(os.environ, LEVIN_SIM_DEVICES="2", **env),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == status, f"{arguments} ended with {done.returncode}: {done.stderr}"
    return done.stdout if status == 0 else done.stderr


class Ops(unittest.TestCase):
    def test_every_row_is_there(self):
        reported = levin("ops").splitlines()
        self.assertRegex(reported[0], r"^op +in +out +cpu +ref +sim +(cuda +)?mixed +2nd +")
        self.assertEqual([line.split()[0] for line in reported[1:-3]], [row[0] for row in ROWS])
        self.assertTrue(reported[-3].startswith(f"{len(ROWS)} ops"))
        cuda = reported[0].split()[6] == "cuda"  # a build with the CUDA backend
        for line, (name, n_in, n_out, _, flags, sentence) in zip(reported[1:-3], ROWS):
            arguments = line.split(None, 9 if cuda else 8)
            if cuda:
                self.assertRegex(arguments.pop(6), "^(-|sb?h?)$")
            self.assertEqual(arguments[1].split("-")[-1], n_in, name)
            self.assertEqual(arguments[2].split("-")[-1], n_out, name)
            own = "s" + "b" * ("BF16" in flags) + "h" * ("LVNI_F16" in flags)
            self.assertEqual(arguments[3:6], [own, "sbhd", own + "d"], name)
            self.assertEqual(
                arguments[6],
                (
                    "low"
                    if "LOW" in flags
                    else (
                        "f32"
                        if "FULL" in flags and "BESIDE" not in flags
                        else "widest" if "WIDEST" in flags else "given"
                    )
                ),
            )
            self.assertEqual(arguments[7] == "yes", name in SECOND)
            self.assertEqual(arguments[8], sentence)

    def test_one_op(self):
        reported = levin("ops", "conv2d")
        self.assertIn("inputs      2-3; the last may be left out", reported)
        self.assertIn("attributes  stride, padding, dilation", reported)
        self.assertIn("the same on any number of threads", reported)
        self.assertIn("2nd         its gradient has a gradient", reported)
        self.assertIn(
            "cpu         f32, bf16 f16 as f32 copies\n", levin("ops", "accuracy")
        )  # no kernel of its own: it only counts
        self.assertRegex(levin("ops", "cast"), r"(?m)^  cpu         f32 bf16 f16$")
        self.assertRegex(levin("ops", "cast"), r"(?m)^  ref         f32 bf16 f16 f64$")
        reported = levin("ops", "linear_grad_weight")
        self.assertIn("outputs     1-2", reported)
        self.assertIn("attributes  none", reported)
        self.assertIn("wgrad_threads", reported)

    def test_drawn_shapes_agree_with_ref(self):
        """For LEVIN_TEST_SECONDS (4) with the seed LEVIN_TEST_SEED (another each day)."""
        seconds = os.environ.get("LEVIN_TEST_SECONDS", "4")
        seed = os.environ.get("LEVIN_TEST_SEED", str(int(time.time()) // 86400))
        check = ["ops", "check", "accelerator=cpu", f"seed={seed}"]
        print(f"LEVIN_TEST_SEED={seed}", flush=True)
        reported = levin(*check, f"seconds={seconds}")
        self.assertIn(
            f"{seconds} seconds of drawn shapes against ref in double precision, seed={seed}\n",
            reported,
        )
        drawn = {line.split()[0] for line in reported.splitlines()[1:-1]}
        for op in ("conv2d", "conv_transpose2d", "matmul", "linear", "attention", "fft"):
            self.assertIn(op, drawn)
        self.assertRegex(reported, r"(?m)^conv2d_grad_weight +passed +[1-9]\d* in f32")
        self.assertIn(" passed, 0 failed, ", reported)
        only = levin(*check, "seconds=1", "type=f32", "matmul").splitlines()
        self.assertRegex(only[1], r"^matmul +passed +\d+ in f32; largest error")
        self.assertEqual(len(only), 3)

    def test_a_processor_without_products_in_bf16(self):
        """They are not supported, rather than failed."""
        check = ["ops", "check", "accelerator=cpu"]
        for how in (["conv2d", "linear"], ["conv2d", "linear", "seconds=1"]):
            reported = levin(*check, *how, LEVIN_CPU_ISA="v3")
            for name in ("conv2d", "linear"):
                cases = r"\d+ in f32, \d+ in f16, \d+ not supported;"
                self.assertRegex(reported, rf"(?m)^{name} +passed +{cases}")

    def test_mistakes(self):
        wrongs = ["seconds=0", "seconds=x", "seconds=99999999999999", "seed=-1", "first="]
        for wrong in (*wrongs, "first=9223372036854775807", "type=i64"):
            self.assertIn(
                f"error: {wrong}: seconds, seed and first are whole numbers",
                levin("ops", "check", "accelerator=cpu", wrong, status=64),
            )
        self.assertIn(
            "error: no shapes are drawn for softmax",
            levin("ops", "check", "accelerator=cpu", "seconds=1", "softmax", status=64),
        )
        self.assertIn("did you mean softmax?", levin("ops", "sofmax", status=64))
        self.assertIn(
            "there is no op qqqqqqqq; `levin ops` lists all", levin("ops", "qqqqqqqq", status=64)
        )
        self.assertIn("usage: levin ops [NAME]", levin("ops", "add", "sub", status=64))

    def test_a_backend_agrees_with_ref(self):
        """Commands of another thread, in memory that the host cannot read: sim. test_sim_ops has
        every op; here are all functions of flat buffers and ops of each kind."""
        ops = "add max_pool2d where batch_norm_train_grad linear cross_entropy gather cast".split()
        for device in ("sim:1", "cpu"):
            reported = levin("ops", "check", f"accelerator={device}", *ops)
            for name in ops:
                cases = r"\d+ in f32, \d+ in bf16, \d+ in f16"
                self.assertRegex(reported, rf"(?m)^{name} +passed +{cases}")
            self.assertIn(f"\n{len(ops)} passed, 0 failed, 0 not supported\n", reported)
        table = (SOURCE / "include/levin/backend.h").read_text()
        table = table.split("typedef struct lvn_backend_flat {")[1].split("} lvn_backend_flat;")[0]
        flat = re.findall(r"lvn_status \(\*(\w+)\)", table)
        reported = levin("ops", "check", "accelerator=sim", *(f"flat.{name}" for name in flat))
        for name in flat:
            self.assertRegex(reported, rf"(?m)^flat\.{name} +passed +14 in f32")

    def test_gpu_is_the_backend_of_training(self):
        if "cuda" in levin("ops").split("\n", 1)[0]:
            self.skipTest("a build with the CUDA backend")
        for name in ("gpu", "gpu:1"):
            reported = levin("ops", "check", f"accelerator={name}", status=69)
            self.assertIn("without its GPU backend (levin_backend_cuda.so): `make LEVIN", reported)

    def test_the_overview_names_it(self):
        self.assertIn("levin ops [NAME]", levin("help"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
