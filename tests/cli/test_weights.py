"""Weights in and out: weights=, reset_head=, export; and all of it against PyTorch where a
Python with torch is.

usage: test_weights.py LEVIN [test names]
"""

import hashlib
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import unittest

from weights_case import (
    LEVIN,
    WAIT_S,
    read_safetensors,
    write_safetensors,
    write_torch,
    read_npy,
    floats,
    half_of,
    Case,
    main,
)


class Weights(Case):
    def changed(self, name, change):
        tensors, _ = read_safetensors(self.exported)
        path = f"{self.dir}/{name}.safetensors"
        write_safetensors(path, change(tensors))
        return path

    def test_number_types_and_prefixes(self):
        want = self.logits(f"model={self.run_dir}")
        as_double = lambda d: struct.pack(f"<{len(d) // 4}d", *floats(d))
        counters = lambda t: {k: v for k, v in t.items() if v[0] == "I64"}
        convert = lambda t, kind, f: {
            **{k: (kind, s, f(d)) for k, (_, s, d) in t.items()},
            **counters(t),
        }
        for name, tolerance, change in (
            ("f64", 0, lambda t: convert(t, "F64", as_double)),
            ("f16", 2e-2, lambda t: convert(t, "F16", lambda d: half_of(d, "F16"))),
            ("bf16", 1e-1, lambda t: convert(t, "BF16", lambda d: half_of(d, "BF16"))),
            ("module", 0, lambda t: {f"module.{k}": v for k, v in t.items()}),
            ("model", 0, lambda t: {f"model.{k}": v for k, v in t.items()}),
            ("without", 0, lambda t: {k: v for k, v in t.items() if "num_batches" not in k}),
        ):
            self.close(
                self.logits("model=cnn", f"weights={self.changed(name, change)}"), want, tolerance
            )

    def test_wrappers_in_any_order(self):
        """torch.compile, DDP, FSDP, checkpointing, Lightning, timm, Hugging Face: the same logits.
        What stands anywhere in names goes, and so does what all names have in front."""
        want = self.logits(f"model={self.run_dir}")
        in_front = ["module.", "model.", "net.", "network.", "timm_model.", "backbone."]
        anywhere = ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."]
        draw = random.Random(1)
        for number in range(6):
            front = "".join(draw.choice(in_front + anywhere) for _ in range(number))
            inside = "".join(draw.choice(anywhere) for _ in range(number % 3))

            def rename(name):
                module, dot, rest = name.partition(".")
                return f"{front}{module}{dot}{inside}{rest}"

            path = self.changed("front", lambda t: {rename(k): v for k, v in t.items()})
            self.assertEqual(self.logits("model=cnn", f"weights={path}"), want, front)
        # within a larger model, whatever it is called
        path = self.changed(
            "inner",
            lambda t: {
                **{f"detector.encoder_q.{k}": v for k, v in t.items()},
                "detector.neck.weight": ("F32", [1, 2], bytes(8)),
            },
        )
        self.assertEqual(self.logits("model=cnn", f"weights={path}"), want)

    def test_key(self):
        """Two sets in one file are not chosen from in silence; weights.key= chooses."""
        want = self.logits(f"model={self.run_dir}")
        zero = lambda t: {k: (d, s, bytes(len(b))) for k, (d, s, b) in t.items()}
        under = lambda name, t: {f"{name}.{k}": v for k, v in t.items()}
        path = self.changed("two", lambda t: {**under("student", zero(t)), **under("teacher", t)})
        advice = ["under student. and under teacher.", "weights.key=teacher"]
        self.logits("model=cnn", f"weights={path}", code=1, expects=advice)
        key = "weights.key=teacher"
        self.assertEqual(self.logits("model=cnn", f"weights={path}", key), want)
        self.assertNotEqual(
            self.logits("model=cnn", f"weights={path}", "weights.key=student"), want
        )
        # behind what a wrapper put before it, and within another key
        for before, given in (("_orig_mod", ""), ("net", "net.")):
            sets = lambda t: {**under("student", zero(t)), **under("teacher", t)}
            path = self.changed(f"two_{before}", lambda t, b=before: under(b, sets(t)))
            more = ["weights.key=net"] if given else []
            advice = [f"weights.key={given}student or weights.key={given}teacher"]
            self.logits("model=cnn", f"weights={path}", *more, code=1, expects=advice)
            key = f"weights.key={given}teacher"
            self.assertEqual(self.logits("model=cnn", f"weights={path}", key), want)
        path = f"{self.dir}/two.safetensors"
        expects = ["weights.key=pupil", "no name begins with pupil."]
        self.logits("model=cnn", f"weights={path}", "weights.key=pupil", code=1, expects=expects)
        equal = self.changed("equal", lambda t: {**under("a", t), **under("b", t)})
        self.assertEqual(self.logits("model=cnn", f"weights={equal}"), want)
        tensors, _ = read_safetensors(self.exported)
        sets = {"state_dict": zero(tensors), "state_dict_ema": tensors, "net": tensors}
        write_torch(f"{self.dir}/sets.pt", sets)
        for key in ("state_dict_ema", "net"):
            found = self.logits("model=cnn", f"weights={self.dir}/sets.pt", f"weights.key={key}")
            self.assertEqual(found, want)
        write_torch(f"{self.dir}/net.pt", {"net": tensors, "ema": {"model": tensors}})
        train = ["train", "classify", *self.shapes(f"{self.dir}/keyed"), "model=cnn"]
        at = f"weights={self.dir}/net.pt"
        self.levin([*train, at], 1, ["weights.key=net or weights.key=ema.model takes the tensors"])
        self.levin([*train, at, "weights.key=ema.model"], 0, ["17 of the model's 17 tensors"])
        self.levin(
            [*train, "overwrite=true", "weights.key=net"], 64, ["applies to the file of weights="]
        )
        out = f"{self.dir}/net.safetensors"
        self.levin(["ckpt", "convert", f"{self.dir}/net.pt", out, "weights.key=net"])
        self.assertEqual(read_safetensors(out)[0], tensors)
        self.levin(["ckpt", "convert", path, out, "weights.key=teacher"])
        self.assertEqual(read_safetensors(out)[0], tensors)

    def test_tensors_of_other_types(self):
        """Beside the model's they are listed; as one of the model's they are named."""
        want = self.logits(f"model={self.run_dir}")
        for kind, size in (("I8", 1), ("F8_E8M0", 1), ("C64", 8)):
            path = self.changed("other", lambda t: {**t, "extra": (kind, [4], bytes(4 * size))})
            expects = ["not used", f"extra (1 axis, type {kind})"]
            found = self.logits("model=cnn", f"weights={path}", expects=expects)
            self.assertEqual(found, want)
        path = self.changed("model", lambda t: {**t, "conv1.weight": ("I8", [864], bytes(864))})
        expects = ["that levin does not read", "conv1.weight (1 axis, type I8)"]
        self.logits("model=cnn", f"weights={path}", code=1, expects=expects)

    def test_several_files_with_an_index(self):
        want = self.logits(f"model={self.run_dir}")
        tensors, _ = read_safetensors(self.exported)
        folder = f"{self.dir}/sharded"
        os.mkdir(folder)
        names = sorted(tensors)
        files = {n: f"model-0000{1 + i % 3}-of-00003.safetensors" for i, n in enumerate(names)}
        for file in set(files.values()):
            part = {n: tensors[n] for n in names if files[n] == file}
            write_safetensors(f"{folder}/{file}", part)

        def index(weight_map, name="model.safetensors.index.json"):
            with open(f"{folder}/{name}", "w") as f:
                json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map}, f)
            return f"{folder}/{name}"

        path = index(files)
        for weights in (folder, path):
            self.assertEqual(self.logits("model=cnn", f"weights={weights}"), want)
        one = f"{self.dir}/one.safetensors"
        self.levin(["ckpt", "convert", path, one])
        self.assertEqual(read_safetensors(one)[0], tensors)
        self.levin(["ckpt", "convert", folder, one], 64, [f"levin ckpt convert {path} {one}"])
        for bad, expects in (
            ({**files, "more.weight": files[names[0]]}, "tensor 'more.weight' is not in model-"),
            ({**files, names[0]: "none.safetensors"}, f"{folder}/none.safetensors: cannot open"),
            ({names[0]: "../run/a.safetensors"}, "not the name of a file beside it"),
            ({}, "has no weight_map"),
        ):
            bad_index = index(bad, "bad.index.json")
            self.logits("model=cnn", f"weights={bad_index}", code=1, expects=[expects])
        missing = index({names[0]: "none.safetensors"})
        expects = [f"in a file that {missing} lists"]
        self.logits("model=cnn", f"weights={missing}", code=1, expects=expects)

    def test_what_does_not_fit_is_listed(self):
        def change(t):
            t = dict(t)
            del t["conv2.weight"]
            t["norm1.bias"] = ("F32", [3], bytes(12))
            t["extra"] = ("F32", [2, 2], bytes(16))
            return t

        path = self.changed("unfit", change)
        expects = [
            path,
            "1 missing: conv2.weight (64, 32, 3, 3)",
            "1 of another shape: norm1.bias is (3), this model needs (32)",
            "1 in the file that it has no place for: extra (2, 2)",
        ]
        self.levin(
            [
                "train",
                "classify",
                *self.shapes(f"{self.dir}/unfit"),
                "model=cnn",
                f"weights={path}",
            ],
            1,
            expects,
        )
        path = self.changed("more", lambda t: {**t, "extra": ("F32", [2, 2], bytes(16))})
        self.levin(
            ["train", "classify", *self.shapes(f"{self.dir}/more"), "model=cnn", f"weights={path}"],
            0,
            ["not used", "extra (2, 2)"],
        )
        path = self.changed(
            "whole", lambda t: {**t, "conv1.weight": ("I32", *t["conv1.weight"][1:])}
        )
        self.logits(
            "model=cnn",
            f"weights={path}",
            code=1,
            expects=["conv1.weight has elements of type i32"],
        )

    def test_what_was_loaded_is_confirmed(self):
        train = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/reported"),
            "model=cnn",
            "overwrite=true",
        ]
        own = f"weights={self.exported}"
        all_of_it = "17 of the model's 17 tensors are from it"
        self.levin([*train, own], 0, [f"{own}: {all_of_it}\n"])
        self.levin(
            [*train, own, "reset_head=true"],
            0,
            [
                f"{own}: 15 of the model's 17 tensors are from it; the last layer, head, "
                "is drawn again"
            ],
        )
        self.levin(
            [*train, f"weights={self.run_dir}"],
            0,
            [f"weights={self.run_dir}: {self.run_dir}/checkpoints/last.safetensors, {all_of_it}\n"],
        )
        path = self.changed("behind", lambda t: {f"model.{k}": v for k, v in t.items()})
        expects = [f"weights={path}: {all_of_it}, with names that begin with model."]
        self.levin([*train, f"weights={path}"], 0, expects)
        self.logits("model=cnn", f"weights={path}", expects=expects)
        path = self.changed(
            "more", lambda t: {**t, **{f"neck{i}.w": ("F32", [2], bytes(8)) for i in range(9)}}
        )
        printed = self.levin(
            [*train, f"weights={path}"], 0, [all_of_it, "neck0.w (2)", ", and 5 more"]
        )
        self.assertNotIn("neck5", printed)

    def test_other_networks_are_reported(self):
        """Tensors among those of the network are of another one; beside them of another head."""
        train = ["train", "classify", *self.shapes(f"{self.dir}/other"), "model=cnn"]
        for name, shape, what in (
            ("conv2.se.fc1.weight", [8, 64], "with squeeze and excitation, 1 tensor more"),
            ("norm1.more.weight", [2], "with 1 tensor more among those of this one"),
            ("reg_token", [1, 4, 8], "with register tokens, 1 tensor more"),
            ("head.2.weight", [4, 4], "with 1 tensor more"),
        ):
            extra = {name: ("F32", shape, bytes(4 * math.prod(shape)))}
            path = self.changed("foreign", lambda t: {**t, **extra})
            self.levin(
                [*train, f"weights={path}"],
                1,
                [path, "does not fit this model, cnn: it is of another network, " + what, name],
            )
            self.assertFalse(os.path.exists(f"{self.dir}/other"))
        for more in (
            {"conv2.total_ops": ("F32", [1], bytes(4))},
            {"projector.0.weight": ("F32", [2, 2], bytes(16))},
        ):
            self.levin(
                [
                    *train,
                    "overwrite=true",
                    f"weights={self.changed('beside', lambda t: {**t, **more})}",
                ],
                0,
                ["not used"],
            )
        self.levin(
            [*train, "overwrite=true", "reset_head=true", f"weights={path}"],
            0,
            ["the last layer, head, is drawn again"],
        )

    def test_a_file_of_a_network_with_another_name(self):
        """model= that it needs is named: by all of its tensors, in front of which any may stand."""
        kinds = (  # one tensor, how many there are
            ("resnet18", "layer4.1.conv2.weight", [512, 512, 3, 3], 102),
            ("resnet34", "layer4.2.conv2.weight", [512, 512, 3, 3], 182),
            ("resnet50", "layer4.2.conv2.weight", [512, 512, 3, 3], 267),
            ("resnet101", "layer4.2.conv2.weight", [512, 512, 3, 3], 522),
            ("resnet152", "layer4.2.conv2.weight", [512, 512, 3, 3], 777),
            ("convnext_tiny", "features.7.2.block.0.weight", [768, 1, 7, 7], 182),
            ("efficientnet_b0", "features.8.0.weight", [1280, 320, 1, 1], 311),
            ("efficientnet_b1", "features.8.0.weight", [1280, 320, 1, 1], 439),
            ("efficientnet_b2", "features.8.0.weight", [1408, 352, 1, 1], 439),
            ("dino_vits16", "embeddings.patch_embeddings.projection.weight", [384, 3, 16, 16], 200),
            ("vit_s_16", "conv_proj.weight", [384, 3, 16, 16], 152),
            ("vit_base_patch16_224", "patch_embed.proj.weight", [768, 3, 16, 16], 152),
            ("vits14", "patch_embed.proj.weight", [384, 3, 14, 14], 178),
            ("vits14-noreg", "patch_embed.proj.weight", [384, 3, 14, 14], 177),
            (None, "conv_proj.weight", [768, 3, 32, 32], 152),  # vit_b_32
            (None, "layer4.2.conv2.weight", [1024, 32, 3, 3], 267),  # resnext50_32x4d
        )
        path = f"{self.dir}/named.safetensors"
        train = ["train", "classify", *self.shapes(f"{self.dir}/named"), f"weights={path}"]
        for k, (model, name, shape, n) in enumerate(kinds):
            for front, count in (("", n), ("module.", n - 2), ("", n + 1), ("a.b.", n - 1)):
                tensors = {f"{front}{i}.bias": ("F32", [1], bytes(4)) for i in range(count - 1)}
                tensors[front + name] = ("F16", shape, bytes(2 * math.prod(shape)))
                tensors[front + "1.num_batches_tracked"] = ("I64", [], bytes(8))
                tensors["other.weight"] = ("F32", [1], bytes(4))
                if front == "":
                    del tensors["other.weight"]
                write_safetensors(path, tensors)
                named = f"does not fit this model, cnn: its tensors are those of model={model};"
                found = self.levin(train, 1, ["does not fit this model, cnn:"])
                right = model is not None and count in (n, n - 2)
                self.assertEqual(named in found, right, (k, front, count, found))
                if k > 3:
                    break  # large

    def test_the_other_names_of_a_vision_transformer(self):
        """torchvision's for a network with timm's, and timm's for one with torchvision's."""
        layer = {
            "norm1": ("ln_1", [[384], [384]]),
            "attn.qkv": ("self_attention.in_proj", [[1152, 384], [1152]]),
            "attn.proj": ("self_attention.out_proj", [[384, 384], [384]]),
            "norm2": ("ln_2", [[384], [384]]),
            "mlp.fc1": ("mlp.0", [[1536, 384], [1536]]),
            "mlp.fc2": ("mlp.3", [[384, 1536], [384]]),
        }
        names = {  # timm's, torchvision's
            "cls_token": ("class_token", [1, 1, 384]),
            "pos_embed": ("encoder.pos_embedding", [1, 197, 384]),
            "patch_embed.proj.weight": ("conv_proj.weight", [384, 3, 16, 16]),
            "patch_embed.proj.bias": ("conv_proj.bias", [384]),
            "norm.weight": ("encoder.ln.weight", [384]),
            "norm.bias": ("encoder.ln.bias", [384]),
            "head.weight": ("heads.head.weight", [4, 384]),
            "head.bias": ("heads.head.bias", [4]),
        }
        for i in range(12):
            for timm, (torchvision, shapes) in layer.items():
                for end, shape in zip(("weight", "bias"), shapes):
                    joint = "_" if torchvision.endswith("in_proj") else "."
                    theirs = f"encoder.layers.encoder_layer_{i}.{torchvision}{joint}{end}"
                    names[f"blocks.{i}.{timm}.{end}"] = (theirs, shape)
        path = f"{self.dir}/vit.safetensors"
        plan = "plan train classify data=builtin:shapes data.count=24 data.classes=4 batch_size=2"
        for model, naming in (("vit_small_patch16_224", "torchvision"), ("vit_s_16", "timm")):
            kind = 0 if naming == "torchvision" else 1
            tensors = {
                (timm, other[0])[1 - kind]: ("F16", other[1], bytes(2 * math.prod(other[1])))
                for timm, other in names.items()
            }
            write_safetensors(path, tensors)
            arguments = [*plan.split(), "image_size=224", f"model={model}", f"weights={path}"]
            text = f"152 of the model's 152 tensors are from it, with the names of {naming}"
            self.levin(arguments, 0, [text])

    def test_a_folder_of_hugging_face(self):
        run, folder = f"{self.dir}/r18", f"{self.dir}/hf"
        arguments = [
            "data=builtin:shapes",
            "data.count=6",
            "data.classes=4",
            "image_size=32",
            "batch_size=6",
            "max_steps=1",
            "val_split=0",
            "model=resnet18",
        ]
        self.levin(["train", "classify", *arguments, f"out={run}"])
        os.mkdir(folder)
        shutil.copy(
            f"{run}/exported_models/exported_last.safetensors", f"{folder}/model.safetensors"
        )
        printed = self.levin(["plan", "train", "classify", *arguments, f"weights={folder}"])
        self.assertIn(f"weights={folder}: images as they were for it: ", printed)
        all_of_it = f"weights={folder}: {folder}/model.safetensors, 102 of the model's 102"
        for text, code, expects in (
            (None, 0, [all_of_it]),
            ("no JSON", 0, [all_of_it]),
            ('{"architecture": "resnet18"}', 0, [all_of_it]),
            (
                '{"architecture": "resnetblur18"}',
                1,
                ["another network than model=resnet18", "architecture=resnetblur18"],
            ),
        ):
            if text is not None:
                with open(f"{folder}/config.json", "w") as f:
                    f.write(text)
            self.logits("model=resnet18", f"weights={folder}", code=code, expects=expects)
        self.logits(
            "model=resnet18",
            f"weights={folder}/model.safetensors",
            code=1,
            expects=["architecture=resnetblur18"],
        )

    def test_reset_head(self):
        arguments = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/six", classes=6),
            "model=cnn",
            f"weights={self.exported}",
            "lr=0",
            "overwrite=true",
            "optim=sgd",
        ]
        self.levin(
            arguments, 1, ["head.weight is (4, 128), this model needs (6, 128)", "reset_head=true"]
        )
        self.levin([*arguments, "reset_head=true"], 0, ["the last layer, head, is drawn again"])
        old, new = (
            read_safetensors(self.exported)[0],
            read_safetensors(f"{self.dir}/six/exported_models/exported_last.safetensors")[0],
        )
        self.assertEqual(new["conv3.weight"], old["conv3.weight"])
        self.assertEqual(new["head.weight"][1], [6, 128])
        arguments = [
            "train",
            "classify",
            *self.shapes(f"{self.dir}/four"),
            "model=cnn",
            "lr=0",
            "overwrite=true",
            "optim=sgd",
        ]
        self.levin(
            [*arguments, "reset_head=true"], 64, ["reset_head=true applies to the file of weights="]
        )
        self.levin(
            [*arguments, "reset_head=true", f"weights={self.exported}"]
        )  # also where the shapes would fit
        four = read_safetensors(f"{self.dir}/four/exported_models/exported_last.safetensors")[0]
        self.assertEqual(four["conv3.weight"], old["conv3.weight"])
        self.assertNotEqual(four["head.weight"], old["head.weight"])

    def test_files_of_torch_save(self):
        """The logits, and the bits of a training, are those of the same safetensors file."""
        tensors, _ = read_safetensors(self.exported)
        want = self.logits("model=cnn", f"weights={self.exported}")
        for name, prefix in (("w.pth", ""), ("w.ckpt", "model."), ("c.pt", "model._orig_mod.")):
            write_torch(f"{self.dir}/{name}", tensors, prefix)
            self.assertEqual(self.logits("model=cnn", f"weights={self.dir}/{name}"), want)
        hashes = []
        for weights in (self.exported, f"{self.dir}/w.ckpt"):
            out = f"{self.dir}/from-{len(hashes)}"
            train = ["train", "classify", *self.shapes(out, "model=cnn", "devices=2")]
            report = self.levin([*train, "micro_batches=2", f"weights={weights}"])
            self.assertIn("of the model's", report)
            hashes.append(self.levin(["ckpt", "hash", out]).split("weights", 1)[1].split()[0])
        self.assertEqual(*hashes)
        self.levin(["train", "classify", f"{self.dir}/w.ckpt"], 64, [f"weights={self.dir}/w.ckpt"])

    def test_damaged_files_of_torch_save(self):
        for content, expects in (
            (b"PK\3\4" + bytes(100), "no zip directory at the end of 104 bytes"),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9", "torch.save before PyTorch 1.6; save it again"),
        ):
            with open(f"{self.dir}/w.pth", "wb") as f:
                f.write(content)
            self.logits(
                "model=cnn", f"weights={self.dir}/w.pth", code=1, expects=["w.pth", expects]
            )


