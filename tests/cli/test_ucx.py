"""transport=ucx: what users see of it, and what they must not: UCX's own messages.

usage: test_ucx.py LEVIN [test names]
Skipped where UCX is not installed, which is an error of the request alone.
"""

import re
import signal

from case import OK, USAGE, main
from rank_case import SHAPES, RankCase
from ucx import HAS_UCX


class Ucx(RankCase):
    def setUp(self):
        super().setUp()
        if not HAS_UCX:
            self.skipTest("no UCX (libucx0)")

    def lines_over(self, transport):
        """What a run reports, without what differs by the transport or the clock."""
        out = f"{self.dir}/{transport}"
        arguments = ["devices=3", "max_steps=4", "quiet=false"]
        arguments += [f"transport={transport}", f"out={out}"]
        written = "".join(self.levin(["train", "classify", *SHAPES, *arguments], OK))
        self.assertIn(f"transport {transport}: 3 ranks exchange messages", written)
        kept = [
            re.sub(r"\d+\.\d+|\d+ (images|samples)/s", "", line)
            for line in written.replace(out, "OUT").splitlines()
        ]
        return [line for line in kept if not line.startswith("transport ")], self.hashes(out)

    def test_as_over_tcp(self):
        self.assertEqual(self.lines_over("ucx"), self.lines_over("net"))

    def test_a_killed_rank(self):
        reported = self.hit(
            1,
            signal.SIGKILL,
            "transport=ucx",
            code=137,
            expects=["rank 1 (", "failed first", "killed by SIGKILL"],
        )
        self.goes_on(reported)

    def test_a_rank_that_is_stopped(self):
        self.hit(
            2,
            signal.SIGSTOP,
            "transport=ucx",
            "peer_timeout_s=1",
            code=76,
            expects=["rank 2 ("],
            within=12,
        )

    def test_a_request_that_cannot_be(self):
        for value in ("usx", "ib"):
            self.refused([f"transport={value}", "devices=2"], ["transport"], USAGE)


main()
