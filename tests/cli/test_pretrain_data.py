"""levin pretrain: the images it takes: lists of folders and files.

usage: test_pretrain_data.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from patterns import draw_patterns
from rank_processes import drop_identity

LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()
SMALL = (
    "model=cnn image_size=12 method_args.hidden_dim=16 method_args.output_dim=8 batch_size=6"
    " num_workers=0 wgrad_threads=1"
).split()


class Data(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-pretrain-data-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def levin(self, *arguments, code=0, cwd=""):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=os.path.join(self.dir, cwd), capture_output=True, text=True,
            timeout=200,
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


if __name__ == "__main__":
    unittest.main()
