"""Training, predicting and measuring on the simulated accelerator: the bits of the CPU, and memory
that runs out.

Everything that the host would touch of the accelerator's memory by mistake ends the program (its
pages cannot be read), so each run here is also the proof that it does not.

usage: test_sim.py LEVIN DATA [test names]   DATA: folder with clothing/ (341 photos in 10 classes);
absent: reported, and left out
"""

import json
import os
import shutil
import signal
import struct
import sys
import time

from case import Case, main, OK, read, SIGTERM, USAGE, WAIT_S, write
from reproducibility_lines import first_difference, reproducibility_lines
from rank_processes import children, is_held

PHOTOS = os.path.join(sys.argv.pop(1), "clothing") if len(sys.argv) > 1 else ""
RESOURCE = 69
for name in ("LEVIN_SIM_DEVICES", "LEVIN_SIM_MEMORY"):
    os.environ.pop(name, None)
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
SHAPES = ["data=builtin:shapes", "data.count=60", "image_size=16"]
COMMON = [
    "model=cnn",
    "batch_size=12",
    "micro_batches=3",
    "lanes=2",
    "wgrad_threads=1",
    "val_split=0.2",
    "log_every_n_steps=1",
    "seed=3",
    "quiet=true",
    "devices=1",
]


def metric(run, name):
    rows = [json.loads(line) for line in read(f"{run}/metrics.jsonl").splitlines()]
    return [row[name] for row in rows if name in row]


