"""strategy=balance: a model in stages over the devices of one process, with the bits of one device.

usage: test_stages.py LEVIN [test names]
"""

import os
import re
import subprocess
import tempfile
import time

from case import Case, LEVIN, main, OK, read, USAGE, WAIT_S
from rank_processes import drop_identity

drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "3", "LEVIN_SIM_MEMORY": "600MiB"}
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=16",
    "batch_size=14",
    "micro_batches=4",
    "wgrad_threads=1",
    "max_epochs=2",
    "log_every_n_steps=1",
]
# residuals around units, running statistics, and what works on the whole gradient
RESNET = ["model=resnet18", "image_size=32", "gradient_clip_val=0.1", "ema.decay=0.9"]


class Stages(Case):
    def run_as(self, name, *arguments, code=OK, expects=(), env=SIM):
        out = f"{self.dir}/{name}"
        text, _ = self.levin([*TRAIN, *arguments, f"out={out}"], code, expects, env)
        return (self.hashes(out), self.reproducible_metrics(out)) if code == OK else text

    def staged(self, n):
        return [f"devices={n}", "strategy=balance"]

    def test_same_bits(self):
        # steps of unequal micro-batches, the last of an epoch shorter
        alone = self.run_as("alone", "accelerator=sim", "devices=1")
        self.assertEqual(self.run_as("two", "accelerator=sim", *self.staged(2)), alone)
        self.assertEqual(self.run_as("three", "accelerator=sim", *self.staged(3)), alone)
        self.assertEqual(self.run_as("cpu", "accelerator=cpu", *self.staged(2))[0], alone[0])
        cut = ["balance.cuts=[norm1,head]", "num_workers=2"]
        self.assertEqual(self.run_as("cut", "accelerator=sim", *self.staged(3), *cut), alone)
        log = read(f"{self.dir}/cut/train.log").decode()
        self.assertRegex(log, r"(?m)\[INFO\] +stage 0: conv1 \(1 unit\)")
        self.assertRegex(log, r"(?m)\[INFO\] +stage 2: head \(1 unit\)")

    def test_random_numbers(self):
        drops = ["model=efficientnet_b0", "image_size=32", "max_steps=1", "precision=bf16-mixed"]
        alone = self.run_as("alone", "accelerator=cpu", "devices=1", *drops)
        self.assertEqual(self.run_as("two", "accelerator=cpu", *self.staged(2), *drops), alone)

    def test_resumed_elsewhere(self):
        steps = ["max_epochs=1", "max_steps=3", "precision=16-mixed", *RESNET]
        whole = self.run_as("whole", "accelerator=sim", "devices=1", *steps)[0]
        layouts = [self.staged(2), ["devices=2", "strategy=dp"], self.staged(3)]
        out = f"{self.dir}/moved"
        for step, layout in enumerate(layouts, 1):
            first = [*TRAIN, *steps] if step == 1 else ["train", "classify", "resume=true"]
            self.levin(
                [*first, "accelerator=sim", *layout, f"max_steps={step}", f"out={out}"], OK, env=SIM
            )
        self.assertEqual(self.hashes(out), whole)

    def test_plan(self):
        plan, _ = self.levin(
            ["plan", *TRAIN, "accelerator=sim", "micro_batches=8", *self.staged(2)], OK, env=SIM
        )
        self.assertIn("each of 2 ranks works on all of them with its stage", plan)
        self.assertRegex(plan, r"8 units in 2 stages, 8 micro-batches")
        work = [float(w) for w in re.findall(r"([0-9.]+) % of the work", plan)]
        self.assertAlmostEqual(sum(work), 100.0, delta=0.2)
        # the slower stage works all the time, or waits for a micro-batch of the other
        bubble = float(re.search(r"bubble ([0-9.]+) %", plan)[1])
        self.assertGreater(bubble, 100 * (1 - 800 / (16 * max(work))) - 0.1)
        self.assertLess(bubble, 100 * (1 - 800 / (2 * (8 * max(work) + min(work)))) + 0.1)

    def test_no_room(self):
        """What a stage keeps, and what it receives, is known before a run begins."""
        run = ["batch_size=1024", "data.count=1400", "image_size=32", "num_workers=0"]
        room = {**SIM, "LEVIN_SIM_MEMORY": "104MiB"}
        self.run_as(
            "two",
            "accelerator=sim",
            *self.staged(2),
            *run,
            code=USAGE,
            expects=["no cut of the model's 8 units into 2 stages fits the memory"],
            env=room,
        )

    def test_refused(self):
        sim = ["accelerator=sim", *self.staged(2)]
        self.run_as("a", *sim, "balance.cuts=[norm2,head]", code=USAGE, expects=["2 units for 2"])
        self.run_as("b", *sim, "balance.cuts=[nothing]", code=USAGE, expects=["nothing", "conv1"])
        self.run_as("c", *sim, "balance.cuts=[conv1]", code=USAGE, expects=["has no unit"])
        self.run_as("d", *sim, "detect_anomaly=true", code=None, expects=["detect_anomaly"])
        self.run_as("e", *sim, "sync_batchnorm=true", code=None, expects=["each other's values"])
        self.run_as("g", *sim, "balance_ranks=[1,2]", code=USAGE, expects=["balance.cuts gives"])
        self.run_as(
            "f",
            "accelerator=cpu",
            *self.staged(9),
            "micro_batches=9",
            code=USAGE,
            expects=["8 units for 9"],
        )


