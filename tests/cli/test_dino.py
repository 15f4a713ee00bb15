"""levin pretrain method=dino: a student and a teacher that follows it.

One hash on every layout, and when it is stopped in mid-epoch and resumed; the teacher's backbone is
what is exported and measured; the last layer waits; mistakes of the method's own keys.

usage: test_dino.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import re
import unittest

from pretrain_case import ApartCase
from today import OfToday

SMALL = (
    "method=dino data=builtin:shapes data.count=32 image_size=16 model=cnn batch_size=16"
    " transform_args.local_view.num_views=2 transform_args.local_view.view_size=8"
    " method_args.hidden_dim=32 method_args.bottleneck_dim=8 method_args.output_dim=16"
    " max_epochs=3 micro_batches=4 wgrad_threads=1 num_workers=1 quiet=true"
).split()
TEACHER, STUDENT = "model/teacher.", "model/student."
LAST = "projection_head.last_layer.weight_v"


class Dino(ApartCase):
    small = SMALL

    def test_every_layout_has_the_same_bits(self):
        one = self.hashes("one")
        self.assertEqual(self.hashes("two", "devices=2"), one)
        self.assertEqual(self.hashes("threads", "devices=4", "strategy=dp", "num_workers=0"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hashes("sim", "accelerator=sim", "devices=2", env=sim), one)
        self.assertNotEqual(self.hashes("seed", "seed=1"), one)

    def test_with_batch_norm_over_the_group(self):
        """Of the student and of the teacher, in the backbone and in the heads."""
        norm = ["model=resnet18", "image_size=32", "group=4", "max_epochs=1"]
        norm += ["method_args.batch_norm=true", "transform_args.local_view.view_size=16"]
        one = self.hashes("one", *norm)
        self.assertEqual(self.hashes("two", *norm, "devices=2"), one)
        self.assertNotEqual(self.hashes("apart", *norm, "sync_batchnorm=false"), one)

    def test_small_views_as_large_as_the_others(self):
        """They share a field, and are learned from."""
        norm_free = ["model=timm/vit_tiny_patch16_224", "image_size=32", "max_steps=1"]
        losses = []
        for i, key in enumerate(("view_size=32", "view_size=16", "num_views=0")):
            self.levin(
                "pretrain", *SMALL, *norm_free, f"transform_args.local_view.{key}", f"out=run{i}",
                "log_every_n_steps=1",
            )  # fmt: skip
            with open(f"{self.dir}/run{i}/metrics.jsonl") as f:
                losses.append(json.loads(f.readline())["train/loss_step"])
        self.assertEqual(len(set(losses)), 3, losses)

    def test_a_transformer_goes_on(self):
        """It has no batch norm, and its config.yaml the sync_batchnorm of the recipe; that file
        begins the same run again."""
        vit = ["model=timm/vit_tiny_patch16_224", "image_size=32", "max_epochs=1", "batch_size=32"]
        vit += ["transform_args.local_view.view_size=16"]
        self.levin("pretrain", *SMALL, *vit, "out=vit")
        self.levin("pretrain", "config=vit/config.yaml", "out=again", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "again"), self.levin("ckpt", "hash", "vit"))
        self.levin("pretrain", "out=vit", "resume=true", "max_epochs=2", "quiet=true")
        text = self.levin("pretrain", *SMALL, *vit, "transform_args.local_view.view_size=20",
                          "out=x", code=64)  # fmt: skip
        self.assertIn("transform_args.local_view.view_size must be a multiple", text)

    def test_a_step_is_captured(self):
        """Its temperature and momentum move on the device."""
        sim = {"LEVIN_SIM_DEVICES": "1"}
        alone = [*SMALL[:-2], "micro_batches=1", "accelerator=sim", "max_steps=6"]
        alone += ["method_args.warmup_teacher_temp=0.01"]
        text = self.levin("pretrain", *alone, "out=on", "verbose=true", env=sim)
        self.assertIn("is captured, and replayed from here on", text)
        self.levin("pretrain", *alone, "out=off", "cuda_graph=off", env=sim)
        self.assertEqual(self.levin("ckpt", "hash", "on"), self.levin("ckpt", "hash", "off"))

    def test_stopped_in_an_epoch_and_resumed(self):
        every = "checkpoint.every_n_train_steps=1"
        whole = self.hashes("whole", every)
        self.hashes("cut", every, "checkpoint.save_top_k=-1")
        run = os.path.join(self.dir, "cut", "checkpoints")
        kept = [n for n in os.listdir(run) if re.search(r"step=0*[123]\b", n)]
        self.assertTrue(kept, os.listdir(run))
        step = max(kept)
        self.assertIn("3", step)  # of the second epoch, which has two
        for name in set(os.listdir(run)) - set(kept):
            os.remove(os.path.join(run, name))
        os.rename(os.path.join(run, step), os.path.join(run, "last.safetensors"))
        self.levin("pretrain", "out=cut", "resume=true", "devices=2", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "cut"), whole)

    def test_the_teacher_is_exported(self):
        """Its backbone under the network's own names, and weights= begin both with it."""
        self.hashes("run")
        export = "run/exported_models/exported_last.safetensors"
        self.export_again(export)
        still = [*SMALL[:-1], "max_steps=1", "optim.lr=0", "optim.weight_decay=0"]
        text = self.levin("pretrain", *still, f"weights={export}", "out=again")
        self.assertRegex(text, r"(\d+) of the model's \1 tensors")
        names = self.changed("run", "again")
        self.assertFalse({n for n in names if n.startswith(TEACHER + "backbone")}, names)
        self.assertIn(STUDENT + "backbone.conv1.weight", names)
        text = self.levin("pretrain", *still, "checkpoint=run", "out=all")
        names = self.changed("run", "all")
        self.assertFalse({n for n in names if "head" in n or "backbone" in n}, names)
        # another model than the run's: the network that it has exported
        one = ["data=builtin:shapes", "data.count=16", "image_size=16", "model=cnn", "max_steps=1"]
        one += ["batch_size=8", "optim.lr=0", "optim.weight_decay=0", "weights=run"]
        head = "method_args.hidden_dim=8"
        for i, command in enumerate((["pretrain", head], ["train", "classify", "val_split=0"])):
            text = self.levin(*command, *one, f"out=other{i}")
            self.assertIn(f"weights=run: {export}, ", text)
            text = self.levin("ckpt", "diff", export, f"other{i}/{export[4:]}", code=1)
            names = set(re.findall(r"^[\w./]+weight", text, re.M))
            self.assertLessEqual(names, {"head.weight"})

    def export_again(self, export):
        """By the command, which needs no images: of a checkpoint, and of weights of others."""
        self.levin("ckpt", "convert", export, "t.pt")
        keys = ["model=cnn", "image_size=16", "method=dino"]
        last = "checkpoint=run/checkpoints/last.safetensors"
        for i, arguments in enumerate(([last], ["pretrain", "weights=t.pt", *keys])):
            text = self.levin("export", *arguments, f"output=again{i}.safetensors")
            self.assertNotIn("new in this run", text)
            self.assertRegex(text, "cnn, 93472 parameters|cnn with the weights of t.pt")
            text = self.levin("ckpt", "diff", f"again{i}.safetensors", export, code=1)
            self.assertEqual(text, f"levin.step: only in {export}\n")
        use = ["model=again1.safetensors", "data=builtin:shapes", "data.count=8", "output=x.npy"]
        self.levin("predict", "embed", *use)
        text = self.levin("export", "pretrain", "weights=t.pt", "output=x.safetensors", code=64)
        self.assertIn("`model` is missing", text)

    def test_the_last_layer_waits(self):
        """Its rate is 0 for the first 30 % of the run's 10 steps; its momentum is there at once."""
        one = ["max_epochs=5", "checkpoint.every_n_train_steps=1", "checkpoint.save_top_k=-1"]
        text = self.levin("pretrain", *SMALL[:-1], "out=run", *one)
        self.assertIn("method_args.student_freeze_last_layer_steps=3: 30 % of the run", text)
        at = {}
        for name in os.listdir(os.path.join(self.dir, "run", "checkpoints")):
            step = re.search(r"step=0*(\d+)", name)
            if step:
                at[int(step[1])] = f"run/checkpoints/{name}"
        changed = [self.changed(at[s], at[s + 1]) for s in (1, 2, 3)]
        self.assertEqual([STUDENT + LAST in names for names in changed], [False, False, True])
        self.assertTrue(all(STUDENT + "projection_head.layers.0.weight" in n for n in changed))

    def test_mistakes_of_the_method(self):
        bad = ["method=dino", "data=builtin:shapes", "model=cnn", "out=x"]
        text = self.levin(
            "pretrain", *bad, "optim=lars", "method_args.temperature=1", "method_args.num_layers=2",
            code=64,
        )  # fmt: skip
        self.assertIn("3 mistakes", text)
        self.assertIn("optim=lars: method=dino trains with optim=sgd or adamw", text)
        self.assertIn("method_args.temperature: method=dino has no such number; it has", text)
        bad[0] = "method=simclr"
        for key in ("method_args.teacher_temp=1", "method_args.weight_decay_start=1"):
            text = self.levin("pretrain", *bad, key, code=64)
            self.assertIn(f"{key.split('=')[0]}: method=simclr has no such number", text)
        text = self.levin("pretrain", *bad, "transform_args.local_view.num_views=2", code=64)
        self.assertIn("transform_args.local_view.num_views: the views of method=simclr", text)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(3))
