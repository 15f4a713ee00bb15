"""autotune=true: rank 0 measures before the first step, all ranks and resumed runs compute with its
choices, and measuring leaves no other trace. On simulated devices with a stand-in for a library
(LEVIN_SIM_QUICKEST): candidate 1 has other bits, so a hash shows which one computed.

usage: test_autotune.py LEVIN [test names]
"""

import json
import os
import re

from case import main, OK, read
from rank_case import RankCase
from rank_processes import drop_identity

drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "3", "LEVIN_SIM_MEMORY": "256MiB"}
FIRST, OTHER = {**SIM, "LEVIN_SIM_QUICKEST": "0"}, {**SIM, "LEVIN_SIM_QUICKEST": "1"}
# Four steps in an epoch, of which the last is smaller.
RUN = [
    "data=builtin:shapes",
    "data.count=58",
    "image_size=16",
    "model=cnn",
    "batch_size=16",
    "micro_batches=4",
    "wgrad_threads=1",
    "eval_batch_size=8",
    "val_split=0",
    "seed=3",
    "max_steps=8",
    "accelerator=sim",
    "log_every_n_steps=1",
]
MEASURED = r"autotune=true: on sim:\d, (\d+) problems measured in \S+ s, (\d+) with another"


class Autotune(RankCase):
    def run_as(self, name, *more, env=OTHER, expects=()):
        out = f"{self.dir}/{name}"
        arguments = ["train", "classify", *RUN, *more, f"out={out}"]
        stdout, stderr = self.levin(arguments, OK, expects, env)
        return self.hashes(out), stdout + stderr

    def hash_of(self, name, *more, **how):
        return self.run_as(name, *more, **how)[0]

    def resume(self, name, *more, env):
        out = f"{self.dir}/{name}"
        arguments = ["train", "classify", f"out={out}", "resume=true", "accelerator=sim", *more]
        reported = "".join(self.levin(arguments, OK, env=env))
        return self.hashes(out), reported

    def saved(self, out):
        whole = read(f"{out}/checkpoints/last.safetensors")
        n = int.from_bytes(whole[:8], "little")
        return json.loads(whole[8 : 8 + n])["__metadata__"].get("pins", "")

    def config(self, out):
        found = re.search(r"^pins: \[(.*)\]$", read(f"{out}/config.yaml").decode(), re.M)
        return " ".join(re.findall(r'"([^"]*)"', found[1])) if found else ""

    def test_choices_count_and_nothing_else_does(self):
        for more in ([], ["sync_batchnorm=true"], ["precision=16-mixed", "model.dropout=0.1"]):
            plain = self.hash_of("plain", "devices=1", *more, "overwrite=true")
            one, reported = self.run_as(
                "one", "devices=1", "autotune=true", *more, "overwrite=true"
            )
            same = self.hash_of(
                "same", "devices=1", "autotune=true", *more, "overwrite=true", env=FIRST
            )
            self.assertNotEqual(one, plain)
            self.assertEqual(same, plain)
            problems, others = map(int, re.search(MEASURED, reported).groups())
            # micro-batches of 4, 3 and 2 samples; two convolutions and two layers
            self.assertEqual((problems, others), (12, 12))
            pins = self.saved(f"{self.dir}/one")
            self.assertEqual(len(re.findall(r"sim\.product-[0-9a-f]{16}=1\b", pins)), others)
            self.assertRegex(pins, r"^sim\.autotune=sim_")
            self.assertEqual(self.config(f"{self.dir}/one"), pins)
            # the first is what is computed without an entry
            self.assertNotIn("product", self.saved(f"{self.dir}/same"))

    def test_plan_names_what_pins_the_bits(self):
        arguments = ["plan", "train", "classify", *RUN, "autotune=true"]
        before = self.levin(arguments, OK, env=OTHER)[0]
        measures = "\nautotune=true: the run measures algorithms before its first step"
        self.assertIn(f"eval_batch_size=8{measures}", before)
        self.assertIn(measures, self.levin([*arguments, "pins=[a.b=1]"], OK, env=OTHER)[0])
        self.assertNotIn(measures, self.levin([*arguments, "accelerator=cpu"], OK)[0])
        self.run_as("one", "devices=1", "autotune=true")
        n = self.config(f"{self.dir}/one").count("=")
        arguments = ["plan", "train", "classify", f"config={self.dir}/one/config.yaml"]
        after = self.levin(arguments, OK, env=OTHER)[0]
        self.assertIn(f"eval_batch_size=8 and {n} pins\nthe run:", after)
        for command in (["plan", "train"], ["train"]):
            elsewhere = [*command, "classify", f"config={self.dir}/one/config.yaml"]
            elsewhere += ["accelerator=cpu", f"out={self.dir}/cpu"]
            warned = self.levin(elsewhere, OK)[1]
            self.assertRegex(warned, "choices of autotune are those of sim_.*, and this run comp")

    def test_every_layout_has_the_choices_of_rank_0(self):
        one = self.hash_of("one", "devices=1", "autotune=true")
        pins = self.saved(f"{self.dir}/one")
        for i, layout in enumerate(
            (
                ["devices=3", "strategy=dp"],
                ["devices=2", "strategy=ddp"],
                ["devices=1", "lanes=2", "cuda_graph=off"],
            )
        ):
            self.assertEqual(self.hash_of(f"{i}", *layout, "autotune=true"), one, layout)
            self.assertEqual(self.saved(f"{self.dir}/{i}"), pins)
            self.assertEqual(self.config(f"{self.dir}/{i}"), pins)

    def test_ranks_that_would_choose_otherwise(self):
        plain = self.hash_of("plain", "devices=1")
        one = self.hash_of("one", "devices=1", "autotune=true")
        for mine, others, expected in (("1", "0", one), ("0", "1", plain)):
            script = f"[ $RANK = 0 ] && LEVIN_SIM_QUICKEST={mine} || LEVIN_SIM_QUICKEST={others}"
            p = self.begin_with(
                f"{script}; export LEVIN_SIM_QUICKEST", *RUN, "autotune=true", env=SIM
            )
            reported = p.communicate()[1]
            self.assertEqual(p.returncode, OK, reported)
            self.assertEqual(self.hashes(), expected)
            self.out += "-2"

    def test_resumed(self):
        """On another layout, where a measurement would find something else; also when the saved
        configuration has lost the choices."""
        whole = self.hash_of("whole", "devices=1", "autotune=true")
        for i, (first, more) in enumerate(
            (
                (["devices=1"], ["devices=2", "strategy=dp"]),
                (["devices=2"], ["devices=1", "pins=null"]),
                (["devices=1"], ["devices=3", "autotune=false"]),
            )
        ):
            self.run_as(f"{i}", *first, "autotune=true", "max_steps=3")
            pins = self.saved(f"{self.dir}/{i}")
            resumed, reported = self.resume(f"{i}", *more, "max_steps=8", env=FIRST)
            self.assertEqual(resumed, whole, more)
            self.assertEqual(pins, self.saved(f"{self.dir}/whole"))
            self.assertNotIn("problems measured", reported)
            self.assertEqual(self.saved(f"{self.dir}/{i}"), pins)
            self.assertEqual(self.config(f"{self.dir}/{i}"), pins)
        # its choices, given to a first start
        given = self.hash_of("given", "devices=1", f"pins=[{pins.replace(' ', ',')}]", env=FIRST)
        self.assertEqual(given, whole)

    def test_begun_without(self):
        """A run that begins to measure when it is resumed has its choices from there on."""
        self.run_as("late", "devices=1", "max_steps=3")
        late, reported = self.resume("late", "devices=1", "autotune=true", "max_steps=8", env=OTHER)
        self.assertRegex(reported, MEASURED)
        self.assertNotEqual(late, self.hash_of("plain", "devices=1"))
        self.assertNotEqual(late, self.hash_of("one", "devices=1", "autotune=true"))

    def test_what_was_not_met_has_the_first(self):
        plain = self.hash_of("plain", "devices=1")
        self.run_as("one", "devices=1", "autotune=true", "max_steps=1")
        origin = self.saved(f"{self.dir}/one").split()[0]
        one, reported = self.run_as("none", "devices=1", "autotune=true", f"pins=[{origin}]")
        self.assertEqual(one, plain)
        self.assertNotIn("problems measured", reported)

    def test_given_choices_stay(self):
        """Those without what they were measured on, of a run that measures."""
        self.run_as("one", "devices=1", "autotune=true", "max_steps=1")
        origin, *products = self.saved(f"{self.dir}/one").split()
        given = [product.replace("=1", "=0") for product in products]
        zero, reported = self.run_as(
            "zero", "devices=2", "autotune=true", f"pins=[{','.join(given)}]"
        )
        self.assertRegex(reported, MEASURED)
        self.assertEqual(self.saved(f"{self.dir}/zero").split(), [origin, *given])
        self.assertEqual(zero, self.hash_of("plain", "devices=1"))

    def test_choices_of_another_library(self):
        """They stay in the record, are reported, and do not count."""
        self.run_as("one", "devices=1", "autotune=true", "max_steps=1")
        mine = self.saved(f"{self.dir}/one")
        pins = re.sub(r"autotune=\S+", "autotune=sim_other-00000000", mine)
        there, reported = self.run_as(
            "there", "devices=2", "strategy=dp", "autotune=true", f"pins=[{pins.replace(' ', ',')}]"
        )
        line = (
            "reproducibility off: the choices of autotune are those of sim_other-00000000, and "
            "sim:0 is sim, "
        )
        self.assertEqual(reported.count(line), 1, reported)
        self.assertNotIn("problems measured", reported)
        self.assertEqual(there, self.hash_of("plain", "devices=1"))
        self.assertEqual(self.saved(f"{self.dir}/there"), pins)

    def test_where_nothing_can_be_chosen(self):
        plain = self.hash_of("plain", "devices=1", env=SIM)
        one, reported = self.run_as("one", "devices=1", "autotune=true", env=SIM)
        self.assertIn("autotune=true has no effect: sim:0 has one algorithm for each", reported)
        self.assertEqual(one, plain)
        _, reported = self.run_as("cpu", "accelerator=cpu", "devices=2", "autotune=true", env=SIM)
        self.assertEqual(reported.count("autotune=true has no effect on the CPU"), 1)
        self.assertEqual(self.saved(f"{self.dir}/cpu"), "")

    def test_bad_values(self):
        for quickest in ("2", "x", ""):
            self.levin(
                ["train", "classify", *RUN, f"out={self.out}"],
                None,
                ["LEVIN_SIM_QUICKEST=", "give the number of a candidate, 0 or 1"],
                {**SIM, "LEVIN_SIM_QUICKEST": quickest},
            )
            self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    main(turns=2)
