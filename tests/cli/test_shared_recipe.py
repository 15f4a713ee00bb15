"""A recipe of a user's in a shared object: compiled with levin cc, trained, measured, predicted
with and exported on several layouts with the same bits, its keys in the help and checked, and what
is wrong with an object or a model named.

usage: test_shared_recipe.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rank_processes import drop_identity
from today import OfToday

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
SMALL = ["max_epochs=2", "micro_batches=4", "wgrad_threads=1", "count=300", "quiet=true"]


LAYOUTS = {
    "one": [],
    "ddp": ["devices=2", "strategy=ddp"],
    "dp": ["devices=2", "strategy=dp"],
    "sim": ["devices=2", "strategy=dp", "accelerator=sim"],
}
ON_SIM = {"LEVIN_SIM_DEVICES": "2"}


def levin(*arguments, **how):
    """What it writes, on stdout first."""
    done = run_levin(*arguments, **how)
    return done.stdout + done.stderr


def run_levin(*arguments, status=0, cwd=None, **environment):
    done = subprocess.run(
        [LEVIN, *arguments],
        cwd=cwd or FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done


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
        for name, layout in LAYOUTS.items():
            logger = f"logger=exec:cat > lines; : --token={name}"
            levin("train", MINE, *SMALL, *layout, logger, "group=4", f"out={name}", **ON_SIM)
        models = {
            Path(FOLDER, f"{name}/exported_models/exported_last.safetensors").read_bytes()
            for name in LAYOUTS
        }
        self.assertEqual(len(models), 1)  # to the byte: nothing of where it was trained
        self.assertNotIn(b"--token", models.pop())
        levin("train", "mine.so", *SMALL, "max_steps=7", "out=two")
        levin("train", MINE, "resume=true", "out=two", "max_steps=-1", "quiet=true")
        hashes = {name: levin("ckpt", "hash", name) for name in [*LAYOUTS, "two"]}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        with open(os.path.join(FOLDER, "two", "config.yaml")) as f:
            self.assertIn("count: 300\n", f.read())

    def test_two_thousand_million_samples(self):
        """They start as others do: an order in memory takes 8 GiB and minutes."""
        pinned = ["count=2147483648", "max_steps=3", *SMALL[1:3], "quiet=true"]
        for name in ("one", "ddp"):
            levin("train", "mine.so", *pinned, f"out=many_{name}", *LAYOUTS[name])
        levin("train", "mine.so", *pinned, "out=many_cut", "max_steps=2")
        levin("train", "mine.so", "out=many_cut", "resume=true", "quiet=true", "max_steps=3")
        hashes = {levin("ckpt", "hash", f"many_{name}") for name in ("one", "ddp", "cut")}
        self.assertEqual(len(hashes), 1)

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

    def measured(self, *arguments):
        shown = levin("eval", *arguments, "--json", **ON_SIM)
        return json.loads(shown.splitlines()[0])  # then warnings

    def test_eval_is_the_validation(self):
        for precision in ("32-true", "bf16-mixed", "16-mixed", "bf16-true"):
            out = f"measured_{precision}"
            levin("train", MINE, *SMALL, f"precision={precision}", "width=24", f"out={out}")
            with open(os.path.join(FOLDER, out, "metrics.jsonl")) as f:
                last = json.loads(f.read().splitlines()[-1])
            for layout in LAYOUTS.values():
                shown = self.measured(MINE, f"model={out}", "checkpoint=last", *layout)
                self.assertEqual(shown["samples"], 500)
                for name in ("loss", "acc"):
                    self.assertEqual(shown["metrics"][name], last[f"val/{name}"], (out, layout))
        train = self.measured(MINE, f"model={out}", "split=train")
        self.assertEqual((train["split"], train["samples"]), ("train", 300))
        more = self.measured(MINE, f"model={out}", "split=train", "count=400", "noise=9")
        self.assertEqual(more["samples"], 400)
        self.assertGreater(more["metrics"]["loss"], train["metrics"]["loss"])
        text = levin("eval", MINE, f"model={out}", "num_workers=0", "lanes=1")
        self.assertIn("val: 500 samples\nloss ", text)

    def test_predict(self):
        levin("train", MINE, *SMALL, "ema.decay=0.9", "out=used")
        for name, layout in LAYOUTS.items():
            levin("predict", MINE, "model=used", f"output={name}.csv", *layout, **ON_SIM)
        tables = {name: Path(FOLDER, f"{name}.csv").read_text() for name in LAYOUTS}
        self.assertEqual(len(set(tables.values())), 1)
        rows = tables["one"].splitlines()
        self.assertEqual((rows[0], len(rows)), ("sample,right,left", 501))
        self.assertEqual([row.split(",")[0] for row in rows[1:]], [str(i) for i in range(500)])
        for row in rows[1:]:
            self.assertAlmostEqual(sum(map(float, row.split(",")[1:])), 1.0, places=5)
        lines = run_levin("predict", MINE, "model=used", "--json").stdout.splitlines()
        first = json.loads(lines[0])
        self.assertEqual(len(lines), 500)
        self.assertEqual(list(first), ["sample", "right", "left"])
        self.assertEqual(f"0,{first['right']:.9g},{first['left']:.9g}", rows[1])
        unnamed = compile_source(
            "unnamed",
            (".get = spirals_get", ".get = spirals_get, .sample_name = no_name"),
            (
                "static const lvn_dataset_class",
                "static const char *no_name(const lvn_dataset *d, int64_t i)\n"
                "{ (void)d; (void)i; return NULL; }\n"
                "static const lvn_dataset_class",
            ),
        )
        self.assertEqual(
            run_levin("predict", unnamed, "model=used", "output=-").stdout.splitlines(), rows
        )
        done = run_levin("predict", MINE, "model=used", "use_ema=false", "output=-")
        plain = done.stdout.splitlines()
        self.assertRegex(done.stderr, r"exported_best.safetensors, after step \d+ of its training")
        self.assertEqual(len(plain), 501)
        self.assertNotEqual(plain, rows)

    def test_from_elsewhere(self):
        levin("train", MINE, *SMALL, "out=trained")
        with tempfile.TemporaryDirectory() as folder:
            model, mine = os.path.join(folder, "run"), os.path.join(folder, "mine.so")
            shutil.copytree(os.path.join(FOLDER, "trained"), model)
            shutil.copy(os.path.join(FOLDER, "mine.so"), mine)
            here = self.measured(MINE, "model=trained")["metrics"]
            files = {
                "run": f"model={model}",
                "exported": f"model={model}/exported_models/exported_best.safetensors",
                "checkpoint": f"model={model}/checkpoints/best.safetensors",
            }
            for name, given in files.items():
                done = levin("export", mine, given, f"output={name}.safetensors", cwd="/tmp")
                os.replace(f"/tmp/{name}.safetensors", os.path.join(folder, f"{name}.safetensors"))
                self.assertIn(f"{name}.safetensors: net, 1218 parameters", done)
                again = [mine, f"model={folder}/{name}.safetensors"]
                self.assertEqual(
                    json.loads(run_levin("eval", *again, "--json").stdout)["metrics"], here
                )
            levin("export", mine, files["run"], f"output={folder}/bare.safetensors", "card=false")
            bare = levin("eval", mine, f"model={folder}/bare.safetensors", status=1)
            self.assertIn("is not a model of this recipe of levin", bare)

    def test_another_recipe(self):
        levin("train", MINE, *SMALL, "max_steps=4", "out=of_spirals")
        for name, change in (
            ("circles", ('.name = "spirals",\n    .help', '.name = "circles", .help')),
        ):
            other = compile_source(name, change)
            for command in ("predict", "eval", "export"):
                shown = levin(command, other, "model=of_spirals", status=1)
                self.assertIn("is a model of the recipe spirals, not of circles", shown)
            shown = levin("train", other, "out=of_spirals", "resume=true", status=64)
            self.assertIn("recipe=spirals", shown)
            self.assertIn("and this is circles", shown)
            config = os.path.join(FOLDER, "of_spirals", "config.yaml")
            shown = levin("train", other, f"config={config}", "out=fresh", status=64)
            self.assertIn("and this is circles", shown)
            # without the line in config.yaml the checkpoint still names it
            with open(config) as f:
                lines = [line for line in f if not line.startswith("recipe:")]
            with open(config, "w") as f:
                f.writelines(lines)
            shown = levin("train", other, "out=of_spirals", "resume=true", status=64)
            self.assertIn("is of the recipe spirals, not of circles", shown)
            levin("train", MINE, "out=of_spirals", "resume=true", "quiet=true")
        for command in ("predict", "eval", "export"):
            shown = levin(command, "model=of_spirals", status=64)
            self.assertIn(f"levin {command} ./spirals.so model=", shown)
        shown = levin("eval", "classify", "model=of_spirals", "data=builtin:shapes", status=1)
        self.assertIn("is a model of the recipe spirals, not of classify", shown)

    def test_parts_of_a_trained_model(self):
        levin("train", MINE, *SMALL, "out=parts")
        alone = compile_source("alone", ("    .use = &use,\n", ""))
        levin("train", alone, *SMALL, "out=alone")
        self.assertEqual(
            self.measured(alone, "model=alone")["metrics"],
            self.measured(MINE, "model=parts")["metrics"],
        )
        levin("export", alone, "model=alone", "output=alone.safetensors")
        shown = levin("predict", alone, "model=alone", status=1)
        self.assertIn("the recipe spirals has no use->predict", shown)
        forward = "lvn_softmax(lvn_forward(root, batch->field[0]))"
        shape = compile_source("shape", (forward, f"lvn_sum({forward})"))
        shown = levin("predict", shape, "model=parts", status=1)
        self.assertIn("use->predict gives 0 dimensions; needed is f32 (50, K)", shown)
        unnamed = compile_source("numbers", (", .column = column", ""))
        self.assertIn("sample,0,1\n", levin("predict", unnamed, "model=parts", "output=-"))
        full = (
            "static const lvn_recipe_use use = {",
            """static lvn_status
