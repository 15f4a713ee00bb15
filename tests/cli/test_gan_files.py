#!/usr/bin/env python3
"""What users of rcGAN bring along: lines of their configuration files, options of its command line,
folders as they have them. Each is taken, a note, or one sentence with what to do.

usage: test_gan_files.py LEVIN [test names]     registered in CMakeLists.txt
"""

import json
import math
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from today import OfToday
from weights_case import LEVIN, read_safetensors, write_npy, write_safetensors

SIDE = 32
SMALL = "gen_channels=4 gen_levels=2 disc_channels=4 disc_stages=3 num_workers=0".split()
FILE = {
    "experience": "mass_mapping", "data_path": "builtin:mass", "in_chans": "2", "out_chans": "2",
    "im_size": str(SIDE), "lr": "0.001", "batch_size": "4", "num_epochs": "2", "num_z_test": "32",
}
NAN = float("nan")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def levin(self, *arguments, code=0):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=self.cwd, capture_output=True, text=True, timeout=100
        )
        shown = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, f"{arguments}\n{shown}")
        return shown

    def write(self, more=None, name="f.yml", **of):
        """A file of rcGAN with these lines; None: without that one."""
        lines = {**FILE, **of, **(more or {})}
        text = "".join(f"{k}: {v}\n" for k, v in lines.items() if v is not None)
        (self.cwd / name).write_text(text)

    def plan(self, *arguments, code=0):
        return self.levin(
            "plan", "train", "gan", "--config", "f.yml", *SMALL, "data.count=16", *arguments,
            code=code,
        )

    def train(self, out, *arguments, code=0):
        return self.levin(
            "train", "gan", "--config", "f.yml", *SMALL, "data.count=8", "wgrad_threads=1",
            "num_sanity_val_steps=0", f"out={out}", *arguments, code=code,
        )

    def maps(self, folder, n=4, value=None):
        """Maps of mass for all parts."""
        for part in ("train", "val", "test"):
            for i in range(n):
                values = [math.sin(k * (i + 2) / 9) / 50 + k * 1e-6 for k in range(SIDE * SIDE)]
                self.array(f"{folder}/kappa_{part}/{i}.npy", values)
        return folder

    def array(self, name, values, shape=(SIDE, SIDE)):
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npy(path, shape, values)

    # ---- lines of a file ----

    def test_a_path_that_is_left_open_is_not_given(self):
        for key in ("cosmo_dir_path", "cosmos_dir_path", "sense_maps_path", "checkpoint_dir",
                    "save_path", "fig_path"):
            for value in ("", '""', "''", "~", "null", "Null # where"):
                self.write({key: value})
                self.assertNotIn("warning: ", self.plan())
        for value in ("", '""', "null", None):
            self.write(data_path=value)
            self.assertEqual(
                self.plan(code=64),
                "error: `data_path` is missing, and has no default in rcGAN  (f.yml)\n",
            )
            self.plan("data_path=builtin:mass")
        self.write(checkpoint_dir='""')
        self.train("", "--checkpoint-dir", "runs", "exp_name=a", "max_steps=1", code=64)
        done = self.levin("train", "gan", "--config", "f.yml", *SMALL, "data.count=16",
                          "checkpoint_dir=runs", "exp_name=a", "max_steps=1")
        self.assertTrue((self.cwd / "runs/a/config.yaml").exists(), done)
        # a variable that is not set is a mistake, and of other keys in a file, too
        self.assertIn("the path is empty", self.plan("cosmo_dir_path=", code=64))
        self.write({"weights": ""})
        self.assertIn("the path is empty", self.plan(code=64))
        (self.cwd / "own.yml").write_text("recipe: gan\ndata:\n")
        self.assertIn("error: 2 mistakes:\n`data` is missing: a folder of maps",
                      self.levin("plan", "train", "gan", "config=own.yml", code=64))

    def test_its_schedule_is_steps(self):
        falls = {"lr_step_size": "1", "lr_drop_rate": "0.25"}
        self.write({"lr_scheduler": "true", **falls})
        shown = self.train("steps", "max_epochs=3", "limit_train_batches=1", "log_every_n_steps=1")
        note = "multiplied by 0.25 every 1 epoch, as in rcGAN: scheduler is step  (f.yml:10)"
        self.assertIn(note, shown)
        lines = [json.loads(n) for n in (self.cwd / "steps/metrics.jsonl").read_text().splitlines()]
        rates = {n["epoch"]: n["lr"] for n in lines if "lr" in n}
        for epoch in (1, 2, 3):
            self.assertAlmostEqual(rates[epoch], 0.001 * 0.25 ** (epoch - 1), places=12)
        shown = self.train("steps", "max_epochs=4", "limit_train_batches=1", "resume=true")
        self.assertNotIn("from here on", shown)
        for off in ("off", None, "false"):
            self.write({"lr_scheduler": off, **falls})
            shown = self.plan()
            for k, key in enumerate(falls):
                line = (10 if off is None else 11) + k
                self.assertIn(
                    f"note: {key} has no effect: lr_scheduler is not true  (f.yml:{line})", shown
                )
            self.assertNotIn("warning: scheduler", shown)
        self.train("plain", "max_steps=1")
        self.assertNotIn("from here on", self.train("plain", "max_steps=2", "resume=true"))
        for lines, mistakes in (
            ({"lr_scheduler": "true", "lr_step_size": "25"}, ["`lr_drop_rate` is missing"]),
            ({"lr_scheduler": "True"}, ["`lr_step_size` is missing", "`lr_drop_rate` is missing"]),
            ({"lr_scheduler": "cosin", "lr": None}, ["did you mean `cosine`?", "`lr` is missing"]),
        ):
            self.write(lines)
            shown = self.plan(code=64)
            for mistake in mistakes:
                self.assertIn(mistake, shown)
            self.assertEqual(len(shown.splitlines()), len(mistakes) + (len(mistakes) > 1))
        self.write({"lr_scheduler": "cosine"})
        self.plan()
        self.write({"lr_scheduler": "true", **falls})
        self.plan("scheduler=constant", "~scheduler.step_size", "~scheduler.gamma")

    def test_maps_of_one_hdf5_file_have_a_way_out(self):
        for data in ("", None, "maps"):
            self.write(experience="mass_mapping_from_hdf5", data_path=data,
                       path_to_train_val_dataset="/data/LP002.hdf5", nimgs_train="70560")
            shown = self.plan(code=64)
            self.assertEqual(len(shown.splitlines()), 1, shown)
            self.assertIn("experience `mass_mapping_from_hdf5` is not in this version: its maps "
                          "are in one HDF5 file, ", shown)
            self.assertIn("use experience=mass_mapping data=DIR", shown)
        for data in ("", None):
            self.write(data_path=data, path_to_train_val_dataset="/data/LP002.hdf5")
            shown = self.plan(code=64)
            self.assertIn("`data_path` is missing, and path_to_train_val_dataset, maps in one HDF5 "
                          "file, is not read: write them as .npy files into kappa_train", shown)
            self.assertEqual(len(shown.splitlines()), 1, shown)
        # which then works
        self.write(data_path=self.maps("maps"), path_to_train_val_dataset="/data/LP002.hdf5")
        self.assertIn("note: path_to_train_val_dataset has no effect", self.plan())

    def test_a_mistake_in_a_section_is_compared_with_its_keys(self):
        text = ("data:\n  path: builtin:mri\n  channels: 4\n  resolution: 32\n"
                "optimizer:\n  lrr: 0.001\ntrain:\n  P: 2\n  batch_size: 4\n  n_epoch: 1\n"
                "  adv_weight: 1e-3\nvalidate:\n  P: 8\ntest:\n  P: 32\n")
        (self.cwd / "f.yml").write_text(text)
        shown = self.plan("calib_width=8", code=64)
        for wrong, right in (("optimizer.lrr", "optimizer.lr` (optim.lr"),
                             ("train.n_epoch", "train.n_epochs` (max_epochs")):
            self.assertIn(f"unknown key `{wrong}`; did you mean `{right})?", shown)
        self.assertIn("error: 2 mistakes:", shown)
        self.assertIn("train.P is num_z_train, ", shown)
        self.assertIn("validate.P is num_z_valid", shown)

    def test_a_number_without_effect_is_where_it_counts(self):
        self.write(experience="mri", data_path="builtin:mri", in_chans="4", out_chans="4", R="4",
                   randseed="123456")
        shown = self.plan("calib_width=8")
        for line in ("R has no effect: acceleration stays 8; give acceleration=4  (f.yml:10)",
                     "randseed has no effect: seed stays 0; give seed=123456  (f.yml:11)",
                     "num_z_test has no effect: levin predict and levin eval take num_samples=32"):
            self.assertIn(f"note: {line}", shown)
        shown = self.plan("calib_width=8", "acceleration=4")
        self.assertIn("R has no effect: acceleration is 4 by itself  (", shown)

    # ---- its command line ----

    def test_options_of_its_programs_are_notes(self):
        self.write()
        shown = self.plan("--num-figs", "3", "--challenge", "singlecoil", "--sample-rate", "1.0",
                          "--mass_mapping", "--mri")
        for line in ("num_figs has no effect: levin eval draws that many",
                     "challenge has no effect: ", "sample_rate has no effect: ",
                     "mass_mapping is experience=mass_mapping",
                     "mri has no effect: experience is mass_mapping"):
            self.assertRegex(shown, rf"\nnote: {re.escape(line)}.*  \(command line\)\n")
        for flag, kind, chans in (("--mri", "mri", 4), ("--mass_mapping", "mass", 2),
                                  ("--radio", "radio", 3)):
            self.write(experience=None, data_path=f"builtin:{kind}", in_chans=chans,
                       out_chans=4 if chans == 4 else 2)
            self.assertIn(f"note: {flag[2:]} is experience=", self.plan(flag, "calib_width=8"))

    def test_images_with_a_hole_are_refused_by_name(self):
        self.write(experience=None, data_path="faces", in_chans="3", out_chans="3")
        self.assertIn("images of 3 colours with a hole to fill are not among", self.plan(code=64))
        self.write()
        self.assertIn("inpaint true: images with a hole to fill are not among the data of this "
                      "version", self.plan("--inpaint", code=64))

    def test_its_epochs_count_from_0(self):
        self.write()
        self.train("run", "max_epochs=2", "--resume-epoch", "0")
        shown = self.train("run", "--resume", "--resume-epoch", "1", "max_epochs=3")
        self.assertIn("note: resume_epoch=1 counts from 1, as the names of checkpoints do: it is "
                      "what rcGAN calls epoch 0  (command line)\n", shown)
        self.assertIn("epoch=0001-step=2.safetensors: step 2, epoch 2\n", shown)
        shown = self.train("run", "--resume", "--resume-epoch", "0", code=64)
        self.assertIn("has no epoch=0, since epochs count from 1 (0 in rcGAN is 1 here), and "
                      "without this key the run goes on from the last checkpoint; it has 1, 2, 3",
                      shown)

    def test_a_command_without_gan_names_it(self):
        self.write(checkpoint_dir="runs/")
        use = ["--config", "f.yml"]
        for command, right in (
            (["train", *use], "the recipe is missing: levin train gan --config f.yml"),
            (["plan", *use], "the recipe is missing: levin plan train gan --config f.yml"),
            (["plan", "train", *use], "the recipe is missing: levin plan train gan --config f.yml"),
            (["tune", "batch-size", *use], "as in levin tune batch-size gan config=f.yml"),
            (["tune", "lr", *use], "as in levin tune lr gan config=f.yml"),
            (["eval", *use, "--exp-name", "a"], "levin eval model=runs/a"),
            (["eval", "gan", *use, "--exp-name", "a", "--num-figs", "2"], "eval model=runs/a"),
            (["predict", *use, "exp_name=a"], "levin predict model=runs/a"),
            (["predict", "gan", *use], "levin predict model=runs/NAME"),
            (["export", *use, "exp_name=b"], "levin export model=runs/b"),
            (["export", *use, "weights=x.ckpt"], "levin export gan config=f.yml"),
            (["train", "--mri", "--exp-name", "a"], "missing: levin train gan --mri"),
            (["eval", "gan", "--exp-name", "a"], "use model=DIR, the folder of the run"),
            (["predict", "checkpoint_dir=runs"], "use model=DIR, the folder of the run"),
            (["validate", *use], "did you mean eval?"), (["plot", *use], "did you mean report?"),
            (["find_batch_size", *use], "did you mean tune batch-size?"),
        ):
            shown = self.levin(*command, code=64)
            self.assertIn(right, shown)
            self.assertEqual(len(shown.splitlines()), 1, shown)
        shown = self.levin("train", "gan", "--mri", "--exp-name", "a", code=64)
        self.assertIn("a file of rcGAN has it, and is given with --config FILE\n", shown)
        (self.cwd / "own.yml").write_text("seed: 1\n")
        shown = self.levin("train", "config=own.yml", code=64)
        self.assertIn("levin train classify config=own.yml", shown)

    def test_a_checkpoint_of_its_program_is_measured(self):
        """Each message names the command that goes on, and the last one works."""
        self.write()
        self.train("run", "max_steps=1")
        tensors, facts = read_safetensors(
            self.cwd / "run/exported_models/exported_best.safetensors"
        )
        write_safetensors(self.cwd / "bare.safetensors", tensors)
        # a damaged model is found before data are opened, which are missing
        name = max(tensors)
        odd = {**tensors, name: ("F32", [1, 1], bytes(4))}
        write_safetensors(self.cwd / "odd.safetensors", odd, facts)
        for command in ("eval", "predict"):
            shown = self.levin(command, "model=odd.safetensors", "data=absent", code=1)
            self.assertIn(f"{name} is ", shown)
            self.assertNotIn("absent", shown)
        self.levin("ckpt", "convert", "bare.safetensors", "x.pt")
        (self.cwd / "x.pt").rename(self.cwd / "x.ckpt")
        for weights in ("x.ckpt", "bare.safetensors"):
            for command in ("eval", "predict"):
                shown = self.levin(command, "gan", f"model={weights}", code=1)
                self.assertIn(
                    f"levin export gan weights={weights} output=W.safetensors with the keys of a "
                    "training, or with config=FILE, makes one", shown,
                )
            self.assertIn("levin export RECIPE weights=x.ckpt output=W.safetensors ",
                          self.levin("eval", "model=x.ckpt", code=1))
            self.levin("export", "gan", "--config", "f.yml", *SMALL, "data.count=16",
                       f"weights={weights}", "output=w.safetensors")
            use = ["num_samples=2", "eval_batch_size=2"]
            self.levin("predict", "model=run", *use, "output=a")
            self.levin("predict", "model=w.safetensors", *use, "output=b")
            for f in (self.cwd / "a").iterdir():
                self.assertEqual(f.read_bytes(), (self.cwd / "b" / f.name).read_bytes())
        for arguments, right in (
            (["eval", "gan", "--config", "f.yml", "weights=x.ckpt"],
             "levin export gan config=f.yml weights=x.ckpt output=W.safetensors makes a model of "
             "it for levin eval model=W.safetensors"),
            (["predict", "gan", "weights=x.ckpt"], "levin export RECIPE weights=FILE output=W.saf"),
            (["export", "model=run", "weights=x.ckpt"], "model=run and weights=: which one?"),
        ):
            self.assertIn(right, self.levin(*arguments, code=64))
        for wrong, right in (
            ("output=e.pt", "FILE.safetensors; of such a file levin ckpt convert FILE.safetensors"),
            ("format=pt", "and levin ckpt convert FILE.safetensors FILE.pt writes it for torch"),
        ):
            self.assertIn(right.split("; ")[-1], self.levin("export", "model=run", wrong, code=64))
        shown = self.levin("export", "gan", "--config", "f.yml", *SMALL, "data.count=16",
                           "weights=x.ckpt", "output=e.pt", code=64)
        self.assertIn("output=e.pt: a model is exported as safetensors", shown)

    # ---- folders ----

    def test_maps_of_coils_of_rcgan_are_estimated(self):
        """It has a .pkl file for each slice, and none for training; before, an empty folder."""
        for folder in ("multicoil_train", "multicoil_val"):
            for i in range(5):
                self.volume(f"mri/{folder}/v{i}.npy", 3, SIDE + 8)
        for name in ("val_full_res/v1.npy_0.pkl", "test_full_res/v0.npy_1.pkl"):
            path = self.cwd / "sense" / name
            path.parent.mkdir(parents=True)
            path.write_bytes(b"\x80\x05.")
        (self.cwd / "empty").mkdir()
        use = ["calib_width=8", "acceleration=4"]
        for folder in ("sense", "empty"):
            self.write(experience="mri", data_path="mri", in_chans="4", out_chans="4",
                       sense_maps_path=f"{folder}/")
            shown = self.plan(*use)
            self.assertRegex(
                shown, rf"sense_maps_path {folder}/: it has no \.npy file .*: coil maps are "
                       r"estimated  \(f\.yml:10\)\n",
            )
            shown = self.plan(*use, f"sense_maps_path={folder}", code=64)
            self.assertRegex(shown, r"give sense_maps_path=DIR, a folder with them, or leave it "
                                    r"out, and coil maps are estimated  \(command line\)\n")
        # the run is one with maps that are estimated, whatever is in the folder later
        self.train("run", *use, "max_epochs=1")
        self.assertIn("sense_maps_path: null\n", (self.cwd / "run/config.yaml").read_text())
        self.train("run", *use, "max_epochs=2", "resume=true")
        self.volume("empty/v1.npy", 2, SIDE)
        shown = self.plan(*use, code=1)
        self.assertRegex(shown, r"there is no empty/v\d\.npy, the coil maps of mri/multicoil_train/"
                                r"v\d\.npy: add it, or leave out sense_maps_path, ")

    def volume(self, name, coils, columns):
        """Two slices of complex numbers."""
        shape = (2, coils, SIDE, columns)
        path = self.cwd / name
        self.array(name, [math.sin(k / 7) for k in range(2 * math.prod(shape))], shape)
        path.write_bytes(path.read_bytes().replace(b"'<f4'", b"'<c8'"))

    def test_numbers_that_are_not_finite_are_named_where_they_stand(self):
        self.maps("maps")
        plane = [1.0] * (SIDE * SIDE)
        holed = [*plane[:37], NAN, *plane[38:]]
        for bad in ("cosmos_mask", "cosmos_std1", "cosmos_std2"):
            for name in ("cosmos_mask", "cosmos_std1", "cosmos_std2"):
                self.array(f"cosmos/{name}.npy", holed if name == bad else plane)
            self.write(data_path="maps", cosmo_dir_path="cosmos")
            self.assertIn(f"error: cosmos/{bad}.npy holds NaN at [1, 5]\n", self.plan(code=1))
        self.array("cosmos/cosmos_std2.npy", plane)
        self.array("cosmos/cosmos_mask.npy", [0] * (SIDE * SIDE))
        shown = self.plan(code=64)
        self.assertIn("error: cosmos: cosmos_mask.npy is 0 everywhere, so that nothing is measured",
                      shown)
        for name in ("mask", "std1", "std2"):  # without noise
            self.array(f"cosmos/cosmos_{name}.npy", [float(name == "mask")] * (SIDE * SIDE))
        (self.cwd / "cosmos/cosmos_std1.npy").rename(self.cwd / "cosmos/std.npy")
        shown = self.plan(code=1)
        self.assertIn("there is no cosmos/cosmos_std1.npy: a folder for cosmo_dir_path has ", shown)
        (self.cwd / "cosmos/std.npy").rename(self.cwd / "cosmos/cosmos_std1.npy")
        for i, values in enumerate((holed, [0] * (SIDE * SIDE))):
            self.array(f"maps/kappa_train/{i}.npy", values)
        self.write(data_path="maps", cosmo_dir_path="cosmos", batch_size="2")
        shown = self.train("stops", code=1)
        self.assertRegex(shown, r"error: (maps/kappa_train/0.npy holds NaN at \[1, 5\]|1\.npy "
                                r"\(sample 1 of maps\) is constant and cannot be normalised);")
        shown = self.train("skips", "on_error=skip", "max_epochs=1",
                           "drop_last=false")
        left_out = re.findall(r"left out \(on_error=skip\)[^:]*: (.*)", shown)
        reasons = sorted("; ".join(left_out).split("; "))
        self.assertEqual(reasons, ["0.npy holds NaN at [1, 5]",
                                   "1.npy (sample 1 of maps) is constant and cannot be normalised"])

    def test_a_validation_without_its_first_map_has_no_image(self):
        """The image is of that map: without it the run goes on, and draws none."""
        self.maps("maps")
        self.write(data_path="maps")
        shown = self.train("whole", "max_epochs=2")
        self.assertEqual(len(list((self.cwd / "whole/images").iterdir())), 2, shown)
        self.array("maps/kappa_val/0.npy", [NAN] * (SIDE * SIDE))
        shown = self.train("holed", "max_epochs=2", "on_error=skip")
        self.assertIn("0.npy holds NaN at [0, 0]", shown)
        self.assertIn("done after 2 steps", shown)
        self.assertEqual(list((self.cwd / "holed/images").iterdir()), [])

    def test_radio_images_are_checked_without_their_statistics(self):
        n = SIDE * SIDE
        for part in ("train", "val"):
            for k, letter in enumerate(("x", "y", "uv")):
                values = [math.sin(i * (k + 2) / 5) for i in range(4 * n)]
                if part == "train" and letter == "x":
                    values[3 * n + SIDE + 2] = math.inf
                self.array(f"radio/{part}/{letter}.npy", values, (4, SIDE, SIDE))
        self.write(experience="radio", data_path="radio", in_chans="2", out_chans="1", norm="none")
        shown = self.train("run", code=1)
        self.assertIn(": radio/train/x.npy holds an infinite number at [3, 1, 2]", shown)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
