"""Values that are not finite, signals, readers that go away.

usage: test_bad_stops.py LEVIN [test names]
"""

import json
import os
import re
import shutil
import signal
import subprocess

from case import (
    Case,
    FAILURE,
    LEVIN,
    main,
    OK,
    read,
    REQUEUE,
    SIGINT,
    SIGTERM,
    tree,
    WAIT_S,
    write,
)


class Stops(Case):
    """What ends a run in the middle."""

    def test_loss_is_not_finite(self):
        """That of a validation is a warning, the next one of the training an error."""
        self.train("max_steps=1", "checkpoint.every_n_steps=1")
        best = read(f"{self.out}/checkpoints/best.safetensors")
        _, reported = self.train(
            "resume=true",
            "optim.lr=1e30",
            "max_steps=9",
            code=FAILURE,
            expects=[
                "warning: the validation loss is",
                "after step 2",
                "smaller optim.lr",
                f"{self.out}/checkpoints/last.safetensors keeps step 2",
            ],
        )
        self.assertLess(reported.index("validation loss is"), reported.index("error: the loss is"))
        self.assertEqual(read(f"{self.out}/checkpoints/best.safetensors"), best)
        rows = read(f"{self.out}/metrics.jsonl").decode().splitlines()
        row = [json.loads(r) for r in rows if "val/loss" in r][-1]
        self.assertEqual((row["step"], row["val/loss"], row["nonfinite"]), (2, None, True))
        self.no_leftovers()
        self.levin(["eval", f"model={self.out}", f"data={self.photos}"], OK)

    def test_early_stopping_ends_where_the_loss_is_not_finite(self):
        self.train("max_steps=1", "checkpoint.every_n_steps=1")
        _, reported = self.train(
            "resume=true",
            "optim.lr=1e30",
            "max_steps=9",
            "early_stopping.monitor=val/loss",
            expects=["early stopping: val/loss is ", "done after 2 steps (early stopping)"],
        )
        self.assertNotIn("error", reported)

    def test_loss_is_not_finite_without_validation(self):
        self.train("val_split=0", "max_steps=1")
        self.train("val_split=0", "resume=true", "max_steps=2")
        kept = self.hashes()
        self.train(
            "val_split=0",
            "resume=true",
            "optim.lr=1e30",
            "max_steps=-1",
            code=FAILURE,
            expects=[
                "the loss is",
                "at step 3",
                "smaller optim.lr",
                f"{self.out}/checkpoints/last.safetensors keeps step 2",
            ],
        )
        self.assertEqual(self.hashes(), kept)

    def test_loss_is_not_finite_at_once(self):
        _, reported = self.train(
            "optim.lr=1e30",
            "max_steps=9",
            code=FAILURE,
            expects=["the loss is", "smaller optim.lr", "no checkpoint was written before"],
        )
        self.keeps_the_sentence(reported)
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])

    def test_weights_are_not_finite(self):
        """The last step breaks the weights: no loss shows it any more, but they must not become the
        checkpoint."""
        self.train("val_split=0", "max_steps=1")
        kept = self.hashes()
        self.train(
            "val_split=0",
            "resume=true",
            "optim.lr=1e39",
            code=FAILURE,
            expects=["is not finite after step 2", "smaller optim.lr", "keeps step 1"],
        )
        self.assertEqual(self.hashes(), kept)
        self.levin(["eval", f"model={self.out}", f"data={self.photos}"], OK)

    def stopped_by(self, number, code, name):
        p = self.start("val_split=0")  # a signal during validation ends between two epochs
        before = self.steps()
        p.send_signal(number)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, code, reported)
        self.assertIn(f"stopped: {name} after step", reported)
        self.assertIn("resume=true goes on from there", reported)
        self.no_leftovers()
        done = self.steps()
        self.assertGreaterEqual(done, before)
        hashes = self.hashes()
        self.resume(
            done, expects=[f"step {done},"]
        )  # it is at this step: nothing is repeated, nothing is to do
        self.assertEqual(self.hashes(), hashes)
        self.resume(done + 3, expects=["resuming from", f"step {done},"])
        self.assertEqual(self.steps(), done + 3)
        return done + 3

    def test_ctrl_c(self):
        steps = self.stopped_by(signal.SIGINT, SIGINT, "Ctrl-C")
        stopped, self.out = self.hashes(), f"{self.dir}/whole"
        arguments = [
            "data=builtin:shapes",
            "data.count=60",
            f"out={self.out}",
            "model=mlp",
            "image_size=16",
            "batch_size=6",
            "max_epochs=-1",
            "val_split=0",
        ]
        self.levin(["train", "classify", *arguments, f"max_steps={steps}"], OK)
        self.assertEqual(self.hashes(), stopped)  # the same bits as without the stop

    def test_sigterm(self):
        self.stopped_by(signal.SIGTERM, SIGTERM, "SIGTERM")

    def test_sighup(self):
        self.stopped_by(signal.SIGHUP, 129, "SIGHUP")

    def test_sighup_is_ignored(self):
        old = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        try:
            p = self.start("val_split=0")
        finally:
            signal.signal(signal.SIGHUP, old)
        before = self.steps()
        p.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.steps() > before + 2, p)
        p.send_signal(signal.SIGTERM)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGTERM, reported)

    def test_ctrl_c_reports_what_it_waits_for(self):
        p = self.start("val_split=0")
        p.send_signal(signal.SIGINT)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertIn("stopping after this step; Ctrl-C again stops at once", reported)

    def test_sigusr1(self):
        self.stopped_by(signal.SIGUSR1, REQUEUE, "SIGUSR1")

    def test_sigusr2_saves_and_goes_on(self):
        """In the middle of an epoch, whose end alone would save; sent to the launcher it reaches
        rank 0."""
        for devices in (1, 2):
            p = self.start(
                "data.count=30000",
                "val_split=0",
                f"devices={devices}",
                "overwrite=true",
                saved=False,
            )
            p.send_signal(signal.SIGUSR2)
            last = f"{self.out}/checkpoints/last.safetensors"
            self.wait_for(lambda: os.path.exists(last), p)
            before = self.steps()
            self.wait_for(lambda: self.steps() > before + 2, p)
            p.send_signal(signal.SIGINT)
            _, reported = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, SIGINT, reported)
            (step,) = re.findall(
                r"\[INFO\] SIGUSR2: a checkpoint of step (\d+) \(epoch 1\)$",
                read(f"{self.out}/train.log").decode(),
                re.M,
            )
            self.assertLess(int(step), 5000)
            shutil.rmtree(self.out)

    def waiting(self):
        """A training that reads its configuration from a pipe, and waits for it."""
        pipe = f"{self.dir}/config.yaml"
        if not os.path.exists(pipe):
            os.mkfifo(pipe)
        arguments = self.arguments(self.photos, self.out, "val_split=0", f"config={pipe}")
        p = subprocess.Popen(
            [LEVIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(self.end, p)
        return p, os.open(pipe, os.O_WRONLY)  # returns when the other side has opened it, too

    def test_stopped_before_there_is_a_run(self):
        for number, code, name in (
            (signal.SIGTERM, SIGTERM, "SIGTERM"),
            (signal.SIGINT, SIGINT, "Ctrl-C"),
        ):
            p, pipe = self.waiting()
            p.send_signal(number)
            _, reported = p.communicate(timeout=WAIT_S)
            os.close(pipe)
            self.assertEqual(p.returncode, code, reported)
            self.assertEqual(
                reported, f"stopped: {name} before the first step: nothing was written\n"
            )
            self.assertFalse(os.path.exists(self.out))

    def test_requeued_before_the_first_step(self):
        """85 promises a checkpoint: that of step 0."""
        p, pipe = self.waiting()
        p.send_signal(signal.SIGUSR1)
        os.write(pipe, b"seed: 3\n")
        os.close(pipe)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, REQUEUE, reported)
        self.assertIn("stopped: SIGUSR1 after step 0 (epoch 1); the checkpoint is saved", reported)
        self.no_leftovers()
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true"],
            OK,
            ["resuming from", "step 0, epoch 1"],
        )
        resumed, self.out = self.hashes(), f"{self.dir}/whole"
        self.train("val_split=0", "seed=3")
        self.assertEqual(self.hashes(), resumed)

    def test_stopped_but_cannot_save(self):
        """130 and 143 show who stopped the run, 85 promises a checkpoint."""
        who = self.other_user()
        for number, code, expects in (
            (signal.SIGINT, SIGINT, "stopped: Ctrl-C"),
            (signal.SIGUSR1, FAILURE, "error: cannot create"),
        ):
            self.out = f"{self.dir}/run{code}"
            p = self.start("data.count=100000", before=who, saved=False)
            os.chmod(f"{self.out}/checkpoints", 0o555)
            p.send_signal(number)
            _, reported = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, code, reported)
            self.assertIn(expects, reported)
            self.assertIn('checkpoints/last.safetensors": Permission denied', reported)
            self.assertEqual(
                "but the checkpoint could not be saved" in reported, code == SIGINT, reported
            )

    def test_kill_9(self):
        p = self.start("checkpoint.every_n_steps=1")
        p.kill()
        p.wait()
        self.assertEqual(p.returncode, -signal.SIGKILL)
        hashes = self.hashes()  # whole, whatever was being written
        self.assertIn("weights", hashes)
        write(f"{self.out}/checkpoints/last.safetensors.tmp-4711", b"half a checkpoint")
        write(f"{self.out}/exported_models/exported_last.safetensors.tmp-4711", b"half a model")
        done = self.steps()
        self.resume(done + 3, expects=["resuming from"])
        self.assertEqual(self.steps(), done + 3)
        lines = [
            json.loads(line)["step"] for line in read(f"{self.out}/metrics.jsonl").splitlines()
        ]
        self.assertEqual(lines, sorted(lines))
        self.no_leftovers()

    def test_reader_goes_away(self):
        """levin train ... | head"""
        reader, writer = os.pipe()
        p = self.start(stdout=writer)
        os.close(writer)
        os.close(reader)
        here = self.steps()
        self.wait_for(lambda: self.steps() > here + 2, p)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGTERM)


if __name__ == "__main__":
    main()
