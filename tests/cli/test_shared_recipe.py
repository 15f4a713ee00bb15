"""A recipe of a user's in a shared object: compiled with levin cc, trained on several layouts with
the same bits, its keys in the help and checked, and what is wrong with an object named.

usage: test_shared_recipe.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from rank_processes import drop_identity

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
SMALL = ["max_epochs=2", "micro_batches=4", "wgrad_threads=1", "count=300", "quiet=true"]


def levin(*arguments, status=0, **environment):
    done = subprocess.run(
        [LEVIN, *arguments],
        cwd=FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def compile_source(name, *changes):
    with open(SOURCE) as f:
        text = f.read()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    with open(os.path.join(FOLDER, name + ".c"), "w") as f:
        f.write(text)
    levin("cc", name + ".c")
    return f"./{name}.so"


class SharedRecipe(unittest.TestCase):
    def test_layouts_and_resume(self):
        layouts = {
            "one": [],
            "ddp": ["devices=2", "strategy=ddp"],
            "dp": ["devices=2", "strategy=dp"],
            "sim": ["devices=2", "strategy=dp", "accelerator=sim"],
        }
        for name, layout in layouts.items():
            levin("train", MINE, *SMALL, *layout, f"out={name}", LEVIN_SIM_DEVICES="2")
        levin("train", "mine.so", *SMALL, "max_steps=7", "out=two")
        levin("train", MINE, "resume=true", "out=two", "max_steps=-1", "quiet=true")
        hashes = {name: levin("ckpt", "hash", name) for name in [*layouts, "two"]}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        with open(os.path.join(FOLDER, "two", "config.yaml")) as f:
            self.assertIn("count: 300\n", f.read())

    def test_keys_change_the_run(self):
        def trained(*keys):
            out = "keys_" + "_".join(keys).replace("=", "")
            levin("train", MINE, *SMALL, *keys, f"out={out}")
            return levin("ckpt", "hash", out)

        runs = [trained(), *map(trained, ("width=16", "depth=1", "noise=0.2", "count=299"))]
        self.assertEqual(len(set(runs)), len(runs), runs)

    def test_plan_help_and_mistakes(self):
        self.assertIn("model net: 1218 parameters", levin("plan", "train", MINE))
        shown = levin("train", MINE, "--help")
        self.assertIn("which of two spirals a point belongs to", shown)
        self.assertIn("Units of a layer.", shown)
        self.assertIn("optim.lr", shown)
        self.assertEqual(levin("help", MINE), shown)
        self.assertIn("Units of a layer.", levin("help", "train", MINE, "width"))
        self.assertIn("levin train ./mine.so [key=value ...]", levin("help", "train"))
        self.assertIn("levin cc mine.c makes mine.so", levin("train", "mine.c", status=64))
        self.assertIn("did you mean `width`?", levin("train", MINE, "widht=3", status=64))
        self.assertIn("1 to 4 layers", levin("train", MINE, "depth=9", status=64))
        self.assertIn("whole number", levin("train", MINE, "depth=x", status=64))
        self.assertIn("none.so", levin("train", "./none.so", status=64))

    def test_objects_that_are_no_recipes(self):
        plain = os.path.join(FOLDER, "plain.c")
        with open(plain, "w") as f:
            f.write("int a;\n")
        levin("cc", "plain.c")
        self.assertIn("does not export lvn_recipe_table", levin("train", "./plain.so", status=64))
        other = compile_source("other", (".abi = LVN_RECIPE_ABI", ".abi = LVN_RECIPE_ABI + 1"))
        self.assertIn("version 2 of levin/recipe.h", levin("train", other, status=1))
        taken = compile_source("taken", ('{"width"', '{"seed"'))
        self.assertIn("the key seed is one of every training", levin("train", taken, status=1))
        wrong = compile_source("wrong", ('lvn_key_int(k, "width")', 'lvn_key_int(k, "widht")'))
        self.assertIn("asks for the key widht", levin("train", wrong, status=1))
        float_of_int = ('lvn_key_int(k, "width")', 'lvn_key_float(k, "width")')
        typed = compile_source("typed", float_of_int)
        self.assertIn("function of another type", levin("train", typed, status=1))
        unnamed = compile_source("unnamed", ('.name = "spirals",\n    .help', ".help"))
        self.assertIn("the recipe's .name is missing", levin("train", unnamed, status=1))
        null = compile_source(
            "null",
            ("return &recipe;", "return NULL;"),
            ("static const lvn_recipe recipe", "const lvn_recipe recipe"),
        )
        self.assertIn("returns NULL, not a recipe", levin("train", null, status=1))
        empty = compile_source("empty", ("job->module = &net_class;", ""))
        self.assertIn("empty.so needs a module class", levin("train", empty, status=1))

    def test_compiler(self):
        self.assertIn("which source file?", levin("cc", status=64))
        self.assertIn("cannot be started", levin("cc", "mine.c", status=1, CC="/nowhere/cc"))
        with open(os.path.join(FOLDER, "misspelled.c"), "w") as f:
            f.write("#include <levin/levin.h>\nvoid f(void);\nvoid f(void) { lvn_mse_los(); }\n")
        self.assertIn("lvn_mse_los", levin("cc", "misspelled.c", status=1))
        levin("cc", "-I", "include", "-O0", "mine.c", "-o", "elsewhere.so")
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "elsewhere.so")))


with tempfile.TemporaryDirectory() as FOLDER:
    shutil.copy(SOURCE, os.path.join(FOLDER, "mine.c"))
    levin("cc", "mine.c")
    MINE = "./mine.so"
    unittest.main()
