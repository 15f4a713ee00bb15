#!/usr/bin/env python3
"""levin train gan: rcGAN's own files, what is computed in which order, one hash on every layout and
after every resume. Rows are those of the list that the recipe is tested by (docs/conformance.md).

usage: test_gan.py LEVIN [test names]     registered in CMakeLists.txt
"""

import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from weights_case import LEVIN, read_safetensors, write_npy, write_torch
from today import OfToday

SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
FILES = Path(__file__).parent / "rcgan"
# three steps an epoch, the last of 5 samples in 3 micro-batches
SMALL = (
    "data=builtin:mass data.count=21 im_size=32 gen_channels=4 gen_levels=2"
    " disc_channels=4 disc_stages=3 batch_size=8 micro_batches=4 wgrad_threads=1"
    " num_z_valid=2 quiet=true"
).split()
NAMES = ("d_wass d_gp d_drift d_loss g_adv g_l1 g_std g_loss w_adv std_mult gp_norm_mean").split()


SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
NO_IMAGES = "image_every_n_epochs=0"  # of validations: drawing takes longer than an epoch


class Gan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def levin(self, *arguments, code=0, env=None, timeout=200):
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=dict(os.environ, **(env or {})),
        )
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def train(self, out, *arguments, **how):
        return self.levin("train", "gan", *SMALL, NO_IMAGES, f"out={out}", *arguments, **how)

    def hash(self, out):
        return self.levin("ckpt", "hash", out).stdout

    def checkpoints(self, out):
        """The step of each, by its name."""
        shown = self.levin("ckpt", "verify", out, "json=true").stdout
        rows = [json.loads(line) for line in shown.splitlines()]
        return {Path(row["file"]).stem: row["step"] for row in rows}

    def lines(self, out):
        text = (self.cwd / out / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def epochs(self, out, name):
        return [line[name] for line in self.lines(out) if name in line]

    def write_map(self, name, values):
        text = str({"descr": "<f8", "fortran_order": False, "shape": (32, 32)}).encode()
        text += b" " * (-(len(text) + 11) % 64) + b"\n"
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"\x93NUMPY\x01\x00"
            + struct.pack("<H", len(text))
            + text
            + struct.pack("<1024d", *values)
        )

    def plan(self, *arguments, code=0):
        return self.levin("plan", "train", "gan", *arguments, code=code)

    # ---- files of the original ----

    def test_files_of_rcgan_are_taken_as_they_are(self):  # rows 1, 2, 5
        counts = {
            "mass_map.yml": 86740703 + 6296673,
            "mass_map_4.yml": 86740703 + 6306913,
            "mass_map_6.yml": 86740703 + 6306913,
            "mass_map_8.yml": 86740703 + 6306913,
            "mass_map_ks.yml": 86742942 + 6296961,
            "mass_map_1024.yml": 86740703 + 11016289,
            "mri.yml": 86757741 + 6314977,
            "radio_fourier.yml": 86741855 + 6301569,
            "radio_image.yml": 86741855 + 6296961,
            "radio_image_test.yml": 86741855 + 6296961,
            "radio_meerkat_macro.yaml": 86740638 + 6300993,
        }
        files = {f.name for f in FILES.iterdir()} - {"radio_meerkat_macro_gradient.yaml"}
        self.assertEqual(counts.keys(), files)
        for name, parameters in counts.items():
            with self.subTest(name):
                kind = "mri" if "mri" in name else "radio" if "radio" in name else "mass"
                done = self.plan(
                    f"config={FILES / name}",
                    f"data_path=builtin:{kind}",
                    "data.count=4",
                    "batch_size_per_device=1",
                )
                text = done.stdout + done.stderr
                self.assertIn(f"model rcgan: {parameters} parameters in ", text)
                self.assertRegex(text, r"note: adv_weight has no effect: .*rcgan/.*:\d+\)\n")

    @unittest.skipUnless(SLOW, "takes 15 minutes and 8 GiB (LEVIN_TEST_SLOW=1)")
    def test_files_of_rcgan_train_at_full_size(self):
        """Two steps and a validation of each, except the one of 1024 pixels (30 GiB), and the one
        that comes later."""
        for f in sorted(FILES.iterdir()):
            if "1024" in f.name or "gradient" in f.name:
                continue
            with self.subTest(f.name):
                kind = "mri" if "mri" in f.name else "radio" if "radio" in f.name else "mass"
                self.levin(
                    "train",
                    "gan",
                    f"config={f}",
                    f"data_path=builtin:{kind}",
                    "data.count=2",
                    "batch_size_per_device=1",
                    "accumulate_grad_batches=1",
                    "max_epochs=1",
                    "num_workers=1",
                    f"out={f.stem}",
                    "quiet=true",
                    timeout=1500,
                )
                self.assertEqual(self.lines(f.stem)[-1]["step"], 2)
                self.assertEqual(len(self.epochs(f.stem, "val/psnr_p")), 1)
                for path in (self.cwd / f.stem).rglob("*.safetensors"):
                    path.unlink()

    def test_a_file_of_rcgan_counts_its_batches_by_device(self):  # row 39
        done = self.plan(
            f"config={FILES / 'radio_image_test.yml'}",
            "data_path=builtin:radio",
            "devices=4",
            "accelerator=cpu",
            "strategy=dp",
        )
        self.assertIn("effective batch 32 = ", done.stdout)
        self.assertRegex(
            done.stdout + done.stderr,
            r"note: batch_size counts the samples of a device, as in rcGAN: batch_size_per_device "
            r"is 4  \(.*radio_image_test\.yml:\d+\)\n",
        )
        (self.cwd / "own.yml").write_text("data: builtin:mass\nbatch_size: 8\n")
        done = self.plan("config=own.yml", "devices=2", "batch_size=8")
        self.assertIn("effective batch 8 =", done.stdout)
        self.assertNotIn("note: batch_size", done.stdout + done.stderr)
        done = self.plan(
            f"config={FILES / 'radio_image_test.yml'}", "data_path=builtin:radio", "batch_size=4"
        )
        self.assertIn("effective batch 8 = ", done.stdout)  # it accumulates two
        self.assertIn(
            "note: batch_size=4 of the command line is of all devices; batch_size_per_device=4 is "
            "what the file's batch_size means  (",
            done.stdout + done.stderr,
        )

    def test_a_resumed_run_keeps_its_batch_beside_its_file(self):
        """Of a device there, too: a file that has not changed does not change the run."""
        small = [a for a in SMALL[1:-1] if not a.startswith(("batch", "micro"))]
        use = ["config=f.yml", *small, "accelerator=cpu", "out=run", "max_epochs=1"]
        text = self.SMALL_FILE + "accumulate_grad_batches: 2\n"
        (self.cwd / "f.yml").write_text(text)
        self.levin("train", "gan", *use, "devices=2", "overwrite=true", "quiet=true")
        for more, batch in (
            (["devices=2"], 8),
            (["devices=1"], 8),
            (["devices=2", "batch_size=3"], 6),
            (["devices=2", "batch_size_per_device=2"], 8),
            (["devices=1", "batch_size_per_device=2"], 4),
            (["devices=2", "resume_epoch=1"], 8),
        ):
            done = self.plan(*use, "resume=true", *more)
            self.assertIn(f"effective batch {batch} = ", done.stdout)
            self.assertNotIn("warning", done.stderr)
        (self.cwd / "f.yml").write_text(text.replace("batch_size: 2", "batch_size: 3"))
        done = self.plan(*use, "devices=2", "resume=true")
        self.assertIn("effective batch 12 = ", done.stdout)
        done = self.levin("train", "gan", *use, "devices=2", "resume=true", "max_epochs=2")
        self.assertIn("effective_batch=12 (samples of an optimizer step) was 8 in the", done.stderr)
        self.assertNotIn("from here on", done.stderr)

    def test_a_missing_folder_of_a_file_stays_out(self):
        """A fresh start goes without it, and nothing changes where it comes back or goes."""
        (self.cwd / "map.yml").write_text(
            "experience: mass_mapping\ndata_path: builtin:mass\nin_chans: 2\nout_chans: 2\n"
            "im_size: 32\ndisc_stages: 3\nlr: 1e-3\nnum_epochs: 1\nbatch_size: 8\n"
            "cosmo_dir_path: cosmos\n"
        )
        use = ["config=map.yml", *SMALL[1:7], "wgrad_threads=1", "num_z_valid=2"]
        train = ["train", "gan", *use, "quiet=true"]
        done = self.levin("train", "gan", *use, "out=without")
        self.assertRegex(done.stderr, r"cosmos: there is no such folder: .*\(map.yml:10\)")
        self.assertIn("cosmo_dir_path: null\n", (self.cwd / "without/config.yaml").read_text())
        more = ["out=without", "resume=true", "max_epochs=2"]
        done = self.levin("train", "gan", *use, *more)
        self.assertIn("there is no such folder", done.stderr)
        for name in ("mask", "std1", "std2"):
            self.map(f"cosmos/cosmos_{name}.npy", 0.3)
        done = self.levin("train", "gan", *use, *more[:-1], "max_epochs=3")
        self.assertIn("the run began without it and goes on so, unless the key stands", done.stderr)
        self.levin(*train, "out=whole", "max_epochs=3", "cosmo_dir_path=null")
        self.assertEqual(self.hash("without"), self.hash("whole"))
        self.levin(*train, "out=with")
        self.assertNotEqual(self.hash("with"), self.hash("whole"))
        samples = ["predict", "model=with", "num_samples=2", "data.count=2"]
        self.levin(*samples, "output=there")
        (self.cwd / "cosmos").rename(self.cwd / "moved")
        done = self.levin("train", "gan", *use, "out=with", "resume=true", "max_epochs=2", code=64)
        self.assertIn("give cosmo_dir_path=DIR", done.stderr)
        done = self.levin(*train[:2], "out=with", "resume=true", "max_epochs=2", code=64)
        self.assertIn("give cosmo_dir_path=DIR", done.stderr)
        for command in (samples, ["eval", *samples[1:]], [*samples, "cosmo_dir_path=null"]):
            self.assertIn("give cosmo_dir_path=DIR", self.levin(*command, code=64).stderr)
        self.levin(*samples, "cosmo_dir_path=moved", "output=moved_there")
        for f in (self.cwd / "there").iterdir():
            self.assertEqual(f.read_bytes(), (self.cwd / "moved_there" / f.name).read_bytes())
        done = self.levin("train", "gan", *SMALL, "cosmo_dir_path=nowhere", code=64)
        self.assertIn("give cosmo_dir_path=DIR", done.stderr)

    def map(self, name, value):
        path = self.cwd / name
        path.parent.mkdir(exist_ok=True)
        write_npy(path, (32, 32), [value] * 1024)

    def test_generators_with_physics_come_later(self):  # row 1
        """Before anything else, and once."""
        file = f"config={FILES / 'radio_meerkat_macro_gradient.yaml'}"
        for command in (["train", "gan"], ["plan", "train", "gan"], ["tune", "batch-size", "gan"]):
            done = self.levin(*command, file, "data_path=builtin:radio", code=64)
            self.assertEqual(done.stdout, "")
            self.assertRegex(
                done.stderr, r"\Aerror: gradient true: [^\n]*later version[^\n]*yaml:\d+\)\n\Z"
            )

    def test_a_file_without_experience_is_known_by_its_keys(self):
        for name, kind in (
            ("mass_map.yml", "mass_mapping"),
            ("mass_map_8.yml", "mass_mapping"),
            ("mass_map_ks.yml", "mass_mapping"),
            ("mri.yml", "mri"),
            ("radio_image.yml", "radio"),
            ("radio_meerkat_macro.yaml", "radio"),
        ):
            with self.subTest(name):
                text = (FILES / name).read_text()
                self.assertIn(f"experience: {kind}\n", text)
                (self.cwd / "f.yml").write_text(text.replace(f"experience: {kind}\n", ""))
                done = self.plan("config=f.yml", code=1)
                shown = done.stdout + done.stderr
                self.assertIn(f"experience is {kind} by the other keys  (f.yml)\n", shown)
                self.assertIn("batch_size counts the samples of a device, as in rcGAN", shown)
                self.assertIn("/share/gpu0/user/data/", done.stderr.splitlines()[-1])
                volumes = "volumes is rcgan  (f.yml)" in shown
                self.assertEqual(volumes, kind == "mri")
        # two channels to two may be either: what lies there decides
        text = (FILES / "mass_map_8.yml").read_text().replace("experience: mass_mapping\n", "")
        (self.cwd / "sky/train").mkdir(parents=True)
        (self.cwd / "sky/train/x.npy").touch()
        (self.cwd / "f.yml").write_text(text)
        done = self.plan("config=f.yml", "data_path=sky", code=64)
        self.assertIn("in_chans=2 out_chans=2", done.stderr)
        (self.cwd / "f.yml").write_text(text.replace("_chans: 2", "_chans: 3"))
        done = self.plan("config=f.yml", "data_path=nowhere", code=64)
        self.assertIn("`experience` is missing: mass_mapping, mri or radio", done.stderr)

    SECTIONS = (
        "checkpoint_dir: out\ndata_parallel: 1\n"
        "sense:\n  calib_width: 8\n  device: 3\n  crop: 0.70\n  kernel_width: 6\n"
        "data:\n  num_coils: 2\n  channels: 4\n  path: builtin:mri\n"
        "  num_of_top_slices: 8\n  resolution: 32\n"
        "optimizer:\n  lr: 0.002\n  beta_1: 0.1\n  beta_2: 0.9\n"
        "train:\n  batch_size: 8\n  n_epochs: 1\n  P: 3\n  adv_weight: 0.02\n"
        "  l1_weight: 1\n  num_iters_discriminator: 1\n  gp_weight: 5\n  drift_weight: 0.01\n"
        "validate:\n  batch_size: 8\n  mu_std: 0.01\n  psnr_threshold: 0.5\n  P: 4\n"
        "  cfid_P: 8\ntest:\n  batch_size: 8\n  P: 32\n  cfid_P: 8\n"
    )

    def test_sections_of_an_older_file_are_its_flat_keys(self):
        (self.cwd / "old.yml").write_text(self.SECTIONS)
        small = [a for a in SMALL if a.split("=")[0].startswith(("gen_", "disc_", "wgrad"))]
        small += ["data.count=20", "num_workers=0"]
        done = self.levin("train", "gan", "config=old.yml", *small, "out=old")
        notes = [n for n in (done.stdout + done.stderr).splitlines() if "sections of" in n]
        self.assertEqual(len(notes), 1)
        for flat in (
            "data.path is data_path",
            "optimizer.lr is lr",
            "train.n_epochs is num_epochs",
            "train.P is num_z_train",
            "validate.psnr_threshold is psnr_gain_tol",
            "; without effect: data.num_coils, ",
            "(old.yml)",
        ):
            self.assertIn(flat, notes[0])
        self.levin(
            "train",
            "gan",
            *small,
            "data=builtin:mri",
            "im_size=32",
            "in_chans=4",
            "out_chans=4",
            "calib_width=8",
            "acceleration=4",
            "optim.lr=0.002",
            "optim.betas=[0.1,0.9]",
            "batch_size=8",
            "eval_batch_size=8",
            "max_epochs=1",
            "num_z_train=3",
            "adv_schedule=0:0.02",
            "adv_reduce=mean",
            "gp_weight=5",
            "drift_weight=0.01",
            "std_mult_step=0.01",
            "psnr_gain_tol=0.5",
            "num_z_valid=4",
            "drop_last=true",
            "val_drop_last=true",
            "out=flat",
        )
        self.assertEqual(self.hash("old"), self.hash("flat"))
        self.assertEqual(self.epochs("old", "val/score"), self.epochs("flat", "val/score"))
        (self.cwd / "old.yml").write_text(
            self.SECTIONS.replace("psnr_threshold", "psnr_tresh").replace("  P: 3", "  P: 1")
        )
        done = self.levin("train", "gan", "config=old.yml", "nmu_workers=1", code=64)
        lines = done.stderr.splitlines()
        self.assertIn("sections of an older rcGAN", done.stdout + done.stderr)
        mistakes = lines[lines.index("error: 3 mistakes:") + 1 :]
        for line, mistake in zip(
            mistakes, (r"num_z_train `1`: .*yml:21\)", "validate.psnr_tresh", "nmu_workers")
        ):
            self.assertRegex(line, mistake)
        done = self.levin("train", "classify", "config=old.yml", code=64)
        self.assertIn("a file of rcGAN, for training: use gan", done.stderr)

    def test_keys_of_every_branch_are_notes(self):
        rows = {
            "num_z_test": "32",
            "fig_path": "f",
            "save_path": "s",
            "ks_input": "False",
            "real_data": "False",
            "randseed": "123456",
            "n_percentiles": "10",
            "path_to_train_val_dataset": "x.hdf5",
            "path_to_std_noise": "a.pt",
            "path_to_noise": "b.pt",
            "path_to_mask": "c.pt",
            "nimgs_train": "70560",
            "nimgs_val": "1440",
            "use-middle-slices": "true",
            "R": "8",
            "data_parallel": "1",
            "num_coils": "8",
            "num_of_top_slices": "8",
            "adv_weight": "1e-5",
        }
        text = self.SMALL_FILE + "".join(f"{key}: {value}\n" for key, value in rows.items())
        for line, key in (
            ("wandb_offline: True\n", "wandb_offline"),
            ("WANDB_OFFLINE: 1\n", "WANDB_OFFLINE"),
            ("wandb-offline: off\n", "wandb_offline"),
            ("Wandb_Offline: null\n", None),
            ("wandbOffline: no\n", "wandbOffline"),
            ("wandb:\n  offline: 'yes'\n", "wandb.offline"),
            ("wandb_mode: x\n", "wandb_mode"),
        ):
            (self.cwd / "f.yml").write_text(text + line)
            done = self.plan("config=f.yml", "data.count=16", *SMALL[3:7])
            names = re.findall("\nnote: (.*) has no effect: ", done.stdout + done.stderr)
            wanted = [*(k.replace("-", "_") for k in rows), *([] if key is None else [key])]
            self.assertEqual(sorted(names), sorted(wanted))

    SMALL_FILE = (
        "experience: mass_mapping\ndata_path: builtin:mass\nin_chans: 2\nout_chans: 2\n"
        "im_size: 32\ndisc_stages: 3\nlr: 1e-3\nnum_epochs: 2\nbatch_size: 2\n"
    )

    def test_constants_of_a_file_are_its_normalisation(self):
        """Two channels to two, in the newer branch; what began otherwise goes on so."""
        (self.cwd / "f.yml").write_text(
            self.SMALL_FILE + "kappa_mean: 0.0001\nkappa_std: 0.03\nks_input: false\n"
        )
        small = [a for a in SMALL[1:] if not a.startswith(("batch", "micro"))]
        use = ["train", "gan", "config=f.yml", *small[:-1], "max_steps=2"]
        done = self.levin(*use, "out=file")
        self.assertIn(
            "note: kappa_mean and kappa_std: shear by constants and kx along the columns",
            done.stdout,
        )
        self.assertIn("mass_norm: constants\n", (self.cwd / "file/config.yaml").read_text())
        own = [*use[:2], "data=builtin:mass", *small, "batch_size=2", "max_steps=2"]
        self.levin(*own, "mass_norm=constants", "kappa_mean=0.0001", "kappa_std=0.03", "out=own")
        self.assertEqual(self.hash("file"), self.hash("own"))
        done = self.levin(*use, "mass_norm=sample", "out=sample")
        self.assertNotIn("shear by constants", done.stdout)
        self.assertNotEqual(self.hash("file"), self.hash("sample"))
        self.levin(*use, "mass_norm=sample", "max_steps=4", "out=whole")
        saved = self.cwd / "sample/config.yaml"  # as of a run of before there was the key
        saved.write_text(saved.read_text().replace("mass_norm: sample\n", ""))
        self.levin(*use, "out=sample", "resume=true", "max_steps=4")
        self.assertEqual(self.hash("sample"), self.hash("whole"))
        (self.cwd / "f.yml").write_text(self.SMALL_FILE + "ks_input: True\n")
        done = self.levin(*use, "out=ks", code=64)
        self.assertIn("ks_input True with in_chans=2: ", done.stderr)
        done = self.levin(*use, "in_chans=4", "kappa_std=0.03", "out=ks")
        self.assertIn("mass_mapping: 21 measurements", done.stdout)

    def test_a_file_leaves_out_batches_that_are_short(self):
        (self.cwd / "f.yml").write_text(self.SMALL_FILE)
        small = [a for a in SMALL[1:] if not a.startswith(("batch", "micro"))]
        done = self.levin("train", "gan", "config=f.yml", *small[:-1], "out=file")
        self.assertIn("a last, short batch is left out in training and validation", done.stdout)
        own = ["train", "gan", "data=builtin:mass", *small, "batch_size=2", "max_epochs=2"]
        self.levin(*own, "drop_last=true", "eval_batch_size=2", "limit_val_batches=1", "out=own")
        self.assertEqual(self.lines("file")[-1]["step"], 20)  # 21 measurements, 3 of validation
        self.assertEqual(self.hash("file"), self.hash("own"))
        for name in ("val/psnr_p", "val/std_mult"):
            self.assertEqual(self.epochs("file", name), self.epochs("own", name))
        keep = ["drop_last=false", "val_drop_last=false", "max_epochs=1"]
        self.levin("train", "gan", "config=f.yml", *small, *keep, "out=all")
        self.assertEqual(self.lines("all")[-1]["step"], 11)
        # it is the run's, also where that goes on; and a validation is never empty
        self.levin(
            "train", "gan", "config=f.yml", *small, "out=file", "resume=true", "num_epochs=3"
        )
        self.assertEqual(self.lines("file")[-1]["step"], 30)
        self.levin(
            "train",
            "gan",
            "config=f.yml",
            *small,
            "batch_size=7",
            "eval_batch_size=4",
            "max_epochs=1",
            "out=few",
        )
        self.assertEqual(len(self.epochs("few", "val/psnr_p")), 1)

    def test_all_mistakes_are_reported_at_once(self):  # row 3
        (self.cwd / "bad.yml").write_text(
            "experience: mass_mapping\n"
            "data_path: builtin:mass\n"
            "in_chans: 2\nout_chans: 2\nim_size: 33\n"
            "num_z_train: 1\n"
            "psnr_gain_toll: 1\n"
            "batch_size: 3\n"
            "num_epochs: 2\n"
            "disc_stages: 6\n"
        )
        done = self.levin("train", "gan", "config=bad.yml", code=64)
        lines = done.stderr.splitlines()
        self.assertEqual(lines[0], "error: 5 mistakes:")
        self.assertRegex(lines[1], r"num_z_train `1`: .*\(bad\.yml:6\)")
        self.assertRegex(
            lines[2], r"unknown key `psnr_gain_toll`; did you mean `psnr_gain_tol`\?.*yml:7\)"
        )
        self.assertRegex(lines[3], r"`lr` is missing.*\(bad\.yml\)")
        self.assertRegex(lines[4], r"im_size=33: .*even.*\(bad\.yml:5\)")
        self.assertRegex(lines[5], r"im_size 33: the critic halves .* 6 times.*\(bad\.yml:5\)")
        self.assertEqual(list(self.cwd.iterdir()), [self.cwd / "bad.yml"])

    def test_mistakes_of_the_data_are_among_them(self):  # row 3
        for text, *mistakes in (
            (
                "experience: mass_mapping\ndata: maps\nin_chans: 3\nim_size: 33\n"
                "data.mask: random\n",
                r"data\.mask=random is for builtin:mass .*yml:6\)",
                r"im_size=33: .* even number .*yml:5\)",
                r"in_chans=3 out_chans=2: .* 2 and 2, 4 and 1, or 4 and 2 .*yml:4\)",
            ),
            (
                "experience: mass_mapping\ndata: maps\nin_chans: 4\nout_chans: 1\nim_size: 32\n"
                "num_z_train: 1\n",
                r"num_z_train `1`: ",
                r"kappa_std=0: in_chans=4 out_chans=1 needs kappa_mean and kappa_std",
            ),
            (
                "experience: mass_mapping\ndata: maps\nin_chans: 4\nout_chans: 2\nim_size: 32\n"
                "mass_norm: sample\n",
                r"mass_norm=sample is for in_chans=2 out_chans=2  \(.*yml:7\)",
                r"kappa_std=0: in_chans=4 out_chans=2 needs kappa_mean and kappa_std",
            ),
            (
                "experience: mass_mapping\ndata: maps\nim_size: 32\nkappa_mean: 0.1\n",
                r"kappa_std=0: mass_norm=constants needs kappa_mean and kappa_std",
            ),
            (
                "experience: radio\ndata: builtin:radio\nnorm: macro\nim_size: 63\n",
                r"in_chans=3 out_chans=2 has norm=micro.*yml:4\)",
                r"im_size=63: builtin:radio needs an even number.*yml:5\)",
            ),
            (
                "experience: mri\ndata: builtin:mass\nacceleration: 40\nim_size: 9000\n",
                r"im_size `9000`: .*4096",
                r"builtin:mass: the samples .* are builtin:mri  \(.*yml:3\)",
                r"an acceleration of 40 for im_size=64 leaves fewer columns",
            ),
        ):
            with self.subTest(text):
                (self.cwd / "bad.yml").write_text("recipe: gan\n" + text)
                done = self.levin("train", "gan", "config=bad.yml", "devices=2", code=64)
                lines = done.stderr.splitlines()
                if len(mistakes) > 1:
                    self.assertEqual(lines.pop(0), f"error: {len(mistakes)} mistakes:", done.stderr)
                self.assertEqual(len(lines), len(mistakes))
                for line, mistake in zip(lines, mistakes):
                    self.assertRegex(line, mistake)

    def test_what_keys_without_effect_are_replaced_by(self):
        done = self.plan("data=builtin:mri", "num_of_top_slices=3", "real_data=true")
        text = done.stdout + done.stderr
        self.assertIn("num_of_top_slices has no effect: the first 8 slices of a volume", text)
        self.assertRegex(text, r"real_data has no effect: .*measured ones cannot be used yet")

    def test_what_has_a_mistake_is_not_missing(self):
        (self.cwd / "bad.yml").write_text(
            "experience: mass_mapping\ndata_path: d\nin_chans: 2\nout_chans: 2\nim_size: big\n"
            "batch_size: few\nnum_epochs: 2\nlr: slow\n"
        )
        done = self.levin("train", "gan", "config=bad.yml", code=64)
        self.assertEqual(done.stderr.splitlines()[0], "error: 3 mistakes:")
        for arguments, expects in (
            (["experience=mass_maping", "data=d", "im_size=32"], "did you mean `mass_mapping`?"),
            (["exprience=mri", "data=d", "im_size=32"], "did you mean `experience`?"),
            (["data=bultin:mass"], "no such folder; did you mean builtin:mass?"),
            (["experience=mri", "im_size=32", "data=builtin:mir"], "did you mean builtin:mri?"),
            (["data=builtin:stars"], "builtin data are builtin:mass, builtin:mri and builtin"),
        ):
            done = self.levin("train", "gan", *arguments, code=64)
            self.assertIn(expects, done.stderr)
            self.assertNotIn("mistakes", done.stderr)
            self.assertNotIn("missing", done.stderr)

    def test_another_recipe_does_not_take_a_file_of_rcgan(self):
        file = f"config={FILES / 'mri.yml'}"
        for command in (["train", "classify"], ["tune", "batch-size"], ["tune", "lr"]):
            done = self.levin(*command, file, code=64)
            right = " ".join(w for w in command if w != "classify") + f" gan {file}"
            self.assertEqual(
                done.stderr,
                f"error: {file}: a file of rcGAN, for training: use gan, " f"as in levin {right}\n",
            )
        (self.cwd / "own.yml").write_text("experience: x\ndata: builtin:shapes\n")
        done = self.levin("train", "classify", "config=own.yml", code=64)
        self.assertIn("unknown key `experience`", done.stderr)

    def test_a_wrong_experience_names_the_three(self):  # row 4
        done = self.levin("train", "gan", "experience=mass", "data=builtin:mass", code=64)
        for name in ("mass_mapping", "mri", "radio"):
            self.assertIn(name, done.stderr)

    def test_names_of_the_original_choose_the_run_directory(self):
        (self.cwd / "models").mkdir()
        for folder in ("models/", "models"):
            self.levin(
                "train",
                "gan",
                *SMALL,
                f"checkpoint_dir={folder}",
                f"exp_name=a{len(folder)}",
                "max_steps=1",
            )
            self.assertTrue((self.cwd / f"models/a{len(folder)}/config.yaml").exists())

    def test_betas_of_the_original_are_the_optimizers(self):
        self.train("a", "max_steps=2", "beta_1=0.3", "beta_2=0.9")
        self.train("b", "max_steps=2", "optim.betas=[0.3,0.9]")
        self.train("c", "max_steps=2")
        self.assertEqual(self.hash("a"), self.hash("b"))
        self.assertNotEqual(self.hash("a"), self.hash("c"))

    def test_the_help_has_the_defaults_of_the_recipe(self):
        gan, classify = (self.levin("help", "train", name).stdout for name in ("gan", "classify"))
        for key, here, there in (
            ("max_epochs", "100", "20"),
            ("optim.name", "adam", "adamw"),
            ("optim.betas", "[0,0.99]", "[0.9,0.999]"),
            ("checkpoint.save_top_k", "20", "0"),
        ):
            for text, value in ((gan, here), (classify, there)):
                self.assertRegex(text, rf"\n  {re.escape(key)} .*, default {re.escape(value)}\n")
        text = self.levin("help", "checkpoint.save_top_k").stdout
        self.assertIn("levin help train.classify\n", text)
        self.assertIn("The same in: train.gan (default 20), train.pretrain, train.pose.\n", text)

    def test_checkpoints_of_rcgan_are_weights(self):
        """Keys of its networks' state_dict, with what it has beside the weights."""
        small = [*SMALL[:3], "gen_channels=4", "disc_channels=4", "disc_stages=3", *SMALL[7:]]
        use = [
            "train",
            "gan",
            *small,
            "max_steps=1",
            "limit_val_batches=0",
            "checkpoint.monitor=train/g_loss",
            "checkpoint.mode=min",
        ]
        residual = {
            "skip": "conv_1x1",
            **{
                f"unit{1 + i // 3}.{('conv', 'norm', 'act')[i % 3]}": f"conv_block.{i}"
                for i in range(6)
            },
        }
        names = {
            "head1": "conv2.0",
            "head2": "conv2.1",
            **{f"middle.{p}": f"conv.{i}" for i, p in enumerate(("conv", "norm", "act"))},
            **{
                f"res_layer_1.unit.{p}": f"res_layer_1.{i}"
                for i, p in enumerate(("conv", "norm", "act"))
            },
        }
        for i in range(5):
            for ours, theirs in residual.items():
                names[f"res_layer_1.res{i}.{ours}"] = f"res_layer_1.{3 + i}.{theirs}"
        for i in range(4):
            a, b = f"down_sample_layers.{i}", f"up_sample_layers.{3 - i}"
            for ours, theirs in (
                ("down%d.unit.conv", f"{a}.conv_1"),
                ("down%d.unit.norm", f"{a}.bn"),
                ("down%d.norm", f"{a}.bn"),
                ("down%d.unit.act", f"{a}.activation"),
                ("down%d.half", f"{a}.conv_3"),
                ("up%d.up.conv", f"{b}.conv_1"),
                ("up%d.up.norm", f"{b}.bn"),
                ("up%d.up.act", f"{b}.activation"),
                ("up%d.merge.conv", f"{b}.layers.0"),
                ("up%d.merge.norm", f"{b}.layers.1"),
                ("up%d.merge.act", f"{b}.layers.2"),
                *((f"down%d.res.{k}", f"{a}.res.{v}") for k, v in residual.items()),
                *((f"up%d.res.{k}", f"{b}.layers.3.{v}") for k, v in residual.items()),
            ):
                names[ours % i] = theirs
        names = {f"generator.{k}": f"generator.{v}" for k, v in names.items()}
        names |= {
            "critic.input": "discriminator.initial_layers.0",
            "critic.output": "discriminator.dense.1",
        }
        for i in range(3):
            names[f"critic.stage{i + 1}"] = f"discriminator.encoder_layers.{i}.downsample.1"
        for more in ([], ["alt_upsample=true", "unused_layers=true"]):
            out = f"of{len(more)}"
            self.levin(*use, *more, f"out={out}")
            own = str(next((self.cwd / out / "exported_models").glob("*.safetensors")))
            tensors, _ = read_safetensors(own)
            theirs = {}
            for name, tensor in tensors.items():
                part, _, last = name.rpartition(".")
                if part in names:
                    theirs[f"{names[part]}.{last}"] = tensor
                else:  # levin's own numbers
                    self.assertIn(name, "std_mult is_good psnr_diff same validations".split())
            bias = "generator.down_sample_layers.0.bn.bias"
            if not more:  # rcGAN has layers that it never runs
                theirs[bias] = tensors["generator.head1.bias"]
            theirs["generator.conv.1.num_batches_tracked"] = ("I64", [], bytes(8))
            write_torch(self.cwd / f"checkpoint-epoch={len(more)}.ckpt", theirs)
            done = self.levin(
                *[a for a in use if a != "quiet=true"],
                *more,
                "seed=1",
                f"weights=checkpoint-epoch={len(more)}.ckpt",
                f"out={out}theirs",
            )
            self.assertIn("with the names of rcGAN", done.stdout)
            self.assertEqual(done.stderr.count(bias), 0 if more else 1)
            self.levin(*use, *more, "seed=1", f"weights={own}", f"out={out}own")
            self.assertEqual(self.hash(f"{out}theirs"), self.hash(f"{out}own"))
        del theirs["generator.conv2.1.bias"]
        write_torch(self.cwd / "part.ckpt", theirs)
        done = self.levin(*use, *more, "weights=part.ckpt", "out=part", code=1)
        self.assertIn("1 missing: generator.conv2.1.bias (2)", done.stderr)

    # ---- what a step is ----

    def test_metrics_have_their_names(self):  # rows 20, 21, 50
        self.train("run", "max_epochs=2", "log_every_n_steps=1", "adv_schedule=0:0.5,1:0.25")
        steps = [line for line in self.lines("run") if "train/d_loss_step" in line]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4, 5, 6])
        for line in steps:
            for name in NAMES:
                self.assertIn(f"train/{name}_step", line)
        self.assertEqual([line["train/w_adv_step"] for line in steps], [0.5] * 3 + [0.25] * 3)
        for line in steps:  # the loss is made of its parts
            self.assertAlmostEqual(
                line["train/d_loss_step"],
                10 * line["train/d_gp_step"]
                + 0.001 * line["train/d_drift_step"]
                - line["train/d_wass_step"],
                delta=1e-4 * abs(line["train/d_loss_step"]),
            )
            self.assertAlmostEqual(
                line["train/g_loss_step"],
                line["train/g_adv_step"]
                + line["train/g_l1_step"]
                - line["train/std_mult_step"] * 0.325735 * line["train/g_std_step"],
                delta=1e-5,
            )
        for name in ("psnr_1", "psnr_p", "psnr_diff", "std_mult", "is_good"):
            self.assertEqual(len(self.epochs("run", f"val/{name}")), 2, name)
        log = (self.cwd / "run/train.log").read_text()
        lines = re.findall(r"epoch \d done at step \d: .*", log)
        self.assertEqual(len(lines), 2)
        for line in lines:  # what fits, of these the more important ones
            self.assertLessEqual(len(line), 120)
            for name in ("val/score", "val/loss", "val/psnr_p"):
                self.assertIn(f" {name} ", line)
            self.assertRegex(line, r" and \d+ more\Z")

    def test_the_weight_of_spread_follows_each_validation(self):  # rows 29, 30
        self.train(
            "run",
            "max_epochs=3",
            "psnr_gain_target=1.5",
            "std_mult_step=0.5",
            "std_mult_init=2",
            "psnr_gain_tol=100",
            "num_sanity_val_steps=2",
        )
        before = 2.0
        for one, p, now, d, good, score, trained in zip(
            *(
                self.epochs("run", f"val/{n}")
                for n in ("psnr_1", "psnr_p", "std_mult", "psnr_diff", "is_good", "score")
            ),
            self.epochs("run", "train/std_mult"),
        ):
            self.assertAlmostEqual(d, one + 1.5 - p, places=5)
            self.assertAlmostEqual(now, before + 0.5 * d, places=5)
            self.assertAlmostEqual(trained, before, places=5)
            self.assertEqual((good, score), (1, p))
            before = now
        self.train(
            "unchecked",
            "max_epochs=3",
            "psnr_gain_target=1.5",
            "std_mult_step=0.5",
            "std_mult_init=2",
            "psnr_gain_tol=100",
            "num_sanity_val_steps=0",
        )
        self.assertEqual(self.hash("run"), self.hash("unchecked"))

    def test_a_constant_truth_is_left_out_of_the_psnr(self):
        waves = [[math.sin(k * (i + 2) / 9) / 50 + k * 1e-6 for k in range(1024)] for i in range(4)]
        for folder, truths in (("some", (waves[0], [0] * 1024, waves[1])), ("zero", ([0] * 1024,))):
            for i in range(4):
                self.write_map(f"{folder}/kappa_train/{i}.npy", waves[i])
            for i, values in enumerate(truths):
                self.write_map(f"{folder}/kappa_val/{i}.npy", values)
            done = self.train(
                f"of_{folder}", f"data={folder}", "experience=mass_mapping", "max_epochs=2"
            )
            share = "33.3" if folder == "some" else "100"
            line = f"PSNR of the validation leaves out {share} % of its measurements"
            self.assertEqual(done.stderr.count(line), 1, done.stderr)
        for one, p, mult, score, left_out in zip(
            *(
                self.epochs("of_some", f"val/{n}")
                for n in ("psnr_1", "psnr_p", "std_mult", "score", "psnr_left_out")
            )
        ):
            self.assertAlmostEqual(left_out, 1 / 3, places=6)
            d = one + 2.5 - p
            self.assertTrue(math.isfinite(d))
            self.assertAlmostEqual(score, -1000 - abs(d), places=5)  # none is acceptable
            self.assertNotEqual(mult, 1)
        self.assertEqual(self.epochs("of_zero", "val/std_mult"), [1, 1])
        self.assertEqual(self.epochs("of_zero", "val/is_good"), [0, 0])

    def test_the_target_follows_from_the_samples(self):
        self.train("run", "max_epochs=1", "psnr_gain_target=auto")
        one, p, d = (self.epochs("run", f"val/{n}")[0] for n in ("psnr_1", "psnr_p", "psnr_diff"))
        self.assertAlmostEqual(d, one + 1.2493873660829995 - p, places=5)

    def test_options_change_the_training(self):
        self.train("usual", "max_steps=2")
        usual = self.hash("usual")
        for option in (
            "gp_weight=5",
            "drift_weight=0.1",
            "adv_schedule=0:1",
            "adv_reduce=mean",
            "std_mult_init=3",
            "num_z_train=3",
            "data.sigma=0.2",
            "alt_upsample=true",
            "gen_levels=3",
            "gen_channels=6",
            "disc_channels=6",
            "disc_stages=2",
            "seed=1",
        ):
            with self.subTest(option):
                name = option.split("=")[0]
                self.train(name, "max_steps=2", option)
                self.assertNotEqual(self.hash(name), usual)

    def test_layers_that_never_run_keep_their_values(self):  # row 25
        self.train("two", "max_steps=3", "unused_layers=true", "devices=2", "accelerator=cpu")
        self.train("one", "max_steps=3", "unused_layers=true")
        self.assertEqual(self.hash("one"), self.hash("two"))
        self.train("start", "max_steps=1", "unused_layers=true", "lr=1e-30")
        shown = self.levin("ckpt", "diff", "start", "one", code=1).stdout
        self.assertNotIn("res_layer_1", shown)
        self.assertIn("generator.middle.conv.weight", shown)

    def test_the_schedule_of_the_original_is_taken(self):
        self.train("text", "max_epochs=2", "adv_schedule=0:0.5,1:0.25")
        self.train("pairs", "max_epochs=1", "adv_schedule=[[0,0.5],[1,0.25]]")
        self.train("pairs", "max_epochs=2", "resume=true")
        self.assertEqual(self.hash("text"), self.hash("pairs"))
        (self.cwd / "list.yml").write_text("adv_schedule: [[0, 0.5], [1, 0.25]]\n")
        done = self.train("list", "config=list.yml", code=64)
        self.assertIn(
            "list.yml:1:16: a list holds plain values only, not lists or maps; this "
            "value is a text, as in 0:1e-2,5:1e-4,23:1e-5",
            done.stderr,
        )
        for wrong in ("[[0,0.5],[1,0.25]", "[[0,0.5],[0,0.25]]", "[0,0.5]", "[[0:0.5]]", "0:1,"):
            done = self.train("wrong", f"adv_schedule={wrong}", code=64)
            self.assertIn("or [[0,1e-2],[5,1e-4]])", done.stderr)

    def test_a_single_map_is_predicted(self):
        waves = [math.sin(k / 9) / 50 + k * 1e-6 for k in range(1024)]
        for folder in ("kappa_train", "kappa_val", "kappa_test"):
            self.write_map(f"maps/{folder}/a.npy", waves)
        self.write_map("one.npy", waves)
        self.train("run", "data=maps", "experience=mass_mapping", "max_epochs=1")
        use = ["predict", "model=run", "num_samples=2"]
        self.levin(*use, "data=maps", "output=all")
        for data in ("one.npy", str(self.cwd / "one.npy"), "maps/kappa_test/a.npy"):
            done = self.levin(*use, f"data={data}", "output=one")
            self.assertIn("1 measurement, 2 samples each, in one", done.stdout)
            for f in (self.cwd / "all").iterdir():
                self.assertEqual(f.read_bytes(), (self.cwd / "one" / f.name).read_bytes())
        done = self.levin("eval", "model=run", "num_samples=2", "data=one.npy")
        self.assertIn("test: 1 measurement, 2 samples each", done.stdout)
        done = self.levin(
            "train",
            "gan",
            *SMALL[1:],
            "data=one.npy",
            "experience=mass_mapping",
            "out=file",
            code=1,
        )
        self.assertIn("one.npy/kappa_train", done.stderr)
        (self.cwd / "no.npy").write_text("text")
        self.assertIn("no.npy", self.levin(*use, "data=no.npy", code=1).stderr)

    # ---- one hash ----

    def test_one_hash_on_every_layout(self):  # rows 11, 22, 24, 27, 28
        self.train("one", "max_epochs=2")
        want = self.hash("one")
        for name, how in {
            "two": ["devices=2", "accelerator=cpu"],
            "four": ["devices=4", "accelerator=cpu", "strategy=dp"],
            "accumulated": ["batch_size=4", "accumulate_grad_batches=2"],
            "lanes": ["lanes=2", "num_workers=3"],
            "sharded": ["devices=2", "accelerator=cpu", "strategy=sharded"],
            "sim": ["devices=2", "accelerator=sim"],
        }.items():
            with self.subTest(name):
                self.train(name, "max_epochs=2", *how, env=SIM)
                self.assertEqual(self.hash(name), want)
                for metric in ("train/g_loss", "val/psnr_p", "val/std_mult"):
                    self.assertEqual(self.epochs(name, metric), self.epochs("one", metric))

    def test_resume_gives_the_bits_of_the_whole_run(self):  # row 35
        self.train("whole", "max_epochs=3")
        cuts = [(1, 5), (2, 6)]  # ranks; a step inside of an epoch, and between two
        for ranks, step in cuts + [(1, 6), (2, 5)] if SLOW else cuts:
            with self.subTest(ranks=ranks, step=step):
                out = f"cut{ranks}{step}"
                cpu = [f"devices={ranks}", "accelerator=cpu"]
                self.train(out, f"max_steps={step}", *cpu)
                cpu[0] = f"devices={3 - ranks}"
                self.train(out, "resume=true", "max_steps=-1", "max_epochs=3", *cpu)
                self.assertEqual(self.hash(out), self.hash("whole"))
                for metric in ("train/d_loss", "val/std_mult"):
                    self.assertEqual(self.epochs(out, metric), self.epochs("whole", metric))

    def test_an_image_of_each_validation(self):
        folder = self.cwd / "run/images"
        for options, steps in (
            (["image_every_n_epochs=auto", "devices=2", "accelerator=cpu"], [3, 6, 9]),
            (["image_every_n_epochs=2", "overwrite=true"], [3, 9]),
        ):
            self.train("run", "max_epochs=3", *options)
            names = sorted(f.name for f in folder.iterdir())
            self.assertEqual(names, [f"step={step:07}.png" for step in steps])
            for f in folder.iterdir():
                self.assertEqual(f.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        # a run that is resumed draws the same ones
        self.train("cut", "max_epochs=1", "image_every_n_epochs=2")
        self.train("cut", "max_epochs=3", "image_every_n_epochs=2", "resume=true")
        self.assertEqual(sorted(f.name for f in (self.cwd / "cut/images").iterdir()), names)
        usual = [*SMALL, "data=builtin:mri", "max_epochs=6", "data.count=4", "batch_size=4"]
        self.levin("train", "gan", *usual, "out=mri")  # every fifth
        self.assertEqual(len(list((self.cwd / "mri/images").iterdir())), 2)
        self.train("none", "max_epochs=1", NO_IMAGES)
        self.assertFalse((self.cwd / "none/images").exists())

    def test_resume_from_an_epoch(self):  # row 36
        self.train("run", "max_epochs=3")
        whole, names = self.hash("run"), ("train/d_loss", "val/std_mult")
        rows = [self.epochs("run", name) for name in names]
        files, lines = self.checkpoints("run"), self.lines("run")
        done = self.train("run", "resume=true", "resume_epoch=9", code=64)
        self.assertIn("has no epoch=9; it has 1, 2, 3\n", done.stderr)
        self.assertEqual((self.checkpoints("run"), self.lines("run")), (files, lines))
        log = self.cwd / "run/train.log"
        self.train("run", "resume=true", "resume_epoch=2", "max_epochs=2")
        self.assertIn("nothing is left to train", log.read_text())
        self.assertEqual(self.checkpoints("run"), files)
        self.assertEqual(self.hash("run"), whole)
        start = {"LEVIN_RUN_ID": "1", "LEVIN_RESTART_COUNT": "0", "LEVIN_MAX_RESTARTS": "1"}
        back = ["resume=true", "resume_epoch=2", "max_steps=7"]
        self.train("run", *back, env=start)
        self.assertIn("epoch=0003-step=9.safetensors: removed", log.read_text())
        self.assertNotEqual(self.hash("run"), whole)
        # of the abandoned course nothing is left that could be taken for the newest or the best
        steps = self.checkpoints("run")
        self.assertEqual(steps["last"], 7)
        self.assertEqual(
            {n for n in steps if n.startswith("epoch=")}, {"epoch=0001-step=3", "epoch=0002-step=6"}
        )
        self.assertLessEqual(steps["best"], 6)
        # an attempt that its launcher starts again does not go back once more
        back[2], start["LEVIN_RESTART_COUNT"] = "max_steps=8", "1"
        self.train("run", *back, env=start)
        self.assertIn("last.safetensors: step 7", log.read_text())
        self.train("run", "resume=true", "resume_epoch=1", "max_steps=-1", "max_epochs=3")
        self.assertEqual(self.hash("run"), whole)
        self.assertEqual([self.epochs("run", name) for name in names], rows)
        done = self.levin("train", "gan", "resume_epoch=1", code=64)
        self.assertEqual(
            done.stderr,
            "error: resume_epoch=1 needs resume=true and out=DIR, the run to continue  "
            "(command line)\n",
        )

    def test_resume_from_the_end_of_an_epoch_with_several(self):
        self.train("run", "val_check_interval=1", "max_epochs=2")
        want = self.hash("run")
        names = [f"epoch=000{(s + 2) // 3}-step={s}" for s in range(1, 7)]
        self.assertEqual([n for n in self.checkpoints("run") if n.startswith("epoch=")], names)
        done = self.train("run", "resume=true", "resume_epoch=7", code=64)
        self.assertIn("it has 1, 2\n", done.stderr)
        self.train("run", "resume=true", "resume_epoch=1")
        self.assertIn(
            "epoch=0001-step=3.safetensors: step 3", (self.cwd / "run/train.log").read_text()
        )
        self.assertEqual(self.hash("run"), want)

    def test_term_saves_and_the_run_goes_on(self):  # row 37
        self.train("whole", "max_epochs=8")
        process = subprocess.Popen(
            [LEVIN, "train", "gan", *SMALL, "out=run", "max_epochs=8", "log_every_n_steps=1"],
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        metrics = self.cwd / "run/metrics.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            metrics.exists() and len(metrics.read_text().splitlines()) > 3
        ):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 143, process.stdout.read())
        process.stdout.close()
        self.train("run", "resume=true")
        self.assertEqual(self.hash("run"), self.hash("whole"))

    def test_without_validation_there_is_no_score(self):
        done = self.train("run", "limit_val_batches=0", code=64)
        self.assertIn(
            "checkpoint.monitor=val/score: the run has no validation set with limit_val_batches=0; "
            "give more, or checkpoint.monitor=train/NAME",
            done.stderr,
        )
        self.assertNotIn("val_split", done.stderr)
        self.train(
            "run",
            "limit_val_batches=0",
            "checkpoint.monitor=train/g_loss",
            "checkpoint.mode=min",
            "max_epochs=1",
        )

    def test_checkpoints_are_kept_by_score(self):  # row 34
        self.train("run", "max_epochs=5", "keep_checkpoints=2")
        files = sorted(f.name for f in (self.cwd / "run/checkpoints").iterdir())
        self.assertEqual(
            [f for f in files if f in ("best.safetensors", "last.safetensors")],
            ["best.safetensors", "last.safetensors"],
        )
        kept = [f for f in files if re.match(r"epoch=\d+-step=\d+", f)]
        score = {
            line["step"]: line["val/score"] for line in self.lines("run") if "val/score" in line
        }
        self.assertEqual(len(score), 5)
        most = sorted(score, key=score.get)[-2:]
        self.assertEqual(kept, [f"epoch={s // 3:04}-step={s}.safetensors" for s in sorted(most)])
        self.assertEqual(self.checkpoints("run")["best"], most[-1])


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(3))
