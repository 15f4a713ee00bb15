"""levin pretrain: a backbone from images without classes (method=simclr).

The run has one hash on every layout and when it is killed in mid-epoch and resumed; its backbone
is a file that classify and torch.load take; mistakes come in one message.

usage: test_pretrain.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import array
import json
import math
import os
import re
import shutil
import sys
import unittest

from patterns import crop_middle, draw_patterns
from pretrain_case import ApartCase
from today import OfToday

SMALL = (
    "data=builtin:shapes data.count=48 image_size=12 model=cnn method_args.hidden_dim=32"
    " method_args.output_dim=16 batch_size=16 max_epochs=2 micro_batches=4 group=4"
    " wgrad_threads=1 num_workers=1 quiet=true"
).split()


class Pretrain(ApartCase):
    small = SMALL

    def test_every_layout_has_the_same_bits(self):
        one = self.hashes("one")
        self.assertEqual(self.hashes("two", "devices=2"), one)
        self.assertEqual(self.hashes("threads", "devices=4", "strategy=dp", "num_workers=0"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hashes("sim", "accelerator=sim", "devices=2", env=sim), one)
        self.assertNotEqual(self.hashes("seed", "seed=1"), one)

    def test_the_newest_is_the_best(self):
        """Where no image is held out: a loss that rises does not show that a model is worse."""
        rises = ["data.count=24", "image_size=16", "batch_size=8", "max_epochs=3", "optim.lr=20"]
        self.levin("pretrain", *SMALL, *rises, "micro_batches=1", "group=1", "out=rises")
        with open(os.path.join(self.dir, "rises/metrics.jsonl"), encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        losses = [row["train/loss"] for row in rows if "train/loss" in row]
        self.assertGreater(losses[-1], min(losses))
        last = self.levin("ckpt", "hash", "rises/checkpoints/last.safetensors")
        self.assertEqual(self.levin("ckpt", "hash", "rises/checkpoints/best.safetensors"), last)

    def test_a_step_of_one_micro_batch_is_captured(self):
        """Nothing in it waits for the host, or copies to the device."""
        sim = {"LEVIN_SIM_DEVICES": "1"}
        alone = [*SMALL[:-1], "micro_batches=1", "group=1", "accelerator=sim", "devices=1"]
        text = self.levin("pretrain", *alone, "out=on", "verbose=true", env=sim)
        self.assertIn("is captured, and replayed from here on", text)
        self.levin("pretrain", *alone, "out=off", "cuda_graph=off", env=sim)
        self.assertEqual(self.levin("ckpt", "hash", "on"), self.levin("ckpt", "hash", "off"))

    def test_stopped_in_an_epoch_and_resumed(self):
        """On other devices; the views of the rest of the epoch are the same, too."""
        whole = self.hashes("whole", "checkpoint.every_n_train_steps=1")
        cut = ["checkpoint.every_n_train_steps=1", "checkpoint.save_top_k=-1"]
        self.hashes("cut", *cut)
        run = os.path.join(self.dir, "cut", "checkpoints")
        later = [name for name in os.listdir(run) if re.search(r"step=0*[56]\b|last|best", name)]
        kept = [name for name in os.listdir(run) if name not in later]
        self.assertTrue(kept and later, os.listdir(run))
        step = max(kept)  # of the second epoch, which has three
        self.assertIn("4", step)
        for name in later:
            os.remove(os.path.join(run, name))
        os.rename(os.path.join(run, step), os.path.join(run, "last.safetensors"))
        self.levin("pretrain", "out=cut", "resume=true", "devices=2", "quiet=true")
        self.assertEqual(self.levin("ckpt", "hash", "cut"), whole)

    def test_uneven_micro_batches(self):
        """9 samples on 2 devices are 5 and 4."""
        text = self.levin(
            "plan", "train", "pretrain", *SMALL[:-6], "batch_size=9", "devices=2", "out=x"
        )
        self.assertIn("effective batch 9 = 2 micro-batches x 5 or 4", text)
        text = self.levin(
            "plan", "train", "pretrain", *SMALL[:5], "loader_args.batch_size=3", "devices=2"
        )
        self.assertIn("effective batch 6 = 2 micro-batches x 3", text)

    def test_the_backbone_is_a_file_of_its_own(self):
        draw_patterns(os.path.join(self.dir, "patterns"), 6)
        arguments = ["data=patterns", "model=torchvision/resnet18", "image_size=32"]
        arguments += ["batch_size=6", "max_epochs=1", "method_args.hidden_dim=16", "quiet=true"]
        self.levin("pretrain", *arguments, "out=run")
        exported = json.loads(
            self.levin("ckpt", "show", "run/exported_models/exported_last.safetensors", "json=true")
        )
        names = {t["name"] for t in exported["tensors"]}
        self.assertEqual(len(names), 122)
        self.assertIn("layer4.1.bn2.num_batches_tracked", names)
        self.levin("ckpt", "convert", "run/exported_models/exported_last.pt", "back.safetensors")
        last = "run/exported_models/exported_last.safetensors"
        text = self.levin("ckpt", "diff", "back.safetensors", last, code=1)
        self.assertEqual(text.strip(), f"levin.step: only in {last}")
        # by classify, from the exported file, and from the checkpoint, which has a head beside it
        tune = ["classify", "data=patterns", "model=resnet18", "image_size=32", "max_epochs=1"]
        for i, weights in enumerate([f"weights={last}", "weights=run"]):
            more = [*weights.split(), "reset_head=true"]
            text = self.levin("train", *tune, *more, f"out=tuned{i}")
            self.assertRegex(text, r"weights=.*[:,] 100 of the model's 102 tensors")

    def test_vision_transformers(self):
        """Under timm's names; images pass layers by, with one hash on every layout. Tokens and
        positions have no decay."""
        vit = ["model=timm/vit_tiny_patch16_224", "image_size=16", "max_steps=2", "group=2"]
        vit += ["micro_batches=2", "batch_size=8", "model.drop_path=0.4"]
        one = self.hashes("one", *vit)
        text = self.levin("pretrain", *SMALL, "out=loud", *vit, "max_steps=1", "quiet=false")
        self.assertIn("optim.decay_of weights (tokens", text)
        self.assertNotIn("model.drop_path", text.partition("auto: ")[2])
        text = self.levin("pretrain", *SMALL, "out=loud", *vit, "max_epochs=0", "quiet=false",
                          "method=dino", "overwrite=true")  # fmt: skip
        self.assertNotIn("optim.decay_of", text)  # its own rule
        self.assertEqual(self.hashes("two", *vit, "devices=2"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hashes("sim", *vit, "accelerator=sim", "devices=2", env=sim), one)
        self.assertNotEqual(self.hashes("all", *vit, "model.drop_path=0"), one)
        with open(os.path.join(self.dir, "one/config.yaml"), encoding="utf-8") as f:
            self.assertIn("optim.decay_of: weights\n", f.read())
        last = "weights=one/exported_models/exported_last.safetensors"
        tune = ["classify", "data=builtin:shapes", "data.count=24", "max_steps=1", "batch_size=4"]
        tune += ["model=vit_tiny_patch16_224", last, "out=tuned", "image_size=32"]
        text = self.levin("train", *tune)
        self.assertIn("150 of the model's 152 tensors are from it", text)
        with open(os.path.join(self.dir, "tuned/config.yaml"), encoding="utf-8") as f:
            self.assertIn("mean: auto", f.read())  # not of timm's vision transformers
        text = self.levin("train", *tune, "weights=one", "out=again", "reset_head=true")
        self.assertNotIn("0.5,0.5", text)
        export = ["ckpt", "show", last[8:], "json=true"]
        shapes = {t["name"]: t["shape"] for t in json.loads(self.levin(*export))["tensors"]}
        self.assertEqual(len(shapes), 152)
        self.assertEqual(shapes["pos_embed"], [1, 197, 192])

    def test_large_and_small_views_of_a_vision_transformer(self):
        """Positions are interpolated for each, in one step; the teacher drops nothing."""
        vit = ["model=timm/vit_tiny_patch16_224", "image_size=32", "max_steps=2", "batch_size=8"]
        vit += ["method=dino", "method_args.bottleneck_dim=8", "model.drop_path=0.3"]
        vit += ["transform_args.local_view.view_size=[16,16]"]
        vit += ["transform_args.local_view.num_views=2"]
        one = self.hashes("one", *vit)
        self.assertEqual(self.hashes("two", *vit, "devices=2"), one)
        self.assertEqual(self.hashes("threads", *vit, "devices=4", "strategy=dp"), one)
        self.assertNotEqual(self.hashes("all", *vit, "model.drop_path=0"), one)

    def test_layer_decay(self):
        """Of a step's changes, those of block i of 12 are 0.9^(12 - i) of those without it, of the
        embeddings 0.9^13; the norm and the head have all of them."""
        vit = [*SMALL[:2], "model=timm/vit_tiny_patch16_224", "image_size=16", "batch_size=8"]
        vit += "method_args.hidden_dim=16 micro_batches=1 optim=sgd optim.lr=99".split()
        vit += "optim.momentum=0 optim.weight_decay=0 scheduler=constant".split()
        self.levin("pretrain", *vit, "max_epochs=0", "out=before")
        self.levin("pretrain", *vit, "max_steps=1", "out=all")
        self.levin("pretrain", *vit, "max_steps=1", "out=less", "optim.layer_decay=0.9")

        def read(run):
            with open(os.path.join(self.dir, run, "checkpoints/last.safetensors"), "rb") as f:
                data = f.read()
            begin = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:begin])
            return {
                name: array.array("f", data[begin + at["data_offsets"][0] :][:400])
                for name, at in header.items()
                if name.startswith("model/") and at["dtype"] == "F32"
            }

        before, whole, less = read("before"), read("all"), read("less")
        factors = {f"backbone.blocks.{i}.attn.proj.bias": 0.9 ** (12 - i) for i in range(12)}
        factors["backbone.patch_embed.proj.bias"] = 0.9**13
        factors["backbone.norm.bias"] = factors["projection_head.layers.0.weight"] = 1
        for name, factor in factors.items():
            at = max(range(16), key=lambda i: abs(whole[f"model/{name}"][i]))
            a, b, c = (t[f"model/{name}"][at] for t in (before, whole, less))
            self.assertGreater(abs(b - a), 1e-4 * abs(a), name)  # biases begin with 0
            self.assertAlmostEqual((c - a) / (b - a), factor, delta=1e-3, msg=name)

    def test_weights_of_dinov2(self):
        """Its models have none without a file, and no classifier."""
        dino = [*SMALL[:2], "model=dinov2/vits14", "image_size=14", "max_steps=1", "batch_size=2"]
        text = self.levin("pretrain", *dino, "out=no", code=64)
        for part in ("dinov2_vits14/dinov2_vits14_reg4_pretrain.pth, then weights=", "vits14-notp"):
            self.assertIn(part, text)
        text = self.levin("pretrain", *dino, "weights=no.pth", "out=no", code=64)
        self.assertIn("then weights=dinov2_vits14_reg4_pretrain.pth", text)
        text = self.levin("pretrain", *SMALL, "model.drop_path=0.1", "out=no", code=64)
        self.assertIn("model=cnn has no layers that images can pass by", text)
        for size, large, small in ([], 28, 14), (["image_size=224"], 224, 98), ([], 32, 16):
            vit = "timm/vit_tiny_patch16_224" if large == 32 else "dinov2/vits14-notpretrained"
            self.levin("pretrain", *dino[:2], f"model={vit}", *size, "method=dino", "max_epochs=0",
                       "optim=sgd", "optim.momentum=0", "method_args.output_dim=8", "out=sizes",
                       "overwrite=true")  # fmt: skip
            with open(os.path.join(self.dir, "sizes/config.yaml"), encoding="utf-8") as f:
                text = f.read()
            self.assertRegex(text, rf"transform_args.image_size: \[{large}[],]")
            self.assertIn(f"local_view.view_size: [{small}, {small}]", text)
        dino[2] += "-noreg-notpretrained"
        dino += ["optim=sgd", "optim.momentum=0"]  # two numbers less to write for each weight
        self.levin("pretrain", *dino, "out=run", "method_args.hidden_dim=16")
        for i, weights in enumerate(["run", "run/exported_models/exported_last.pt"]):
            text = self.levin("train", "classify", *dino, f"weights={weights}", f"out=tuned{i}")
            self.assertIn("175 of the model's 177 tensors are from it; the last layer, head", text)

    def test_weights_to_begin_with(self):
        """All of a checkpoint, with its head; of an export the backbone alone."""
        self.levin("pretrain", *SMALL, "out=before")
        still = [*SMALL[:-1], "max_steps=1", "optim.lr=0", "optim.weight_decay=0"]

        def changed(out, *arguments):
            text = self.levin("pretrain", *still, f"out={out}", *arguments)
            self.assertRegex(text, r"(\d+) of the model's \1 tensors")
            text = self.levin("ckpt", "diff", "before", out, code=1)
            return {name for name in re.findall(r"^[\w./]+", text, re.M) if "running" not in name}

        head = "model/projection_head.layers.0.weight"
        self.assertNotIn(head, changed("whole", "checkpoint=before"))
        for ending in ("safetensors", "pt"):
            export = f"weights=before/exported_models/exported_last.{ending}"
            names = changed(ending, export)
            self.assertIn(head, names)
            self.assertEqual([n for n in names if "backbone" in n and "optim" not in n], [])

    def test_neighbours_vote(self):
        """eval against votes of the features that predict writes, on every layout the same."""
        for part, n in (("train", 9), ("val", 4)):
            draw_patterns(os.path.join(self.dir, "parts", part), n, 18)  # the middle 16 of which
        crop_middle(f"{self.dir}/parts", f"{self.dir}/middle", 16)
        arguments = ["data=parts", "model=cnn", "image_size=16", "batch_size=8", "max_epochs=1"]
        self.levin("pretrain", *arguments, "out=run", "quiet=true", "num_workers=0")
        use = ["model=run", "data=parts", "accelerator=cpu"]
        middle = ["model=run", "data=middle", "accelerator=cpu"]
        one = self.levin("predict", "embed", *middle, "output=one.csv")
        self.levin("predict", *middle, "output=two.csv", "devices=2")
        with open(f"{self.dir}/one.csv", encoding="utf-8") as a:
            with open(f"{self.dir}/two.csv", encoding="utf-8") as b:
                text = a.read()
                self.assertEqual(text, b.read(), one)
        rows = [line.split(",") for line in text.splitlines()]
        self.assertEqual(rows[0][:2] + rows[0][-1:], ["filename", "embedding_0", "embedding_127"])
        unit = {}
        for name, *values in rows[1:]:
            x = [float(v) for v in values]
            unit[name] = [v / math.sqrt(sum(w * w for w in x)) for v in x]
        for k, temperature in ((1, 0.1), (7, 0.1), (20, 0.5), (500, 1)):
            right = []
            for name in (n for n in unit if n.startswith("val/")):
                cosines = sorted(
                    (
                        (sum(a * b for a, b in zip(unit[name], unit[r])), r.split("/")[1])
                        for r in unit
                        if r.startswith("train/")
                    ),
                    reverse=True,
                )
                votes = {}
                for cosine, label in cosines[:k]:
                    votes[label] = votes.get(label, 0) + math.exp(cosine / temperature)
                right.append(max(votes, key=votes.get) == name.split("/")[1])
            keys = [f"k={k}", f"temperature={temperature}", "json=true"]
            found = [
                re.search("{.*}", self.levin("eval", "knn", *use, *keys, f"devices={n}"))[0]
                for n in (1, 2)
            ]
            self.assertEqual(found[0], found[1])
            found = json.loads(found[0])
            self.assertAlmostEqual(found["top1"], sum(right) / len(right), 6)
            self.assertEqual(
                (found["n"], found["references"]), (len(right), len(unit) - len(right))
            )
        text = self.levin("eval", "knn", *use, "val_split=0.5", code=64)
        self.assertIn("val_split", text)

    HELD = "knn.data=builtin:shapes knn.count=120 knn.val_split=0.5 knn.k=3 max_epochs=3".split()

    def knn(self, out):
        with open(f"{self.dir}/{out}/metrics.jsonl", encoding="utf-8") as f:
            return [row["val/knn"] for row in map(json.loads, f) if "val/knn" in row]

    def test_neighbours_of_held_images(self):
        """val/knn is what eval finds, on every layout, and best is chosen by it."""
        keep = ["checkpoint.save_top_k=-1", "eval_batch_size=7"]
        one = self.hashes("one", *self.HELD, *keep)
        values = self.knn("one")
        self.assertEqual(len(values), 3)
        self.assertGreater(len(set(values)), 1)
        self.assertEqual(self.hashes("without", "max_epochs=3"), one)
        self.assertEqual(self.knn("without"), [])
        sim = {"LEVIN_SIM_DEVICES": "2"}
        for name, arguments, env in (
            ("two", ["devices=2"], None),
            ("threads", ["devices=4", "strategy=dp", "num_workers=0"], None),
            ("sim", ["accelerator=sim", "devices=2"], sim),
        ):
            self.assertEqual(self.hashes(name, *self.HELD, *keep, *arguments, env=env), one)
            self.assertEqual(self.knn(name), values, name)
        data = ["data=builtin:shapes", "data.count=120", "val_split=0.5", "k=3", "json=true"]
        for at, value in (("last", values[-1]), ("best", max(values))):
            text = self.levin("eval", "knn", "model=one", f"checkpoint={at}", *data, "data.seed=1")
            self.assertEqual(json.loads(re.search("{.*}", text)[0])["top1"], round(value, 9))
        self.assertNotEqual(self.hashes("seed", *self.HELD, "seed=1"), one)

    def test_held_images_of_a_folder(self):
        for part, n in (("train", 9), ("val", 4)):
            draw_patterns(os.path.join(self.dir, "parts", part), n)
        more = ["knn.data=parts", "knn.every_n_epochs=2", "max_epochs=4", "save_top_k=1"]
        text = self.levin("pretrain", *SMALL[:-1], *more, "out=run")
        self.assertRegex(text, r"val/knn: \d+ images of parts by their neighbours among \d+")
        self.assertEqual(len(self.knn("run")), 2)
        os.remove(f"{self.dir}/run/metrics.jsonl")
        text = self.levin("pretrain", "out=run", "resume=true", "max_epochs=6")
        self.assertEqual(len(self.knn("run")), 1)
        text = self.levin("pretrain", *SMALL, *more, "limit_val_batches=1", "out=x", code=64)
        self.assertIn("of which all images are needed", text)
        text = self.levin("pretrain", *SMALL, "knn.k=3", "out=x", code=64)
        self.assertIn("knn.data", text)
        text = self.levin("pretrain", *SMALL, *more, "out=x", "knn.data=nowhere", code=64)
        self.assertIn("nowhere", text)
        more.append("checkpoint.monitor=val/knnn")
        text = self.levin("pretrain", *SMALL, *more, "out=x", code=64)
        self.assertIn("did you mean `val/knn`", text)
        # of the pool; its references may be
        plan = ["plan", "train", "pretrain", *SMALL[2:-1], *more[:1], "out=x"]
        os.symlink("parts", f"{self.dir}/link")
        for data, pool in (
            ("parts", True),
            ("[link/val,parts/train]", True),
            ("link/train", False),
        ):
            text = self.levin(*plan, f"data={data}")
            self.assertEqual("val/knn is measured on are among those of data=" in text, pool, text)

    def test_features_that_are_alike(self):
        """Copies of one image, and a network that has collapsed, are one warning."""
        draw_patterns(os.path.join(self.dir, "one"), 1)
        folder = os.path.join(self.dir, "one")
        [first, *_] = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names)
        os.makedirs(f"{self.dir}/copies")
        for i in range(48):
            shutil.copy(first, f"{self.dir}/copies/{i}{os.path.splitext(first)[1]}")
        plain = "transform_args.color_jitter=null transform_args.random_resize=null"
        plain += " transform_args.random_flip=null transform_args.gaussian_blur=null"
        plain += " transform_args.random_gray_scale=0 log_every_n_steps=1 quiet=false"
        more = [*SMALL[2:], *plain.split(), "devices=2"]
        text = self.levin("pretrain", "data=copies", *more, "out=alike")
        self.assertEqual(text.count("the features of all images have become alike"), 1, text)
        self.assertRegex(text, "alike: feature_std is .* at step 2, below 0.05")
        text = self.levin("pretrain", *SMALL[:2], *more, "out=spread")
        self.assertNotIn("alike", text)
        # one image and its views show nothing
        text = self.levin("pretrain", "data=copies", *more, "micro_batches=16", "out=single")
        self.assertNotIn("alike", text)

    def test_what_becomes_of_the_rate(self):
        """0.3 is for 256 images; it follows the effective batch, and not the devices."""

        def rates(out, *arguments):
            self.levin("pretrain", *SMALL, f"out={out}", "log_every_n_steps=1", *arguments)
            with open(f"{self.dir}/{out}/metrics.jsonl", encoding="utf-8") as f:
                return [row["lr"] for row in map(json.loads, f) if "lr" in row]

        steady = ["scheduler=constant", "scheduler.warmup_steps=0"]
        self.assertAlmostEqual(rates("a", *steady)[0], 0.3 * 16 / 256, 12)
        self.assertAlmostEqual(rates("b", *steady, "devices=2")[0], 0.3 * 16 / 256, 12)
        more = ["accumulate_grad_batches=2", "micro_batches=2", "group=1"]
        root = "method_args.lr_scale_method=sqrt"
        self.assertAlmostEqual(rates("c", *steady, root)[0], 0.3 * 0.25, 12)
        self.assertAlmostEqual(
            rates("d", *steady, "optim_args.lr=0.1", *more)[0], 0.1 * 32 / 256, 12
        )
        self.assertAlmostEqual(rates("e", *steady, "optim=adamw")[0], 0.001 * 16 / 256, 12)
        self.assertAlmostEqual(rates("f", *steady, "optim=sgd")[0], 0.3 * 16 / 256, 12)
        self.assertAlmostEqual(rates("g", *steady, "optim=lars")[0], 0.3 * 16 / 256, 12)

    def test_a_schedule_that_rises_by_itself(self):
        """The warm-up of the method is left out; one that is given is a mistake."""
        for method, model in (
            ("simclr", "resnet18"),
            ("dino", "resnet18"),
            ("dinov2", "dinov2/_vittest14"),
        ):
            words = ["plan", "train", "pretrain", f"method={method}", f"model={model}"]
            words += ["data=builtin:shapes", "data.count=40", "image_size=28", "batch_size=8"]
            words += ["max_epochs=40", "scheduler=onecycle", "out=none"]
            self.levin(*words)
            text = self.levin(*words, "scheduler.warmup_steps=3", code=64)
            self.assertIn("leave out scheduler.warmup_steps", text)

    def test_fewer_images_than_a_batch(self):
        text = self.levin("pretrain", *SMALL[:-1], "batch_size=64", "out=run")
        self.assertEqual(text.count("fewer than batch_size=64: a batch has 48"), 1, text)

    def test_groups_in_one_argument(self):
        """LightlyTrain's dicts are the dotted keys; null gives nothing, or switches a group off,
        which a later map switches on again."""
        with open(f"{self.dir}/off.yaml", "w") as f:
            f.write("transform_args:\n  color_jitter: null\n")
        dotted = ["method_args.temperature=0.3", "optim_args.lr=0.2", "optim_args.momentum=0.5"]
        dotted += ["transform_args.gaussian_blur=null", "transform_args.color_jitter.strength=0.25"]
        maps = ["config=off.yaml", "method_args={'temperature': 0.3}", "loader_args=null"]
        maps += ["optim_args={lr: 0.1, momentum: 0.5}", "optim_args={lr: 0.2}"]
        maps += ["transform_args={gaussian_blur: null, color_jitter: {strength: 0.25}}"]
        one = self.hashes("dotted", *dotted, "max_steps=1")
        self.assertEqual(self.hashes("maps", *maps[1:], "max_steps=1"), one)
        self.assertNotEqual(self.hashes("off", *maps[:-1], "max_steps=1"), one)
        maps[-1:] = [
            "transform_args.gaussian_blur=null",
            "transform_args.color_jitter={strength: 0.25}",
        ]
        self.assertEqual(self.hashes("again", *maps, "max_steps=1"), one)
        bad = ["method_args={temprature: 1, temperature: warm}", "optim_args={lr: 1"]
        text = self.levin("pretrain", *SMALL, *bad, "out=x", code=64)
        self.assertIn("3 mistakes", text)
        self.assertIn("unknown key `method_args.temprature`", text)
        self.assertIn("method_args.temperature `warm`: expected a number", text)
        self.assertIn("optim_args: did not find expected ',' or '}'", text)

    def test_mistakes_come_together(self):
        text = self.levin(
            "pretrain", "epochs=1.5", "method_args.temprature=1", "transform_args.solarize.prob=2",
            "embed_dim=x", code=64,
        )  # fmt: skip
        for part in (
            "max_epochs", "1.5", "`data` is missing", "`model` is missing",
            "method_args.temperature", "transform_args.solarize.prob", "embed_dim",
        ):  # fmt: skip
            self.assertIn(part, text)
        self.assertIn("method_args.temperature", self.levin("pretrain", "help"))
        text = self.levin("train", "data=x", "method=simclr", "model=resnet18", code=64)
        self.assertEqual(text, "error: the recipe is missing: levin train pretrain data=x\n")
        text = self.levin("train", "data=x", "model=torchvision/resnet18", code=64)
        self.assertIn("levin train classify data=x, or levin train pretrain data=x", text)
        text = self.levin("pretrain", *SMALL, "method=dinov31", code=64)
        self.assertIn("expected one of simclr, dino, dinov2, distillation", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=0, testLoader=OfToday(3))