reopen(const lvn_keys *k, const lvn_card *card, lvn_use what, lvn_job *job)
{
    LVN_TRY(open_spirals(k, job));
    if (what == LVN_USE_PREDICT) {
        LVN_FAIL(LVN_ERR_USAGE, "no %s points", lvn_card_text(card, "spiral_1"));
    }
    lvn_dataset_destroy(job->val);
    job->val = NULL;
    return LVN_OK;
}

static const lvn_recipe_use use = {
    .open = reopen,""",
        )
        reopens = compile_source("reopens", full)
        shown = self.measured(reopens, "model=parts")
        self.assertEqual((shown["split"], shown["samples"]), ("train", 300))
        shown = levin("eval", reopens, "model=parts", "split=val", status=64)
        self.assertIn("the recipe opens no dataset for validation", shown)
        self.assertIn("no left points", levin("predict", reopens, "model=parts", status=64))
        silent = compile_source(
            "silent",
            ('    lvn_log(step, "loss", loss);\n', "    (void)step;\n"),
            ('    lvn_log(step, "acc", lvn_accuracy(logits, batch->field[1]));\n', ""),
        )
        self.assertIn("logs nothing to measure", levin("eval", silent, "model=parts", status=1))
        changed = compile_source("changed", ('{"width", LVN_KEY_INT', '{"wide", LVN_KEY_INT'))
        self.assertIn("width", levin("eval", changed, "model=parts", status=64))

    def test_help_of_use(self):
        shown = levin("predict", MINE, "--help")
        self.assertIn("usage: levin predict ./mine.so model=out/x [key=value ...]", shown)
        for key in ("Units of a layer.", "output", "eval_batch_size"):
            self.assertIn(key, shown)
        self.assertNotIn("optim.lr", shown)
        self.assertIn("split", levin("help", "eval", MINE))
        self.assertIn("Units of a layer.", levin("help", "export", MINE, "width"))
        self.assertIn("did you mean `width`?", levin("eval", MINE, "widht=3", status=64))
        self.assertIn("model= is missing", levin("predict", MINE, status=64))
        self.assertIn("model= is missing", levin("eval", MINE, status=64))
        for name in ("model", "split", "output", "checkpoint"):
            taken = compile_source("taken_" + name, ('{"width"', '{"%s"' % name))
            self.assertIn(f"the key {name} is one of every", levin("train", taken, status=1))

    def test_keys_from_before_one_of_levin(self):
        """A recipe keeps a key that every training has got since; levin's has another name."""
        mine = compile_source(
            "reports",
            ('{"width"', '{"report"'),
            ('lvn_key_int(k, "width")', 'lvn_key_int(k, "report")'),
        )
        shown = levin("train", mine, *SMALL[:-1], "report=16", "levin.report=true", "out=reports")
        self.assertIn("the key report is the recipe's own; levin's of that name", shown)
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "reports/report.html")))
        levin("train", MINE, *SMALL, "width=16", "out=sixteen")
        self.assertEqual(*(levin("ckpt", "hash", out) for out in ("reports", "sixteen")))
        again = levin("train", mine, "out=reports", "resume=true", "max_epochs=3", "levin.report=0")
        self.assertNotIn("so far this run had", again)
        levin("eval", mine, "model=reports")

    def test_damaged_cards(self):
        levin("train", MINE, *SMALL, "max_steps=2", "out=whole")
        whole = Path(FOLDER, "whole/exported_models/exported_last.safetensors").read_bytes()
        (n,) = struct.unpack("<Q", whole[:8])
        head, data = json.loads(whole[8 : 8 + n]), whole[8 + n :]
        card = json.loads(head["__metadata__"]["card"])

        def evaluate(text, status):
            """Of the same file with another card, without checksums as other programs write it."""
            meta = {"recipe": "spirals"} | ({} if text is None else {"card": text})
            other = json.dumps(head | {"__metadata__": meta}).encode()
            Path(FOLDER, "other.safetensors").write_bytes(
                struct.pack("<Q", len(other)) + other + data
            )
            return levin("eval", MINE, "model=other.safetensors", status=status)

        self.assertIn("val: 500 samples", evaluate(json.dumps(card), 0))
        without = {key: card[key] for key in ("model", "config")}  # a card needs no more
        self.assertIn("val: 500 samples", evaluate(json.dumps(without), 0))
        missing = "is not a model of this recipe of levin"
        cases = [
            (None, 1, missing),
            ("no JSON", 1, missing),
            ("{}", 1, "not complete"),
            (card | {"version": 2}, 1, "of version 2, this levin reads version 1"),
            (card | {"version": "x"}, 1, "of version"),
            (card | {"model": 7}, 1, "not complete"),
            (card | {"seed": -1}, 1, "has seed=-1"),
            (card | {"wgrad_threads": 99}, 1, "has wgrad_threads=99"),
            (card | {"config": 7}, 1, "no keys of the training"),
            (card | {"config": {"width": "wide"}}, 64, "width"),
            (card | {"config": {"depth": 9}}, 64, "1 to 4 layers"),
            (card | {"config": {"width": 24}}, 1, "first.weight"),
            (card | {"config": {"nothing": 1}}, 64, "nothing"),
        ]
        for text, status, message in cases:
            text = text if text is None or isinstance(text, str) else json.dumps(text)
            self.assertIn(message, evaluate(text, status), text)
        for odd in (7, [], {"spiral_0": 7}, "x"):  # columns without their names
            self.assertIn("val: 500", evaluate(json.dumps(card | {"card": odd}), 0))

    def test_errors_name_no_keys_of_others(self):
        levin("train", MINE, *SMALL, "max_steps=2", "out=narrow")
        shown = levin("train", MINE, "out=narrow", "resume=true", "width=16", status=64)
        self.assertIn("give the keys of the recipe as they were", shown)
        large = ["width=512", "depth=4", "count=9000", "batch_size=9000", "accelerator=sim"]
        memory = {"LEVIN_SIM_DEVICES": "1", "LEVIN_SIM_MEMORY": "40MiB"}
        shown = levin("plan", "train", MINE, *large, **memory)
        self.assertIn("a smaller batch_size, more micro-batches or fewer lanes", shown)
        shapes = ["data=builtin:shapes", "image_size=64", "batch_size=500", "accelerator=sim"]
        shown = levin("plan", "train", "classify", *shapes, **memory)
        self.assertIn("a smaller batch_size or image_size, more micro-batches", shown)

    def test_objects_that_are_no_recipes(self):
        plain = os.path.join(FOLDER, "plain.c")
        with open(plain, "w") as f:
            f.write("int a;\n")
        levin("cc", "plain.c")
        self.assertIn("does not export lvn_recipe_table", levin("train", "./plain.so", status=64))
        other = compile_source("other", (".abi = LVN_RECIPE_ABI", ".abi = LVN_RECIPE_ABI + 1"))
        for command in ("train", "predict", "eval", "export"):
            self.assertIn("version 2 of levin/recipe.h", levin(command, other, status=1))
        taken = compile_source("taken", ('{"width"', '{"seed"'))
        self.assertIn("the key seed is one of every training", levin("train", taken, status=1))
        wrong = compile_source("wrong", ('lvn_key_int(k, "width")', 'lvn_key_int(k, "widht")'))
        self.assertIn("asks for the key widht", levin("train", wrong, status=1))
        float_of_int = ('lvn_key_int(k, "width")', 'lvn_key_float(k, "width")')
        typed = compile_source("typed", float_of_int)
        self.assertIn("function of another type", levin("train", typed, status=1))
        unnamed = compile_source("unnamed", ('.name = "spirals",\n    .help', ".help"))
        self.assertIn("the recipe's .name is missing", levin("train", unnamed, status=1))
        own = compile_source("own", ('.name = "spirals",\n    .help', '.name = "classify", .help'))
        self.assertIn("that of one of levin's own", levin("train", own, status=1))
        null = compile_source(
            "null",
            ("return &recipe;", "return NULL;"),
            ("static const lvn_recipe recipe", "const lvn_recipe recipe"),
        )
        self.assertIn("returns NULL, not a recipe", levin("train", null, status=1))
        empty = compile_source("empty", ("job->module = &net_class;", ""))
        self.assertIn("empty.so needs a module class", levin("train", empty, status=1))

    def test_callbacks_that_give_no_reason(self):
        """Whatever a callback returns without lvn_error_set, and exit(0) in one: a sentence, and an
        exit code that is not 0."""
        at = '(getenv("AT") == NULL ? 0 : atoi(getenv("AT")))'
        code = '(lvn_status)atoi(getenv("CODE"))'
        mute = compile_source(
            "mute",
            ("    return lvn_builder_status(b);", f"    return {at} == 1 ? {code} : LVN_OK;"),
            ("    const net *m = (const net *)module;\n", f"""
    const net *m = (const net *)module;
    if ({at} == 2) {{
        return NULL;
    }}
"""),
            ("    return loss;", f"""
    if ({at} == 4) {{
        exit(0);
    }}
    return {at} == 3 ? NULL : loss;"""),
            ("    float *point = field[0];", f"""
    if ({at} == 6) {{
        exit(0);
    }}
    if ({at} == 5) {{
        return {code};
    }}
    float *point = field[0];"""),
            ("    (void)k, (void)job;", f"""
    (void)k, (void)job;
    if ({at} == 7) {{
        return {code};
    }}"""),
            ('    const double noise = lvn_key_float(k, "noise");', f"""
    if ({at} == 8) {{
        return {code};
    }}
    const double noise = lvn_key_float(k, "noise");"""),
        )  # fmt: skip

        def run(place, code=0):
            line = [LEVIN, "train", mute, *SMALL, "max_steps=2", "out=mute", "overwrite=true"]
            env = {**os.environ, "AT": str(place), "CODE": str(code)}
            done = subprocess.run(line, cwd=FOLDER, env=env, capture_output=True, text=True)
            errors = [x for x in done.stderr.splitlines() if x.startswith(("error: ", "stopped: "))]
            self.assertGreater(done.returncode, 0, (place, code, done.stderr))
            self.assertEqual(len(errors), 1, (place, code, done.stderr))
            self.assertGreater(len(errors[0]), 20, (place, code))
            return errors[0]

        for code in [*range(-18, 0), -99, 1, 7]:
            named = r"build\(\) of the module class net returned \S+ \(-?\d+\)"
            self.assertRegex(run(1, code), named)
        run(2)
        run(3)
        for place in (5, 7, 8):
            for code in (-1, -6, -99, 1):
                run(place, code)
        for place in (4, 6):
            self.assertIn("exit() was called in the middle of the training", run(place))
        small = compile_source("small", (".size = sizeof(net)", ".size = sizeof(void *)"))
        self.assertIn("class net has size 8, less than", levin("train", small, status=1))
        long = compile_source("long", ('b, "head"', f'b, "{"h" * 195}"'))
        self.assertIn("has 202 characters, and checkpoints", levin("train", long, status=1))

    def test_every_callback_gives_a_reason(self):
        """Of mute.c, in a training, its validation and a model in use: one sentence that names the
        callback, and never an end as if nothing had failed."""
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mute.c")
        levin("cc", source, "-o", "mute.so")
        levin("train", "mute.so", "out=mute_good", "quiet=true")
        train = ["train", "mute.so", "out=mute_bad", "overwrite=true", "quiet=true"]
        ranks = [*train, "devices=2", "strategy=dp"]
        measure = ["eval", "mute.so", "model=mute_good"]
        predict = ["predict", "mute.so", "model=mute_good", "output=mute.csv"]
        export = ["export", "mute.so", "model=mute_good", "output=mute.safetensors"]

        def run(command, place, code):
            env = {**os.environ, "MUTE_AT": place, "MUTE_CODE": str(code)}
            done = subprocess.run(
                [LEVIN, *command], cwd=FOLDER, env=env, capture_output=True, text=True, timeout=200
            )
            errors = [x for x in done.stderr.splitlines() if x.startswith("error: ")]
            self.assertGreater(done.returncode, 0, (command, place, code, done.stderr))
            self.assertEqual(len(errors), 1, (command, place, code, done.stderr))
            return errors[0]

        of_net, mute = "of the module class net returned", "without a message: lvn_error_set"
        get = f"worker_get() of the dataset numbers returned LVN_ERR_INVALID (-1) {mute}"
        for commands, place, code, expected in (
            ([train, measure], "build", 7, f"build() {of_net} LVN_ERR_? (7) {mute}"),
            ([train, ranks], "training_step", 0, f"training_step() {of_net} NULL {mute}"),
            ([train, ranks, measure], "validation_step", 0, f"validation_step() {of_net} NULL"),
            ([train, measure, predict], "forward", 0, f"forward() {of_net} NULL {mute}"),
            ([train], "buffer", 0, "the function of buffer mean gave NULL and no error"),
            ([train, predict], "function forward", 0, "forward() of the function doubling"),
            ([train, ranks], "function backward", -6, "backward() of the function doubling"),
            ([train], "function backward", 5, "returned LVN_ERR_? (5)"),
            ([train], "function no gradient", 0, "its backward gave no gradient"),
            ([train, ranks], "validated", -6, f"validated() {of_net} LVN_ERR_IO (-6) {mute}"),
            ([train, ranks, measure, predict], "worker_get", -1, get),
            ([train], "val worker_get", -1, get),
            ([train, measure], "worker_open", -99, "worker_open() of the dataset numbers returned"),
            ([train], "val worker_open", 5, "worker_open() of the dataset numbers returned"),
            ([train, measure, predict], "fields", 100000, "numbers has 100000 fields; 1 to 8"),
            ([train, measure, predict], "length", -5, "of the dataset numbers returned -5"),
            ([measure, predict], "length", 0, "has no samples"),
            ([train], "open", 5, "open of the recipe failed"),
            ([train], "write_card", -6, "use->write_card of the recipe failed"),
            ([measure, predict, export], "use open", -6, "use->open of the recipe failed"),
            ([predict], "predict", 0, f"use->predict of the recipe mute returned NULL {mute}"),
            ([train, measure], "no module", 0, "needs a module class"),
            ([train], "table", 0, "lvn_recipe_table returns NULL"),
        ):
            for command in commands:
                with self.subTest(command=command[0], place=place):
                    self.assertIn(expected, run(command, place, code))

    def test_a_crash_is_reported(self):
        """On one device and on two; the signal ends the process, as without a report."""
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mute.c")
        levin("cc", source, "-o", "crash.so")
        levin("train", "crash.so", "out=crash_good", "quiet=true")
        train = ["train", "crash.so", "out=crash_bad", "overwrite=true", "quiet=true"]
        predict = ["predict", "crash.so", "model=crash_good", "output=crash.csv"]
        segv = "killed by SIGSEGV (invalid memory access) at address 0x0, in the code of crash.so; "
        asan = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0:handle_abort=0"
        for command, place, expected, code in (
            (train, "crash", f"error: {segv}", -11),
            ([*train, "devices=2", "strategy=dp"], "crash", f"error: {segv}", -11),
            ([*train, "devices=2"], "crash", "at address 0x0, in the code of crash.so\n", 139),
            (predict, "predict crash", f"error: {segv}", -11),
            (train, "abort", "error: killed by SIGABRT (the program called abort()), in", -6),
        ):
            env = {**os.environ, "MUTE_AT": place, "ASAN_OPTIONS": asan}
            line = ["sh", "-c", 'ulimit -c 0; exec "$0" "$@"', LEVIN, *command]
            done = subprocess.run(line, cwd=FOLDER, env=env, capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr.count(expected), 1, done.stderr)

    def test_compiler(self):
        self.assertIn("which source file?", levin("cc", status=64))
        self.assertIn("cannot be started", levin("cc", "mine.c", status=1, CC="/nowhere/cc"))
        with open(os.path.join(FOLDER, "misspelled.c"), "w") as f:
            f.write("#include <levin/levin.h>\nvoid f(void);\nvoid f(void) { lvn_mse_los(); }\n")
        self.assertIn("lvn_mse_los", levin("cc", "misspelled.c", status=1))
        levin("cc", "-I", "include", "-O0", "mine.c", "-o", "elsewhere.so")
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "elsewhere.so")))
        for named in (["-o", "prog"], ["-oprog"], ["-o", "prog.so.1"], ["-o", ".so"]):
            shown = levin("cc", "mine.c", *named, status=64)
            name = named[-1].removeprefix("-o")
            self.assertIn(f"cc mine.c -o {name} $(pkg-config --cflags --libs levin)", shown)
            self.assertFalse(os.path.exists(os.path.join(FOLDER, name)))
        self.assertIn("-o needs a name", levin("cc", "mine.c", "-o", status=64))
        levin("cc", "-c", "mine.c", "-o", "mine.o")  # of several sources, for one object
        levin("cc", "mine.c", "-oagain.so")
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "again.so")))
        os.mkdir(os.path.join(FOLDER, "beside"))
        shutil.copy(SOURCE, os.path.join(FOLDER, "beside", "mine.c"))
        levin("cc", "beside/mine.c")
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "beside", "mine.so")))
        self.assertIn("beside the source", levin("cc", "--help"))


with tempfile.TemporaryDirectory() as FOLDER:
    shutil.copy(SOURCE, os.path.join(FOLDER, "mine.c"))
    levin("cc", "mine.c")
    MINE = "./mine.so"
    unittest.main(testLoader=OfToday(2))
