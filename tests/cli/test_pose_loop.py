"""How long levin train pose trains, and what it keeps: keys of Lightning Pose's training loop.

usage: test_pose_loop.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import unittest

from pose_case import PoseCase, metrics, read_table
from today import OfToday

STEPS = [
    "~training.max_epochs",
    "~training.min_epochs",
    "~training.unfreezing_epoch",
    "~training.lr_scheduler_params.multisteplr.milestones",
]


class PoseLoop(PoseCase):
    def steps_of(self, run):
        return [step for step, _ in metrics(f"{self.dir}/{run}", "lr")]

    def losses_of_validation(self, run):
        return [value for _, value in metrics(f"{self.dir}/{run}", "val/supervised_loss")]

    def test_thirteen_steps(self):
        """A training in steps, whose epochs have three: the last one is cut short."""
        self.train(
            "out",
            *STEPS,
            "training.max_steps=13",
            "training.min_steps=13",
            "training.unfreezing_step=2",
            "training.lr_scheduler_params.multisteplr.milestone_steps=[4]",
        )
        self.assertEqual(self.steps_of("out"), list(range(1, 14)))
        rates = [rate for _, rate in metrics(f"{self.dir}/out", "lr")]
        self.assertEqual({rates[0], rates[-1]}, {1e-3, 5e-4})

    def test_frames_that_are_left_out(self):
        self.train("out", "training.train_frames=2", "max_steps=1")
        _, rows = read_table(f"{self.dir}/out/predictions.csv", heads=3)
        sets = [row[-1] for row in rows]
        self.assertEqual(len(sets), 12)
        self.assertEqual((sets.count("train"), sets.count("unused")), (2, 4))

    def test_accumulated_batches_are_one(self):
        """Two batches of 2 are a batch of 4 in two micro-batches, where each has its own
        statistics."""
        same = ["sync_batchnorm=false", "wgrad_threads=1", "micro_batches=2"]
        two = self.hash_of("two", *same, "training.accumulate_grad_batches=2")
        self.assertEqual(self.hash_of("one", *same, "training.train_batch_size=4"), two)
        self.assertEqual(len(self.steps_of("two")), 4)  # six frames in two epochs

    def test_profiler(self):
        """It prints where the time goes, and changes nothing."""
        plain = self.hash_of("plain", "max_steps=2")
        text = self.train("timed", "max_steps=2", "training.profiler=simple", "quiet=false")
        self.assertIn("profile: 2 steps in ", text)
        self.assertRegex(text, r"\n +backward +2 ")
        self.assertEqual(self.files_of("timed"), plain)

    def test_line_of_an_epoch(self):
        """The error comes before what the loss is put together of, which does not fit."""
        text = self.train("out", "training.max_epochs=1", "training.min_epochs=1", "quiet=false")
        line = next(x for x in text.splitlines() if x.startswith("epoch 1 done"))
        for name in (" train/loss ", " val/supervised_loss ", " val/supervised_rmse ", " more"):
            self.assertIn(name, line + " ")
        self.assertNotIn("weighted", line)

    def test_what_is_kept(self):
        """The checkpoint of every second epoch, and the one with the least loss of validation."""
        self.train(
            "out",
            "training.max_epochs=4",
            "training.min_epochs=4",
            "training.ckpt_every_n_epochs=2",
        )
        kept = [n for n in os.listdir(f"{self.dir}/out/checkpoints") if n.startswith("epoch")]
        self.assertEqual(sorted(n[:10] for n in kept), ["epoch=0002", "epoch=0004"])
        losses = self.losses_of_validation("out")
        self.assertEqual(len(losses), 4)
        best = self.levin("ckpt", "show", "out/checkpoints/best.safetensors")
        step = 3 * (1 + losses.index(min(losses)))
        self.assertTrue(f"levin.step: {step}\n" in best, losses)

    def test_early_end(self):
        """After a validation without a better loss, and not before min_epochs. A rate of 0 makes
        none better."""
        stop = [
            "training.early_stopping=true",
            "training.early_stop_patience=1",
            "training.max_epochs=20",
            "training.optimizer_params.learning_rate=1e-30",
        ]
        self.train("soon", *stop, "training.min_epochs=1")
        soon = len(self.losses_of_validation("soon"))
        self.train("late", *stop, "training.min_epochs=9")
        self.assertLess(soon, 9)
        self.assertEqual(len(self.losses_of_validation("late")), 9)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
