"""recompute=: modules run again in the backward pass, with the bits of a run without.

usage: test_recompute.py LEVIN [test names]
"""

import re

from case import Case, main, OK, USAGE
from rank_processes import drop_identity

drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "2GiB"}
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=40",
    "image_size=16",
    "batch_size=12",
    "micro_batches=4",
    "wgrad_threads=1",
    "max_epochs=1",
    "log_every_n_steps=1",
]
RESNET = ["model=resnet18", "image_size=32", "max_steps=1"]
VIT = [
    "model=vit_tiny_patch16_224",
    "image_size=32",
    "max_steps=1",
    "model.dropout=0.2",
    "model.drop_path=0.1",
]
ONE, TWO = ["devices=1"], ["devices=2", "strategy=dp"]


class Recompute(Case):
    def run_as(self, name, *arguments, accelerator="cpu", code=OK, expects=()):
        out = f"{self.dir}/{name}"
        arguments = [*TRAIN, f"accelerator={accelerator}", *arguments, f"out={out}"]
        self.levin(arguments, code, expects, SIM)
        return (self.hashes(out), self.reproducible_metrics(out)) if code == OK else None

    def compare(self, *model, layouts=(ONE,), units=("all",), **how):
        none = self.run_as("none", *model, *ONE, "recompute=none", **how)
        for i, layout in enumerate(layouts):
            for unit in units:
                again = self.run_as(f"{i}{unit}", *model, *layout, f"recompute={unit}", **how)
                self.assertEqual(again, none, f"{layout} {unit}")

    def test_same_bits(self):
        self.compare(layouts=(ONE, TWO))

    def test_statistics(self):
        self.compare(*RESNET, layouts=(ONE, ["devices=2", "strategy=ddp"]))

    def test_random_numbers(self):
        self.compare(*VIT, layouts=(ONE, TWO), units=("all", "blocks.*"))

    def test_group_sums(self):
        self.compare(*RESNET, "sync_batchnorm=true", layouts=(ONE, TWO))

    def test_precision(self):
        self.compare(*RESNET, "precision=bf16-mixed", "gradient_clip_val=0.1")

    def test_device(self):
        """Captured steps, too."""
        self.compare("cuda_graph=auto", "max_epochs=2", layouts=(ONE, TWO), accelerator="sim")

    def test_memory(self):
        model = ["model=resnet50", "image_size=224", "batch_size=8", "micro_batches=1", "lanes=1"]
        need = []
        for unit in ("none", "all"):
            arguments = ["plan", *TRAIN, *model, "accelerator=cpu", f"recompute={unit}"]
            plan, _ = self.levin(arguments, OK)
            need.append(float(re.search(r"1 lane ([0-9.]+)", plan)[1]))
        self.assertLess(need[1], 0.42 * need[0])

    def test_refused(self):
        nearest = "pattern fc9; the nearest path is head"
        self.run_as("a", "recompute=[fc9]", code=USAGE, expects=["recompute: no module", nearest])
        staged = ["devices=2", "strategy=balance", "recompute=all"]
        how = {"accelerator": "sim", "code": USAGE}
        self.run_as("b", *staged, **how, expects=["recompute=all with strategy=balance"])


if __name__ == "__main__":
    main(turns=2)
