"""Bad words: keys, values, YAML, batch plans. What a training refuses by its words alone is a row
of REFUSED.

usage: test_bad_arguments.py LEVIN [test names]
"""

import re

from case import Case, main, OK, photos, USAGE, write

OPTIMIZERS = "sgd, adam, adamw, lars, rmsprop, lion, lamb, adafactor"
# What a training with these words is refused with, before it has begun: pieces of the message.
REFUSED = [
    ("bach_size=3", "unknown key `bach_size`", "did you mean `batch_size`?", "command line"),
    ("optim.lrr=3", "unknown key `optim.lrr`", "did you mean `optim.lr`?"),
    ("lonely", "`lonely` is not understood", "key=value"),
    # types and ranges
    ("batch_size=many", "batch_size `many`", "whole number", "at least 1", "command line"),
    ("optim.lr=nan", "optim.lr `nan`", "expected a number"),
    ("val_split=1", "val_split `1`", "at least 0 and below 1"),
    ("optim=sdg", "optim.name `sdg`", OPTIMIZERS, "did you mean `sgd`?"),
    ("ema.decay=1", "ema.decay `1`", "at least 0 and below 1"),
    ("max_steps=0", "max_steps 0", "expected at least 1, or -1 for no limit", "command line"),
    ("precision=8", "precision", "32-true", "bf16-mixed", "16-mixed"),
    ("devices=0", "devices 0", "give at least 1"),
    ("devices=-2", "devices -2"),
    ("devices=banana", "devices banana"),
    # 2^32 + 1 must not become 1
    ("micro_batches=4294967297", "micro_batches `4294967297`", "from 1 to 2147483647"),
    ("group=4294967297", "group `4294967297`", "from 1 to 2147483647"),
    (
        "accumulate_grad_batches=4294967297",
        "accumulate_grad_batches 4294967297",
        "from 1 to 2147483647",
    ),
    ("max_epochs=4294967297", "max_epochs `4294967297`", "from -1 to 2147483647"),
    ("seed=99999999999999999999", "seed `99999999999999999999`", "whole number"),
    # ranks
    ("strategy=foo", "one of auto, single, dp, ddp, ddp2, sharded, balance  ("),
    (
        "num_nodes=2",
        "E119: 2 nodes are asked for, but this process was started alone",
        "found: num_nodes=2 (command line)",
        "fix: srun -N2 levin train ...",
        "fix: or on each node: levin launch --nnodes 2",
    ),
    # schedules
    (
        "scheduler=cosine max_epochs=-1 max_steps=-1",
        "scheduler=cosine",
        "has no end",
        "give max_epochs or max_steps",
    ),
    (
        "scheduler=cosine scheduler.warmup_steps=2",
        "scheduler.warmup_steps=2",
        "the run's 2 steps",
        "max_steps",
    ),
    (
        "scheduler=cosine max_epochs=1 max_steps=-1 scheduler.warmup_steps=9",
        "scheduler.warmup_steps=9",
        "the run's 2 steps",
    ),
    ("scheduler=multistep", "needs scheduler.milestones", "[30,60,80]"),
    (
        "scheduler=multistep scheduler.milestones=[3,2]",
        "scheduler.milestones [3,2]",
        "ascending order",
    ),
    ("scheduler.warmup_steps=1 scheduler.warmup_epochs=1", "give one of the two"),
    ("scheduler=onecycle scheduler.warmup_steps=1", "warms up by itself", "scheduler.pct_start"),
    (
        "scheduler=plateau scheduler.monitor=loss",
        "scheduler.monitor=loss is not val/NAME or train/NAME",
    ),
    (
        "scheduler=plateau scheduler.monitor=val/loss val_split=0",
        "scheduler.monitor=val/loss",
        "no validation set",
        "val_split=0.2",
        "train/loss",
    ),
    # optimizers
    ("optim.nesterov=true", "optim.nesterov=true", "not for optim=adamw"),
    ("optim=sgd optim.momentum=0 optim.nesterov=true", "needs optim.momentum above 0"),
    ("optim=rmsprop scheduler=onecycle", "moves the momentum, and optim.momentum is 0"),
    (
        "optim=adafactor scheduler=onecycle",
        "optim=adafactor has none",
        "scheduler.cycle_momentum=false",
    ),
    # groups of parameters
    ("freeze=haed", "freeze", "the pattern haed", "the nearest name is head"),
    ("freeze=*", "all 6 parameters are frozen"),
    ("lr_scale=[fc1=0.1,fc3=2]", "lr_scale", "the pattern fc3", "the nearest name is fc1"),
    ("lr_scale=fc1", "lr_scale: fc1 is not PATTERN=FACTOR"),
    # batches
    ("micro_batches=7", "batch_size 6", "7 micro-batches", "smallest that works: 7"),
    (
        "batch_size_per_device=4",
        "batch_size=6 and batch_size_per_device=4 disagree",
        "give one of them",
    ),
    ("micro_batches=4 group=3", "group=3", "4 micro-batches", "nearest that works: 2"),
    (
        "batch_size=40 drop_last=true",
        "drop_last=true",
        "effective batch of 40",
        "drop_last=false",
    ),
]
WITHOUT_EFFECT = [
    (
        "scheduler=cosine scheduler.milestones=[1]",
        "scheduler.milestones [1]",
        "scheduler.name=cosine",
        "it is for scheduler.name=multistep",
    ),
    (
        "scheduler.gamma=0.5",
        "scheduler.gamma 0.5",
        "scheduler.name=constant",
        "it is for scheduler.name=step or multistep",
    ),
    ("scheduler.step_size=3", "scheduler.step_size 3"),
    ("scheduler.interval=step", "scheduler.interval step"),
    ("scheduler.end_factor=0.5", "scheduler.end_factor 0.5", "cosine or linear"),
    (
        "optim=sgd optim.betas=[0.5,0.9]",
        "optim.betas [0.5,0.9]",
        "optim.name=sgd",
        "it is for optim.name=adam or adamw or lion or lamb",
    ),
    ("optim=sgd optim.eps=1e-3", "optim.eps 1e-3"),
    ("optim.alpha=0.9", "optim.alpha 0.9", "it is for optim.name=rmsprop"),
    ("optim.d=2", "optim.d 2", "it is for optim.name=adafactor"),
    ("optim=lion optim.centered=true", "optim.centered true"),
    ("optim=sgd optim.trust_coefficient=0.1", "it is for optim.name=lars"),
    ("optim.momentum=0.5", "optim.momentum 0.5", "optim.name=adamw", "sgd or lars or rmsprop"),
    (
        "optim=sgd optim.momentum=0 optim.dampening=0.5",
        "optim.dampening 0.5: this has no effect without optim.momentum",
    ),
    (
        "augment.jitter=0.5",
        "without one of augment.brightness, augment.contrast, augment.saturation, augment.hue",
    ),
    ("optim.weight_decay_schedule=linear", "without optim.weight_decay_end"),
    ("augment.blur_kernel=3", "without augment.blur"),
    ("augment.solarize_from=0.3", "without augment.solarize"),
    ("augment.solarize_from=0", "without augment.solarize"),
    ("augment.crop=false augment.scale=[0.2,1]", "augment.scale [0.2,1]", "without augment.crop"),
    (
        "data=builtin:shapes augment.ratio=[1,1]",
        "augment.ratio [1,1]",
        "without augment.crop=true",
    ),
    ("data.count=60", "data.count 60", "it is for data=builtin:shapes"),
]


