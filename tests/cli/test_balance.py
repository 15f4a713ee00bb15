"""balance_ranks=: ranks on faster devices compute more micro-batches, and no bit changes.

usage: test_balance.py LEVIN [test names]
"""

import re

from case import Case, main, OK, read, USAGE
from rank_processes import drop_identity

drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "3", "LEVIN_SIM_MEMORY": "256MiB", "LEVIN_SIM_KERNEL_US": "2000,250"}
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=16",
    "batch_size=14",
    "micro_batches=7",
    "wgrad_threads=1",
    "max_steps=6",
    "log_every_n_steps=1",
]


class Balance(Case):
    def run_as(self, name, *arguments, code=OK, expects=(), env=None):
        out = f"{self.dir}/{name}"
        self.levin([*TRAIN, *arguments, f"out={out}"], code, expects, env)
        return (self.hashes(out), self.reproducible_metrics(out)) if code == OK else None

    def test_measured(self):
        sim = ["accelerator=sim", "model=mlp"]
        alone = self.run_as("alone", *sim, "devices=1", env={**SIM, "LEVIN_SIM_KERNEL_US": "1"})
        for strategy in ("ddp", "dp"):
            auto = ["devices=2", f"strategy={strategy}", "balance_ranks=auto"]
            line = r"a micro-batch takes \S+ ms on rank 1 and \S+ ms on rank 0: shares by speed"
            self.assertEqual(self.run_as(strategy, *sim, *auto, env=SIM), alone)
            self.assertRegex(read(f"{self.dir}/{strategy}/train.log").decode(), line)
            kept = re.search(
                r'^balance_ranks: "\[(\d),(\d)\]"$',
                read(f"{self.dir}/{strategy}/config.yaml").decode(),
                re.M,
            )
            self.assertLess(int(kept[1]), int(kept[2]))
            self.assertEqual(int(kept[1]) + int(kept[2]), 7)
        # kept by as many ranks, measured again by others, and of no matter to one
        resume = ["train", "classify", f"out={self.dir}/ddp", "resume=true"]
        same, _ = self.levin([*resume, "devices=2", "max_steps=7"], OK, env=SIM)
        self.assertNotIn("balance_ranks=auto", same)
        last = "0" if kept[1] == "1" else f"0-{int(kept[1]) - 1}"
        self.assertRegex(same, f"rank 0 owns micro-batch(es)? {last}, ")
        other, _ = self.levin([*resume, "devices=3", "max_steps=8"], OK, env=SIM)
        shares = re.search(r"shares by speed, balance_ranks=\[(\d),(\d),(\d)\]", other)
        self.assertIsNotNone(shares, other)
        slow, *fast = map(int, shares.groups())  # the fast ones share the machine with others
        self.assertEqual(slow + sum(fast), 7)
        self.assertLess(slow, max(fast))
        self.levin([*resume, "devices=1", "max_steps=9"], OK, env=SIM)

    def test_given(self):
        """Every share, also where groups lie on several ranks, and over TCP."""
        for model in (
            ["model=mlp"],
            ["model=cnn", "sync_batchnorm=true", "group=7"],
            ["model=mlp", "precision=16-mixed", "gradient_clip_val=0.1"],
        ):
            sim = {**SIM, "LEVIN_SIM_KERNEL_US": "1"}
            alone = self.run_as("alone", *model, "overwrite=true", "devices=1")
            for i, layout in enumerate(
                (
                    ["devices=2", "balance_ranks=[1,6]"],
                    ["devices=3", "balance_ranks=2,4,1", "transport=net"],
                    ["devices=3", "balance_ranks=[100,1,200]", "accelerator=sim"],
                    ["devices=2", "balance_ranks=[5,2]", "strategy=dp", "accelerator=sim"],
                )
            ):
                with self.subTest(model=model, layout=layout):
                    self.assertEqual(
                        self.run_as(f"{i}", *model, *layout, "overwrite=true", env=sim), alone
                    )

    def test_refused(self):
        for bad in ("fast", "[1,0]", "[1,2", "1,,2", "[]", "[1,2]x", "[99999999]"):
            self.run_as(
                "bad",
                f"balance_ranks={bad}",
                code=USAGE,
                expects=[f"balance_ranks {bad}: expected auto, off or a share for each rank"],
            )
        self.run_as(
            "bad",
            "devices=2",
            "balance_ranks=[1,2,3]",
            code=USAGE,
            expects=["balance_ranks=[1,2,3] (command line) has 3 shares for 2 ranks: give one"],
        )

    def test_coupled(self):
        model = ["model=cnn", "sync_batchnorm=true", "group=7"]
        alone = self.run_as("alone", *model, "devices=1")
        self.assertEqual(self.run_as("two", *model, "devices=2", "balance_ranks=auto"), alone)
        self.assertIn(
            b"the micro-batches of a group run at once: equal shares, balance_ranks=[4,3]",
            read(f"{self.dir}/two/train.log"),
        )


main()
