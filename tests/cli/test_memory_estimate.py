"""The memory that a run estimates, against what its process took at its peak (VmHWM) above
its base: within 10 %. The base is the peak of a training of the smallest network on the smallest
images: the program, its libraries and threads, and hardly anything of its own.

usage: test_memory_estimate.py LEVIN [test names]      LEVIN_TEST_SLOW=1: more networks and sizes
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from case import LEVIN, main
from node_processes import end_all, missing, start_on_nodes
from rank_processes import drop_identity

drop_identity()
UNITS = {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}
SHAPES = [
    "data=builtin:shapes",
    "data.count=40",
    "val_split=0.2",
    "max_epochs=1",
    "accelerator=cpu",
    "verbose=true",
    "num_workers=0",
]
SLOW = bool(os.environ.get("LEVIN_TEST_SLOW"))


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-memory-")
        _, cls.base = cls.measure("model=mlp", "image_size=8", "batch_size=1")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir, ignore_errors=True)

    @classmethod
    def measure(cls, *more):
        """Estimated and measured MiB. The kernel's last number counts, too: a peak at the very end
        may be missed here. It holds what this process has as well, which is little."""
        out = f"{cls.dir}/run"
        arguments = [LEVIN, "train", "classify", *SHAPES, f"out={out}", "overwrite=true", *more]
        peak = 0
        with open(f"{cls.dir}/reported", "w+", encoding="utf-8") as reported:
            p = subprocess.Popen(arguments, stdout=reported, stderr=subprocess.STDOUT)
            ended = 0
            while not ended:
                try:
                    with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
                        peak = max([peak, *map(int, re.findall(r"VmHWM:\s+(\d+)", f.read()))])
                except OSError:
                    pass
                time.sleep(0.001)
                ended, status, usage = os.wait4(p.pid, os.WNOHANG)
            p.returncode = os.waitstatus_to_exitcode(status)
            reported.seek(0)
            text = reported.read()
        assert p.returncode == 0, text
        with open("/proc/self/status", encoding="ascii") as f:
            own = int(re.search(r"VmHWM:\s+(\d+)", f.read())[1])
        peak = max(peak, usage.ru_maxrss if usage.ru_maxrss > own else 0)
        found = re.search(r"memory: about ([0-9.]+) (\w+) at peak", text)
        assert found is not None, text
        return float(found[1]) * UNITS[found[2]], peak / 1024

    def holds(self, *more):
        estimate, peak = self.measure(*more)
        took = peak - self.base
        report = (
            f"{' '.join(more)}: estimated {estimate:.1f} MiB, took {took:.1f} above a base "
            f"of {self.base:.1f}"
        )
        self.assertLess(abs(estimate - took), 0.1 * took, report)

    def test_batch_sizes(self):
        """One epoch with its validation."""
        for model, batch in (("cnn", 16), ("cnn", 64), ("resnet18", 1), ("resnet18", 16)):
            with self.subTest(model=model, batch=batch):
                self.holds(f"model={model}", "image_size=64", f"batch_size={batch}")

    def test_lanes(self):
        self.holds("model=cnn", "image_size=64", "batch_size=32", "micro_batches=4", "lanes=2")

    def test_no_validation_before_the_end(self):
        """Lanes, batches and short micro-batches of what never comes do not count."""
        self.holds(
            "model=cnn",
            "image_size=64",
            "batch_size=64",
            "micro_batches=4",
            "lanes=2",
            "max_steps=2",
            "data.count=300",
            "eval_batch_size=60",
        )

    def test_weights_that_are_exported_as_they_are(self):
        self.holds(
            "model=vit_s_16",
            "image_size=32",
            "batch_size=1",
            "max_steps=1",
            "optim=sgd",
            "optim.momentum=0",
        )

    def test_batches_of_a_device(self):
        """A captured step has a place for each of its batches, a shorter one has its own beside
        them, and what is copied ahead is there during validation; of a simulated device, whose
        allocator knows what it had in use."""
        run = ["train", "classify", *SHAPES, "accelerator=sim", "model=mlp", "image_size=64"]
        run += ["batch_size=64", "data.count=800", "max_epochs=2", "optim=sgd", "optim.momentum=0"]
        env = {**os.environ, "LEVIN_SIM_DEVICES": "1", "LEVIN_SIM_MEMORY": "1GiB"}
        for more in (
            ("accumulate_grad_batches=2", "lanes=1"),
            ("accumulate_grad_batches=2", "lanes=1", "num_workers=2"),
            ("accumulate_grad_batches=3", "lanes=1"),  # the last step has one
            ("accumulate_grad_batches=2", "lanes=1", "num_workers=2", "cuda_graph=off"),
            ("accumulate_grad_batches=4", "lanes=2"),
            ("lanes=1", "num_workers=2", "freeze=backbone"),
        ):
            with self.subTest(more=more):
                out = f"{self.dir}/device"
                done = subprocess.run(
                    [LEVIN, *run, *more, f"out={out}", "overwrite=true"],
                    capture_output=True,
                    text=True,
                    env=env,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                text = done.stdout + done.stderr
                found = re.search(r"at peak, ([0-9.]+) (\w+) of it on sim:0", text)
                with open(f"{out}/metrics.jsonl", encoding="utf-8") as f:
                    rows = [json.loads(line) for line in f]
                peak = max(r.get("memory/device_peak_bytes", 0) for r in rows) / (1 << 20)
                estimate = float(found[1]) * UNITS[found[2]]
                report = f"estimated {estimate:.1f} MiB, had {peak:.1f} in use"
                self.assertLess(abs(estimate - peak), 0.01 * peak, report)

    def test_ranks_that_are_threads(self):
        """All of them are in the one process, and share weights and optimizer."""
        self.holds("model=cnn", "image_size=64", "batch_size=32", "devices=2", "strategy=dp")

    def test_far_more_than_there_is(self):
        """Refused before there is a run directory; a warning by request, and of the plan."""
        run = ["classify", *SHAPES, "model=resnet50", "image_size=64", "micro_batches=1"]
        run += ["optim=sgd", "max_steps=1", f"out={self.dir}/far"]
        takes = r"the run takes about ([0-9.]+) (\w+), and ([0-9.]+) (\w+) are available"

        def start(command, batch, *more):
            line = [LEVIN, *command, *run, f"batch_size={batch}", f"data.count={2 * batch}", *more]
            return subprocess.run(line, capture_output=True, text=True)

        # all of the memory: what is available changes from one moment to the next
        with open("/proc/meminfo", encoding="ascii") as f:
            there = int(re.search(r"MemTotal:\s+(\d+) kB", f.read())[1]) / 1024
        needs = []
        for batch in (64, 192):
            few = start(("plan", "train"), batch)
            found = re.search(r"memory: about ([0-9.]+) (\w+) at peak", few.stdout)
            self.assertIsNotNone(found, few.stdout + few.stderr)
            needs.append(float(found[1]) * UNITS[found[2]])
        batch = int(128 * 2 * there / (needs[1] - needs[0]))
        done = start(("train",), batch)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("memory_check=warn begins all the same", done.stderr)
        need, unit, has, of = re.search(takes, done.stderr).groups()
        self.assertGreater(float(need) * UNITS[unit], 1.2 * float(has) * UNITS[of])
        self.assertFalse(os.path.exists(f"{self.dir}/far"))
        for more, begins in ((["memory_check=warn"], False), ([], True)):  # computes nothing
            done = start(("plan", "train"), batch, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, "warning: " + takes)
            self.assertEqual("begins with memory_check=warn alone" in done.stderr, begins)

    @unittest.skipIf(missing(), missing())
    def test_another_host_has_less(self):
        """Rank 0 compares with the memory of each, and names the one that is too small."""
        for node, kib in ((0, 1 << 30), (1, 60 << 10)):
            with open(f"{self.dir}/meminfo-{node}", "w", encoding="ascii") as f:
                f.write(f"MemTotal: {kib} kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n")
        inner = f'mount --bind {self.dir}/meminfo-"$GROUP_RANK" /proc/meminfo && exec "$@"'
        run = ["train", "classify", *SHAPES, "model=resnet18", "image_size=64", "batch_size=8"]
        run += ["max_steps=1", "quiet=true", f"out={self.dir}/hosts"]
        for more, code in (([], 64), (["memory_check=warn"], 0)):
            command = ["unshare", "--mount", "sh", "-c", inner, "sh", LEVIN, *run, *more]
            ended = end_all(start_on_nodes([0, 1], command))
            self.assertEqual(ended[0][0], code, ended)
            self.assertRegex(
                ended[0][1],
                r"the run takes about [0-9.]+ \w+ of the host node1, and 60 MiB are available to",
            )
            self.assertEqual(os.path.exists(f"{self.dir}/hosts"), code == 0)

    @unittest.skipUnless(SLOW, "with LEVIN_TEST_SLOW=1")
    def test_more(self):
        for model in ("cnn", "mlp", "resnet18", "resnet50", "vit_s_16"):
            for size in (64, 96):
                for how in ((4, 1, 1), (16, 1, 1), (16, 4, 1), (16, 4, 2)):
                    with self.subTest(model=model, size=size, how=how):
                        self.holds(
                            f"model={model}",
                            f"image_size={size}",
                            f"batch_size={how[0]}",
                            f"micro_batches={how[1]}",
                            f"lanes={how[2]}",
                        )
        self.holds(
            "model=resnet18",
            "image_size=64",
            "batch_size=8",
            "micro_batches=8",
            "devices=2",
            "strategy=dp",
        )


if __name__ == "__main__":
    main(turns=2)
