"""A trained sampler in use: what levin predict and levin eval write, measure and choose, on several
layouts and of builtin data and folders.

usage: test_gan_eval.py LEVIN [test names]     registered in tests/cli/CMakeLists.txt
"""

import glob
import html
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from rank_processes import drop_identity
from small_png import read_rows
from weights_case import LEVIN, read_npy, write_npy
from today import OfToday

drop_identity()
FAILURE, USAGE = 1, 64
SIDE = 32
SMALL = (
    f"data=builtin:mass data.count=64 im_size={SIDE} gen_channels=4 gen_levels=2 disc_channels=4"
    " disc_stages=2 num_z_valid=2 batch_size=8 num_workers=0 quiet=true image_every_n_epochs=0"
).split()
ACCEPTABLE = "psnr_gain_tol=2.498"  # dB; that of the first epoch is not
HERE = ""


def setUpModule():
    global HERE
    HERE = tempfile.mkdtemp(prefix="levin-gan-")
    levin("train", "gan", *SMALL, "max_epochs=3", ACCEPTABLE, "out=run")
    subprocess.run(["cp", "-a", path("run"), path("three")], check=True)  # keeps links
    levin("train", "gan", "out=run", "resume=true", "max_epochs=4", "quiet=true")


def tearDownModule():
    shutil.rmtree(HERE)


def levin(*arguments, code=0):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=HERE, capture_output=True, text=True, timeout=100
    )
    what = f"levin {' '.join(arguments)}: exit code {done.returncode}, not {code}"
    assert done.returncode == code, f"{what}\n{done.stdout}{done.stderr}"
    return done


def path(name):
    return os.path.join(HERE, name)


def contents(folder):
    """Every file below with its inode and bytes."""
    found = {}
    for name in glob.glob(f"{path(folder)}/**", recursive=True):
        if os.path.isfile(name):
            with open(name, "rb") as f:
                found[os.path.relpath(name, path(folder))] = (os.stat(name).st_ino, f.read())
    return found


def arrays(folder):
    return {n: data for n, (_, data) in contents(folder).items() if n.endswith(".npy")}


def png_size(name):
    return read_rows(path(name))[:2]


