"""levin pretrain: the images it takes: lists of folders and files, channels,
orientation, one list for the ranks of a node.

usage: test_pretrain_data.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from case import JPEG, LEVIN, half, png, with_orientation, write
from patterns import draw_patterns
from rank_processes import drop_identity
from today import OfToday

drop_identity()
SMALL = (
    "model=cnn image_size=12 method_args.hidden_dim=16 method_args.output_dim=8 batch_size=6"
    " num_workers=0 wgrad_threads=1"
).split()


class Data(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-pretrain-data-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def levin(self, *arguments, code=0, cwd="", env=None):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=os.path.join(self.dir, cwd), capture_output=True, text=True,
            timeout=200, env=dict(os.environ, **(env or {})),
        )  # fmt: skip
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def pretrain(self, *arguments, **how):
        return self.levin("pretrain", *SMALL, *arguments, **how)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def read(self, *names):
        with open(self.path(*names)) as file:
            return file.read()


class Lists(Data):
    def setUp(self):
        super().setUp()
        draw_patterns(self.path("first"), 2)
        draw_patterns(self.path("second, other"), 2)
        shutil.copy(self.path("first", "rings", "1.png"), self.path("photo.png"))
        self.list = "data=[first,'second, other',photo.png]"

    def test_is_trained_on_and_recorded(self):
        text = self.pretrain(self.list, "max_epochs=1", "out=run")
        self.assertRegex(text, r"data \[first,'second, other',photo.png\]: 17 images")
        self.assertIn(
            f'data: [{self.dir}/first, "{self.dir}/second, other", {self.dir}/photo.png]\n',
            self.read("run", "config.yaml"),
        )
        os.mkdir(self.path("elsewhere"))
        self.levin("pretrain", "resume=true", "out=../run", "max_epochs=2", cwd="elsewhere")
        self.levin("pretrain", "resume=true", "out=run", "max_epochs=3", self.list)
        exported = "run/exported_models/exported_last.safetensors"
        self.assertIn("second, other", self.levin("ckpt", "show", exported, "json=true"))
        # the order does not depend on that of the list
        self.levin("predict", "embed", "model=run", self.list, "output=one.csv")
        turned = "data=[photo.png, second, other, first]"
        self.levin("predict", "embed", "model=run", turned, "output=two.csv", code=64)
        turned = 'data=[photo.png, "second, other", first]'
        self.levin("predict", "embed", "model=run", turned, "output=two.csv")
        one = self.read("one.csv")
        self.assertEqual(one, self.read("two.csv"))
        names = [line.split(",emb")[0] for line in one.splitlines()[1:]]
        self.assertEqual(len(names), 17)
        self.assertTrue(names[0].startswith("first/across/0.png"), names[0])

    def test_a_file_of_keys_has_a_list(self):
        with open(self.path("keys.yaml"), "w") as file:
            file.write("data:\n  - first\n  - 'second, other'\n  - photo.png\n")
        text = self.pretrain("config=keys.yaml", "max_epochs=1", "out=run")
        self.assertIn(": 17 images", text)

    def test_mistakes_come_together(self):
        os.mkdir(self.path("empty"))
        with open(self.path("notes.txt"), "w") as file:
            file.write("x")
        text = self.pretrain("data=[first,nothere,empty,notes.txt]", "out=run", code=64)
        self.assertIn("nothere: No such file or directory", text)
        self.assertIn("empty: no images (JPEG or PNG) in this folder or below", text)
        self.assertIn("notes.txt: neither a folder nor an image", text)
        self.assertIn(".jpg, .jpeg, .png", text)
        self.assertFalse(os.path.exists(self.path("run")))
        text = self.pretrain(self.list, "out=first/run", code=64)
        self.assertIn("first/run lies inside of data=first", text)
        text = self.levin("train", "classify", "model=cnn", self.list, code=64)
        self.assertIn("a list of folders and images shows no classes", text)

    def test_an_image_twice_is_reported(self):
        text = self.pretrain("data=[first,first/rings]", "max_epochs=1", "out=run")
        self.assertRegex(text, r"2 images are in it twice, as is .*/first/rings/0.png")
        self.assertIn(": 10 images", text)


class Channels(Data):
    """num_channels and channel_drop, and the networks that take them."""

    def setUp(self):
        super().setUp()
        draw_patterns(self.path("images"), 2)

    def shape(self, run, name):
        exported = f"{run}/exported_models/exported_last.safetensors"
        shown = json.loads(self.levin("ckpt", "show", exported, "json=true"))
        return next(t["shape"] for t in shown["tensors"] if t["name"] == name)

    def run_with(self, out, *arguments, **how):
        return self.pretrain("data=images", "max_epochs=1", f"out={out}", *arguments, **how)

    def test_a_network_has_the_channels_of_its_views(self):
        for channels in 1, 2, 4:
            run = f"run{channels}"
            self.run_with(run, f"transform_args.num_channels={channels}", "logger=tensorboard")
            self.assertEqual(self.shape(run, "conv1.weight"), [32, channels, 3, 3])
            self.assertTrue(os.path.exists(self.path(run, "augmentations.png")))
            self.levin("pretrain", "resume=true", f"out={run}", "max_epochs=2")
            self.levin("predict", "embed", f"model={run}", "data=images", f"output={run}.csv")
            self.assertEqual(len(self.read(f"{run}.csv").splitlines()), 9)
            self.levin("eval", "knn", f"model={run}", "data=images", "val_split=0.5")
        self.run_with("mean", "transform_args.normalize.mean=[0.5]")
        self.assertEqual(self.shape("mean", "conv1.weight"), [32, 1, 3, 3])
        self.assertIn("transform_args.num_channels: 1\n", self.read("mean", "config.yaml"))
        self.run_with("resnet", "model=resnet18", "image_size=32", "transform_args.num_channels=1")
        self.assertEqual(self.shape("resnet", "conv1.weight"), [64, 1, 7, 7])
        vit = ["model=timm/vit_tiny_patch16_224", "image_size=16", "transform_args.num_channels=1"]
        self.run_with("vit", *vit)
        self.assertEqual(self.shape("vit", "patch_embed.proj.weight"), [192, 1, 16, 16])

    def test_channels_are_dropped(self):
        drop = [
            "transform_args.channel_drop.num_channels_keep=2",
            "transform_args.channel_drop.weight_drop=[1,1,1]",
        ]
        self.run_with("two", *drop)
        self.assertEqual(self.shape("two", "conv1.weight"), [32, 2, 3, 3])
        self.run_with("all", *drop, "transform_args.channel_drop=null")
        self.assertEqual(self.shape("all", "conv1.weight"), [32, 3, 3, 3])
        text = self.run_with("x", drop[0], code=64)
        self.assertIn("num_channels_keep is given without", text)
        text = self.run_with("x", *drop, "transform_args.num_channels=3", code=64)
        self.assertIn("transform_args.num_channels=3 differs from", text)
        drop[1] = "transform_args.channel_drop.weight_drop=[1,0,0,0]"
        text = self.run_with("x", *drop, code=64)
        self.assertIn("weight_drop is above 0 for 1 of 4 channels", text)

    def test_networks_that_take_three(self):
        grey = "transform_args.num_channels=1"
        text = self.run_with("x", "model=torchvision/resnet18", grey, code=64)
        self.assertIn("model=torchvision/resnet18 takes images of 3 channels", text)
        self.assertIn("give model=resnet18", text)
        text = self.run_with("x", "model=vit_s_16", "image_size=32", grey, code=64)
        self.assertIn("model=vit_s_16 takes images of 3 channels", text)

    def test_classify_has_three_channels(self):
        self.run_with("grey", "transform_args.num_channels=1")
        use = ["weights=grey", "reset_head=true", "out=x"]
        train = ["train", "classify", "data=images", "model=cnn", "image_size=16"]
        for weights in use[:1], ["weights=grey/checkpoints/last.safetensors"]:
            text = self.levin(*train, *weights, *use[1:], code=1)
            self.assertIn("the file is for images of 1 channel, and those here have 3: ", text)
            self.assertIn("takes it with transform_args.num_channels=1, and classify one", text)
        text = self.run_with("again", "weights=grey", code=1)
        self.assertIn("images of 1 channel, and those here have 3", text)
        text = self.run_with("x", "transform_args.normalize.std=[1,1,1,1,1]", code=64)
        self.assertIn("normalize.std has 5 numbers", text)


class Exif(Data):
    """Images as they are stored, unless data.exif=apply; classify turns them."""

    def setUp(self):
        super().setUp()
        draw_patterns(self.path("images"), 2)
        draw_patterns(self.path("upright"), 2)
        # pixels of orientation 8 that are turned, once by the program and once here
        for folder in ("images", "upright"):
            for name in ("rings", "across"):
                write(self.path(folder, name, "turned.jpg"), with_orientation(JPEG, 8))
                png(self.path(folder, name, "seen.png"), 16, 24, lambda x, y: half(23 - y, x))
                write(self.path(folder, name, "stored.jpg"), JPEG)

    def rows(self, model, *arguments):
        if os.path.exists(self.path("x.csv")):
            os.unlink(self.path("x.csv"))
        self.levin("predict", *model.split(), "data=images", "output=x.csv", *arguments)
        lines = self.read("x.csv").splitlines()[1:]
        return {line.split(",")[0]: line.split(",", 1)[1] for line in lines}

    def test_pretraining_has_images_as_stored(self):
        self.pretrain("data=images", "max_epochs=1", "out=run")
        self.pretrain("data=images", "max_epochs=1", "out=turned", "data.exif=apply")
        for run, exif in ("run", "ignore"), ("turned", "apply"):
            self.assertIn(f"data.exif: {exif}\n", self.read(run, "config.yaml"))
            exported = f"{run}/exported_models/exported_last.safetensors"
            shown = self.levin("ckpt", "show", exported, "json=true")
            self.assertIn(f'data.exif\\": \\"{exif}\\"'.replace(" ", ""), shown.replace(" ", ""))
        self.assertNotEqual(self.levin("ckpt", "hash", "run"), self.levin("ckpt", "hash", "turned"))
        other = {"run": "data.exif=apply", "turned": "data.exif=ignore"}
        for run, same in ("run", "stored.jpg"), ("turned", "seen.png"):
            rows = self.rows(f"embed model={run}")
            self.assertEqual(rows["rings/turned.jpg"], rows[f"rings/{same}"])
            self.assertNotEqual(rows["rings/stored.jpg"], rows["rings/seen.png"])
            changed = self.rows(f"embed model={run}", other[run])
            self.assertNotEqual(rows["rings/turned.jpg"], changed["rings/turned.jpg"])

    def test_classify_turns_them(self):
        train = ["train", "classify", "data=images", "model=cnn", "image_size=16", "max_epochs=1"]
        for run, exif, same in ("a", "apply", "seen.png"), ("b", "ignore", "stored.jpg"):
            given = [] if exif == "apply" else [f"data.exif={exif}"]
            self.levin(*train, "num_workers=0", f"out={run}", *given)
            shown = self.levin(
                "ckpt", "show", f"{run}/exported_models/exported_last.safetensors", "json=true"
            )
            self.assertIn(f'exif\\":\\"{exif}\\"', shown.replace(" ", ""))
            rows = self.rows(f"model={run}")
            self.assertEqual(rows["rings/turned.jpg"], rows[f"rings/{same}"])


class Shared(Data):
    """The ranks of a node have one list of the images."""

    def setUp(self):
        super().setUp()
        draw_patterns(self.path("images"), 1)
        for i in range(20000):
            os.link(self.path("images", "rings", "0.png"), self.path("images", f"{i:06d}.png"))
        self.command = [LEVIN, "pretrain", *SMALL, "data=images", "micro_batches=2", "quiet=true"]

    def lists_of(self):
        """Of each rank the lines about the list: where it is mapped, and what is its own."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/cwd") != os.path.realpath(self.dir):
                    continue
                with open(f"/proc/{pid}/environ", "rb") as file:
                    rank = re.search(rb"LEVIN_RANK=(\d+)", file.read())
                with open(f"/proc/{pid}/smaps") as file:
                    part = re.search(r"memfd:levin list.*?VmFlags", file.read(), re.S)
            except OSError:  # it has just ended
                continue
            if rank and part:
                private = re.findall(r"Private_\w+: +(\d+) kB", part[0])
                size = int(re.search(r"Size: +(\d+) kB", part[0])[1])
                found[int(rank[1])] = (size, sum(map(int, private)))
        return found

    def test_two_ranks_map_it(self):
        arguments = [*self.command, "max_steps=4000", "devices=2", "out=run"]
        process = subprocess.Popen(arguments, cwd=self.dir, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            lists = {}
            # a page that one rank alone has touched by now counts as private
            while process.poll() is None and time.monotonic() < end:
                lists = self.lists_of()
                if len(lists) == 2 and not any(private for _, private in lists.values()):
                    break
            self.assertEqual(sorted(lists), [0, 1])
            for size, private in lists.values():
                self.assertGreater(size * 1024, 20004 * 40)  # bytes of a name, and of its numbers
                self.assertEqual(private, 0)
        finally:
            process.terminate()
            process.wait()

    def test_the_bits_are_those_of_one(self):
        hashes = []
        for devices in 1, 2:
            self.pretrain(
                "data=images", "max_steps=3", "micro_batches=2", f"devices={devices}",
                f"out=run{devices}", "group=2",
            )  # fmt: skip
            hashes.append(self.levin("ckpt", "hash", f"run{devices}"))
            self.assertIn("data.index", os.listdir(self.path(f"run{devices}")))
        self.assertEqual(*hashes)

    def test_damage_is_reported_once(self):
        with open(self.path("images", "bad.png"), "w") as file:
            file.write("x")
        text = self.pretrain("data=images", "max_steps=3", "devices=2", "out=run", code=1)
        self.assertEqual(text.count("1 of 20005 images cannot be used: images/bad.png"), 1)
        self.assertEqual(text.count("error:"), 1)


class Page(Data):
    def page(self, out, **how):
        self.pretrain("data=images", "max_epochs=1", "logger=tensorboard", f"out={out}", **how)
        with open(self.path(out, "augmentations.png"), "rb") as file:
            return struct.unpack(">II", file.read()[16:24])

    def test_views_have_captions(self):
        """Names of samples to the left, sizes of views above; without cairo there are none."""
        draw_patterns(self.path("images"), 2)
        width, height = 2 * 12 + 2, 8 * 12 + 7 * 2  # 8 samples of two views, 2 pixels apart
        none = {"LEVIN_CAIRO_LIBRARY": "/none/libcairo.so"}
        self.assertEqual(self.page("plain", env=none), (width, height))
        # tiles of 12 pixels are 8 times as large
        self.assertEqual(self.page("run"), (180 + 8 * width, 28 + 8 * height))


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
