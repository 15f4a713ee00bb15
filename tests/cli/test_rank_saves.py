"""Ranks that die while a checkpoint is written, whose disk is full or whose files may not grow:
what was saved before stays whole and goes on, nothing half written stays, and the rank is named.

usage: test_rank_saves.py LEVIN [test names]
"""

import os
import re
import resource
import signal
import time

from case import FAILURE, main, WAIT_S
from neighbours import Neighbours
from rank_case import GRACE_S, RankCase, SHAPES
from rank_processes import being_written, rank_pid

# A checkpoint of 40 MB after each step: there is nearly always one being written.
LARGE = ["model=mlp", "image_size=64", "checkpoint.every_n_steps=1"]


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rpartition(")")[2].split()[0]


class Saves(RankCase):
    def half_written(self):
        return being_written(self.out)

    def stopped(self, p, in_a_save):
        """The process of rank 0, which stands still in the middle of writing a checkpoint, or while
        none is written; there is an earlier one."""
        self.wait_for(lambda: self.saved() is not None and rank_pid(self.out, 0) is not None, p)
        pid = rank_pid(self.out, 0)
        for _ in range(100):
            self.wait_for(lambda: bool(self.half_written()) == in_a_save, p)
            os.kill(pid, signal.SIGSTOP)
            self.wait_for(lambda: state(pid) == "T", p)
            if bool(self.half_written()) == in_a_save:
                return pid
            os.kill(pid, signal.SIGCONT)
        return self.fail("rank 0 was never met so")

    def test_the_first_rank_killed_in_a_save(self):
        p = self.begin(*SHAPES, *LARGE, "devices=3", "max_epochs=-1")
        self.stopped(p, in_a_save=True)
        kept = self.saved()
        reported = self.hurt(
            p, 0, signal.SIGKILL, 137, ["rank 0 (", "failed first: killed by SIGKILL"]
        )
        self.assertEqual(self.saved(), kept)
        self.goes_on(reported)

    def test_another_rank_killed_in_a_save(self):
        p = self.begin(*SHAPES, *LARGE, "devices=3", "max_epochs=-1")
        first = self.stopped(p, in_a_save=True)

        def kill(pid):
            os.kill(pid, signal.SIGKILL)
            os.kill(first, signal.SIGCONT)

        reported = self.hurt(p, 1, kill, 137, ["rank 1 (", "killed by SIGKILL"])
        self.goes_on(reported)

    def test_all_killed_in_a_save(self):
        """With the launcher: no process is left to clear up, and there is nothing to clear up."""
        p = self.begin(*SHAPES, *LARGE, "devices=3", "max_epochs=-1")
        self.stopped(p, in_a_save=True)
        kept = self.saved()
        p.kill()
        self.wait_for_end(p)
        self.no_leftovers()
        self.goes_on(f"step {kept} (epoch 1) is saved: resume=true")

    def wait_for_end(self, p):
        since = time.monotonic()
        with Neighbours() as neighbours:
            p.wait()
            while any(rank_pid(self.out, rank) for rank in range(3)):
                self.assertLess(time.monotonic() - since, WAIT_S)
                time.sleep(0.01)
            took = time.monotonic() - since
        self.assertLess(took, GRACE_S * neighbours.slowdown())

    def test_files_of_the_first_rank_may_not_grow(self):
        """The one that saves. It reports the last step that is kept."""
        reported = self.hit(
            0,
            lambda pid: resource.prlimit(pid, resource.RLIMIT_FSIZE, (200000, 200000)),
            "checkpoint.every_n_steps=1",
            code=FAILURE,
            expects=[
                "rank 0 (",
                "failed first: exit code 1",
                'checkpoints/last.safetensors": File too large',
            ],
            when=lambda: self.saved() is not None,
        )
        self.assertEqual(
            int(re.search(r"the last saved step is (\d+)", reported)[1]), self.saved(), reported
        )
        self.goes_on(f"step {self.saved()} (epoch 1) is saved: resume=true")

    def test_files_of_another_rank_may_not_grow(self):
        """It can leave no record of how it crashed; the launcher knows it all the same, and rank 0
        saves."""

        def crash(pid):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            os.kill(pid, signal.SIGABRT)

        reported = self.hit(
            1, crash, code=134, expects=["rank 1 (", "failed first: killed by SIGABRT"]
        )
        self.assertEqual(
            [name for name in os.listdir(f"{self.out}/errors") if "rank_1" in name], []
        )
        self.goes_on(reported)

    def test_full_disk(self):
        """Of the run directory: no checkpoint, no metrics, no logs, no error records."""
        self.mount("24m")
        p = self.begin(*SHAPES, "checkpoint.every_n_steps=3", "devices=3", "max_epochs=-1")
        first = self.stopped(p, in_a_save=False)
        self.fill(0)
        os.kill(first, signal.SIGCONT)
        reported = self.gone(p, GRACE_S, time.monotonic())
        self.assertEqual(p.returncode, FAILURE, reported)
        for piece in ("rank 0 (", "failed first: exit code 1", "No space left on device"):
            self.assertIn(piece, reported)
        os.remove(f"{self.dir}/small/filler")
        self.goes_on(f"step {self.saved()} (epoch 1) is saved: resume=true")


if __name__ == "__main__":
    main()