class Predict(unittest.TestCase):
    def test_mean_and_std_are_those_of_the_samples(self):
        levin("predict", "model=run", "num_samples=5", "output=five")
        names = {f"np_{kind}_{i}.npy" for kind in ("avgs", "stds", "samps") for i in range(8)}
        self.assertEqual(set(arrays("five")), names)
        for i in range(8):
            shape, samples = read_npy(path(f"five/np_samps_{i}.npy"))
            self.assertEqual(shape, [5, SIDE, SIDE])
            n = SIDE * SIDE
            for name, of in (
                ("avgs", lambda v: sum(v) / 5),
                ("stds", lambda v: math.sqrt(sum((x - sum(v) / 5) ** 2 for x in v) / 5)),
            ):
                shape, values = read_npy(path(f"five/np_{name}_{i}.npy"))
                self.assertEqual(shape, [SIDE, SIDE])
                for k in range(n):
                    self.assertAlmostEqual(values[k], of(samples[k::n]), delta=1e-5)
            self.assertGreater(max(values), 0)

    def test_the_same_on_any_layout(self):
        use = ["predict", "model=run", "num_samples=3"]
        levin(*use, "output=one")
        for name, layout in {
            "ddp": ["devices=2", "accelerator=cpu", "eval_batch_size=8"],
            "dp": ["devices=2", "accelerator=cpu", "strategy=dp"],
            "lanes": ["lanes=2", "num_workers=2"],
        }.items():
            levin(*use, *layout, f"output={name}")
            self.assertEqual(arrays(name), arrays("one"), name)
        chunks = ["eval_batch_size=3", "accelerator=cpu"]
        levin(*use, *chunks, "output=chunks")
        levin(*use, *chunks, "devices=2", "output=chunks2")
        self.assertEqual(arrays("chunks"), arrays("chunks2"))
        # The noise is of the measurement, so chunks of another size give the same samples; oneDNN 3
        # adds in another order for another number of images.
        for name in arrays("one"):
            shape, have = read_npy(path(f"chunks/{name}"))
            self.assertEqual(shape, read_npy(path(f"one/{name}"))[0])
            want = read_npy(path(f"one/{name}"))[1]
            self.assertEqual(len(have), len(want))
            for a, b in zip(have, want):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_without_samples(self):
        levin("predict", "model=run", "num_samples=2", "keep_samples=false", "output=none")
        self.assertEqual(len(arrays("none")), 16)
        self.assertFalse(glob.glob(path("none/np_samps*")))
        mine = ["np_avgs_x.npy", "np_avgs_1.npy.old", "np_gt_7.npy", "np_avgs_.npy", "notes.txt"]
        for name in mine:
            with open(path(f"none/{name}"), "w"):
                pass
        levin("predict", "model=run", "num_samples=2", "data.count=1", "output=none")
        names = [f"np_{kind}_0.npy" for kind in ("avgs", "stds", "samps")]
        self.assertEqual(sorted(os.listdir(path("none"))), sorted(names + mine))
        for name in ("x.csv", "x.jsonl", "x.NPY"):
            done = levin("predict", "model=run", f"output={name}", code=USAGE)
            self.assertIn(f"output={name} is the name of a file", done.stderr)
            self.assertFalse(os.path.exists(path(name)))
        done = levin("predict", "model=run", "json=true", code=USAGE)
        self.assertIn("levin eval", done.stderr)

    def test_a_folder_of_maps(self):
        for part, n in (("train", 2), ("val", 1), ("test", 3)):
            os.makedirs(path(f"maps/kappa_{part}"))
            for i in range(n):
                values = [math.sin(k * (i + 2) / 9) / 50 + k * 1e-6 for k in range(SIDE * SIDE)]
                write_npy(path(f"maps/kappa_{part}/{i}.npy"), (SIDE, SIDE), values)
        levin("predict", "model=run", "data=maps", "num_samples=2", "output=of_maps")
        self.assertEqual(len(arrays("of_maps")), 9)
        out = levin(
            "eval", "model=run", "data_path=maps", "num_samples=2", "output=maps_page", "num_figs=3"
        ).stdout
        self.assertIn("test: 3 measurements, 2 samples each", out)
        self.assertNotIn("posterior mean", out)  # of a folder it is not known
        truth = read_npy(path("maps/kappa_test/1.npy"))[1]
        for a, b in zip(truth, read_npy(path("maps_page/np_gt_1.npy"))[1]):
            self.assertAlmostEqual(a, b, delta=1e-6)