class Module(Case):
    """staged.c: what a module may do in a step."""

    SECONDS = 4  # from a failure to the end of all ranks: less, on a machine that does more
    WRONG = {
        "item": "lvn_item or another read on the host, in the training step, is of a tensor that",
        "backward": "lvn_backward, called in stage",
        "grad": "lvn_grad, called in stage",
        "turn": "linear in first is of stage 0 and needs a tensor that stage 1 has made or used",
        "shape": r"tensor 0 of micro-batch 0 came from stage 0 as \(2, .*4\) f32 and is \(2, ",
        "parameter": "mul is of stage 1 and uses a parameter that stage 0 uses, too",
        "sharing": "mul is of stage 1 and uses a tensor of all ranks that stage 0 uses, too",
        "sometimes": "scale gets a gradient on stage 1 and on an earlier one",
        "fail_first": r"the planted failure(.|\n)*in step 1, stage 0, backward pass of",
        "fail_last": r"the planted failure(.|\n)*in step 1, stage 1, backward pass of",
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.TemporaryDirectory()
        cls.recipe = f"{cls.place.name}/staged.so"
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "staged.c")
        subprocess.run([LEVIN, "cc", source, "-o", cls.recipe], check=True, timeout=WAIT_S)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()
        super().tearDownClass()

    def run_as(self, does, *layout, code):
        out = f"{self.dir}/{does}{len(layout)}"
        run = ["accelerator=cpu", "batch_size=8", "micro_batches=4", "max_steps=3", "quiet=true"]
        if not {"parameter", "sharing", "sometimes"} & {does}:
            run.append("freeze=scale")
        _, text = self.levin(
            ["train", self.recipe, *run, "wgrad_threads=1", *layout, f"out={out}"],
            code,
            env={"STAGED": does},
        )
        return self.hashes(out) if code == OK else text

    def test_wrong(self):
        for does, sentence in self.WRONG.items():
            with self.subTest(does):
                since = time.monotonic()
                cut = ["devices=2", "strategy=balance", "balance.cuts=second"]
                self.assertRegex(self.run_as(does, *cut, code=1), "error: .*" + sentence)
                self.assertLess(time.monotonic() - since, self.SECONDS)

    def test_hang(self):
        """A stage that hangs is named by the one that waits for its message."""
        cut = ["devices=2", "strategy=balance", "balance.cuts=second", "collective_timeout=1"]
        text = self.run_as("hang", *cut, code=76)
        self.assertRegex(text, r"error: rank 0 does not end .*message of another rank.*, in which")

    def test_function_of_two_stages(self):
        """What came from another stage has its place in the ops of a function, too."""
        alone = self.run_as("skip", "devices=1", code=OK)
        cut = ["devices=3", "strategy=balance", "collective_timeout=5"]
        self.assertEqual(self.run_as("skip", *cut, code=OK), alone)


if __name__ == "__main__":
    main()
