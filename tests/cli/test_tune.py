"""levin tune batch-size: the size that it finds trains, a larger one runs out of memory, and
nothing is left behind.

usage: test_tune.py LEVIN [test names]
"""

import json
import math
import os
import struct
import tempfile

from case import Case, FAILURE, main, OK, USAGE, write

RESOURCE = 69
SHAPES = ["data=builtin:shapes", "image_size=32", "model=cnn"]
SIM = [*SHAPES, "data.count=400", "eval_batch_size=4", "accelerator=sim"]


def weights_of(layers, value):
    """A safetensors file, with zeros as biases."""
    head, data = {}, b""
    for name, (out, width) in layers.items():
        for kind, shape, values in (
            ("weight", [out, width], [value] * out * width),
            ("bias", [out], [0] * out),
        ):
            begin = len(data)
            data += struct.pack(f"<{len(values)}f", *values)
            place = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
            head[f"{name}.{kind}"] = place
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


class Tune(Case):
    def sim(self, memory, devices=2):
        return {"LEVIN_SIM_DEVICES": str(devices), "LEVIN_SIM_MEMORY": memory}

    def tune(self, *arguments, code=OK, env=None, expects=()):
        """In a directory of its own, which stays empty."""
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            try:
                out, _ = self.levin(
                    ["tune", "batch-size", *arguments, "tune.json=true"], code, expects, env=env
                )
            finally:
                os.chdir(before)
            self.assertEqual(os.listdir(empty), [])
        return json.loads(out) if code == OK else out

    def check(self, found):
        """The answer was run, and no estimate is far from what was measured."""
        ran = [t for t in found["trials"] if t["ran"]]
        fits = [t["batch_size_per_device"] for t in ran if t["outcome"] == "fits"]
        self.assertIn(found["batch_size_per_device"], fits)
        for t in ran:
            self.assertLess(abs(t["estimated_bytes"] / t["peak_bytes"] - 1), 0.05, t)
            self.assertLessEqual(t["peak_bytes"], t["limit_bytes"])

    def test_found_size_trains_and_a_larger_one_does_not(self):
        env = self.sim("24MiB")
        found = self.tune("classify", *SIM, "devices=2", env=env)
        self.check(found)
        size = found["batch_size_per_device"]
        self.assertEqual(found["batch_size"], 2 * size)
        train = ["train", "classify", *SIM, "devices=2", "quiet=true", "max_epochs=-1"]
        for more, code in ((size, OK), (math.ceil(1.1 * size), RESOURCE)):
            self.levin(
                [
                    *train,
                    f"batch_size_per_device={more}",
                    "max_steps=20",
                    f"out={self.dir}/{more}",
                ],
                code,
                ["out of memory"] if code != OK else [],
                env=env,
            )

    def test_a_step_that_must_be_captured(self):
        """One that has no room for it runs out of memory, as any other; the answer is captured."""
        env = self.sim("24MiB", 1)
        found = self.tune("classify", *SIM, "cuda_graph=on", env=env)
        self.check(found)
        size = found["batch_size_per_device"]
        self.levin(
            ["train", "classify", *SIM, f"batch_size_per_device={size}", "cuda_graph=on"]
            + ["quiet=true", "max_epochs=-1", "max_steps=20", f"out={self.dir}/run"],
            OK,
            env=env,
        )

    def test_answer_moves_where_the_estimate_does(self):
        exact = ["classify", *SIM, "devices=1", "tune.margin=0", "micro_batches=1"]
        found = self.tune(*exact, "tune.max_size=16", env=self.sim("32MiB", 1))
        self.check(found)
        self.assertEqual(found["batch_size_per_device"], 16)
        last = found["trials"][-1]
        need = max(last["estimated_bytes"], last["peak_bytes"])
        above, below = int(1.2 * need), need - 4096  # a trial does without a part of it
        trials = {}
        for limit in (above, below):
            got = self.tune(*exact, f"tune.memory_limit={limit}", env=self.sim("32MiB", 1))
            trials[limit] = got["batch_size_per_device"]
            self.assertLessEqual(got["peak_bytes"], limit)
        self.assertGreaterEqual(trials[above], 16)
        self.assertLess(trials[below], trials[above])

    def test_ranks_with_unequal_memory(self):
        """The smallest decides, whatever the strategy."""
        small = self.tune("classify", *SIM, "devices=2", env=self.sim("10MiB"))
        for strategy in ("ddp", "dp"):
            found = self.tune(
                "classify",
                *SIM,
                "devices=2",
                f"strategy={strategy}",
                env=self.sim("16MiB,10MiB"),
            )
            self.check(found)
            self.assertEqual(found["limit_bytes"], 10 << 20)
            self.assertEqual(found["batch_size_per_device"], small["batch_size_per_device"])

    def test_ranks_that_others_have_started(self):
        env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        env = dict(env, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        self.tune(*SHAPES, code=USAGE, env=env, expects=["one of 2 ranks", "devices=2"])
        env = dict(env, RANK="4", WORLD_SIZE="6", LOCAL_WORLD_SIZE="3")
        expects = ["6 ranks, 3 of them on this node", "devices=3"]
        self.tune(*SHAPES, code=USAGE, env=env, expects=expects)

    def test_nothing_fits(self):
        for arguments, env in (
            (["accelerator=sim"], self.sim("2MiB", 1)),
            (["accelerator=cpu", "tune.memory_limit=2MiB"], None),
        ):
            self.tune(
                *SHAPES,
                *arguments,
                "devices=1",
                code=RESOURCE,
                env=env,
                expects=["batch_size_per_device=1 does not fit", " takes ", ", and has 2 MiB"],
            )

    def test_validation_does_not_fit(self):
        self.tune(
            *SHAPES,
            "accelerator=sim",
            "devices=1",
            "eval_batch_size=100",
            code=RESOURCE,
            env=self.sim("12MiB", 1),
            expects=["batch_size_per_device=1 does not fit because of eval_batch_size=100"],
        )

    def test_the_batch_that_is_copied_ahead(self):
        """Of two steps in an epoch the second is short."""
        keys = ["data=builtin:shapes", "data.count=220", "image_size=32", "model=mlp"]
        keys += ["accelerator=sim", "devices=1", "lanes=1", "optim=sgd", "eval_batch_size=4"]
        keys += ["val_split=0.1", "tune.margin=0", "tune.max_size=190"]
        no_workers = ["num_workers=0"]  # and a captured step, which has a batch of its own
        for more in (
            ["num_workers=1"],
            no_workers,
            [*no_workers, "cuda_graph=off"],
            ["max_epochs=1"],
            ["data.count=110"],
        ):
            found = self.tune("classify", *keys, *more, env=self.sim("64MiB", 1))
            (ran,) = [t for t in found["trials"] if t["ran"]]
            self.assertLess(abs(ran["estimated_bytes"] / ran["peak_bytes"] - 1), 0.005, (more, ran))

    def test_epochs_of_one_step_and_of_two(self):
        """Of a training without an end: a step of all samples, and the answer, which takes two."""
        for device in ("sim", "cpu"):
            few = ["data=builtin:shapes", "data.count=20", "image_size=16", "model=mlp"]
            few += [f"accelerator={device}", "devices=1", "val_split=0.2", "max_epochs=-1"]
            limit = [] if device == "sim" else ["tune.memory_limit=50MiB"]
            found = self.tune("classify", *few, *limit, env=self.sim("64MiB", 1))
            self.assertEqual([t["batch_size_per_device"] for t in found["trials"]][-2:], [14, 13])
            self.assertTrue(all(t["ran"] for t in found["trials"][-2:]))

    def test_what_a_trial_skips_does_not_move_its_batches(self):
        """They lie in two places in turn: an even epoch leaves other pieces than an odd one."""
        env = {"LEVIN_SIM_DEVICES": "3", "LEVIN_SIM_MEMORY": "8590000"}
        run = ["data=builtin:shapes", "data.count=334", "image_size=32", "model=cnn"]
        run += ["accelerator=sim", "devices=3", "strategy=ddp", "optim=lars", "num_workers=2"]
        run += ["precision=bf16-mixed", "max_epochs=2"]
        fits = {}
        for steps in (4, 5, 12, 13):
            part = [*run, f"limit_train_batches={steps}"]
            found = self.tune("classify", *part, "tune.max_size=7", "tune.margin=0", env=env)
            size = found["batch_size_per_device"]
            for more in range(size, 8):
                code = OK if more == size else RESOURCE
                train = ["train", "classify", *part, f"batch_size_per_device={more}"]
                self.levin([*train, f"out={self.dir}/{steps}-{more}", "quiet=true"], code, env=env)
            fits[steps] = size
        self.assertGreater(len(set(fits.values())), 1, fits)

    def test_a_loss_that_is_not_finite_fits_all_the_same(self):
        """A rate with which the weights leave all bounds, and weights that are beyond them."""
        few = ["data=builtin:shapes", "data.count=60", "image_size=16", "model=mlp", "optim=sgd"]
        few += ["tune.max_size=4", "max_epochs=-1"]
        large = f"{self.dir}/large.safetensors"
        write(large, weights_of({"fc1": (256, 768), "fc2": (256, 256), "head": (6, 256)}, 1e38))
        for cause in ("optim.lr=1e30", f"weights={large}"):
            for how in ("accelerator=sim", "accelerator=cpu"):
                for devices in (1, 2):
                    with self.subTest(cause=cause, how=how, devices=devices):
                        line = [*few, cause, how, f"devices={devices}"]
                        found = self.tune("classify", *line, env=self.sim("64MiB"))
                        self.assertEqual(found["batch_size_per_device"], 4)
                        self.assertGreater(found["peak_bytes"], 0)

    def test_margin_is_what_is_left(self):
        use = ["tune", "batch-size", *SHAPES, "accelerator=cpu", "devices=1"]
        for most, margin, size, text in (
            (3, 0.05, 3, ", without a margin: tune.margin=0.05 of it is less than half a sample;"),
            (3, 0.4, 2, ", less a margin of 1 (tune.margin=0.4);"),
            (3, 0, 3, "ends the search);"),
        ):
            out, _ = self.levin([*use, f"tune.max_size={most}", f"tune.margin={margin}"], OK)
            self.assertIn(f"\nbatch_size_per_device={size}: {most} fits (", out)
            self.assertIn(text, out)

    def test_keys(self):
        cpu = [*SHAPES, "data.count=300", "accelerator=cpu", "tune.memory_limit=25MiB"]
        run = f"{self.dir}/run"
        found = self.tune(*cpu, f"out={run}", "batch_size=3", "logger=csv")
        self.assertFalse(os.path.exists(run))
        sizes = [t["batch_size_per_device"] for t in found["trials"]]
        self.assertTrue(any(size & (size - 1) for size in sizes))
        self.assertLessEqual(found["peak_bytes"], 25 << 20)
        full = self.tune(*cpu, "tune.margin=0")
        self.assertGreater(full["batch_size_per_device"], found["batch_size_per_device"])
        power = self.tune(*cpu, "tune.margin=0", "tune.mode=power")
        self.assertIn(power["batch_size_per_device"], [1 << i for i in range(9)])
        few = self.tune(*cpu, "tune.margin=0", "tune.max_size=3")
        self.assertEqual(few["batch_size_per_device"], 3)
        for answer, bound in ((full, "memory"), (power, "memory"), (few, "tune.max_size")):
            self.assertEqual(answer["bound"], bound)
        few = self.tune(*cpu, "tune.margin=0", "tune.max_size=3", "tune.mode=power")
        self.assertEqual([few["batch_size_per_device"], few["bound"]], [2, "tune.max_size"])
        all_at_once = self.tune(*cpu[:-1], "tune.margin=0", "data.count=40", "val_split=0")
        self.assertEqual(all_at_once["batch_size_per_device"], 40)
        self.assertEqual(all_at_once["bound"], "samples")

    def test_file(self):
        path = f"{self.dir}/job.yaml"
        with open(path, "w", encoding="ascii") as f:
            f.write("data: builtin:shapes\nimage_size: 32\nmodel: cnn\nbatch_size: 5\n")
        out, _ = self.levin(["tune", "batch-size", f"config={path}", "tune.max_size=2"], OK)
        self.assertIn("\nMaximum Batch Size: 2\n", out)
        self.assertIn("batch_size_per_device=2: 2 fits (the memory may allow more; tune.max", out)
        self.assertTrue(out.endswith(f"\nbatch_size: 2 in {path} with tune.write=true\n"), out)

    def test_an_effective_batch_is_divided_exactly(self):
        """By a smaller size, which is run, too, where the largest leaves a remainder."""
        use = ["tune", "batch-size", *SHAPES, "accelerator=cpu", "devices=1", "tune.margin=0"]
        for most, batch, answer in (
            (5, 12, "batch_size_per_device=4 accumulate_grad_batches=3, which makes 12"),
            (4, 10, "batch_size_per_device=2 accumulate_grad_batches=5, which makes 10"),
            (3, 7, "accumulate_grad_batches=3, which makes 9"),
        ):
            more = [f"tune.max_size={most}", f"tune.effective_batch={batch}"]
            out, _ = self.levin([*use, *more], OK)
            self.assertIn(f"for an effective batch of {batch}: {answer}\n", out)
            if "batch_size" in answer:
                self.assertRegex(out, f"\n{answer.split()[0]}: fits, was run,")

    def test_answer_goes_into_the_file(self):
        path = f"{self.dir}/job.yaml"
        shapes = "data: builtin:shapes\nimage_size: 32 # pixels\n"
        map_of_rcgan = (
            "experience: mass_mapping\ndata_path: builtin:mass\nin_chans: 2\nout_chans: 2\n"
            "im_size: 32\ndisc_stages: 3\nlr: 1e-3\nnum_epochs: 3\n"
        )
        sections = (
            "data:\n  path: builtin:mass\n  channels: 2\n  resolution: 32\noptimizer:\n  lr: 1e-3\n"
            "disc_stages: 3\ntest:\n  P: 32\n  batch_size: 9\ntrain:\n  n_epochs: 3\n"
        )
        use = ["tune.max_size=1", "tune.write=true", "devices=2", "accelerator=cpu"]
        three = "accumulate_grad_batches: 3\n"
        for recipe, before, after in (
            ("classify", shapes + "batch_size: 7 # all\n", "batch_size: 2 # all\n" + three),
            (
                "classify",
                shapes + "batch_size_per_device:\t7\n",
                "batch_size_per_device:\t1\n" + three,
            ),
            ("classify", shapes + "model: cnn", "model: cnn\nbatch_size_per_device: 1\n" + three),
            ("gan", map_of_rcgan + "batch_size: 9 #GPU", "batch_size: 1 #GPU\n" + three),
            (
                "gan",
                map_of_rcgan.replace("experience: mass_mapping", "num_z_test: 32")
                + "batch_size: 9 #GPU",
                "batch_size: 1 #GPU\n" + three,
            ),
            ("gan", sections + "  batch_size: 9 # all\n", "  batch_size: 2 # all\n" + three),
            ("classify", shapes + '"batch_size": 7\n', '"batch_size": 2\n' + three),
            ("classify", shapes + "batch-size : 7\r\n", "batch-size : 2\r\n" + three),
            (
                "classify",
                shapes + "train_batch_size:\nseed: 1\n",
                "train_batch_size: 2\nseed: 1\n" + three,
            ),
            (
                "classify",
                "# \u00b5m \u2192\n" + shapes + "optim:\n  lr: 0.1\nbatch_size: 7\n",
                "batch_size: 2\n" + three,
            ),
            (
                "classify",
                shapes + "gradient_accumulation_steps: 4 # all\nbatch_size: 7\n",
                "gradient_accumulation_steps: 3 # all\nbatch_size: 2\n",
            ),
        ):
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(before)
            os.chmod(path, 0o600)
            more = [*use, "tune.effective_batch=5"]
            out, _ = self.levin(["tune", "batch-size", recipe, f"config={path}", *more], OK)
            self.assertIn(
                "\nfor an effective batch of 5: accumulate_grad_batches=3, which makes 6\n", out
            )
            with open(path, encoding="utf-8", newline="") as f:
                text = f.read()
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.assertTrue(text.endswith(after), text)
            self.assertEqual(text[: -len(after)], before[: len(text) - len(after)])
        self.levin(["tune", "batch-size", *SHAPES, *use], USAGE, ["needs config=FILE"])
        for before, pieces in (
            ('{"data": "builtin:shapes",\n"batch_size": 7}\n', ["job.yaml:2: ", "JSON"]),
            ("{data: 'builtin:shapes'}\n", ["job.yaml: ", "JSON", "`batch_size_per_device`"]),
            (shapes + "batch_size:\n  7\n", ["job.yaml:3: ", "on the line of its key"]),
            (shapes + "accumulate_grad_batches:\n  7\n", ["job.yaml:3: ", "of its key"]),
            ("  data: builtin:shapes\n", ["job.yaml: ", "cannot be read any more"]),
        ):
            with open(path, "w", encoding="ascii") as f:
                f.write(before)
            self.levin(["tune", "batch-size", f"config={path}", *more], USAGE, pieces)
            with open(path, encoding="ascii") as f:
                self.assertEqual(f.read(), before)

    def test_found_size_trains_with_accumulation(self):
        env = self.sim("32MiB", 1)
        run = [*SHAPES, "data.count=400", "accelerator=sim", "devices=1"]
        size = self.tune("classify", *run, "tune.margin=0.15", env=env)["batch_size_per_device"]
        self.assertLess(size, 64)
        for count in (1, 2, 4):
            train = ["train", "classify", *run, "quiet=true", "max_epochs=1", "overwrite=true"]
            train += [f"batch_size_per_device={size}", f"accumulate_grad_batches={count}"]
            self.levin([*train, f"out={self.dir}/run"], OK, env=env)

    def test_sharded(self):
        few = [*SHAPES, "data.count=60", "tune.max_size=2", "strategy=sharded", "devices=2"]
        self.assertEqual(self.tune(*few, "accelerator=cpu")["batch_size_per_device"], 2)
        sim = [*few, "accelerator=sim"]
        expects = ["strategy=sharded: the optimizer's parts are updated on the CPU so far"]
        self.tune(*sim, code=FAILURE, env=self.sim("32MiB"), expects=expects)
        run = f"{self.dir}/run"
        train = ["train", "classify", *SHAPES, *sim[-3:], f"out={run}"]
        self.levin(train, FAILURE, expects, env=self.sim("32MiB"))
        self.assertFalse(os.path.exists(run))

    def test_errors(self):
        for arguments, piece in (
            (["batch-size", "model=nothing"], "model.name `nothing`"),
            (["batch-size", "data=nowhere"], "data=nowhere: No such file"),
            (["batch-size", *SHAPES, "resume=true", "out=x"], "resume=true: "),
            (["batch-size", *SHAPES, "tune.memory_limit=much"], "expected bytes, as in 512MiB"),
            (["colour"], "tune what? There is no finder colour"),
            ([], "tune what?"),
        ):
            self.levin(["tune", *arguments], USAGE, [piece])


if __name__ == "__main__":
    main(turns=3)