class Evaluation(unittest.TestCase):
    def test_figures_and_arrays(self):
        levin("eval", "model=run", "num_samples=9", "num_figs=2", "output=page")
        for i in (0, 1):
            for kind in ("gt", "zfr", "avgs", "stds"):
                self.assertEqual(read_npy(path(f"page/np_{kind}_{i}.npy"))[0], [SIDE, SIDE], kind)
            shape, samples = read_npy(path(f"page/np_samps_{i}.npy"))
            self.assertEqual(shape, [9, SIDE, SIDE])
            self.assertEqual(len(samples), 9 * SIDE * SIDE)
            # panels of 512 pixels with a bar and a title
            for kind, columns, rows in (("overview", 3, 2), ("zoom", 4, 3), ("ascent", 3, 2)):
                self.assertEqual(
                    png_size(f"page/{kind}_{i}.png"), (32 + 768 * columns, 32 + 592 * rows), kind
                )
        for name in ("psnr", "loss", "std_mult"):
            self.assertEqual(png_size(f"page/{name}.png"), (1920, 1200), name)
        self.assertFalse(glob.glob(path("page/*_2.*")))
        page = contents("page")["index.html"][1].decode()
        for name in contents("page"):
            if name.endswith(".png"):
                self.assertIn(f'src="{name}"', page)
        for name in ("PSNR of 1<", "PSNR Kaiser-Squires", "SSIM of 8", "RMSE", "CFID: ", "level"):
            self.assertEqual(page.count(name), 1, name)  # of the table, or below it

    def test_without_what_draws(self):
        """eval with a page does not begin; training warns once, and goes on."""
        os.environ["LEVIN_CAIRO_LIBRARY"] = "/none/libcairo.so"
        try:
            done = levin("eval", "model=run", "output=nothing", code=FAILURE)
            self.assertIn("output=: drawing needs cairo and a font: /none/libcairo.so", done.stderr)
            self.assertFalse(os.path.exists(path("nothing")))
            levin("eval", "model=run", "num_samples=2")
            few = [*SMALL[:-1], "data.count=16", "max_epochs=2", "image_every_n_epochs=1"]
            done = levin("train", "gan", *few, "out=blind")
            self.assertEqual(done.stderr.count("images of the validations are not drawn"), 1)
            self.assertFalse(os.path.exists(path("blind/images")))
        finally:
            del os.environ["LEVIN_CAIRO_LIBRARY"]

    def test_they_are_those_of_predict(self):
        levin("predict", "model=run", "num_samples=4", "output=p4")
        levin("eval", "model=run", "num_samples=4", "num_figs=3", "output=e4")
        for name, data in arrays("e4").items():
            if "np_gt" not in name and "np_zfr" not in name:
                self.assertEqual(data, arrays("p4")[name], name)
        self.assertEqual(len(arrays("e4")), 15)

    def test_the_seed_moves_the_zoom_alone(self):
        for seed in (1, 2):
            levin("eval", "model=run", "num_samples=2", f"seed={seed}", f"output=seed{seed}")
        one, two = contents("seed1"), contents("seed2")
        self.assertEqual(set(one), set(two))
        self.assertEqual(
            {name for name in one if one[name][1] != two[name][1]}, {"zoom_0.png", "ascent_0.png"}
        )

    def test_json(self):
        use = ["eval", "model=run", "num_samples=4", "json=true"]
        measured = {p: json.loads(levin(*use, f"split={p}").stdout) for p in ("val", "test")}
        for part, r in measured.items():
            self.assertEqual(
                (r["model"], r["split"], r["measurements"], r["samples"]), ("run", part, 8, 4)
            )
            self.assertEqual(r["PSNR of 4"]["n"], 8)
            self.assertLess(r["PSNR of 4"]["mean"], r["PSNR posterior mean"]["mean"])
            self.assertGreater(r["CFID"], 0)
            self.assertEqual([level for level, _ in r["coverage"]][0], 0.01)
        self.assertNotEqual(measured["val"]["RMSE"], measured["test"]["RMSE"])
        r = json.loads(levin(*use, "split=train", "data.count=5").stdout)
        self.assertEqual(r["measurements"], 5)
        again = json.loads(levin(*use, "devices=2", "accelerator=cpu").stdout)
        self.assertEqual(again, measured["test"])

    def test_behind_a_mask(self):
        shown = [k % 3 != 0 and k > 5 * SIDE for k in range(SIDE * SIDE)]
        os.makedirs(path("cosmos"))
        noise = [0.05] * SIDE**2
        for name, values in (("mask", [float(m) for m in shown]), ("std1", noise), ("std2", noise)):
            write_npy(path(f"cosmos/cosmos_{name}.npy"), (SIDE, SIDE), values)
        levin(
            "train",
            "gan",
            *SMALL,
            "cosmo_dir_path=cosmos",
            "max_epochs=1",
            "data.count=16",
            "psnr_gain_tol=99",
            "out=masked",
        )
        use = ["eval", "model=masked", "num_samples=2", "data.count=1"]
        r = json.loads(levin(*use, "output=masked_page", "json=true").stdout)
        truth, mean = (read_npy(path(f"masked_page/np_{kind}_0.npy"))[1] for kind in ("gt", "avgs"))
        pairs = [(a, b) for a, b, m in zip(truth, mean, shown) if m]
        mse = sum((a - b) ** 2 for a, b in pairs) / len(pairs)
        most = max(a for a, _ in pairs)
        for name, value in (
            ("RMSE", math.sqrt(mse)),
            ("PSNR within the mask", 10 * math.log10(most**2 / mse)),
            ("psnr_legacy", 10 * math.log10(most / mse)),
        ):
            self.assertAlmostEqual(r[name]["mean"], value, delta=1e-5 * abs(value), msg=name)
        self.assertNotAlmostEqual(r["PSNR of 2"]["mean"], r["PSNR within the mask"]["mean"])
        chosen = json.loads(
            levin(
                "eval",
                "model=masked",
                "choose=rmse",
                "num_samples=2",
                "split=test",
                "data.count=1",
                "json=true",
            ).stdout
        )
        self.assertAlmostEqual(chosen["epochs"][0]["rmse"], r["RMSE"]["mean"], delta=1e-12)
        r = json.loads(levin("eval", "model=run", "num_samples=2", "json=true").stdout)
        self.assertNotIn("PSNR within the mask", r)
        for name in ("r of error and truth", "r of std and truth"):
            self.assertLess(abs(r[name]["mean"]), 1)

    def test_intervals_are_calibrated(self):
        use = ["eval", "model=run", "num_samples=2"]
        self.assertNotIn("lambda", levin(*use, "data.count=115").stdout)
        self.assertIn("lambda and share of mean", levin(*use, "data.count=116").stdout)
        rows = json.loads(levin(*use, "data.count=116", "json=true").stdout)["calibration"]
        bound = math.sqrt(math.log(10) / (2 * 116))
        levels, lambdas, shares = zip(*rows)
        self.assertEqual(levels[0], 0.01)
        self.assertGreater(len(rows), 5)
        self.assertLess(levels[-1], 0.95)  # above 1 - bound there is none
        self.assertEqual(sorted(lambdas), list(lambdas))
        for level, share in zip(levels, shares):
            self.assertGreaterEqual(share, level + bound - 6e-3)  # levels have two decimals

    def test_cfid_of_few_measurements(self):
        few = "CFID of {} means little: with fewer than 34 the 32 numbers"
        use = ["eval", "model=run", "num_samples=2"]
        for n, text in ((1, "1 measurement"), (33, "33 measurements"), (34, None)):
            done = levin(*use, f"data.count={n}")
            self.assertEqual(done.stderr.count("CFID"), 0 if text is None else 1, done.stderr)
            self.assertIn("" if text is None else few.format(text), done.stderr)

    def test_samples_that_ignore_the_noise(self):
        """At its start, and nothing is learned: what the noise changes is not to be seen."""
        epochs = ["max_epochs=3", "data.count=16"]
        done = levin("train", "gan", *SMALL, *epochs, "optim.lr=1e-12", "out=deaf")
        self.assertEqual(done.stderr.count("samples do not depend on the noise"), 1, done.stderr)
        self.assertIn("num_z_valid=2 has had the error of one since 3 validations", done.stderr)


