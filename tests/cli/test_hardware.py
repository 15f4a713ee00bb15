"""Ranks whose bits may differ, as their processors do, and runs that are resumed on another one:
what is reported and recorded, and what same_hardware=require refuses.

usage: test_hardware.py LEVIN [test names]
"""

import json
import os
import re

from case import main, OK, read, USAGE
from rank_case import RankCase, TRAIN_SHAPES
from rank_processes import drop_identity

drop_identity()
MARK = "(LEVIN_TEST_CPU_MODEL)"
PLAIN = "export LEVIN_TEST_CPU_MODEL=plain; "


def fast(rank):
    return PLAIN + f"if [ $RANK = {rank} ]; then export LEVIN_TEST_CPU_MODEL='Fast CPU'; fi"


class Hardware(RankCase):
    def machine(self):
        whole = read(f"{self.out}/checkpoints/last.safetensors")
        n = int.from_bytes(whole[:8], "little")
        return json.loads(whole[8 : 8 + n])["__metadata__"]["machine"]

    def ranks(self, script, *arguments, code=OK):
        p = self.begin_with(script, *TRAIN_SHAPES[2:], *arguments)
        reported = p.communicate()[1]
        self.assertEqual(p.returncode, code, reported)
        return reported

    def test_other_processor_of_a_rank(self):
        reported = self.ranks(fast(1))
        line = f"reproducibility off: rank 1 has Fast CPU {MARK}, the others plain {MARK}\n"
        self.assertIn(line, reported)
        self.assertIn(line, read(f"{self.out}/train.log").decode())
        machine = self.machine()
        both = machine.split(" and ")
        self.assertEqual(len(both), 2)
        self.assertTrue(both[0].endswith(f", Fast CPU {MARK}"), both)
        self.assertTrue(both[1].endswith(f", plain {MARK}"), both)
        # the same mixture is the same hardware, whichever rank has which, and one kind is another
        self.assertNotIn("not reproducible", self.ranks(fast(2), "resume=true", "max_steps=3"))
        env = {"LEVIN_TEST_CPU_MODEL": "plain"}
        resume = ["train", "classify", f"out={self.out}", "resume=true", "max_steps=4"]
        was = f"this checkpoint was written on {machine}, this machine is "
        self.levin(
            [*resume, "same_hardware=require"], USAGE, [f"same_hardware=require: {was}"], env=env
        )
        self.levin(resume, OK, [f"not reproducible: {was}"], env=env)

    def test_other_instructions_of_a_rank(self):
        reported = self.ranks("export LEVIN_CPU_ISA=v2; [ $RANK != 0 ] || LEVIN_CPU_ISA=v3")
        machine = self.machine()
        different = " and " in machine  # else the processor has no more than v2
        self.assertEqual(
            re.search("reproducibility off: rank 0 has [^,]* v3, the others [^,]* v2\n", reported)
            is not None,
            different,
            reported,
        )

    def test_required(self):
        reported = self.ranks(fast(2), "same_hardware=require", code=USAGE)
        self.assertIn(
            f"error: same_hardware=require: rank 2 has Fast CPU {MARK}, the others plain {MARK}; "
            "start on hardware of one kind, or give same_hardware=warn\n",
            reported,
        )
        self.assertEqual(reported.count("same_hardware=require: "), 1, reported)
        self.assertFalse(os.path.exists(f"{self.out}/checkpoints"))

    def test_same(self):
        self.assertNotIn("reproducibility off", self.ranks(":", "same_hardware=require"))
        machine = self.machine()
        self.assertNotIn(" and ", machine)
        self.ranks(":", "resume=true", "max_steps=3", "same_hardware=require")
        self.assertEqual(self.machine(), machine)


main()