class Sim(Case):
    def train_on(self, accelerator, out, *arguments, code=OK, expects=(), env=None, data=None):
        return self.levin(
            [
                "train",
                "classify",
                *(data or SHAPES),
                *COMMON,
                f"accelerator={accelerator}",
                f"out={self.dir}/{out}",
                *arguments,
            ],
            code,
            expects,
            dict(SIM, **(env or {})),
        )

    def assert_same(self, a, b):
        for which in ("last", "best"):
            self.assertEqual(
                self.hashes(f"{self.dir}/{a}", which), self.hashes(f"{self.dir}/{b}", which)
            )
        self.assertEqual(
            first_difference(
                reproducibility_lines(f"{self.dir}/{a}"), reproducibility_lines(f"{self.dir}/{b}")
            ),
            "",
        )

    def compare(self, *arguments, data=None):
        for accelerator in ("cpu", "sim"):
            self.train_on(accelerator, accelerator, *arguments, data=data)
        self.assert_same("cpu", "sim")

    # ---- the bits of the CPU ----

    def test_sgd_and_everything_between_the_steps(self):
        """Mixed images, an average, clipping, validation, a checkpoint every few steps."""
        self.compare(
            "max_epochs=3",
            "optim=sgd",
            "optim.lr=0.05",
            "mixup_alpha=0.4",
            "cutmix_alpha=1",
            "ema.decay=0.9",
            "gradient_clip_val=0.1",
            "checkpoint.every_n_steps=3",
            "augment.hflip=0.5",
            "model.dropout=0.1",
        )
        self.assertIn(b"accelerator: sim", read(f"{self.dir}/sim/config.yaml"))
        self.assertGreater(
            metric(f"{self.dir}/sim", "memory/device_peak_bytes")[-1], 94246 * 4 * 5
        )  # weights, average, momentum, sets
        for accelerator in ("cpu", "sim"):
            arguments = [
                f"model={self.dir}/{accelerator}",
                *SHAPES[:2],
                f"accelerator={accelerator}",
                "eval_batch_size=7",
                "lanes=3",
            ]
            self.levin(["predict", *arguments, f"output={self.dir}/{accelerator}.csv"], OK, env=SIM)
        self.assertEqual(read(f"{self.dir}/cpu.csv"), read(f"{self.dir}/sim.csv"))
        measured = [
            self.levin(
                ["eval", f"model={self.dir}/{a}", *SHAPES[:2], f"accelerator={b}", "use_ema=false"],
                OK,
                env=SIM,
            )[0]
            for a, b in (("cpu", "cpu"), ("sim", "sim"), ("sim", "cpu"))
        ]
        self.assertEqual(measured, 3 * measured[:1])

    def test_arrays_are_predicted(self):
        array, n = f"{self.dir}/x.npy", 5 * 16 * 16 * 3
        head = (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 16, 16, 3), }".ljust(117) + "\n"
        )
        write(
            array,
            b"\x93NUMPY\1\0"
            + struct.pack("<H", len(head))
            + head.encode()
            + struct.pack(f"<{n}f", *(i % 17 / 9 - 1 for i in range(n))),
        )
        for accelerator in ("cpu", "sim"):
            self.levin(
                [
                    "predict",
                    f"model={self.model}",
                    f"data={array}",
                    f"output={self.dir}/{accelerator}.npy",
                    f"accelerator={accelerator}",
                    "eval_batch_size=2",
                ],
                OK,
                env=SIM,
            )
        self.assertEqual(read(f"{self.dir}/cpu.npy"), read(f"{self.dir}/sim.npy"))

    def test_bf16_and_adamw(self):
        """Where the CPU has bf16 products."""
        arguments = ["precision=bf16-mixed", "optim=adamw", "max_steps=5"]
        _, stderr = self.levin(["plan", "train", "classify", *SHAPES, *COMMON, *arguments], None)
        if "no bf16 products" in stderr:
            self.skipTest(stderr)
        self.compare(*arguments)
        self.compare(*arguments, "precision=bf16-true", "overwrite=true")

    def test_f16_that_overflows_and_lars(self):
        self.compare(
            "precision=16-mixed",
            "optim=lars",
            "max_steps=5",
            "model=mlp",
            "batch_size=6",
            "micro_batches=6",
        )
        self.assertGreater(metric(f"{self.dir}/sim", "amp/skipped_steps")[-1], 0)

    def test_micro_batches_of_a_group(self):
        self.compare("sync_batchnorm=true", "micro_batches=4", "group=2", "max_steps=4")

    def test_photos(self):
        if not os.path.isdir(PHOTOS):
            self.skipTest("no photos: LEVIN_TEST_DATA names no folder with clothing/")
        self.compare("max_steps=3", "augment.hue=0.1", data=[f"data={PHOTOS}", "image_size=32"])

    def test_weights_of_another_run(self):
        """A file in the order of PyTorch, and another last layer."""
        self.train_on("cpu", "first", "max_steps=2")
        self.compare(
            f"weights={self.dir}/first/exported_models/exported_last.safetensors",
            "max_steps=2",
            "reset_head=true",
            "freeze=[conv1]",
        )

    # ---- captured steps ----

    def test_a_captured_step_has_the_bits_of_others(self):
        """Six steps in an epoch, the last of them smaller; validation and checkpoints between."""
        arguments = [
            "max_epochs=4",
            "batch_size=9",
            "ema.decay=0.9",
            "gradient_clip_val=0.5",
            "model.dropout=0.1",
            "augment.hflip=0.5",
            "checkpoint.every_n_steps=4",
        ]
        for more in ([], ["precision=16-mixed"], ["lanes=1", "optim=sgd", "micro_batches=1"]):
            for mode in ("off", "on", "auto"):
                self.train_on("sim", mode, *arguments, *more, f"cuda_graph={mode}")
            self.assert_same("off", "on")
            self.assert_same("off", "auto")
            self.assertNotIn(b"is captured", read(f"{self.dir}/off/train.log"))
            for mode in ("on", "auto"):
                self.assertIn(b"step 3 is captured", read(f"{self.dir}/{mode}/train.log"))
            for mode in ("off", "on", "auto"):
                shutil.rmtree(f"{self.dir}/{mode}")

    def test_captured_steps_are_resumed(self):
        self.train_on("sim", "whole", "max_steps=16", "cuda_graph=off")
        self.out = f"{self.dir}/parts"
        self.train_on("sim", "parts", "max_steps=7", "cuda_graph=on")
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=16"]
            + ["accelerator=sim", "devices=1", "cuda_graph=on", "quiet=true"],
            OK,
            env=SIM,
        )
        self.assertEqual(self.hashes(self.out), self.hashes(f"{self.dir}/whole"))
        self.assertNotIn(b"cuda_graph", read(f"{self.out}/config.yaml"))

    def test_accumulation_by_epoch_is_captured_again(self):
        for mode in ("off", "on"):
            self.train_on(
                "sim",
                mode,
                "max_epochs=6",
                "batch_size=6",
                "accumulate_grad_batches=0:1,3:2",
                f"cuda_graph={mode}",
            )
        self.assert_same("off", "on")

    def test_what_cannot_be_captured(self):
        self.train_on("sim", "auto", "max_steps=6", "mixup_alpha=0.4", "cuda_graph=auto")
        log = read(f"{self.dir}/auto/train.log")
        self.assertIn(b"cuda_graph=auto: steps are not captured", log)
        for accelerator, out, *more, expected in (
            ("sim", "mixed", "mixup_alpha=0.4", "copies numbers of the host"),
            ("sim", "ranks", "devices=2", "several ranks exchange gradients in the middle of it"),
            ("sim", "group", "sync_batchnorm=true", "micro-batches wait for each other"),
            ("sim", "anomaly", "detect_anomaly=true", "detect_anomaly"),
            ("cpu", "cpu", "this rank computes on the CPU"),
        ):
            _, stderr = self.train_on(
                accelerator, out, *more, "max_steps=6", "cuda_graph=on", code=None
            )
            self.assertIn("cuda_graph=on: a step cannot be captured", stderr)
            self.assertIn(expected, stderr)
            # what is known before leaves no directory; mixup shows in a step
            self.assertEqual(os.path.exists(f"{self.dir}/{out}"), out == "mixed")

    def test_a_plan_refuses_what_a_run_would(self):
        plan = ["plan", "train", "classify", "data=builtin:shapes", "accelerator=sim"]
        for option, expected in (
            ("cuda_graph=on", "a step cannot be captured: several ranks exchange gradients"),
            ("on_bad_batch=skip", "on_bad_batch=skip works on the CPU"),
        ):
            _, stderr = self.levin([*plan, "devices=2", option], USAGE, env=SIM)
            self.assertIn(expected, stderr)

    # ---- from one to the other ----

    def test_killed_and_resumed_elsewhere(self):
        self.train_on("cpu", "whole", "max_steps=9", "optim=adamw", "ema.decay=0.9")
        for first, then in (("sim", "cpu"), ("cpu", "sim")):
            self.out = f"{self.dir}/{first}"
            self.train_on(first, first, "max_steps=5", "optim=adamw", "ema.decay=0.9")
            _, reported = self.levin(
                [
                    "train",
                    "classify",
                    f"out={self.out}",
                    "resume=true",
                    "max_steps=9",
                    f"accelerator={then}",
                    "quiet=true",
                ],
                OK,
                env=SIM,
            )
            self.assertNotIn("not reproducible", reported)
            self.assertEqual(self.hashes(self.out), self.hashes(f"{self.dir}/whole"))
            self.assertEqual(
                first_difference(
                    reproducibility_lines(self.out), reproducibility_lines(f"{self.dir}/whole")
                ),
                "",
            )

    def all_gone(self):
        """The ranks of a launcher that was killed end a moment after it, and until then have the
        run directory."""
        end = time.monotonic() + WAIT_S
        while children(self.out) or is_held(self.out):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_stopped_and_killed(self):
        """A signal saves; a kill leaves the last checkpoint; both runs go on to the same end."""
        os.environ.update(SIM)
        self.addCleanup(lambda: [os.environ.pop(name) for name in SIM])
        arguments = ["accelerator=sim", "micro_batches=3", "lanes=2", "wgrad_threads=1"]
        for number in (signal.SIGTERM, signal.SIGKILL):
            p = self.start(*arguments, "checkpoint.every_n_steps=1", "val_split=0")
            p.send_signal(number)
            p.communicate()
            self.all_gone()
            self.assertEqual(p.returncode, SIGTERM if number == signal.SIGTERM else -number)
            steps = self.steps() + 4
            self.resume(steps)
            stopped = self.hashes()
            shutil.rmtree(self.out)
            self.levin(
                [
                    "train",
                    "classify",
                    "data=builtin:shapes",
                    "data.count=60",
                    f"out={self.out}",
                    "model=mlp",
                    "image_size=16",
                    "batch_size=6",
                    "max_epochs=-1",
                    "val_split=0",
                    "quiet=true",
                    *arguments[1:],
                    f"max_steps={steps}",
                ],
                OK,
            )
            self.assertEqual(stopped, self.hashes())
            shutil.rmtree(self.out)

    # ---- memory that runs out ----

    def test_too_small_for_the_weights(self):
        _, reported = self.levin(
            ["plan", "train", "classify", *SHAPES, *COMMON, "accelerator=sim"],
            RESOURCE,
            ["weights, gradients and optimizer take", "of sim:0, which has 1 MiB"],
            dict(SIM, LEVIN_SIM_MEMORY="1MiB"),
        )
        self.train_on(
            "sim",
            "run",
            code=RESOURCE,
            expects=[reported.strip()],
            env={"LEVIN_SIM_MEMORY": "1MiB"},
        )
        self.train_on(
            "sim",
            "run",
            code=RESOURCE,
            expects=["sim:0 is out of memory: ", "KiB were asked for"],
            env={"LEVIN_SIM_MEMORY": "64KiB"},
        )
        self.assertFalse(os.path.exists(self.out))

    def test_too_small_for_a_step(self):
        self.train_on(
            "sim",
            "run",
            "num_sanity_val_steps=0",
            code=RESOURCE,
            env={"LEVIN_SIM_MEMORY": "2750KiB"},
            expects=[
                "warning: the run takes up to",
                "of sim:0, which has 2.68 MiB",
                "error: sim:0 is out of memory: ",
                "iB were asked for",
                "smaller batches (batch_size",
                "in step 0, micro-batch ",
            ],
        )
        self.assertEqual(
            os.listdir(f"{self.out}/checkpoints") + os.listdir(f"{self.out}/exported_models"), []
        )
        self.train_on("cpu", "run", "resume=true", "max_steps=2", expects=["no checkpoint yet"])

    def test_too_small_for_the_validation(self):
        """What was learned before it is kept, and elsewhere the run goes on."""
        arguments = ["max_epochs=2", "val_split=0.5", "optim=adamw"]
        peaks = []
        for chunk in (2, 30):
            self.train_on("sim", f"whole-{chunk}", *arguments, f"eval_batch_size={chunk}")
            peaks.append(metric(f"{self.dir}/whole-{chunk}", "memory/device_peak_bytes")[-1])
        self.assertLess(1.3 * peaks[0], peaks[1])
        between = {"LEVIN_SIM_MEMORY": str(int(sum(peaks) / 2))}
        arguments.append("eval_batch_size=30")
        _, reported = self.train_on("sim", "early", *arguments, code=RESOURCE, env=between)
        self.assertNotIn("is saved", reported)  # found before the first step
        self.train_on(
            "sim",
            "run",
            *arguments,
            "num_sanity_val_steps=0",
            code=RESOURCE,
            env=between,
            expects=[
                "sim:0 is out of memory: ",
                "step 3 (epoch 1) is saved, and a run resumed without a change",
            ],
        )
        self.no_leftovers()
        self.levin(
            [
                "train",
                "classify",
                f"out={self.out}",
                "resume=true",
                "accelerator=cpu",
                "quiet=true",
            ],
            OK,
        )
        self.assert_same("run", "whole-30")

    def test_too_small_for_a_prediction(self):
        arguments = [f"model={self.model}", f"data={self.photos}", "accelerator=sim"]
        for command, output in (("predict", [f"output={self.dir}/p.csv"]), ("eval", [])):
            _, reported = self.levin(
                [command, *arguments, *output],
                RESOURCE,
                ["sim:0 is out of memory: ", "eval_batch_size"],
                dict(SIM, LEVIN_SIM_MEMORY="768KiB"),
            )
            self.assertIn("in building model mlp", reported)
        self.assertFalse(os.path.exists(f"{self.dir}/p.csv"))

    # ---- what is not there ----

    def test_no_such_accelerator(self):
        self.refused(
            ["accelerator=gpu"],
            ["accelerator=gpu: ", "use accelerator=cpu", "LEVIN_SIM_DEVICES=1"],
            RESOURCE,
        )
        self.refused(
            ["accelerator=sim"],
            ["no simulated devices", "LEVIN_SIM_DEVICES", "LEVIN_SIM_MEMORY=2GiB"],
            RESOURCE,
        )
        for devices, most in (
            ("4", 4),
            ("[0,5]", 6),
            ("3,", 4),
            ("-1", 1),
            ("auto", 1),
            ("99999999999999999999", 32),
        ):
            self.refused(
                ["accelerator=sim", f"devices={devices}"], [f"(LEVIN_SIM_DEVICES={most})"], RESOURCE
            )
        self.refused(
            ["accelerator=gpu", "devices=4"], ["LEVIN_SIM_DEVICES=4 in the environment"], RESOURCE
        )
        self.levin(
            ["predict", f"model={self.model}", f"data={self.photos}", "accelerator=sim"],
            RESOURCE,
            ["no simulated devices"],
        )
        self.train_on(
            "sim",
            "run",
            code=USAGE,
            expects=["LEVIN_SIM_DEVICES=many"],
            env={"LEVIN_SIM_DEVICES": "many"},
        )
        self.train_on(
            "sim",
            "run",
            code=USAGE,
            expects=["LEVIN_SIM_MEMORY=much"],
            env={"LEVIN_SIM_MEMORY": "much"},
        )
        self.assertFalse(os.path.exists(self.out))

    def test_auto_is_the_cpu(self):
        self.levin(self.arguments(self.photos, self.out), OK, env=SIM)
        self.assertIn(b"accelerator: cpu", read(f"{self.out}/config.yaml"))


main(turns=2)
