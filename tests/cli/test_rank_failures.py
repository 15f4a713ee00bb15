"""What happens to a run of several ranks when one of them is killed, stands still or fails: everything ends at once, the message names the rank and
the first cause, the exit code is that of docs/launch.md, no process and no half-written file is left, and what was saved goes on.

usage: test_rank_failures.py LEVIN [test names]
"""
import os
import re
import signal
import subprocess
import time

from bad_support import Case, FAILURE, LEVIN, main, OK, photos, read, tree, WAIT_S
from rank_processes import children, drop_identity, rank_pid

PEER = 76
drop_identity()
GRACE_S = float(os.environ.get("LEVIN_TEST_GONE_S", "2"))  # slower machines: more
SHAPES = ["data=builtin:shapes", "data.count=230", "image_size=16", "batch_size=30", "shards=6", "wgrad_threads=1", "quiet=true", "log_every_n_steps=1"]


# A rank that crashes here was sent the signal: no matter for AddressSanitizer, which would leave with a code of its own.
SIGNALS = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "handle_segv=0"]))


class Failures(Case):
    def begin(self, *words, env=None):
        p = subprocess.Popen([LEVIN, "train", "classify", *words, f"out={self.out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             start_new_session=True, env={**os.environ, "ASAN_OPTIONS": SIGNALS, **(env or {})})
        self.addCleanup(self.end, p)
        return p

    def gone(self, p, within, since):
        """Returns what was said, once all processes of the run are gone."""
        _, told = p.communicate(timeout=WAIT_S)
        self.assertLess(time.monotonic() - since, within, told)
        self.assertEqual(children(self.out), [], told)
        self.assertNotIn("Sanitizer", told)
        if os.path.exists(self.out):
            self.no_leftovers()
        return told

    def hit(self, rank, number, *words, code, says, within=GRACE_S, when=None):
        p = self.begin(*SHAPES, "devices=3", "max_epochs=-1", *words)
        self.wait_for(when or (lambda: self.steps() >= 3), p)
        os.kill(rank_pid(self.out, rank), number)
        told = self.gone(p, within, time.monotonic())
        self.assertEqual(p.returncode, code, told)
        for piece in says:
            self.assertIn(piece, told)
        return told

    def goes_on(self, told):
        """From the step that the message promises, on one device."""
        saved = int(re.search(r"step (\d+) \(epoch \d+\) is saved", told)[1])
        _, again = self.levin(["train", "classify", f"out={self.out}", "resume=true", "devices=1", "quiet=false", f"max_steps={saved + 2}"], OK)
        self.assertEqual(self.steps(), saved + 2, again)

    def test_killed(self):
        told = self.hit(1, signal.SIGKILL, code=137, says=["rank 1 (", "failed first", "killed by SIGKILL"])
        self.goes_on(told)

    def test_the_first_rank_killed(self):
        """It was the one that saves and speaks: the launcher names it."""
        self.hit(0, signal.SIGKILL, code=137, says=["rank 0 (", "failed first: killed by SIGKILL"])

    def test_crashed(self):
        for number, name in ((signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT")):
            self.out = f"{self.dir}/{name}"
            self.hit(2, number, code=128 + number, says=["rank 2 (", f"failed first: killed by {name}"])

    def test_stands_still(self):
        told = self.hit(1, signal.SIGSTOP, "peer_timeout_s=1", code=PEER, within=GRACE_S + 1, says=["rank 1 (", "nothing was heard from it for 1.0 s"])
        self.goes_on(told)

    def test_killed_during_validation(self):
        """Nearly all of the pictures are for validation, one at a time."""
        told = self.hit(2, signal.SIGKILL, "data.count=3000", "val_split=0.98", "eval_batch_size=1", code=137, says=["rank 2 (", "killed by SIGKILL"])
        self.assertNotIn("Traceback", told)

    def test_killed_before_the_ranks_met(self):
        """A rank that is gone before it came: the others do not wait for it."""
        p = self.begin(*SHAPES, "devices=3", "max_epochs=-1")
        self.wait_for(lambda: rank_pid(self.out, 2) is not None, p)
        os.kill(rank_pid(self.out, 2), signal.SIGKILL)
        told = self.gone(p, GRACE_S, time.monotonic())
        self.assertEqual(p.returncode, 137, told)
        self.assertIn("rank 2 (", told)
        self.assertIn("killed by SIGKILL", told)

    def test_unreadable_picture_in_one_shard(self):
        for strategy in ("ddp", "dp"):
            self.out, folder = f"{self.dir}/{strategy}", f"{self.dir}/photos-{strategy}"
            photos(folder)
            with open(f"{folder}/dog/3.png", "r+b") as f:
                f.seek(60)
                f.write(b"\0" * 40)  # its header is read at the start, its pixels when their turn comes
            words = [f"data={folder}", "image_size=16", "model=mlp", "batch_size=6", "shards=3", "wgrad_threads=1", "val_split=0", "max_steps=2",
                     "devices=3", f"strategy={strategy}"]
            p = self.begin(*words)
            told = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, FAILURE, told)
            self.assertIn("dog/3.png", told)
            self.assertRegex(told, r"rank \d", told)
            p = self.begin(*words, "on_error=skip", "overwrite=true")
            told = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, OK, told)
            told += "".join(read(f"{self.out}/{name}").decode() for name in tree(self.out) if re.search("rank_[12]/stderr.log", name))
            self.assertEqual(len(re.findall(r"1 unreadable sample left out \(on_error=skip\): \S*dog/3.png", told)), 1, told)

    def test_accelerator_out_of_memory(self):
        """Told once, whichever rank's device it was."""
        for strategy in ("ddp", "dp"):
            self.out = f"{self.dir}/{strategy}"
            p = self.begin(*SHAPES, "devices=2", "accelerator=sim", f"strategy={strategy}", "max_steps=3", "model=resnet18",
                           env={"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "192MiB"})
            told = self.gone(p, WAIT_S, time.monotonic())
            self.assertNotEqual(p.returncode, OK, told)
            self.assertIn("sim:", told)
            self.assertIn("MiB", told)


if __name__ == "__main__":
    main()
