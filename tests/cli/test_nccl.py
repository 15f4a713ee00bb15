"""transport=nccl over a stand-in for libnccl (tests/dist/nccl_on_sim.c), on simulated accelerators:
one hash over ranks, processes and threads, and sizes of buckets; what users see of it; and the end
of a run in which NCCL or a rank fails. With the stand-in nothing is shown of real GPUs.

usage: test_nccl.py LEVIN NCCL_ON_SIM [test names]
       LEVIN_TEST_ACCELERATOR=cuda LEVIN_TEST_DEVICES=2 test_nccl.py LEVIN libnccl.so.2
"""

import os
import random
import signal
import sys

from case import LEVIN, OK, USAGE, main
from node_processes import end_all, missing, start_on_nodes
from rank_case import SHAPES, RankCase
from reproducibility_lines import reproducibility_lines

ACCELERATOR = os.environ.get("LEVIN_TEST_ACCELERATOR", "sim")
DEVICES = int(os.environ.get("LEVIN_TEST_DEVICES", "4"))
LIBRARY = sys.argv.pop(1)
os.environ.update(
    LEVIN_SIM_DEVICES=str(DEVICES),
    LEVIN_SIM_MEMORY="256MiB",
    LEVIN_NCCL_LIBRARY=os.path.abspath(LIBRARY) if "/" in LIBRARY else LIBRARY,
)
WITHIN_S = {} if ACCELERATOR == "sim" else {"within": 15}  # a driver takes its time to end
NETWORK = [
    "model=cnn",
    "model.dropout=0.1",
    "gradient_clip_val=1",
    "eval_batch_size=7",
    "val_split=0.2",
    "seed=7",
]
ON_DEVICES = [f"accelerator={ACCELERATOR}", "num_workers=0"]


class NcclCase(RankCase):
    def run_on(self, name, *arguments, expects=(), code=OK, env=None):
        out = f"{self.dir}/{name}"
        _, reported = self.levin(
            ["train", "classify", *SHAPES, *ON_DEVICES, *arguments, "overwrite=true", f"out={out}"],
            code,
            expects,
            env,
        )
        return (self.hashes(out), reproducibility_lines(out)) if code == OK else reported


class Nccl(NcclCase):
    def test_one_hash(self):
        """182 images: some micro-batches of an epoch's last step are empty. All layouts in one
        precision, of the others one of processes and one of threads."""
        some = random.Random(16)
        layouts = (("ddp", 3), ("dp", 2), ("ddp", 2), ("ddp", 4), ("dp", 3))
        for precision, n in (("32-true", 5), ("bf16-mixed", 2), ("16-mixed", 2)):
            arguments = [*NETWORK, "max_steps=14", f"precision={precision}"]
            one = self.run_on("one", *arguments, "devices=1")
            for strategy, devices in layouts[:n]:
                if devices > DEVICES:
                    continue
                bucket = some.choice([16384, some.randrange(16384, 200000), 1 << 30])
                layout = [f"devices={devices}", f"strategy={strategy}", f"bucket_bytes={bucket}"]
                for transport in ("nccl", "auto"):
                    other = self.run_on("other", *arguments, *layout, f"transport={transport}")
                    self.assertEqual(one, other, (precision, layout, transport))

    def test_several_nodes(self):
        """Ranks of two nodes, processes and threads of one on each."""
        if missing() or ACCELERATOR != "sim":
            self.skipTest(missing() or "one machine, whose GPUs are there once")
        arguments = [*SHAPES, *ON_DEVICES, *NETWORK, "quiet=false", "max_steps=10"]
        for nodes, strategy in (([0, 0, 1], []), ([0, 1], ["strategy=ddp2", "devices=2"])):
            group = ["group=6"]
            one = self.run_on("one", *NETWORK, "max_steps=10", *group, "devices=1")
            out = f"{self.dir}/nodes{len(nodes)}"
            ended = end_all(
                start_on_nodes(
                    nodes,
                    [LEVIN, "train", "classify", *arguments, *strategy, *group]
                    + ["transport=nccl", f"out={out}"],
                )
            )
            self.assertEqual([code for code, _ in ended], [0] * len(nodes), ended)
            self.assertIn("transport nccl+shm+net: ", ended[0][1])
            self.assertEqual(one, (self.hashes(out), reproducibility_lines(out)))

    def test_the_line(self):
        line = ", and add gradients between their devices over NCCL (requested)"
        arguments = ["max_steps=2", "devices=2", "quiet=false"]
        for transport, beside in (("nccl", line), ("auto", "transport shm: ")):
            out, _ = self.levin(
                ["train", "classify", *SHAPES, *ON_DEVICES, *arguments]
                + [f"transport={transport}", f"out={self.dir}/{transport}"],
                OK,
            )
            self.assertIn(beside, out)

    def test_auto_without_it(self):
        self.run_on("none", "max_steps=2", "devices=2", env={"LEVIN_NCCL_LIBRARY": "/none.so"})

    def test_requests_that_cannot_be(self):
        """Before there is a run directory, except where devices must be there to know."""
        nccl = ["devices=2", "transport=nccl"]
        self.refused([*nccl, "accelerator=cpu"], ["in host memory", "transport=auto"], USAGE)
        self.run_on(
            "absent", *nccl, code=1, expects=["/none.so"], env={"LEVIN_NCCL_LIBRARY": "/none.so"}
        )
        for strategy in ("dp", "ddp"):
            self.run_on(
                "shared",
                "devices=[0,0]",
                "allow_shared_device=true",
                "transport=nccl",
                f"strategy={strategy}",
                code=USAGE,
                expects=["NCCL takes no two ranks on one device", "transport=auto"],
            )

class Failures(NcclCase):
    """How soon the others end is asserted: ctest runs these alone."""

    def test_an_error_of_nccl(self):
        if ACCELERATOR != "sim":
            self.skipTest("only the stand-in fails when it is asked to")
        for strategy in ("dp", "ddp"):
            self.run_on(
                "failed",
                "devices=3",
                "max_epochs=-1",
                "transport=nccl",
                f"strategy={strategy}",
                code=69,
                expects=["transport=nccl: rank 1: ", ": unhandled system error"],
                env={"NCCL_ON_SIM_FAULT": "async:1:30"},
            )

    def test_a_killed_rank(self):
        for rank in range(min(DEVICES, 3)):
            with self.subTest(rank=rank):
                self.out = f"{self.dir}/killed{rank}"
                reported = self.hit(
                    rank,
                    signal.SIGKILL,
                    *ON_DEVICES,
                    "transport=nccl",
                    f"devices={min(DEVICES, 3)}",
                    code=137,
                    expects=[f"rank {rank} (", "failed first", "killed by SIGKILL"],
                    **WITHIN_S,
                )
                if rank > 0:
                    self.goes_on(reported)

    def test_a_rank_that_is_stopped(self):
        self.hit(
            1,
            signal.SIGSTOP,
            *ON_DEVICES,
            "transport=nccl",
            f"devices={min(DEVICES, 3)}",
            "peer_timeout_s=1",
            code=76,
            expects=["rank 1 ("],
            within=12,
        )


if __name__ == "__main__":
    main()
