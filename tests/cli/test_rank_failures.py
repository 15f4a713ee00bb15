"""What happens to a run of several ranks when one of them is killed, stands still or fails:
everything ends at once, the message names the rank and the first cause, the exit code is that of
docs/launch.md, no process and no half-written file is left, and what was saved goes on.

usage: test_rank_failures.py LEVIN [test names]
"""

import json
import os
import re
import signal
import time

from case import FAILURE, LEVIN, main, OK, photos, read, tree, WAIT_S
from rank_case import GRACE_S, RankCase, SHAPES, TRAIN_SHAPES
from rank_processes import rank_pid, thread_names

RESOURCE, RENDEZVOUS, PEER = 69, 75, 76


class Failures(RankCase):
    def test_killed(self):
        reported = self.hit(
            1, signal.SIGKILL, code=137, expects=["rank 1 (", "failed first", "killed by SIGKILL"]
        )
        self.keeps_the_sentence(reported)
        self.goes_on(reported)

    def test_the_first_rank_killed(self):
        """It was the one that saves and speaks: the launcher names it."""
        reported = self.hit(
            0,
            signal.SIGKILL,
            code=137,
            expects=["rank 0 (", "failed first: killed by SIGKILL"],
            when=lambda: self.saved() is not None,
        )
        self.goes_on(reported)

    def test_the_first_rank_killed_before_it_saved(self):
        """Nothing is promised then."""
        reported = self.hit(
            0,
            signal.SIGKILL,
            "data.count=20000",
            code=137,
            expects=["rank 0 (", "failed first: killed by SIGKILL"],
        )
        self.assertNotIn("saved", reported)
        self.assertIsNone(self.saved())

    def test_crashed(self):
        for number, name in ((signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT")):
            self.out = f"{self.dir}/{name}"
            self.hit(
                2,
                number,
                code=128 + number,
                expects=["rank 2 (", f"failed first: killed by {name}"],
            )

    def test_stands_still(self):
        reported = self.hit(
            1,
            signal.SIGSTOP,
            "peer_timeout_s=1",
            code=PEER,
            within=GRACE_S + 1,
            expects=["rank 1 (", "nothing was heard from it for 1.0 s"],
        )
        self.goes_on(reported)

    def test_the_first_rank_stands_still(self):
        """The others give it up and leave; when it goes on, to end as well, it does not take them
        for the cause."""
        reported = self.hit(
            0,
            signal.SIGSTOP,
            "peer_timeout_s=1",
            code=PEER,
            within=GRACE_S + 1,
            expects=["rank 0 (", "nothing was heard from it for 1.0 s"],
        )
        self.assertEqual(re.findall(r"rank [12] \(.*failed first", reported), [], reported)
        self.goes_on(reported)

    def test_the_first_rank_killed_while_it_ends(self):
        """The launcher promises what is saved only where rank 0 has not."""
        self.levin(["train", "classify", *TRAIN_SHAPES[2:], f"out={self.out}"], OK)
        promise = "step 2 (epoch 1) is saved: resume=true goes on from there"
        options = ["-n", "2", "--grace=0.2", "--no-prefix", "--show=0", "--keep-logs=started"]
        for first in (f"echo 'error: lost; {promise}' >&2", ":"):
            sh = (
                "if [ $RANK = 1 ]; then until [ -e ready ]; do sleep 0.01; done; exit 76; fi; "
                f"trap '' TERM; {first}; touch ready; while :; do sleep 0.05; done"
            )
            p = self.start_ranks(
                [LEVIN, "launch", *options, "--run-dir", self.out, "--", "sh", "-c", sh]
            )
            reported = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, PEER, reported)
            self.assertEqual(reported.count(promise), 1, reported)
            os.unlink(f"{self.dir}/ready")

    def test_killed_in_the_middle_of_a_step(self):
        """Of a second or so, nearly all of it forward and backward."""
        p = self.begin(*SHAPES, "devices=3", "max_epochs=-1", "model=resnet18", "image_size=64")
        seen = []
        for steps in (2, 3):
            self.wait_for(lambda n=steps: self.steps() >= n, p)
            seen.append(time.monotonic())
        time.sleep((seen[1] - seen[0]) * 0.6)
        reported = self.hurt(
            p, 1, signal.SIGKILL, 137, ["rank 1 (", "failed first", "killed by SIGKILL"]
        )
        self.goes_on(reported)

    def test_killed_during_validation(self):
        """Nearly all of the images are for validation, one at a time."""
        reported = self.hit(
            2,
            signal.SIGKILL,
            "data.count=3000",
            "val_split=0.98",
            "eval_batch_size=1",
            code=137,
            expects=["rank 2 (", "killed by SIGKILL"],
        )
        self.assertNotIn("Traceback", reported)

    # ---- at the rendezvous ----

    def wait_for_thread(self, p, rank, name):
        def there():
            pid = rank_pid(self.out, rank)
            return pid is not None and name in thread_names(pid)

        self.wait_for(there, p)

    def waiting_for_rank_1(self, script, env=None, *arguments):
        """Ranks 0 and 2 have found the store, and wait for rank 1, which runs `script` first."""
        p = self.begin_with(
            f"[ $RANK != 1 ] || {{ {script}; }}", *SHAPES, "max_epochs=-1", *arguments, env=env
        )
        self.wait_for_thread(p, 0, "lvn-store")
        self.wait_for_thread(p, 2, "lvn-control")
        self.wait_for(lambda: rank_pid(self.out, 1) is not None, p)
        return p

    def test_killed_before_the_ranks_met(self):
        """A rank that is gone before it came, or after it came, or holds the store: the others do
        not wait for it."""
        for rank in (1, 2, 0):
            self.out = f"{self.dir}/{rank}"
            reported = self.hurt(
                self.waiting_for_rank_1("sleep 600"),
                rank,
                signal.SIGKILL,
                137,
                [f"rank {rank} (", "failed first: killed by SIGKILL"],
            )
            self.assertEqual(reported.count("levin launch: rank"), 1, reported)
            self.assertNotIn("Traceback", reported)

    def test_stands_still_before_it_came(self):
        p = self.waiting_for_rank_1("kill -STOP $$", {"LEVIN_RDZV_TIMEOUT": "1"})
        reported = self.gone(p, GRACE_S + 1, time.monotonic())
        self.assertEqual(p.returncode, RENDEZVOUS, reported)
        self.assertIn("E113: not all ranks came within 1 s", reported)
        self.assertIn("rank 1 missing; 2 of 3 present", reported)

    def test_stands_still_after_it_came(self):
        self.hurt(
            self.waiting_for_rank_1("sleep 600", None, "peer_timeout_s=1"),
            2,
            signal.SIGSTOP,
            PEER,
            ["rank 2 (", "nothing was heard from it for 1.0 s"],
            GRACE_S + 1,
        )

    # ---- failures of their own ----

    def test_unreadable_images(self):
        """One is left out, and rank 0 reports it for all; too many end the run."""

        def damage(path):
            with open(path, "r+b") as f:
                f.seek(60)  # its header is read at the start, its pixels when their turn comes
                f.write(b"\0" * 40)

        for strategy in ("ddp", "dp"):
            self.out, folder = f"{self.dir}/{strategy}", f"{self.dir}/photos-{strategy}"
            photos(folder, n=20)
            damage(f"{folder}/dog/3.png")
            arguments = [
                f"data={folder}",
                "image_size=16",
                "model=mlp",
                "batch_size=40",
                "micro_batches=3",
                "wgrad_threads=1",
                "val_split=0",
                "max_steps=1",
                "devices=3",
                f"strategy={strategy}",
            ]
            p = self.begin(*arguments)
            reported = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, OK, reported)
            reported += "".join(
                read(f"{self.out}/{name}").decode()
                for name in tree(self.out)
                if re.search("rank_[12]/stderr.log", name)
            )
            once = r"1 unreadable training sample left out: dog/3\.png: damaged PNG"
            self.assertEqual(len(re.findall(once, reported)), 1, reported)
            for name in tree(folder):
                damage(f"{folder}/{name}")
            p = self.begin(*arguments, "overwrite=true")
            reported = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, FAILURE, reported)
            self.assertRegex(
                reported,
                r"11 of 40 training samples could not be read, and a run leaves out 10 at most "
                r"\(on_error=skip: any number\): "
                r"(?:(?:before it )?(?:cat|dog)/\d+\.png: damaged PNG[^;]*; ){6}"
                r"and 5 more",
            )
            self.keeps_the_sentence(reported)

    def test_names_that_read_like_messages(self):
        """What is printed depends on no words of a path or a class: the one sentence, once, and
        what is kept behind it."""
        folder = "/".join([self.dir, "a" * 200, "b" * 200, "; step 99 (epoch 9) is saved"])
        bad = "dog; and saving step 98 failed\nerror"
        photos(folder, ("cat", bad), 36)
        for i in range(36):  # more than a rank leaves out
            with open(f"{folder}/{bad}/{i}.png", "r+b") as f:
                f.seek(60)
                f.write(b"\0" * 40)
        arguments = [
            f"data={folder}",
            "image_size=16",
            "model=mlp",
            "batch_size=6",
            "micro_batches=3",
            "wgrad_threads=1",
            "val_split=0",
            "max_epochs=4",
            "devices=3",
        ]
        for seed in range(40):  # until another rank than the first meets too many of them
            self.out = f"{self.dir}/{seed}"
            p = self.begin(*arguments, f"seed={seed}")
            reported = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, FAILURE, reported)
            if re.search(r"error: rank [12] ", reported) and self.saved():
                break
        error = [line for line in reported.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(error), 1, reported)
        escaped = re.escape(f"{bad}/".replace("\n", "\\x0a")) + r"\d+\.png"
        self.assertRegex(
            error[0],
            rf"^error: rank [12] \([^)]*\) failed first at step \d+: 11 of 72 [^:]*: any number\): "
            rf"(?:(?:before it )?{escaped}: damaged PNG[^;]*; ){{6}}and 5 more"
            rf"(?: \(in [^;]*\))?; step {self.saved()} \(epoch \d\) is "
            r"saved, and a run resumed without a change of what is wrong would end here again$",
        )

    def test_accelerator_out_of_memory(self):
        """Reported once, whichever rank's device it was."""
        for strategy in ("ddp", "dp"):
            self.out = f"{self.dir}/{strategy}"
            p = self.begin(
                *SHAPES,
                "devices=2",
                "accelerator=sim",
                f"strategy={strategy}",
                "max_steps=3",
                "model=resnet18",
                env={"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "192MiB"},
            )
            reported = self.gone(p, WAIT_S, time.monotonic())
            self.assertEqual(p.returncode, RESOURCE, reported)
            self.assertRegex(reported, r"sim:\d, which has 192 MiB")

    def test_one_accelerator_out_of_memory(self):
        """In a forward of the first step, which the others wait for: their errors come later and
        are not the cause."""
        p = self.begin_with(
            "[ $RANK != 2 ] || export LEVIN_SIM_MEMORY=4MiB",
            *SHAPES,
            "image_size=64",
            "batch_size=60",
            "accelerator=sim",
            "max_epochs=-1",
            "num_sanity_val_steps=0",
            env={"LEVIN_SIM_DEVICES": "3", "LEVIN_SIM_MEMORY": "64MiB"},
        )
        reported = self.gone(p, WAIT_S, time.monotonic())
        self.assertEqual(p.returncode, RESOURCE, reported)
        self.assertRegex(
            reported, r"error: rank 2 \(\S+, pid \d+\) failed first.*: sim:2 is out of memory"
        )
        self.assertRegex(reported, r"levin launch: rank 2 .* failed first: exit code 69")
        self.assertIn("  oom: sim:2 is out of memory", reported)
        self.assertIn("in step 0, micro-batch ", reported)
        ends = [
            json.loads(read(f"{self.out}/errors/attempt_0_rank_{rank}.json")) for rank in range(3)
        ]
        self.assertEqual([end["kind"] for end in ends], ["peer", "peer", "oom"])
        took_ns = max(end["time_ns"] for end in ends) - ends[2]["time_ns"]
        self.assertLess(took_ns, GRACE_S * 1e9 * self.slowdown)


if __name__ == "__main__":
    main(turns=2)
