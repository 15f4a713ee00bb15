"""A pretraining of each method from the config.yaml of its run.

usage: test_pretrain_again.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import pathlib
import re
import unittest
from fractions import Fraction

from pretrain_case import PretrainCase

TAUGHT = ["method_args.teacher=cnn", "method_args.teacher_weights=t.safetensors"]
METHODS = {
    "simclr": [],
    "dino": ["method_args.output_dim=8", "method_args.bottleneck_dim=4"],
    "dinov2": ["method_args.output_dim=8", "method_args.bottleneck_dim=4", "model=_vittest14"]
    + ["image_size=28", "transform_args.local_view.view_size=14"],
    "distillation": TAUGHT,
    "distillationv1": TAUGHT,
    "distillationv2": TAUGHT,
}


def usual_views(text):
    """{key: {method, or None for all: value}} of the help on views."""
    usual = {}
    for key, given in re.findall(r"^  (transform_args\.\S+) .*\n .*; auto: (.*)\.$", text, re.M):
        named = re.findall(r"(\[[\d.,]+\]|[\d./]+) \((\w+(?:, \w+)*)\)", given)
        values = {name: value for value, names in named for name in names.split(", ")}
        if not named and re.fullmatch(r"\[[\d.,]+\]|[\d./]+", given):
            values = {None: given}
        if re.sub(r"\([^)]*\)|[\d./,\[\] ]", "", given) == "":
            usual[key] = values
    return usual


def numbers(text):
    return [float(Fraction(x)) for x in re.sub(r"[\[\] ]", "", text).split(",")]


class Again(PretrainCase):
    small = (
        "data=builtin:shapes data.count=20 image_size=16 batch_size=4 max_steps=1"
        " accelerator=cpu devices=1 num_workers=0 quiet=true"
    ).split()
    head = ["method_args.hidden_dim=8"]

    def test_each_method_repeats_from_its_configuration(self):
        self.levin("pretrain", *self.small, "model=cnn", *self.head, "max_epochs=0", "out=begin")
        self.levin("export", "model=begin", "card=false", "output=t.safetensors")
        usual = usual_views(self.levin("help", "train.pretrain"))
        self.assertEqual(len(usual), 33)
        for method, keys in METHODS.items():
            with self.subTest(method=method):
                head = [] if keys is TAUGHT else self.head
                first = self.hashes(f"a_{method}", "model=cnn", f"method={method}", *head, *keys)
                self.levin("pretrain", f"config=a_{method}/config.yaml", f"out=b_{method}")
                self.assertEqual(self.levin("ckpt", "hash", f"b_{method}"), first)
                self.levin(
                    "plan", "train", "pretrain", f"config=b_{method}/config.yaml", "out=none"
                )
                self.check_help(method, usual)

    def check_help(self, method, usual):
        """The numbers of views that the help has are those of the run."""
        config = pathlib.Path(self.dir, f"a_{method}", "config.yaml").read_text(encoding="utf-8")
        found = dict(re.findall(r"^(transform_args\S+): ([\d\[].*)$", config, re.M))
        compared = 0
        for key, of in usual.items():
            named = "distillation" if METHODS[method] is TAUGHT else method
            given = of.get(None, of.get(named))
            if given is None:
                self.assertNotIn(key, found)
            elif key in found:
                for a, b in zip(numbers(given), numbers(found[key]), strict=True):
                    self.assertAlmostEqual(a, b, 12, key)
                compared += 1
        self.assertGreaterEqual(compared, 16)

    def test_shapes_of_a_trained_model_are_those_of_its_training(self):
        keys = ["data.count=12", "data.classes=3", "data.seed=5"]
        self.levin("pretrain", *self.small[:1], *keys, *self.small[2:], "model=cnn", *self.head,
                   "out=three")  # fmt: skip
        embed = ["predict", "embed", "model=three", "data=builtin:shapes"]
        rows = {}
        for name, given in (("same", []), ("given", keys), ("other", ["data.seed=6"])):
            self.levin(*embed, *given, f"output={name}.csv")
            rows[name] = pathlib.Path(self.dir, f"{name}.csv").read_text(encoding="utf-8")
        self.assertEqual(rows["same"], rows["given"])
        self.assertNotEqual(rows["same"], rows["other"])
        self.assertEqual([rows[name].count("\n") for name in ("same", "other")], [13, 13])
        use = ["model=three", "data=builtin:shapes"]
        text = self.levin("eval", "knn", *use, "val_split=0.5", "k=1")
        self.assertIn("of 3 classes", text)


if __name__ == "__main__":
    unittest.main()