class Words(Case):
    """What a person types."""

    def test_no_words(self):
        out, _ = self.levin([], USAGE, ["a command is missing", "levin COMMAND"])
        self.assertIn("levin train classify data=DIR", out)

    def test_unknown_command(self):
        self.levin(["trian"], USAGE, ["unknown command trian", "did you mean train?", "levin help"])
        for word, near in (("trane", "train"), ("evaluate", "eval"), ("chekpoint", "ckpt")):
            self.levin([word], USAGE, [f"unknown command {word}; did you mean {near}?"])
        for word, near in (("trane", "train"), ("chekpoint", "ckpt")):
            text = f"there is no help on {word}; did you mean {near}?"
            self.levin(["help", word], USAGE, [text])
        self.levin(["ckpt", "hsh", "X"], USAGE, ["no levin ckpt hsh; did you mean hash?", "usage:"])
        self.levin(["ckpt", "frobnicate"], USAGE, ["no levin ckpt frobnicate\n"])
        self.assertEqual(self.levin(["version"], OK), self.levin(["--version"], OK))
        self.levin(["frobnicate"], USAGE, ["unknown command frobnicate", "levin help"])

    def test_help_of_every_command(self):
        """`levin help` lists the commands; each has its help, by two ways, with a line of usage."""
        overview = self.levin(["help"], OK)[0]
        self.assertIn("levin pretrain, as every recipe, is levin train pretrain", overview)
        commands = sorted(
            {line.split()[1] for line in overview.splitlines() if line.startswith("  levin ")}
        )
        self.assertEqual(
            commands,
            [
                "cc",
                "ckpt",
                "completion",
                "data",
                "doctor",
                "eval",
                "export",
                "help",
                "launch",
                "ops",
                "plan",
                "predict",
                "report",
                "slurm",
                "sweep",
                "train",
                "tune",
            ],
        )
        for command in commands:
            reported = self.levin(["help", command], OK)[0]
            self.assertTrue(reported.startswith(f"usage: levin {command} "), reported)
            self.assertNotEqual(reported, overview)
            for arguments in ([command, "--help"], [command, "-h"], [command, "data=x", "--help"]):
                self.assertEqual(self.levin(arguments, OK)[0], reported)
        self.assertIn("All keys: levin help train.classify", self.levin(["help", "plan"], OK)[0])
        self.assertEqual(
            self.levin(["help", "train.classify"], OK)[0],
            self.levin(["train", "classify", "--help"], OK)[0],
        )
        # a name that one recipe alone has for a key of all
        text = self.levin(["help", "resume_interrupted"], OK)[0]
        self.assertIn("levin help train.pretrain\n  resume  ", text)
        self.levin(["help", "plann"], USAGE, ["there is no help on plann; did you mean plan?"])

    def test_unknown_recipe(self):
        self.levin(["train"], USAGE, ["which recipe?", "usage: levin train classify"])
        self.levin(
            ["train", "clasify"],
            USAGE,
            ["unknown recipe clasify", "did you mean classify?", "usage:"],
        )
        for argument in ("data=photos", "--epochs=3"):
            for command in (["train"], ["plan", "train"]):
                line = f"the recipe is missing: levin {' '.join(command)} classify {argument}"
                self.levin([*command, argument], USAGE, [line])
        for topic in ("eval", "predict", "train.classify"):
            self.levin(["help", topic, "zqxj"], USAGE, [f"`levin help {topic}`"])
        self.levin(["train", "frob"], USAGE, ["unknown recipe frob", "this version has classify"])
        self.levin(["train", "lm"], USAGE, ["the recipe lm comes with a later version"])
        self.levin(["plan", "tain"], USAGE, ["plan what?", "usage: levin plan train classify"])

    def test_what_is_refused(self):
        for words, *expects in REFUSED:
            with self.subTest(words):
                self.refused(words.split(), expects)

    def test_warmup_within_the_run(self):
        self.train("scheduler=cosine", "scheduler.warmup_steps=1")
        self.train("scheduler.warmup_steps=9", "overwrite=true")

    def test_the_metric_of_a_plateau(self):
        """One that nothing reports ends the run after the first epoch."""
        self.train(
            "scheduler=plateau",
            "scheduler.monitor=train/los",
            "max_epochs=1",
            "max_steps=-1",
            code=USAGE,
            expects=[
                "scheduler.monitor=train/los: the training of epoch 1 has no such metric",
                "did you mean `train/loss`?",
                "is saved, and a run resumed without a change",
            ],
        )

    def test_options_without_effect(self):
        """On the command line an error, in a file, which may serve several runs, a warning; values
        that are the default, or switch off, are neither."""
        for words, *expects in WITHOUT_EFFECT:
            with self.subTest(words):
                self.refused(words.split(), [*expects, "has no effect", "(command line)"])
        self.train(
            "optim.momentum=0.9", "scheduler.gamma=0.1", "augment.hue=0.1", "augment.jitter=0.5"
        )
        self.train(
            "optim.weight_decay_schedule=linear", "optim.weight_decay_end=0", "overwrite=true"
        )
        _, reported = self.train(
            "optim.momentum=0",
            "weight_decay=0",
            "optim.decay_norm_bias=false",
            "ema.warmup=false",
            "use_ema=false",
            "augment.jitter=0",
            "augment.blur_kernel=0",
            "scheduler.end_factor=0",
            "scheduler.milestones=[]",
            "overwrite=true",
        )
        self.assertNotIn("no effect", reported)
        write(f"{self.dir}/job.yaml", b"scheduler.gamma: 0.5\noptim:\n  eps: 0.001\n")
        _, reported = self.train(f"config={self.dir}/job.yaml", "overwrite=true")
        self.assertIn(
            "warning: scheduler.gamma 0.5: this has no effect with scheduler.name=constant",
            reported,
        )
        self.assertIn("job.yaml:1)", reported)
        self.assertNotIn("optim.eps", reported)
        _, reported = self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=3"], OK
        )
        self.assertNotIn("no effect", reported)
        self.train("scheduler=step", f"config={self.dir}/job.yaml", "overwrite=true")
        _, reported = self.train(
            "~scheduler.gamma", f"config={self.dir}/job.yaml", "overwrite=true"
        )
        self.assertNotIn("no effect", reported)

    def test_a_validation_part_of_its_own(self):
        for part in ("train", "val"):
            photos(f"{self.dir}/parts/{part}")
        self.refused(
            [f"data={self.dir}/parts", "val_split=0"],
            ["val_split 0: this has no effect on data with a validation part of its own"],
        )
        self.train("val_split=0.2", data=f"{self.dir}/parts")

    def test_a_micro_batch_that_batch_norm_cannot_do(self):
        """21 images in steps of 4 leave a step of one, and resnet18 has one value per channel of 32
        pixels: reported before the run is there."""
        arguments = [
            "data=builtin:shapes",
            "data.count=21",
            "val_split=0",
            "model=resnet18",
            "image_size=32",
            "batch_size=4",
            "max_steps=-1",
            "max_epochs=1",
        ]
        expects = [
            "the last step of an epoch has 1 sample in 1 micro-batch (21 samples in steps of 4)",
            "batch norm needs more than one value",
            "drop_last=true",
        ]
        self.refused(arguments, expects)
        self.levin(["plan", *self.arguments(self.photos, self.out), *arguments], USAGE, expects)
        self.refused(
            [*arguments, "micro_batches=4"], ["the network cannot take a micro-batch of 1 sample"]
        )
        for fits in ("drop_last=true", "max_steps=5", "image_size=64", "data.count=24"):
            self.levin(["plan", *self.arguments(self.photos, self.out), *arguments, fits], OK)

    def test_a_group_that_batch_norm_cannot_do(self):
        """With sync_batchnorm micro-batches of one sample do, unless one is alone in its group, on
        whatever rank that is."""
        arguments = [
            "data=builtin:shapes",
            "val_split=0",
            "model=resnet18",
            "image_size=32",
            "sync_batchnorm=true",
            "micro_batches=4",
            "batch_size=4",
            "max_steps=-1",
            "max_epochs=1",
        ]
        last = "the last step of an epoch has %d sample%s in 4 micro-batches (%d samples in steps"
        alone = [(21, 1, "", "group=4"), (23, 3, "s", "group=2"), (22, 2, "s", "group=1")]
        for count, left, plural, group in alone:
            expects = [last % (left, plural, count), "batch norm needs more than one value"]
            how = [*arguments, f"data.count={count}", group]
            if group == "group=1":  # nor does any full step
                expects = ["the network cannot take a micro-batch of 1 sample"]
            self.refused(how, expects)
            self.refused([*how, "devices=4"], expects)
            self.levin(["plan", *self.arguments(self.photos, self.out), *how], USAGE, expects)
        for fits in ("data.count=22", "data.count=24", "drop_last=true", "max_steps=5"):
            how = [*arguments, "group=4", "data.count=21", fits]
            self.levin(["plan", *self.arguments(self.photos, self.out), *how], OK)

    def test_more_samples_than_can_be_divided(self):
        """At once, and not by the kernel minutes later."""
        with open("/proc/meminfo") as f:
            has = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))
        if has > 130 << 30:
            self.skipTest("there is memory for 2^32 - 1 samples")
        self.refused(
            ["data=builtin:shapes", "data.count=4294967295"],
            [
                "dividing 4294967295 samples into training and validation takes 132.0 GiB",
                "use fewer (data.count)",
            ],
        )

    def test_more_memory_than_there_is(self):
        """Reported by the plan, before the system kills the run. 1024 images at once take about 100
        GiB, and 400000 of 512 x 512 are 1172 GiB themselves."""
        arguments = [
            "data=builtin:shapes",
            "data.count=4096",
            "val_split=0",
            "model=resnet50",
            "image_size=224",
            "lanes=1",
            "micro_batches=1",
        ]
        with open("/proc/meminfo") as f:
            has = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))
        plan = ["plan", "train", "classify", *arguments]
        if has < 80 << 30:
            self.levin(
                [*plan, "batch_size=1024"],
                OK,
                [
                    "warning: the run takes about",
                    "GiB are available to it here",
                    "a smaller batch_size or image_size",
                    "here it begins with memory_check=warn alone",
                ],
            )
        self.assertNotIn("are available", self.levin([*plan, "batch_size=1"], OK)[1])
        advice = "a smaller batch_size or image_size, or more micro-batches"
        self.refused(
            [*arguments, "data.count=400000", "image_size=512", "batch_size=400000"],
            [
                "400000 samples at once take more memory",
                "the samples alone are 1171.88 GiB",
                advice,
            ],
        )

    def test_long_runs_have_no_exponent(self):
        arguments = [
            "plan",
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            "model=mlp",
            "image_size=16",
            "val_split=0",
            "batch_size=6",
        ]
        for length, line in (
            ("max_epochs=20000", "the run: 200000 steps, 20000 epochs\n"),
            ("max_steps=5", "the run: 5 steps, 0.5 epochs\n"),
        ):
            self.assertIn(line, self.levin([*arguments, length], OK)[0])

    def test_groups_of_parameters(self):
        given = ["freeze=[fc1,*.bias]", "lr_scale=[head=10,fc2.*=0.5]"]
        printed, _ = self.train(*given, "optim=lars", "optim.decay_norm_bias=false")
        trained = r"model mlp: (\d+) parameters in 6 tensors, (\d+) of them trained \(freeze\)"
        self.assertRegex(printed, trained + ", seed 0")
        planned, _ = self.levin(["plan", *self.arguments(self.photos, f"{self.dir}/p", *given)], OK)
        found = re.search(trained, planned).groups()
        self.assertEqual(found, re.search(trained, printed).groups())
        self.assertLess(int(found[1]), int(found[0]) / 2)
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=3"], OK
        )  # patterns with stars come back from config.yaml

    def test_momentum_that_an_optimizer_has_not_by_itself(self):
        """rmsprop has none unless it is given, adafactor never: there is nothing to move."""
        self.train("optim=rmsprop", "scheduler=onecycle", "optim.momentum=0.8")
        other = ["optim=adafactor", "scheduler=onecycle", "scheduler.cycle_momentum=false"]
        self.train(*other, "overwrite=true")

    def test_settings_that_would_do_nothing(self):
        self.train(
            "freeze=[*.bias]",
            "freeze_until=[fc1.bias=1,fc1.weight=2epochs]",
            expects=[
                "freeze= and freeze_until= both name fc1.bias",
                "fc1.weight stays frozen in all of the run's 2 steps",
            ],
        )

    def test_yaml(self):
        def reported(text, *expects):
            write(f"{self.dir}/job.yaml", text)
            self.refused([f"config={self.dir}/job.yaml"], expects)

        reported(
            b"batch_size: 4\nbach_size: 3\n",
            "unknown key `bach_size`",
            "did you mean `batch_size`?",
            "job.yaml:2",
        )
        reported(b"optim:\n  lr: fast\n", "optim.lr `fast`", "expected a number", "job.yaml:2")
        reported(b"seed: 1\n\tx: 1\n", "job.yaml:2:1", "tab character")
        reported(b"batch_size: 4\nbatch_size: 8\n", "job.yaml:2", "`batch_size` stands twice")
        reported(b"seed: [1,\n", "job.yaml:")
        reported(b"\0\1\2", "job.yaml")
        self.refused([f"config={self.dir}/none.yaml"], ["none.yaml", "No such file"])


if __name__ == "__main__":
    main()
