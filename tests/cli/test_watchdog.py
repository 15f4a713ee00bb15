"""A rank whose thread hangs while its process and its connections live: all ranks end within
collective_timeout and a few seconds with code 76, and one error lists where they are. A rank that
is merely slow ends nothing.

usage: test_watchdog.py LEVIN [test names]
"""

import os
import re
import signal
import subprocess
import time

from case import LEVIN, main, OK, read, WAIT_S, write
from node_processes import end_all, missing, start_on_nodes
from rank_case import RankCase

PEER = 76
TIMEOUT_S, WITHIN_S = 1, 15
HERE = os.path.dirname(os.path.abspath(__file__))
RUN = [
    "accelerator=cpu",
    "batch_size=8",
    "max_steps=20",
    "quiet=true",
    "wgrad_threads=1",
    f"collective_timeout={TIMEOUT_S}",
]


SLOW = """
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/checkpoints/") != NULL)
        sleep(6);
    return (int)syscall(SYS_fsync, fd);
}
"""


class Watchdog(RankCase):
    def setUp(self):
        super().setUp()
        self.recipe = f"{self.dir}/hang.so"
        self.levin(["cc", f"{HERE}/hang.c", "-o", self.recipe], OK)

    def run_ranks(self, *arguments, code, env=None, **hang):
        env = {**(env or {}), **{f"HANG_{k}": str(v) for k, v in hang.items()}}
        since = time.monotonic()
        p = self.start_ranks(
            [LEVIN, "train", self.recipe, *RUN, *arguments, f"out={self.out}"], env
        )
        reported = self.gone(p, TIMEOUT_S + WITHIN_S, since)
        self.assertEqual(p.returncode, code, reported)
        return reported

    def lists_the_ranks(self, reported, hung, waits):
        """One error, in which one rank has not entered what the other has waited for."""
        sentence = (
            rf"rank {hung} has not entered collective (\d+) \(end of a reduction's step\), "
            rf"in which rank {waits} has waited for [12]\.\d s"
        )
        found = re.findall(rf"error: {sentence}", reported)
        self.assertEqual(len(found), 1, reported)
        k = found[0]
        self.assertRegex(
            reported, rf"  rank {hung} \(.*\): has not entered collective {k}, forward of step 2\n"
        )
        self.assertRegex(
            reported,
            rf"  rank {waits} \(.*\): has entered collective {k}, waits in {k} "
            r"\(end of a reduction's step\) for \d\.\d s, reduction of step 2\n",
        )
        self.assertIn(f"collective_timeout={TIMEOUT_S} is over", reported)

    def test_processes(self):
        for hung in (0, 1):
            self.out = f"{self.dir}/run{hung}"
            reported = self.run_ranks("devices=2", code=PEER, RANK=hung)
            self.lists_the_ranks(reported, hung, 1 - hung)
            self.assertRegex(
                reported, rf"levin launch: rank {hung} \(.* failed first: exit code 76"
            )

    def test_a_slow_disk(self):
        """What was learned before is saved, however long it takes."""
        write(f"{self.dir}/slow.c", SLOW.encode())
        library = f"{self.dir}/slow.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{self.dir}/slow.c"], check=True)
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        environment = {"LD_PRELOAD": library, "ASAN_OPTIONS": sanitizer}
        reported = self.run_ranks("devices=2", code=PEER, RANK=1, STEP=3, env=environment)
        self.assertIn("step 3 (epoch 1) is saved: resume=true goes on from there", reported)
        self.levin(["ckpt", "verify", self.out], OK)

    def test_threads(self):
        reported = self.run_ranks("devices=2", "strategy=dp", code=PEER, RANK=0)
        hung = int(re.search(r"error: rank (\d) has not", reported).group(1))
        self.lists_the_ranks(reported, hung, 1 - hung)

    def test_nodes(self):
        """No launcher of levin: one of the ranks reports, whichever hangs."""
        if missing():
            self.skipTest(missing())
        for hung in (0, 1):
            self.out = f"{self.dir}/nodes{hung}"
            command = [LEVIN, "train", self.recipe, *RUN, f"out={self.out}"]
            since = time.monotonic()
            started = start_on_nodes(
                [0, 1], command, cwd=self.dir, env={"HANG_RANK": str(hung), "TMPDIR": self.tmp}
            )
            ended = end_all(started)
            written = "".join(text for _, text in ended)
            self.assertEqual([code for code, _ in ended], [PEER, PEER], written)
            self.assertLess(time.monotonic() - since, TIMEOUT_S + WITHIN_S, written)
            self.lists_the_ranks(written, hung, 1 - hung)
            self.assertIn(f"  rank {hung} (node{hung}): ", written)

    def test_late(self):
        """A step that takes half as long as the time-out or more: a warning, with all places."""
        reported = self.run_ranks(
            "devices=2", "collective_timeout=4", "quiet=false", code=OK, RANK=1, S=3.5
        )
        self.assertRegex(
            reported,
            r"warning: step 2 is late, \d\.\d s after it began:\n"
            r".*rank 0 \(.*\): has entered collective (\d+), waits in \1 \(.*, "
            r"reduction of step 2\n"
            r".*rank 1 \(.*\): has not entered collective \1, forward of step 2\n",
        )
        self.assertEqual(reported.count("is late"), 1, reported)

    def test_where_the_ranks_are(self):
        """SIGUSR2 asks for it, and for a checkpoint; the run goes on."""
        for strategy in ("ddp", "dp"):
            self.out = f"{self.dir}/{strategy}"
            keys = ["devices=2", f"strategy={strategy}", "collective_timeout=2", "max_epochs=-1"]
            keys += ["max_steps=-1"]
            p = self.start_ranks([LEVIN, "train", self.recipe, *RUN, *keys, f"out={self.out}"])
            self.wait_for(lambda: os.path.exists(f"{self.out}/metrics.jsonl"), p)
            p.send_signal(signal.SIGUSR2)
            log = f"{self.out}/train.log"
            where = r"SIGUSR2: where the ranks are:\n(.*rank [01] \(.*\): has .* of step \d+\n){2}"
            self.wait_for(lambda at=log: re.search(where, read(at).decode()), p)
            p.send_signal(signal.SIGTERM)
            reported = p.communicate(timeout=WAIT_S)[1]
            self.assertEqual(p.returncode, 128 + signal.SIGTERM, reported)
            self.assertIn("SIGUSR2: a checkpoint of step", read(log).decode())

    def test_slow(self):
        """Below the time-out; or longer, where there is none."""
        for i, timeout in enumerate(("10", "0")):
            self.out = f"{self.dir}/slow{i}"
            reported = self.run_ranks(
                "devices=2", f"collective_timeout={timeout}", code=OK, RANK=1, S=2
            )
            self.assertNotIn("collective", reported)


if __name__ == "__main__":
    main(turns=2)
