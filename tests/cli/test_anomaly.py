"""detect_anomaly=true: the op that makes the first number that is not finite is named, on one rank
and on two, on the host and on a device; without such a number the bits are the same.
on_bad_batch=skip: the run goes on, with one hash on every layout.

usage: test_anomaly.py LEVIN [test names]
"""

import json
import re
import subprocess

from case import LEVIN, USAGE, main
from rank_case import RankCase, SHAPES

RUN = [*SHAPES, "model=cnn", "batch_size=24", "max_epochs=1", "quiet=true"]
DIVERGES = ["optim=sgd", "optim.lr=1e30"]
NAMED = re.compile(
    r"^error: batch_norm_train in norm2 made the first NaN, from an infinity in its input 0, the "
    r"first of which was made by batch_norm_train in norm1: step 1 \(epoch 1\), micro-batch \d",
    re.MULTILINE,
)


class Anomaly(RankCase):
    def train(self, out, *arguments, env=None):
        return subprocess.run(
            [LEVIN, "train", "classify", *RUN, *arguments, f"out={out}"],
            capture_output=True,
            text=True,
            cwd=self.dir,
            env=env,
        )

    def test_the_op_is_named(self):
        sim = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
        for i, (how, env) in enumerate(
            (([], None), (["devices=2"], None), (["accelerator=sim", "devices=1"], sim))
        ):
            with self.subTest(how):
                done = self.train(f"bad{i}", *DIVERGES, *how, "detect_anomaly=true", env=env)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, NAMED)

    def test_without_it_the_error_names_the_key(self):
        done = self.train("bad", *DIVERGES)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("detect_anomaly=true names the op", done.stderr)

    def test_bits_stay_the_same(self):
        for out, key in (("off", []), ("on", ["detect_anomaly=true"])):
            done = self.train(out, *key)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(*(self.hash_of(out) for out in ("off", "on")))

    def test_bad_batches_are_left_out_and_counted(self):
        go_on = [*DIVERGES, "on_bad_batch=skip", "limit_val_batches=0", "log_every_n_steps=1"]
        runs = {"one": [], "two": ["devices=2"], "parts": ["devices=2", "strategy=sharded"]}
        for out, how in runs.items():
            done = self.train(out, *go_on, *how)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(f"{self.dir}/{out}/metrics.jsonl") as f:
                rows = [json.loads(line) for line in f]
            self.assertEqual(rows[1]["train/bad_batches_step"], 6, rows[1])
            self.assertGreater(rows[-1]["train/bad_batches"], 6)
            self.assertIn("at step 1 (epoch 1), micro-batch 5", done.stderr + done.stdout)
        self.assertEqual(len({self.hash_of(out) for out in runs}), 1)

    def test_an_epoch_of_bad_batches_decides_nothing(self):
        """Nor does it end the run, which has no metric to look at."""
        for name in ("early_stopping", "checkpoint", "scheduler"):
            watch = ["max_epochs=3", f"{name}.monitor=train/loss", "limit_val_batches=0"]
            watch += ["scheduler=plateau"] if name == "scheduler" else []
            done = self.train(name, *DIVERGES, "on_bad_batch=skip", *watch)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(f"{self.dir}/{name}/metrics.jsonl") as f:
                self.assertEqual(json.loads(f.readlines()[-1])["epoch"], 3)

    def test_coupled_batches_end_the_run(self):
        coupled = ["sync_batchnorm=true", "on_bad_batch=skip", "devices=2"]
        done = self.train("coupled", *DIVERGES, *coupled)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"the loss is nan at step 1 .*micro-batch \d \(samples \d+, ")

    def test_what_cannot_leave_out_refuses(self):
        sim = {"LEVIN_SIM_DEVICES": "1", "LEVIN_SIM_MEMORY": "256MiB"}
        refused = (("half", "precision=16-mixed", None), ("device", "accelerator=sim", sim))
        for out, how, env in refused:
            done = self.train(out, "on_bad_batch=zero", "devices=1", how, env=env)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn("on_bad_batch=zero works on the CPU", done.stderr)

    def hash_of(self, out):
        return subprocess.check_output(
            [LEVIN, "ckpt", "hash", f"{out}/checkpoints/last.safetensors"], cwd=self.dir
        )


if __name__ == "__main__":
    main()
