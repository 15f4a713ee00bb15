#!/usr/bin/env python3
"""Writes the files of one version of levin that later versions must read (docs/compatibility.md).

usage: tests/compatibility/make.py LEVIN VERSION
       LEVIN is the command of that very version. Called once, when it is released; the files are
       committed, and tests/cli/test_compatibility.py reads them from then on.

tests/compatibility/VERSION/ receives
  classify.safetensors, gan.safetensors, recipe.safetensors   exported models
  run/           the run of a recipe of one's own, after two of its epochs
  mine.so        that recipe, for x86-64
  answers.json   what that version made of them
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "../../examples/07_recipe/mine.c")
TRAIN = {
    "classify": "classify data=builtin:shapes data.count=60 image_size=4 model=mlp batch_size=12",
    "gan": "gan data=builtin:mass data.count=4 im_size=16 gen_channels=2 gen_levels=1 "
    "disc_channels=2 disc_stages=1 num_z_valid=2",
    "recipe": "./mine.so width=4",
}
KEPT = ("config.yaml", "metrics.jsonl", "run_id", "checkpoints/last.safetensors")
ROWS = 21  # of a table of predictions


def command(levin, *args, cwd):
    done = subprocess.run([levin, *args], cwd=cwd, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def answers(levin, folder):
    """What a version makes of the files in a folder."""

    def ask(*args):
        return command(levin, *args, cwd=folder)

    def eval_of(*args):
        return json.loads(ask("eval", *args, "--json"))

    shapes = ("data=builtin:shapes", "data.count=60")
    table = ask("predict", "./mine.so", "model=recipe.safetensors", "output=-")
    return {
        "classify": eval_of("model=classify.safetensors", *shapes),
        "gan": eval_of("model=gan.safetensors", "data=builtin:mass"),
        "recipe": eval_of("./mine.so", "model=recipe.safetensors"),
        "predicted": [line.split(",") for line in table.splitlines()[:ROWS]],
        "hash": ask("ckpt", "hash", "run/checkpoints/last.safetensors").split()[0],
    }


def main():
    levin, version = os.path.abspath(sys.argv[1]), sys.argv[2]
    out = os.path.join(HERE, version)
    with tempfile.TemporaryDirectory(prefix="levin-") as work:
        if command(levin, "--version", cwd=work).split()[1] != version:
            sys.exit(f"{levin} is not levin {version}")
        shutil.copy(EXAMPLE, work)
        command(levin, "cc", "mine.c", cwd=work)
        subprocess.run(["strip", "-s", "mine.so"], cwd=work, check=True)
        os.makedirs(os.path.join(out, "run/checkpoints"))
        for name, keys in TRAIN.items():
            epochs = f"max_epochs={2 if name == 'recipe' else 1}"
            command(levin, "train", *keys.split(), epochs, f"out={name}", cwd=work)
            exported = f"{name}/exported_models/exported_last.safetensors"
            shutil.copy(os.path.join(work, exported), os.path.join(out, name + ".safetensors"))
        for name in KEPT:
            shutil.copy(os.path.join(work, "recipe", name), os.path.join(out, "run", name))
        shutil.copy(os.path.join(work, "mine.so"), out)
    with open(os.path.join(out, "answers.json"), "w", encoding="utf-8") as f:
        json.dump(answers(levin, out), f)
        f.write("\n")


if __name__ == "__main__":
    main()