class Baselines(unittest.TestCase):
    """The image of the measurement itself."""

    def check(self, kind, row, *arguments):
        sizes = "im_size=32 gen_channels=4 gen_levels=2 disc_channels=4 disc_stages=2".split()
        levin(
            "train",
            "gan",
            f"data=builtin:{kind}",
            "data.count=8",
            *sizes,
            *arguments,
            "batch_size=4",
            "max_steps=1",
            "num_z_valid=2",
            "quiet=true",
            f"out={kind}",
            "overwrite=true",
        )
        use = ["eval", f"model={kind}", "num_samples=2", f"output={kind}_page"]
        r = json.loads(levin(*use, "data.count=1", "json=true").stdout)
        truth, image = (read_npy(path(f"{kind}_page/np_{n}_0.npy"))[1] for n in ("gt", "zfr"))
        error = sum((a - b) ** 2 for a, b in zip(truth, image)) / len(truth)
        psnr = 10 * math.log10(max(truth) ** 2 / error)
        self.assertAlmostEqual(r[row]["mean"], psnr, delta=1e-3)
        self.assertGreater(psnr, 10)  # of the same units
        return image

    def test_zero_filled(self):
        self.check("mri", "PSNR zero-filled", "in_chans=4", "out_chans=4", "acceleration=4")

    def test_dirty(self):
        complex_ = self.check("radio", "PSNR dirty")
        real = self.check("radio", "PSNR dirty", "in_chans=2", "out_chans=1")
        for a, b in zip(complex_, real):
            self.assertAlmostEqual(a, abs(b), delta=1e-5)
        self.assertLess(min(real), 0)


class Models(unittest.TestCase):
    def test_a_model_that_is_none_is_reported_first(self):
        """Not its keys, which the recipe of another model would not know."""
        for command in ("predict", "eval"):
            done = levin(command, "model=mun", "num_samples=2", "keep_samples=false", code=FAILURE)
            self.assertIn("error: mun does not exist: model= takes a run directory", done.stderr)
            self.assertNotIn("num_samples", done.stderr)
            done = levin(command, "model=run/config.yaml", "num_samples=2", code=FAILURE)
            self.assertIn("not a safetensors file", done.stderr)
            self.assertNotIn("num_samples", done.stderr)


