"""levin pretrain method=distillation: a network learns from another one, which stays as it is.

One hash on every layout, and when it is stopped in mid-epoch and resumed; the teacher is in no
checkpoint and read again at every start, from the same file; mistakes of the method's own keys.

usage: test_distill.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import re
import shutil
import unittest

from pretrain_case import PretrainCase, run_levin
from today import OfToday

TEACHER = "exported_models/exported_last.safetensors"
SMALL = (
    "method=distillation data=builtin:shapes data.count=40 image_size=40 model=cnn batch_size=16"
    " method_args.teacher=cnn method_args.queue_size=24 max_epochs=3"
    " micro_batches=4 group=4 wgrad_threads=1 num_workers=1 quiet=true"
).split()


class Distill(PretrainCase):
    small = SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for seed in (0, 1):
            run_levin(
                cls.dir,
                "pretrain", "data=builtin:shapes", "data.count=16", "model=cnn", "quiet=true",
                "batch_size=16", "max_epochs=1", "method_args.hidden_dim=8", f"out=teacher{seed}",
                f"seed={seed}",
            )  # fmt: skip
        shutil.copy(f"{cls.dir}/teacher0/{TEACHER}", f"{cls.dir}/t.safetensors")
        SMALL.append("method_args.teacher_weights=t.safetensors")

    def test_every_layout_has_the_same_bits(self):
        """The queue has the rows of all devices."""
        one = self.hashes("one")
        self.assertEqual(self.hashes("two", "devices=2"), one)
        self.assertEqual(self.hashes("threads", "devices=4", "strategy=dp", "num_workers=0"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hashes("sim", "accelerator=sim", "devices=2", env=sim), one)
        first = self.hashes("first", "method=distillationv1", "method_args.queue_size=8")
        again = ["method=distillationv1", "method_args.queue_size=8", "devices=2"]
        self.assertEqual(self.hashes("first2", *again), first)
        no_queue = [a for a in SMALL if "queue" not in a and "group" not in a]
        self.levin("pretrain", *no_queue, "method=distillationv2", "out=second")

    def test_a_step_is_captured(self):
        """The partners of its images are drawn on the device."""
        sim = {"LEVIN_SIM_DEVICES": "1"}
        alone = [a for a in SMALL if "quiet" not in a and "batches" not in a and "group" not in a]
        alone += ["micro_batches=1", "accelerator=sim", "max_steps=4", "verbose=true"]
        text = self.levin("pretrain", *alone, "out=on", env=sim)
        self.assertIn("is captured, and replayed from here on", text)
        self.levin("pretrain", *alone, "out=off", "cuda_graph=off", env=sim)
        self.assertEqual(self.levin("ckpt", "hash", "on"), self.levin("ckpt", "hash", "off"))

    def test_stopped_in_an_epoch_and_resumed(self):
        every = "checkpoint.every_n_train_steps=1"
        whole = self.hashes("whole", every)
        self.hashes("cut", every, "checkpoint.save_top_k=-1")
        run = os.path.join(self.dir, "cut", "checkpoints")
        kept = [n for n in os.listdir(run) if re.search(r"step=0*[123]\b", n)]
        step = max(kept)
        self.assertIn("3", step)  # of the second epoch, which has two
        for name in set(os.listdir(run)) - set(kept):
            os.remove(os.path.join(run, name))
        os.rename(os.path.join(run, step), os.path.join(run, "last.safetensors"))
        self.assertNotIn("model/teacher.", self.levin("ckpt", "show", "cut"))
        # the teacher is read again, and must be the same one
        shutil.copy(f"{self.dir}/teacher1/{TEACHER}", f"{self.dir}/t.safetensors")
        text = self.levin("pretrain", "out=cut", "resume=true", code=64)
        self.assertIn("its SHA-256 begins with", text)
        os.remove(f"{self.dir}/t.safetensors")
        text = self.levin("pretrain", "out=cut", "resume=true", code=64)
        self.assertIn("method_args.teacher_weights: ", text)
        shutil.copy(f"{self.dir}/teacher0/{TEACHER}", f"{self.dir}/t.safetensors")
        self.levin("pretrain", "out=cut", "resume=true", "devices=2", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "cut"), whole)

    def test_the_student_is_used_without_its_teacher(self):
        self.levin("pretrain", *SMALL, "max_epochs=1", "out=used")
        os.rename(f"{self.dir}/t.safetensors", f"{self.dir}/away.safetensors")
        text = self.levin("eval", "knn", "model=used", "data=builtin:shapes", "data.count=40")
        self.assertRegex(text, r"knn top1 \d\.\d+")
        text = self.levin("eval", "knn", "model=used/checkpoints/last.safetensors",
                          "data=builtin:shapes", "data.count=40")  # fmt: skip
        self.assertRegex(text, r"knn top1 \d\.\d+")
        os.rename(f"{self.dir}/away.safetensors", f"{self.dir}/t.safetensors")

    def test_what_is_seldom_meant(self):
        """Allowed, with a warning at the start; `plan` has them, too."""
        tiny = "timm/vit_tiny_patch16_224"
        begin = "data.count=8 max_epochs=0 batch_size=8 image_size=16 out=vit quiet=true".split()
        self.levin("pretrain", "data=builtin:shapes", f"model={tiny}", *begin)
        self.levin("export", "model=vit", "card=false", "output=v.safetensors")
        plan = ["plan", "train", "pretrain", *SMALL[:-2], "out=x"]
        vit = [f"method_args.teacher={tiny}", "image_size=48"]
        vit += ["method_args.teacher_weights=v.safetensors"]
        half = "[0.5,0.5,0.5]"
        halves = [f"transform_args.normalize.{k}={half}" for k in ("mean", "std")]
        ours = SMALL[-1]
        cases = [
            ([ours], None),
            ([ours, "image_size=7"], "the map of method_args.teacher=cnn has a single"),
            ([ours, "image_size=7", "method_args.loss_local_weight=0"], None),
            ([*vit], f"its own are transform_args.normalize.mean={half}"),
            ([*vit, *halves], None),
            ([ours, *halves], None),  # levin's own exports do not record it
            ([ours, "batch_size=1", "micro_batches=1", "group=1"], "batch_size=1: a step has a"),
            ([ours, "knn.data=builtin:shapes"], None),
            ([ours, "knn.data=builtin:shapes", "knn.seed=0"], "is measured on are among those of"),
        ]
        for arguments, warning in cases:
            text = self.levin(*plan, *arguments)
            self.assertEqual("warning: " in text, warning is not None, (arguments, text))
            self.assertIn(warning or "", text)

    def test_mistakes(self):
        data = ["method=distillation", "data=builtin:shapes", "model=cnn", "out=x", "data.count=40"]
        text = self.levin("pretrain", *data, code=64)
        self.assertIn("2 mistakes", text)
        self.assertIn("`method_args.teacher` is missing", text)
        self.assertIn("`method_args.teacher_weights` is missing: a file with the teacher's", text)
        taught = ["method_args.teacher=cnn", "method_args.teacher_weights=t.safetensors"]
        known = ["method_args.teacher=resnet18", "method_args.teacher_weights=no.safetensors"]
        text = self.levin("pretrain", *data, *known, code=64)
        self.assertIn("then method_args.teacher_weights=", text)
        text = self.levin("pretrain", *data, *taught, "method_args.queue_size=40", code=64)
        self.assertIn("method_args.queue_size=40: the queue must be smaller than the set", text)
        text = self.levin(
            "pretrain", *data, taught[1], "method_args.teacher=resnet34", "batch_size=8", code=1
        )
        self.assertIn("t.safetensors does not fit this model, resnet34", text)
        other = "method_args.teacher_sha256=00000000"
        text = self.levin("pretrain", *data, *taught, other, code=64)
        self.assertIn("its SHA-256 begins with", text)
        text = self.levin("pretrain", *data, *taught, "method_args.teacher_sha256=00", code=64)
        self.assertIn("at least the first 8 hexadecimal digits", text)
        vit = ["method_args.teacher=dinov2/vits14", "image_size=32", taught[1]]
        text = self.levin("pretrain", *data, *vit, code=64)
        self.assertIn("method_args.teacher=vits14 cuts images into patches of 14 pixels", text)
        self.assertFalse(os.path.exists(f"{self.dir}/x"))


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
