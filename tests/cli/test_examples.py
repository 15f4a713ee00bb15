"""The programs of examples/, run as their users run them: what they print, what they learn, what
they refuse.

usage: test_examples.py TENSORS CLASSIFIER PHOTOS STANDARDISE PAIRS RING OWN_LOOP LEVIN
registered in examples/CMakeLists.txt
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from small_png import write_png

TENSORS, CLASSIFIER, PHOTOS, STANDARDISE, PAIRS, RING, OWN_LOOP, LEVIN = sys.argv[1:9]


def run(*arguments, cwd, status=0):
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=200)
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done


def best_accuracy(out):
    lines = [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
    return max(line["val/acc"] for line in lines if "val/acc" in line)


def floats(path):
    """The f32 tensors of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, t in json.loads(data[8 : 8 + size]).items():
        if t.get("dtype") == "F32":
            start, end = (8 + size + offset for offset in t["data_offsets"])
            tensors[name] = struct.unpack(f"<{(end - start) // 4}f", data[start:end])
    return tensors


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def test_the_line_is_found_and_derivatives_are_right(self):
        out = run(TENSORS, cwd=self.cwd).stdout
        slope, offset = map(float, re.search(r"^y = (\S+) x (\S+)$", out, re.M).groups())
        self.assertAlmostEqual(
            slope, 3.0, delta=0.01
        )  # the ripple of +-0.05 tilts the best line by 0.002
        self.assertAlmostEqual(offset, -0.5, delta=0.01)
        pairs = re.findall(r"df/dx\s+(\S+)\s+finite difference\s+(\S+)", out)
        self.assertEqual(len(pairs), 5)
        for ours, difference in pairs:
            self.assertAlmostEqual(float(ours), float(difference), delta=1e-6)
        self.assertIn("a mistake: add: (5) and (7) cannot be broadcast", out)

    def test_the_classifier_learns(self):
        run(CLASSIFIER, "out=run", "seed=1", cwd=self.cwd)
        self.assertGreaterEqual(best_accuracy(self.cwd / "run"), 0.95)

    def test_the_classifier_keeps_the_reproducibility(self):
        """A module and a dataset of a user: one hash for any lanes and loader workers, and when
        resumed."""
        short = ("micro_batches=4", "wgrad_threads=1", "max_epochs=1", "max_steps=9")
        hashes = {}
        for name, arguments in {
            "one": ("lanes=1", "num_workers=0"),
            "two": ("lanes=2", "num_workers=3"),
        }.items():
            run(CLASSIFIER, f"out={name}", *short, *arguments, cwd=self.cwd)
            hashes[name] = run(
                LEVIN, "ckpt", "hash", f"{name}/checkpoints/last.safetensors", cwd=self.cwd
            ).stdout
        run(
            CLASSIFIER,
            "out=parts",
            "micro_batches=4",
            "wgrad_threads=1",
            "max_epochs=1",
            "max_steps=4",
            cwd=self.cwd,
        )
        run(CLASSIFIER, "out=parts", "resume=true", "max_steps=9", cwd=self.cwd)
        hashes["parts"] = run(
            LEVIN, "ckpt", "hash", "parts/checkpoints/last.safetensors", cwd=self.cwd
        ).stdout
        self.assertRegex(hashes["one"], r"^weights [0-9a-f]+\nstate [0-9a-f]+\n$")
        self.assertEqual(hashes["one"], hashes["two"])
        self.assertEqual(hashes["one"], hashes["parts"])
        run(CLASSIFIER, "out=other", *short, "seed=1", cwd=self.cwd)
        self.assertNotEqual(
            hashes["one"],
            run(LEVIN, "ckpt", "hash", "other/checkpoints/last.safetensors", cwd=self.cwd).stdout,
        )

    def test_the_classifier_names_a_wrong_key(self):
        reported = run(CLASSIFIER, "max_epoch=1", cwd=self.cwd, status=64).stderr
        self.assertIn("max_epochs", reported)

    def test_the_standardiser_learns_the_instruments(self):
        run(STANDARDISE, "out=run", "seed=1", cwd=self.cwd)
        self.assertGreaterEqual(
            best_accuracy(self.cwd / "run"), 0.95
        )  # on columns as they come no network gets far beyond 0.25
        state = floats(self.cwd / "run/checkpoints/last.safetensors")
        seen = state["model/input.seen"][0]
        self.assertAlmostEqual(seen, 1 - 0.98**378, delta=1e-5)  # 6 epochs of 63 steps
        for c, (mean, spread) in enumerate([(300, 5), (101325, 400), (1e-4, 3e-5), (12, 2)]):
            self.assertAlmostEqual(state["model/input.mean"][c] / seen, mean, delta=0.1 * spread)
            self.assertAlmostEqual(
                (state["model/input.variance"][c] / seen) ** 0.5, spread, delta=0.06 * spread
            )

    def test_the_standardiser_keeps_the_reproducibility(self):
        """A buffer of a user's module: one hash for any lanes, on a simulated accelerator, and when
        resumed."""
        steps = ("max_epochs=1", "max_steps=9")
        os.environ["LEVIN_SIM_DEVICES"] = "1"
        for name, arguments in {
            "one": ("lanes=1",),
            "two": ("lanes=2", "num_workers=2"),
            "sim": ("accelerator=sim",),
            "parts": ("max_epochs=1", "max_steps=4"),
        }.items():
            run(STANDARDISE, f"out={name}", *steps, *arguments, cwd=self.cwd)
        run(STANDARDISE, "out=parts", "resume=true", "max_steps=9", cwd=self.cwd)
        hashes = {
            run(LEVIN, "ckpt", "hash", f"{name}/checkpoints/last.safetensors", cwd=self.cwd).stdout
            for name in ("one", "two", "sim", "parts")
        }
        self.assertEqual(len(hashes), 1)

    def test_pairs_are_found_among_those_of_all_micro_batches(self):
        run(PAIRS, "out=run", cwd=self.cwd)
        self.assertGreaterEqual(best_accuracy(self.cwd / "run"), 0.9)  # one of 64; by chance 0.016

    def test_what_becomes_of_a_trained_program(self):
        """exported_models/ as README has it; what levin cannot do with it, it reports with what can
        be done, and each advice works."""
        run(PAIRS, "out=run", "max_steps=3", cwd=self.cwd)
        exported = Path("run/exported_models/exported_last.safetensors")
        trained = floats(self.cwd / "run/checkpoints/last.safetensors")
        weights = floats(self.cwd / exported)
        self.assertEqual(len(weights), 8)
        for name, values in weights.items():
            self.assertEqual(values, trained[f"model/{name}"])
        run(LEVIN, "ckpt", "convert", exported, "x.pt", cwd=self.cwd)
        advice = run(LEVIN, "ckpt", "convert", "run", "x.pt", cwd=self.cwd, status=64).stderr
        command = advice.strip().split(": ")[-1].split()
        self.assertEqual(command[:3], ["levin", "ckpt", "convert"])
        run(LEVIN, *command[1:], cwd=self.cwd)
        checkpoint = "run/checkpoints/last.safetensors"
        for model, advised in (
            ("run", "levin ckpt convert writes them"),
            (exported, "levin ckpt convert writes them"),
            (checkpoint, "exported_models/ of its run has the weights"),
        ):
            for command in (
                ["eval", f"model={model}"],
                ["predict", f"model={model}", "data=x"],
                ["export", f"model={model}", "output=y.safetensors"],
            ):
                reported = run(LEVIN, *command, cwd=self.cwd, status=1).stderr
                self.assertIn("is of a program of your own", reported)
                self.assertIn("levin train ./mine.so weights=FILE", reported)
                self.assertIn(advised, reported)
        reported = run(LEVIN, "ckpt", "convert", checkpoint, "y.pt", cwd=self.cwd, status=64).stderr
        self.assertIn("exported_models/ of its run has its weights", reported)
        # a run of before, without exported models, makes them when it goes on
        shutil.rmtree(self.cwd / "run/exported_models")
        reported = run(LEVIN, "ckpt", "convert", "run", "y.pt", cwd=self.cwd, status=64).stderr
        self.assertIn("started again with resume=true", reported)
        run(PAIRS, "out=run", "max_steps=4", "resume=true", cwd=self.cwd)
        self.assertEqual(len(floats(self.cwd / exported)), 8)
        run(PAIRS, "out=next", "max_steps=1", f"weights={exported}", cwd=self.cwd)

    def test_pairs_keep_the_reproducibility(self):
        """A loss over the micro-batches of a group: one hash for any lanes and ranks, on a
        simulated accelerator, and when resumed; another group is another run."""
        os.environ["LEVIN_SIM_DEVICES"] = "1"
        steps = ("max_epochs=1", "max_steps=9", "group=4")
        layouts = {
            "one": ("lanes=1",),
            "eight": ("lanes=8", "num_workers=2"),
            "two": ("devices=2", "strategy=dp"),
            "three": ("devices=3", "strategy=dp"),
            "sim": ("accelerator=sim",),
            "parts": ("max_steps=4",),
        }
        for name, arguments in layouts.items():
            run(PAIRS, f"out={name}", *steps, *arguments, cwd=self.cwd)
        run(PAIRS, "out=parts", "resume=true", "max_steps=9", cwd=self.cwd)
        hashes = {
            run(LEVIN, "ckpt", "hash", f"{name}/checkpoints/last.safetensors", cwd=self.cwd).stdout
            for name in layouts
        }
        self.assertEqual(len(hashes), 1)
        run(PAIRS, "out=alone", *steps, "group=1", cwd=self.cwd)
        self.assertNotIn(
            run(LEVIN, "ckpt", "hash", "alone/checkpoints/last.safetensors", cwd=self.cwd).stdout,
            hashes,
        )

    def test_the_generator_finds_the_ring(self):
        reported = run(RING, "out=run", "verbose=true", cwd=self.cwd).stdout
        self.assertIn("phases of a step: critic (4417 parameters), generator (4482)", reported)
        self.assertNotIn("the loss does not depend on", reported)  # every phase has its own
        lines = [
            json.loads(line)
            for line in Path(self.cwd, "run/metrics.jsonl").read_text().splitlines()
        ]
        last = [line for line in lines if "val/loss" in line][-1]
        self.assertLessEqual(last["val/loss"], 0.1)  # the mean distance from a ring of radius 1
        self.assertLessEqual(last["val/middle"], 0.2)  # on all sides of it
        steps = [line for line in lines if "grad_norm/critic" in line]
        self.assertTrue(
            steps
            and all(
                {
                    "train/distance_step",
                    "train/penalty_step",
                    "train/g_loss_step",
                    "grad_norm/generator",
                }
                <= set(line)
                for line in steps
            )
        )

    def test_phases_keep_the_reproducibility(self):
        """Two phases in each step: one hash for any lanes and ranks, on a simulated accelerator,
        and when resumed."""
        os.environ["LEVIN_SIM_DEVICES"] = "1"
        steps = ("max_epochs=1", "max_steps=9")
        layouts = {
            "one": ("lanes=1",),
            "four": ("lanes=4", "num_workers=2"),
            "two": ("devices=2",),
            "three": ("devices=3", "strategy=dp"),
            "sim": ("accelerator=sim",),
            "parts": ("max_steps=4",),
        }
        for name, arguments in layouts.items():
            run(RING, f"out={name}", *steps, *arguments, cwd=self.cwd)
        run(RING, "out=parts", "resume=true", "max_steps=9", cwd=self.cwd)
        hashes = {
            run(LEVIN, "ckpt", "hash", f"{name}/checkpoints/last.safetensors", cwd=self.cwd).stdout
            for name in layouts
        }
        self.assertEqual(len(hashes), 1)

    def test_phases_with_settings_of_their_own(self):
        """A rate, a schedule and clipping of a phase, and a generator in every third step: one hash
        for any layout, and when resumed; and each of them changes it."""
        os.environ["LEVIN_SIM_DEVICES"] = "1"
        critic, generator = (
            "critic:clip=0.5:scheduler=constant:beta2=0.95",
            "generator:every=3:lr=0.004:momentum=0.5:optimizer=rmsprop",
        )
        keys = ("max_epochs=1", "max_steps=9", "scheduler=exponential", "scheduler.interval=step")
        keys += ("log_every_n_steps=1",)
        layouts = {
            "one": ("lanes=1",),
            "four": ("lanes=4", "num_workers=2"),
            "two": ("devices=2",),
            "sim": ("accelerator=sim",),
            "parts": ("max_steps=4",),
        }
        others = {
            "clip": critic.replace("0.5", "0.01") + "," + generator,
            "scheduler": critic.replace("constant", "exponential") + "," + generator,
            "every": critic + "," + generator.replace("3", "2"),
            "beta1": critic + ":beta1=0.3," + generator,
            "beta2": critic + ":beta2=0.7," + generator,
            "lr": critic + "," + generator.replace("0.004", "0.002"),
            "optimizer": critic + "," + generator.replace("rmsprop", "sgd"),
            "own momentum": critic + "," + generator.replace("0.5", "0"),
        }
        both = f"optim.phases=[{critic},{generator}]"
        for name, arguments in layouts.items():
            run(RING, f"out={name}", *keys, both, *arguments, cwd=self.cwd)
        run(RING, "out=parts", "resume=true", "max_steps=9", cwd=self.cwd)
        for name, phases in others.items():
            run(RING, f"out={name}", *keys, f"optim.phases=[{phases}]", cwd=self.cwd)
        hash_of = {
            name: run(LEVIN, "ckpt", "hash", f"{name}/checkpoints/last.safetensors", cwd=self.cwd)
            for name in [*layouts, *others]
        }
        hash_of = {name: done.stdout for name, done in hash_of.items()}
        self.assertEqual(len({hash_of[name] for name in layouts}), 1, hash_of)
        for name in layouts:
            lines = Path(self.cwd, name, "metrics.jsonl").read_text().splitlines()
            lines = [json.loads(line) for line in lines if "grad_norm/critic" in line]
            rate = lines[0]["lr/critic"]
            self.assertEqual([line["lr/critic"] for line in lines], 9 * [rate])
            self.assertGreater(rate, 0)
            rates = {line["step"]: line.get("lr/generator") for line in lines}
            self.assertEqual([s for s, rate in rates.items() if rate is not None], [3, 6, 9])
            self.assertTrue(0.004 > rates[3] > rates[6] > rates[9] > 0, rates)
        self.assertEqual(len({hash_of[name] for name in ["one", *others]}), 1 + len(others))
        for given, expected in (
            ("critc:lr=1", "critc is not a phase of this model's steps"),
            ("critic", "critic is not PHASE:KEY=VALUE"),
            ("critic:lr=0", "is not PHASE:KEY=VALUE"),
            ("critic:every=1.5", "is not PHASE:KEY=VALUE"),
            ("critic:scheduler=plateau", "cannot have scheduler=plateau"),
            ("critic:beta1=1", "is not PHASE:KEY=VALUE"),
            ("critic:beta2=-0.1", "is not PHASE:KEY=VALUE"),
            ("critic:every=2,generator:every=3", "one must run in each step"),
        ):
            reported = run(RING, "out=no", f"optim.phases=[{given}]", cwd=self.cwd, status=64)
            self.assertIn(expected, reported.stderr)
        cycle = ("scheduler=onecycle", "optim.betas=[0.5,0.9]")
        for given, expected in (
            (("optim=sgd",), "critic:beta1=0 gives a phase its own beta1, and its optimizer, sgd,"),
            (cycle, "beta1, which scheduler=onecycle moves"),
        ):
            keys = ("out=no", "optim.phases=[critic:beta1=0]", *given)
            reported = run(RING, *keys, cwd=self.cwd, status=64)
            self.assertIn(expected, reported.stderr)
        for given, expected in (
            ("critic:optimizer=adm", "critic:optimizer=adm gives a phase the optimizer adm"),
            ("critic:beta1=0:optimizer=rmsprop", "beta1, and its optimizer, rmsprop, has none"),
            ("critic:optimizer=adam:momentum=0.5", "its own momentum, and its optimizer, adam,"),
            ("critic:optimizer=sgd:nesterov=yes", "is not PHASE:KEY=VALUE"),
            ("critic:optimizer=sgd:nesterov=true:momentum=0", "has nesterov=true, which needs"),
            ("critic:optimizer=rmsprop", "which moves the momentum, and its optimizer, rmsprop"),
        ):
            keys = ("out=no", f"optim.phases=[{given}]", *cycle)
            reported = run(RING, *keys, cwd=self.cwd, status=64)
            self.assertIn(expected, reported.stderr)
        for given, expected in (
            ("generator:momentum=0.5", "its optimizer, adamw, has none: sgd, lars and rmsprop"),
            ("generator:beta1=0.5", "its own beta1, which scheduler=onecycle moves"),
        ):
            keys = ("out=no", f"optim.groups=[{given}]", "optim=adamw", *cycle)
            reported = run(RING, *keys, cwd=self.cwd, status=64)
            self.assertIn(expected, reported.stderr)

    def test_a_phase_that_is_frozen_is_refused(self):
        reported = run(RING, "out=run", "freeze=[critic]", cwd=self.cwd, status=64).stderr
        self.assertIn("the phase critic of a step has nothing to train", reported)
        self.assertFalse(Path(self.cwd, "run").exists())

    def test_an_own_loop_chooses_stops_and_keeps_the_best(self):
        """Two trainers in turn; nothing but the file that the program asks for is written, and
        every layout gives the same lines."""
        os.environ["LEVIN_SIM_DEVICES"] = "1"
        printed = {}
        for layout in ("lanes=1", "devices=2", "accelerator=sim"):
            done = run(OWN_LOOP, layout, "micro_batches=4", "accelerator=cpu", layout, cwd=self.cwd)
            printed[layout] = done.stdout
            self.assertEqual(done.stderr, "")
            self.assertEqual([p.name for p in self.cwd.iterdir()], ["best.safetensors"])
        self.assertEqual(len(set(printed.values())), 1)
        out = printed["lanes=1"]
        self.assertIn("optim.lr=1e-2 goes on\n", out)
        losses = [float(x) for x in re.findall(r"1e-2: step \d+  loss (\S+)", out)]
        stopped, step, loss, accuracy = re.search(
            r"^stopped at step (\d+); best: step (\d+)  loss (\S+)  acc (\S+)$", out, re.M
        ).groups()
        self.assertEqual(float(loss), min(losses[4:]))
        self.assertTrue(int(step) < int(stopped) < 1200)
        self.assertGreaterEqual(float(accuracy), 0.7)
        reported = run(OWN_LOOP, "max_epoch=3", cwd=self.cwd, status=1).stderr
        self.assertIn("max_epochs", reported)

    def test_photos_from_a_folder(self):
        for part, count in (("train", 6), ("val", 2)):
            for i in range(count):
                write_png(self.cwd / f"photos/{part}/blue/{i}.png", 40, (10, 20 + 5 * i, 200))
                write_png(self.cwd / f"photos/{part}/red/{i}.png", 40, (200, 20 + 5 * i, 10))
        run(PHOTOS, "out=run", "max_epochs=12", cwd=self.cwd)
        self.assertEqual(best_accuracy(self.cwd / "run"), 1.0)

    def test_photos_without_a_folder(self):
        self.assertIn("photos/", run(PHOTOS, cwd=self.cwd, status=1).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
