"""levin pretrain method=dinov2: dino, and beside it patches that the student does not see.

One hash on every layout, and when it is stopped in mid-epoch and resumed; the teacher's backbone is
what is exported; the last layer waits; what is chosen, and mistakes of the method's own keys.

usage: test_dinov2.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import re
import shutil
import unittest

from patterns import draw_patterns
from pretrain_case import PretrainCase, run_levin
from today import OfToday

SMALL = (
    "method=dinov2 data=builtin:shapes data.count=32 transform_args.image_size=56 batch_size=16"
    " model=dinov2/_vittest14 transform_args.local_view.num_views=2"
    " transform_args.local_view.view_size=28 method_args.hidden_dim=32"
    " method_args.dino_bottleneck_dim=8 method_args.output_dim=16 max_epochs=3 micro_batches=4"
    " wgrad_threads=1 num_workers=1 quiet=true"
).split()
SINKHORN = "method_args.center_method=sinkhorn_knopp"
TEACHER, STUDENT = "model/teacher.", "model/student."
LAST = "projection_head.last_layer.weight_v"


class DinoV2(PretrainCase):
    small = SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        every = ["checkpoint.every_n_train_steps=1", "checkpoint.save_top_k=-1"]
        cls.text = run_levin(cls.dir, "pretrain", *SMALL[:-1], "out=run", *every).stdout
        cls.one = run_levin(cls.dir, "ckpt", "hash", "run").stdout

    def checkpoint(self, step):
        folder = os.path.join(self.dir, "run", "checkpoints")
        names = [n for n in os.listdir(folder) if re.search(rf"step=0*{step}\b", n)]
        self.assertEqual(len(names), 1, os.listdir(folder))
        return f"run/checkpoints/{names[0]}"

    def test_every_layout_has_the_same_bits(self):
        self.assertRegex(self.one, r"weights \w{16}")
        self.assertEqual(self.hashes("two", "devices=2"), self.one)
        threads = ["devices=4", "strategy=dp", "num_workers=0"]
        self.assertEqual(self.hashes("threads", *threads), self.one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hashes("sim", "accelerator=sim", "devices=2", env=sim), self.one)
        self.assertNotEqual(self.hashes("seed", "seed=1"), self.one)

    def test_with_sinkhorn_knopp(self):
        """Over the micro-batches of all ranks."""
        one = self.hashes("spread", SINKHORN)
        self.assertEqual(self.hashes("spread2", SINKHORN, "devices=2"), one)
        self.assertNotEqual(self.hashes("spread apart", SINKHORN, "group=2"), one)
        # exp(1 / 0.01) is not a number of f32
        sharp = ["method_args.teacher_temp=0.01", "method_args.warmup_teacher_temp=0.01"]
        one = self.hashes("sharp", SINKHORN, *sharp)
        self.assertEqual(self.hashes("sharp2", SINKHORN, *sharp, "devices=2"), one)

    def test_stopped_in_an_epoch_and_resumed(self):
        folder = os.path.join(self.dir, "cut")
        shutil.copytree(os.path.join(self.dir, "run"), folder)
        step = os.path.basename(self.checkpoint(3))  # of the second epoch, which has two
        for name in os.listdir(os.path.join(folder, "checkpoints")):
            if name != step:
                os.remove(os.path.join(folder, "checkpoints", name))
        os.rename(
            os.path.join(folder, "checkpoints", step),
            os.path.join(folder, "checkpoints", "last.safetensors"),
        )
        self.levin("pretrain", "out=cut", "resume=true", "devices=2", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "cut"), self.one)

    def test_the_teacher_is_exported(self):
        """Its backbone under the network's own names, the mask token with it."""
        export = "run/exported_models/exported_last.safetensors"
        still = [*SMALL[:-1], "max_steps=1", "optim.lr=0", "method_args.weight_decay_start=0"]
        text = self.levin("pretrain", *still, f"weights={export}", "out=again")
        self.assertRegex(text, r"(\d+) of the model's \1 tensors")
        names = self.changed("run", "again")
        self.assertFalse({n for n in names if n.startswith(TEACHER + "backbone")}, names)
        self.assertIn(STUDENT + "backbone.mask_token", names)
        text = self.levin("eval", "knn", "model=run", "data=builtin:shapes", "data.count=20")
        self.assertRegex(text, r"knn top1 \d\.\d+")

    def test_classify_goes_on_from_its_network(self):
        text = self.levin(
            "train", "classify", "data=builtin:shapes", "data.count=20", "model=dinov2/_vittest14",
            "weights=run", "reset_head=true", "image_size=28", "max_steps=1", "out=fine",
        )  # fmt: skip
        self.assertIn("49 of the model's 51 tensors are from it", text)
        text = self.levin("eval", "model=fine", "data=builtin:shapes", "data.count=20")
        self.assertRegex(text, r"acc \d\.\d+")

    def test_steps_that_wait(self):
        """The last layer's rate is 0 for 30 % of the run's 6 steps; its moments are there at once.
        The rate rises to the last step but one."""
        self.assertIn("student_freeze_last_layer_steps=1: 30 % of the run", self.text)
        changed = [self.changed(self.checkpoint(s), self.checkpoint(s + 1)) for s in (1, 2)]
        self.assertTrue(all(STUDENT + LAST in names for names in changed))
        self.levin("pretrain", *SMALL, "out=held", "method_args.student_freeze_backbone_steps=9",
                   "method_args.student_freeze_last_layer_steps=9")  # fmt: skip
        self.levin("pretrain", *SMALL, "out=begin", "max_epochs=0")
        names = self.changed("begin", "held")
        waits = {n for n in names if n.startswith(STUDENT + "backbone") or n == STUDENT + LAST}
        self.assertFalse(waits, names)
        self.assertIn(STUDENT + "projection_head.layers.0.weight", names)
        with open(f"{self.dir}/run/metrics.jsonl") as f:
            epochs = [json.loads(line) for line in f]
        for name in ("dino_global", "dino_local", "ibot", "koleo"):
            self.assertTrue(any(f"train/{name}_loss" in e for e in epochs), name)

    def test_what_is_chosen(self):
        """The epochs of 125,000 steps; fewer are a warning. A line begins with the loss."""
        self.assertIn("epoch 1 done at step 2: train/loss ", self.text)
        photos = [a for a in SMALL if not a.startswith("data")]
        draw_patterns(f"{self.dir}/photos", 8)
        text = self.levin("pretrain", *photos, "data=photos", "out=photo run", "max_epochs=1")
        self.assertIn("max_epochs=62500 for 32 images in batches of 16", text)
        short = [a for a in SMALL[:-1] if not a.startswith("max_epochs")]
        text = self.levin("plan", "train", "pretrain", *short)
        self.assertIn("the run: 125000 steps, 62500 epochs", text)
        self.assertNotIn("is made for", text)
        text = self.levin("plan", "train", "pretrain", *short, "max_steps=9")
        self.assertIn(
            "the run has 9 steps, and method=dinov2 is made for 125000 or more: max_epochs=62500"
            " for 32 images in batches of 16", text
        )  # fmt: skip

        # an epoch of 36 images has four steps of 8, and what is left over is not one
        odd = ["plan", "train", "pretrain", *short, "data.count=36", "batch_size=8"]
        text = self.levin(*odd)
        self.assertIn("the run: 125000 steps, 31250 epochs", text)
        self.assertNotIn("is made for", self.levin(*odd, "max_epochs=31250"))
        self.assertIn("max_epochs=31250 for", self.levin(*odd, "max_epochs=31249"))

    def test_one_image_of_a_micro_batch(self):
        single = ["plan", "train", "pretrain", *SMALL[:-1], "micro_batches=16"]
        self.assertIn("a micro-batch has a single image, and train/koleo", self.levin(*single))
        for other in ("method_args.koleo_loss_weight=0", "micro_batches=8"):
            self.assertNotIn("single image", self.levin(*single, other))

    def test_sizes_of_views(self):
        base = ["pretrain", *SMALL[:3], *SMALL[4:], "out=x"]
        for typed in ("image_size", "transform_args.image_size"):
            text = self.levin(*base, f"{typed}=14", code=64)
            self.assertIn(f"{typed}=14: model=dinov2/_vittest14, of which method=dinov2", text)
            self.assertIn(f"at least 28; give a larger {typed}", text)
        base = ["pretrain", *SMALL[1:3], "model=convnext_tiny", "out=x", "batch_size=4"]
        text = self.levin(*base, "image_size=31", code=64)
        self.assertIn("image_size=31: model=convnext_tiny needs views with sides of", text)
        small = "transform_args.local_view.view_size"
        text = self.levin(*base, "image_size=64", "method=dino", f"{small}=16", code=64)
        self.assertIn(f"{small}=16: model=convnext_tiny needs", text)
        text = self.levin("plan", "train", *base, "image_size=64", "method=dino")
        self.assertIn("the run", text)  # automatic ones are large enough

    def test_the_least_rate(self):
        base = ["pretrain", *SMALL, "out=x"]
        text = self.levin(*base, "method_args.min_lr=0.9", code=64)
        self.assertIn("method_args.min_lr=0.9 is above the largest learning rate, 0.0005", text)
        text = self.levin(*base, "method_args.min_lr=1e-5", "scheduler.end_factor=0.1", code=64)
        self.assertIn("method_args.min_lr=1e-05 and scheduler.end_factor=0.1: both are the", text)
        text = self.levin(*base, "method_args.min_lr=1e-5", "scheduler=constant", code=64)
        self.assertIn("method_args.min_lr", text)
        self.assertIn("no effect", text)

    def test_a_step_that_is_not_captured(self):
        alone = ["accelerator=sim", "cuda_graph=on", "devices=1", "out=graph"]
        text = self.levin("pretrain", *SMALL, *alone, env={"LEVIN_SIM_DEVICES": "1"}, code=1)
        self.assertIn("the masks of method=dinov2", text)

    def test_advice_is_of_the_method(self):
        collapsed = ["optim.lr=0", "log_every_n_steps=1", "quiet=false", "out=alike"]
        plain = [f"transform_args.{k}=null" for k in ("color_jitter", "random_resize")]
        text = self.levin("pretrain", *SMALL, *collapsed, *plain)
        self.assertIn("have become alike", text)
        self.assertNotIn("method_args.temperature", text)

    def test_mistakes_of_the_method(self):
        bad = ["method=dinov2", "data=builtin:shapes", "out=x"]
        text = self.levin(
            "pretrain", *bad, "model=resnet18", "optim=sgd", "method_args.norm_last_layer=true",
            "embed_dim=4", "method_args.mask_ratio_min=0.6", code=64,
        )  # fmt: skip
        self.assertIn("5 mistakes", text)
        self.assertIn("model=resnet18: method=dinov2 masks patches", text)
        self.assertIn("optim=sgd: method=dinov2 trains with optim=adamw  (", text)
        self.assertIn("method_args.norm_last_layer: method=dinov2 has no such number", text)
        self.assertIn("embed_dim=4: method=dinov2 has its heads right behind", text)
        self.assertIn(
            "method_args.mask_ratio_min=0.6 is above method_args.mask_ratio_max=0.5", text
        )
        bad[0] = "method=dino"
        for key in ("teacher_temp_end=0.1", "mask_probability=1", "center_method=softmax"):
            text = self.levin("pretrain", *bad, "model=cnn", f"method_args.{key}", code=64)
            self.assertIn(f"method_args.{key.split('=')[0]}: method=dino has no such number", text)
        self.levin("pretrain", "config=run/config.yaml", "out=same", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "same"), self.one)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
