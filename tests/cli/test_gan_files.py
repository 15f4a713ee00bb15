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

from weights_case import LEVIN, write_npy

SIDE = 32
SMALL = "gen_channels=4 gen_levels=2 disc_channels=4 disc_stages=3 num_workers=0".split()
FILE = {
    "experience": "mass_mapping", "data_path": "builtin:mass", "in_chans": "2", "out_chans": "2",
    "im_size": str(SIDE), "lr": "0.001", "batch_size": "4", "num_epochs": "2", "num_z_test": "32",
}


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
            "train", "gan", "--config", "f.yml", *SMALL, "data.count=16", f"out={out}", *arguments,
            code=code,
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
        shown = self.train("steps", "max_epochs=3", "log_every_n_steps=1")
        self.assertIn("multiplied by 0.25 every 1 epoch, as in rcGAN: scheduler is step  (f.yml:10)", shown)
        lines = [json.loads(n) for n in (self.cwd / "steps/metrics.jsonl").read_text().splitlines()]
        rates = {n["epoch"]: n["lr"] for n in lines if "lr" in n}
        for epoch in (1, 2, 3):
            self.assertAlmostEqual(rates[epoch], 0.001 * 0.25 ** (epoch - 1), places=12)
        shown = self.train("steps", "max_epochs=4", "resume=true")
        self.assertNotIn("from here on", shown)
        for off in ("false", "off", None):
            self.write({"lr_scheduler": off, **falls})
            shown = self.train("plain", "max_epochs=1", "overwrite=true")
            for k, key in enumerate(falls):
                line = (10 if off is None else 11) + k
                self.assertIn(
                    f"note: {key} has no effect: lr_scheduler is not true  (f.yml:{line})", shown
                )
            self.assertNotIn("warning: scheduler", shown)
            shown = self.train("plain", "resume=true")
            self.assertNotIn("from here on", shown)
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
                                  ("--radio_image", "radio", 3)):
            self.write(experience=None, data_path=f"builtin:{kind}", in_chans=chans,
                       out_chans=4 if chans == 4 else 2)
            self.assertIn(f"note: {flag[2:]} is experience=", self.plan(flag, "calib_width=8"))

    def test_its_epochs_count_from_0(self):
        self.write()
        self.train("run", "max_epochs=2", "--resume-epoch", "0")
        shown = self.train("run", "--resume", "--resume-epoch", "1", "max_epochs=3")
        self.assertIn("note: resume_epoch=1 counts from 1, as the names of checkpoints do: it is "
                      "what rcGAN calls epoch 0  (command line)\n", shown)
        self.assertIn("epoch=0001-step=4.safetensors: step 4, epoch 2\n", shown)
        shown = self.train("run", "--resume", "--resume-epoch", "0", code=64)
        self.assertIn("has no epoch=0, since epochs count from 1 (0 in rcGAN is 1 here), and "
                      "without this key the run goes on from the last checkpoint; it has 1, 2, 3",
                      shown)


if __name__ == "__main__":
    unittest.main()