class NoFiles(Case):
    """Pipes, which wait for a writer when they are opened, and devices, which never end, are
    refused wherever data, weights or a checkpoint are opened; a configuration may be a pipe."""

    def test_refused_at_once(self):
        folder = f"{self.dir}/special"
        os.makedirs(f"{folder}/photos/a")
        out = f"{folder}/y.npy"
        for kind, make in (
            ("pipe", os.mkfifo),
            ("device", lambda path: os.symlink("/dev/zero", path)),
        ):
            expects = [f"cannot read: it is a {kind}, not a file"]
            for ending in ("safetensors", "pt", "index.json"):
                path = f"{folder}/{kind}.{ending}"
                make(path)
                for command in (
                    ["train", "classify", *self.shapes(f"{folder}/o"), "model=cnn", "--weights"],
                    ["predict", "model=cnn", f"data={self.x}", f"output={out}", "--weights"],
                    ["ckpt", "show"],
                    ["ckpt", "verify"],
                    ["ckpt", "hash"],
                ):
                    self.levin([*command, path], 1, expects)
                self.levin(["ckpt", "convert", path, f"{folder}/c.pt"], 1, expects)
                if ending == "safetensors":
                    export = ["export", f"model={path}", f"output={folder}/e.safetensors"]
                    self.levin(export, 1, expects)
            path = f"{folder}/{kind}.npy"
            make(path)
            data = [f"model={self.run_dir}", f"data={path}", f"output={out}"]
            self.levin(["predict", *data], 1, expects)
            path = f"{folder}/photos/a/{kind}.jpg"
            make(path)
            data = [f"model={self.run_dir}", f"data={path}", f"output={folder}/y.csv"]
            self.levin(["predict", *data], 1, expects)
        self.levin(["train", "classify", f"data={folder}/photos"], 64, ["ignored: 2 .jpg"])
        resumed = f"{folder}/resumed"
        shutil.copytree(self.run_dir, resumed)
        os.remove(f"{resumed}/checkpoints/last.safetensors")
        os.mkfifo(f"{resumed}/checkpoints/last.safetensors")
        train = ["train", "classify", *self.shapes(resumed), "model=cnn", "resume=true"]
        self.levin(train, 0, ["checkpoint passed over", "it is a pipe, not a file"])

    def test_a_configuration_from_a_pipe(self):
        path = f"{self.dir}/config"
        os.mkfifo(path)
        command = [LEVIN, "plan", "train", "classify", f"config={path}", "data=builtin:shapes"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plan:
            with open(path, "w") as f:
                f.write("model: cnn\nbatch_size: 5\n")
            self.assertIn("effective batch 5 ", plan.communicate(timeout=WAIT_S)[0])
        self.assertEqual(plan.returncode, 0)


class Sources(Case):
    """levin downloads nothing: it names the file of each network, and checks what was fetched."""

    def test_an_address(self):
        out = ["data=builtin:shapes", "data.count=6", "image_size=32", f"out={self.dir}/s"]
        for model, address, expects in (
            (
                "resnet18",
                "https://download.pytorch.org/models/resnet18-f37072fd.pth",
                "models/resnet18-f37072fd.pth, then weights=resnet18-f37072fd.pth",
            ),
            ("resnet34", "http://x.org/w.pt", "curl -LO http://x.org/w.pt, then weights=w.pt"),
            ("resnet34", "hf://timm/x", "models/resnet34-b627a593.pth, then weights="),
            ("vit_s_16", "s3://x/y.pt", "cd65a155.pth eval.preset=deit"),
        ):
            expects = ["levin downloads nothing", expects]
            weights = f"weights={address}"
            self.levin(["train", "classify", *out, f"model={model}", weights], 64, expects)
            if model != "vit_s_16":  # its images are larger
                predict = ["predict", f"model={model}", weights, f"data={self.x}"]
                self.levin([*predict, f"output={self.dir}/y.npy"], 64, expects)
        self.levin(
            ["train", "classify", *out, "model=resnet50", "weights=none.pth"],
            64,
            ["none.pth: ", "models/resnet50-11ad3fa6.pth, then weights=", "torchvision_v2"],
        )

    def test_the_digits_of_its_name(self):
        name = "resnet34-b627a593.pth"
        write_torch(f"{self.dir}/{name}", {"conv1.weight": ("F32", [1], bytes(4))})
        with open(f"{self.dir}/{name}", "rb") as f:
            digits = hashlib.sha256(f.read()).hexdigest()[:8]
        expects = [f"its SHA-256 begins with {digits}, and b627a593 is", "fetch it again"]
        at = f"weights={self.dir}/{name}"
        self.logits("model=resnet34", at, code=1, expects=expects)
        os.rename(f"{self.dir}/{name}", f"{self.dir}/mine.pth")
        expects = ["has no fc.weight"]
        self.logits("model=resnet34", f"weights={self.dir}/mine.pth", code=1, expects=expects)


class Export(Case):
    def test_file(self):
        out = f"{self.dir}/e.safetensors"
        whose = f"note: the weights of {self.run_dir}/exported_models/exported_"
        self.levin(
            ["export", f"run={self.run_dir}", f"output={out}"],
            0,
            ["cnn with 4 classes", whose, ", after step "],
        )
        tensors, meta = read_safetensors(out)
        self.assertEqual(tensors["conv2.weight"][1], [64, 32, 3, 3])
        self.assertEqual(tensors["norm1.num_batches_tracked"], ("I64", [], bytes(8)))
        self.assertEqual(meta["format"], "pt")
        self.assertEqual(
            tensors,
            read_safetensors(f"{self.run_dir}/exported_models/exported_last.safetensors")[0],
        )
        self.assertEqual(self.logits(f"model={out}"), self.logits(f"model={self.run_dir}"))
        for arguments in (
            [f"checkpoint={self.run_dir}/checkpoints/last.safetensors"],
            [f"model={self.run_dir}", "checkpoint=last", "card=false"],
        ):
            self.levin(["export", *arguments, f"output={out}"])
            self.assertEqual(read_safetensors(out)[0], tensors)
        self.levin(
            ["predict", f"model={out}", f"data={self.x}", f"output={self.dir}/y.npy"],
            1,
            ["is not a classifier of levin"],
        )

    def test_refusals(self):
        self.levin(["export"], 64, ["model= is missing"])
        self.levin(
            ["export", f"model={self.run_dir}", "checkpoint=x.safetensors"], 64, ["which one?"]
        )
        self.levin(
            ["export", f"model={self.exported}", "checkpoint=last"],
            64,
            ["checkpoint=last chooses within a run directory"],
        )
        self.levin(["export", f"model={self.dir}/none"], 1, ["none does not exist"])


TORCH = """
import json, struct, sys
import numpy as np, torch, torchvision
step, folder, network = sys.argv[1:]
size = 64
if network.startswith("timm:"):
    import timm
    model = timm.create_model(network[5:], num_classes=7)
    size = 224 if "_224" in network else 64
else:
    model = getattr(torchvision.models, network)(num_classes=7)
def load(path):
    whole = open(path, "rb").read()
    n = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8:8 + n])
    head.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8"}
    found = {}
    for k, v in head.items():
        begin, end = (8 + n + offset for offset in v["data_offsets"])
        values = np.frombuffer(whole[begin:end], kinds[v["dtype"]])
        found[k] = torch.from_numpy(values.reshape(v["shape"]).copy())
    return found
torch.manual_seed(3)
if step == "make":
    model.train()
    for i in range(3):
        model(torch.randn(8, 3, size, size))  # running statistics of their own
    head, at, data = {}, 0, b""
    for k, v in model.state_dict().items():
        b = v.numpy().tobytes()
        dtype = "I64" if v.dtype == torch.int64 else "F32"
        head[k] = {"dtype": dtype, "shape": list(v.shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
        data += b
    text = json.dumps(head).encode()
    open(folder + "/w.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
    np.save(folder + "/x.npy", torch.randn(4, size, size, 3).numpy())
    weights = folder + "/w.safetensors"
    wrapped = {"model." + k: v for k, v in model.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": wrapped, "loss": torch.ones(1)}, folder + "/w.ckpt")
else:
    weights = folder + "/back.safetensors"
    theirs, ours = torch.load(folder + "/back.pt", weights_only=True), load(weights)
    assert list(theirs) == sorted(ours)
    assert all(torch.equal(theirs[k], v) and theirs[k].dtype == v.dtype for k, v in ours.items())
    model.load_state_dict(theirs, strict=True)
model.load_state_dict(load(weights), strict=True)
model.eval()
with torch.no_grad():
    x = torch.from_numpy(np.load(folder + "/x.npy")).permute(0, 3, 1, 2)
    np.save(folder + "/want.npy", model(x).numpy())
"""


class Torch(Case):
    """Needs a Python with torch and torchvision."""

    @classmethod
    def setUpClass(cls):
        for python in filter(shutil.which, (sys.executable, "/usr/bin/python3")):
            if (
                subprocess.run(
                    [python, "-c", "import torch, torchvision"], capture_output=True
                ).returncode
                == 0
            ):
                cls.python = python
                super().setUpClass()
                return
        raise unittest.SkipTest("no Python with torch and torchvision here")

    def torch(self, step, network):
        done = subprocess.run(
            [self.python, "-c", TORCH, step, self.dir, network],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=dict(os.environ, OMP_NUM_THREADS="2"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_npy(f"{self.dir}/want.npy")

    def test_resnet18_there_and_back(self):
        want = self.torch("make", "resnet18")
        self.close(
            self.logits(
                "model=resnet18", f"weights={self.dir}/w.safetensors", x=f"{self.dir}/x.npy"
            ),
            want,
            1e-5,
        )
        self.assertEqual(
            self.logits("model=resnet18", f"weights={self.dir}/w.ckpt", x=f"{self.dir}/x.npy"),
            self.logits(
                "model=resnet18", f"weights={self.dir}/w.safetensors", x=f"{self.dir}/x.npy"
            ),
        )
        self.levin(
            [
                "train",
                "classify",
                *self.shapes(
                    f"{self.dir}/r18",
                    "model=resnet18",
                    f"weights={self.dir}/w.safetensors",
                    classes=7,
                ),
            ]
        )
        self.levin(["export", f"model={self.dir}/r18", f"output={self.dir}/back.safetensors"])
        self.levin(["ckpt", "convert", f"{self.dir}/back.safetensors", f"{self.dir}/back.pt"])
        want = self.torch("back", "resnet18")
        self.close(self.logits(f"model={self.dir}/r18", x=f"{self.dir}/x.npy"), want, 1e-5)

    def test_timm(self):
        """The same network by another library; one that is called alike and is another."""
        if not os.environ.get("LEVIN_TEST_SLOW"):
            self.skipTest("it takes minutes, set LEVIN_TEST_SLOW=1 to run it")
        if subprocess.run([self.python, "-c", "import timm"], capture_output=True).returncode != 0:
            self.skipTest("no timm here")
        w = f"{self.dir}/w.safetensors"
        for ours, theirs in (
            ("resnet34", "resnet34"),
            ("vit_s_16", "deit_small_patch16_224"),
            ("vit_tiny_patch16_224", "vit_tiny_patch16_224"),
        ):
            want = self.torch("make", f"timm:{theirs}")
            self.close(
                self.logits(f"model={ours}", f"weights={w}", x=f"{self.dir}/x.npy"), want, 1e-5
            )
        for ours, theirs, what in (
            ("resnet50", "resnet50d", "a stem of three convolutions"),
            ("resnet18", "seresnet18", "squeeze and excitation"),
            ("resnet18", "resnet34", "layer1.2.bn1.bias"),
            ("vit_s_16", "vit_small_patch16_36x1_224", "layer scale"),
        ):
            self.torch("make", f"timm:{theirs}")
            self.logits(
                f"model={ours}",
                f"weights={w}",
                x=f"{self.dir}/x.npy",
                code=1,
                expects=["w.safetensors does not fit this model", what],
            )


if __name__ == "__main__":
    main(turns=2)