class Choice(unittest.TestCase):
    """Which epoch is the best, on copies of one run."""

    def copy(self, name):
        subprocess.run(["cp", "-a", path("run"), path(name)], check=True)  # keeps links
        return name

    def rows(self, out):
        return [line.split() for line in out.splitlines() if line.lstrip("* ")[:1].isdigit()]

    def test_the_least_score_becomes_the_best(self):
        for score in ("cfid", "rmse"):
            run = self.copy(f"by_{score}")
            before = contents(run)
            done = levin("eval", f"model={run}", f"choose={score}", f"output=page_{score}")
            # of the split, for all checkpoints together
            warned = done.stderr.count("CFID of 8 measurements means little")
            self.assertEqual(warned, 1 if score == "cfid" else 0, done.stderr)
            rows = self.rows(done.stdout)
            self.assertEqual([r[-1] for r in rows], ["no", "yes", "yes", "yes"], done.stdout)
            self.assertEqual(rows[0][1], "-")
            marked = [r for r in rows if r[0] == "*"]
            self.assertEqual(len(marked), 1)
            _, epoch, least, *_ = marked[0]
            self.assertEqual(float(least), min(float(r[-3]) for r in rows[1:]))
            self.assertIn(f"best: epoch {epoch}, where ", done.stdout)
            page = contents(f"page_{score}")["index.html"][1].decode()
            self.assertIn(done.stdout, html.unescape(page))
            self.assertIn('src="loss.png"', page)
            after = contents(run)
            (name,) = glob.glob(path(f"{run}/checkpoints/epoch=000{epoch}-*"))
            name = os.path.relpath(name, path(run))
            self.assertEqual(after["checkpoints/best.safetensors"], after[name])
            for name in set(before) - {
                "checkpoints/best.safetensors",
                "exported_models/exported_best.safetensors",
            }:
                self.assertEqual(before[name], after[name], name)
            self.assertEqual(set(after), set(before) | {"chosen"})

    def test_the_score_is_that_of_eval(self):
        run = self.copy("scores")
        files = sorted(glob.glob(path(f"{run}/checkpoints/epoch=*")))
        for score, samples in (("rmse", 3), ("cfid", 3)):
            r = json.loads(
                levin(
                    "eval",
                    f"model={run}",
                    f"choose={score}",
                    f"num_samples={samples}",
                    "split=test",
                    "json=true",
                ).stdout
            )
            self.assertEqual((r["split"], r["samples"], len(r["epochs"])), ("test", samples, 4))
            self.assertIsNone(r["epochs"][0][score])
            by_epoch = {e["epoch"]: e for e in r["epochs"]}
            alone = json.loads(
                levin("eval", f"model={files[3]}", f"num_samples={samples}", "json=true").stdout
            )
            alone = alone["CFID"] if score == "cfid" else alone["RMSE"]["mean"]
            self.assertAlmostEqual(by_epoch[4][score], alone, delta=1e-12)
            scores = {n: e[score] for n, e in by_epoch.items() if e["acceptable"]}
            self.assertEqual(r["best"], min(scores, key=scores.get))

    def test_the_exported_model_is_the_trainers(self):
        """Last and best of a run of one epoch more are what the choice among one makes."""
        run = self.copy("exported")
        for name in sorted(glob.glob(path(f"{run}/checkpoints/epoch=*")))[:3]:
            os.remove(name)
        os.remove(path(f"{run}/exported_models/exported_best.safetensors"))
        levin("eval", f"model={run}", "choose=cfid")
        after = contents(run)
        self.assertEqual(
            after["exported_models/exported_best.safetensors"][1],
            after["exported_models/exported_last.safetensors"][1],
        )
        self.assertEqual(
            after["checkpoints/best.safetensors"], after["checkpoints/last.safetensors"]
        )

    def test_averaged_weights(self):
        more = ["data.count=16", "max_epochs=2", "psnr_gain_tol=99", "ema.decay=0.5"]
        levin("train", "gan", *SMALL, *more, "out=ema")
        before = contents("ema")
        done = levin("eval", "model=ema", "choose=rmse", "num_samples=2", "use_ema=false")
        after = contents("ema")
        which = "last" if "best: epoch 2" in done.stdout else "best"
        name = f"exported_models/exported_{which}.safetensors"
        self.assertEqual(before[name][1], after["exported_models/exported_best.safetensors"][1])

    def test_prune_and_resume(self):
        run = self.copy("pruned")
        done = levin("eval", f"model={run}", "choose=rmse", "num_samples=2", "prune=true")
        self.assertIn("3 other checkpoints were removed", done.stderr)
        left = sorted(n for n in contents(run) if n.startswith("checkpoints/"))
        self.assertEqual(len(left), 3)
        self.assertEqual(left[0], "checkpoints/best.safetensors")
        after = contents(run)
        self.assertEqual(after[left[0]], after[left[1]])
        levin("train", "gan", f"out={run}", "resume=true", "max_epochs=5", "quiet=true")
        self.assertTrue(glob.glob(path(f"{run}/checkpoints/epoch=0005-*")))

    def test_a_resumed_run_leaves_the_choice(self):
        """Until it finds a better one. The best one of the training is the last one, which would
        be linked again."""
        run, names = "three", ["checkpoints/best.safetensors"]
        names.append("exported_models/exported_best.safetensors")
        last = self.metadata(run, "last")
        self.assertEqual(last["levin.best_step"], last["levin.step"])
        os.remove(glob.glob(path(f"{run}/checkpoints/epoch=0003-*"))[0])
        levin("eval", f"model={run}", "choose=rmse", "num_samples=2")
        chosen = {name: contents(run)[name][1] for name in names}
        self.assertEqual(self.metadata(run, "best")["levin.step"], "16")
        resume = ["train", "gan", f"out={run}", "resume=true", "quiet=true"]
        # nothing is left to train; none is acceptable, so that the score is not reached again
        for more in ([], ["max_epochs=4", "psnr_gain_tol=1e-9"]):
            levin(*resume, *more)
            self.assertEqual({name: contents(run)[name][1] for name in names}, chosen, more)
        self.assertEqual(self.metadata(run, "last")["levin.best_step"], "16")
        levin(*resume, "max_epochs=5", "checkpoint.monitor=val/loss", "checkpoint.mode=max")
        self.assertEqual(self.metadata(run, "best")["levin.step"], "40")

    def metadata(self, run, name):
        file = f"{run}/checkpoints/{name}.safetensors"
        return json.loads(levin("ckpt", "show", file, "json=true").stdout)["metadata"]

    def test_none_is_acceptable(self):
        levin("train", "gan", *SMALL, "data.count=16", "max_epochs=2", "out=bad")
        before = contents("bad")
        done = levin("eval", "model=bad", "choose=cfid", "prune=true", code=FAILURE)
        self.assertEqual([r[-1] for r in self.rows(done.stdout)], ["no", "no"])
        for piece in ("closest", "epoch=000", "dB from its target", "nothing was changed"):
            self.assertIn(piece, done.stderr)
        self.assertEqual(contents("bad"), before)

    def test_what_is_passed_over(self):
        run = self.copy("damaged")
        (name,) = glob.glob(path(f"{run}/checkpoints/epoch=0002-*"))
        with open(name, "r+b") as f:
            f.truncate(1000)
        done = levin("eval", f"model={run}", "choose=rmse", "num_samples=2")
        self.assertEqual(len(self.rows(done.stdout)), 3)
        self.assertIn("checkpoint passed over", done.stderr)

    def test_what_is_refused(self):
        exported = "model=run/exported_models/exported_last.safetensors"
        for arguments, expected in (
            (["model=run", "devices=2", "accelerator=cpu"], "devices=1"),
            (["model=run", "devices=2", "accelerator=cpu", "strategy=dp"], "devices=1"),
            ([exported], "is not a run directory"),
            (["model=run", "checkpoint=last"], "checkpoint last"),
            (["model=run", "output=x", "num_figs=2"], "num_figs 2"),
        ):
            done = levin("eval", *arguments, "choose=cfid", code=USAGE)
            self.assertIn(expected, done.stderr)
        done = levin("eval", "model=run", "prune=true", code=USAGE)
        self.assertIn("choose=cfid", done.stderr)
        few = ["data.count=16", "max_epochs=1"]
        levin("train", "gan", *SMALL, *few, "keep_checkpoints=0", "out=kept_none")
        done = levin("eval", "model=kept_none", "choose=cfid", code=FAILURE)
        self.assertIn("checkpoint.save_top_k", done.stderr)


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [test names]")
    unittest.main(verbosity=1, testLoader=OfToday(3))
