"""What people bring from other trainers: keys, values, empty paths, bare folders and scripts.

usage: test_foreign_arguments.py LEVIN [test names]
"""

import os
import re
import subprocess

from case import Case, LEVIN, main, OK, read, USAGE, write

SHAPES = ["data=builtin:shapes", "data.count=60", "model=mlp", "image_size=16"]


class Keys(Case):
    def test_ranks_report_a_note_once(self):
        """The process that starts them has read the same arguments; train.log has it, too."""
        use = ["data=builtin:shapes", "data.count=40", "image_size=12", "model=mlp", "max_steps=1"]
        for ranks in (1, 2):
            out = f"{self.dir}/noted{ranks}"
            line = ["train", "classify", *use, f"devices={ranks}", f"out={out}"]
            printed = self.levin([*line, "accelerator=cpu", "progress_bar_refresh_rate=3"], OK)
            text = "note: progress_bar_refresh_rate has no effect: "
            self.assertEqual("".join(printed).count(text), 1, printed)
            self.assertEqual(read(f"{out}/train.log").decode().count(text), 1)

    def plan(self, arguments, code=OK, expects=()):
        return self.levin(["plan", "train", "classify", *SHAPES, *arguments], code, expects)

    def test_names_of_other_trainers_work(self):
        """The same run under both names."""
        for theirs, ours in (
            (["--epochs", "3"], ["max_epochs=3"]),
            (["-b", "8"], ["batch_size=8"]),
            (["-b8"], ["batch_size=8"]),
            (["--batch-size=8"], ["batch_size=8"]),
            (
                ["optimizer=SGD", "wd=0.1", "--lr=0.1"],
                ["optim.name=sgd", "optim.weight_decay=0.1", "optim.lr=0.1"],
            ),
            (["validation_split=0.5"], ["val_split=0.5"]),
            (["--grad-accum-steps", "2"], ["accumulate_grad_batches=2"]),
            (
                ["-j", "0", "precision=16", "device=cpu"],
                ["num_workers=0", "precision=16-mixed", "accelerator=cpu"],
            ),
        ):
            self.assertEqual(self.plan(theirs)[0], self.plan(ours)[0])
        write(f"{self.dir}/job.yaml", b"epochs: 3\noptimizer: sgd\n")
        self.assertEqual(
            self.plan([f"config={self.dir}/job.yaml"])[0],
            self.plan(["max_epochs=3", "optim=sgd"])[0],
        )
        self.plan(["wd=0.1", "weight_decay=0.2"], USAGE, ["two names of `optim.weight_decay`"])

    def test_the_tables_of_the_docs(self):
        """Those of five multi-GPU guides: each is the key that stands beside it, or answered."""
        here = os.path.dirname(os.path.abspath(__file__))
        with open(f"{here}/../../docs/arguments.md", encoding="utf-8") as f:
            lines = [line for line in f if line.startswith("|")]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        same = [row[:2] for row in rows if len(row) == 3 and row[0].startswith("`")]
        answered = [row for row in rows if len(row) == 2 and row[0].startswith("`")]
        noted = [row[:1] + row[1:2] for row in rows if len(row) == 4 and row[0].startswith("`")]
        self.assertGreater(len(same), 15)
        self.assertGreater(len(answered), 15)
        for theirs, ours in same:
            with self.subTest(theirs):
                plans = [self.plan([argument.strip("`")])[0] for argument in (theirs, ours)]
                self.assertEqual(*plans)
        for argument, answer in answered:
            with self.subTest(argument):
                self.plan([argument.strip("`")], USAGE, ["is not in this version: ", answer])
        self.assertGreater(len(noted), 5)
        plain = self.plan([])[0]
        for argument, answer in noted:
            with self.subTest(argument):
                key = argument.strip("`").split("=")[0]
                out, err = self.plan([argument.strip("`")])
                self.assertEqual(out, plain)
                self.assertIn(f"note: {key} has no effect: ", err)
                self.assertIn(answer, err)

    def test_notes(self):
        """Keys without an effect, in every form; a switch that asks for more is a mistake."""
        plain = self.plan([])[0]
        for arguments in (
            ["--benchmark", "True"],
            ["--benchmark", "seed=0"],
            ["--benchmark"],
            ["auto_lr_find=False", "auto_scale_batch_size=None", "tpu_cores=None"],
            ["stochastic_weight_avg=off", "callbacks=NULL", "resume_from_checkpoint=None"],
            ["save_last=yes", "shuffle=True", "amp=no", "tensorboard=0"],
            ["deterministic=false"],
            ["--deterministic=None"],
        ):
            self.assertEqual(self.plan(arguments)[0], plain, arguments)
        noted = "note: deterministic=no has no effect: a run is always deterministic"
        self.assertIn(noted, self.plan(["deterministic=no"])[1])
        self.assertNotIn("note: ", self.plan(["deterministic=yes"])[1])
        text = "benchmark: true\nwandb:\n  project: x\n  tags: [a, {b: c}]\nseed: 0\n"
        write(f"{self.dir}/job.yaml", text.encode())
        out, err = self.plan([f"config={self.dir}/job.yaml"])
        self.assertEqual(out, plain)
        self.assertIn("note: wandb has no effect: ", err)
        for key in ("amp", "resume_from_checkpoint", "swa_lrs"):  # no advice to use it
            err = self.plan([f"{key}=0"])[1]
            self.assertIn(f"note: {key} has no effect: it is off already; leave it out  (", err)
        for argument in ("shuffle=False", "save_last=no", "auto_lr_find=True", "tpu_cores=8"):
            self.plan([argument], USAGE, ["is not in this version: "])

    def test_truth_has_many_spellings(self):
        on = {"logger": "tensorboard", "drop_last": "true"}
        off = {"logger": "none", "drop_last": "false", "cuda_graph": "off", "profiler": "none"}
        for keys, spellings in ((on, "True yes On"), (off, "False no OFF")):
            out = [f"out={self.out}"]  # logger has no effect without
            want = self.plan([*out, *(f"{key}={value}" for key, value in keys.items())])[0]
            for text in spellings.split():
                write(f"{self.dir}/job.yaml", "".join(f"{k}: {text}\n" for k in keys).encode())
                self.assertEqual(self.plan([*out, *(f"{key}={text}" for key in keys)])[0], want)
                self.assertEqual(self.plan([f"config={self.dir}/job.yaml"])[0], want)
        short = self.plan(["fast_dev_run=1"])[0]
        for text in ("True", "yes"):
            self.assertEqual(self.plan([f"fast_dev_run={text}"])[0], short)
        nothing = ["class_weights=None", "devices=None", "strategy=None"]
        arguments = ["fast_dev_run=OFF", "profiler=False", *nothing]
        self.assertEqual(self.plan(arguments)[0], self.plan([])[0])

    def test_names_of_networks(self):
        for theirs, ours in (
            ("torchvision/resnet18", "resnet18"),
            ("timm/resnet34.a1_in1k", "resnet34"),
            ("timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", "vit_tiny_patch16_224"),
        ):
            same = (self.plan([f"model={name}", "image_size=32"])[0] for name in (theirs, ours))
            self.assertEqual(*same)
        self.plan(["model=timm/resnet200"], USAGE, ["expected one of cnn, mlp, resnet18"])
        shape = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 32, 32, 3), }"
        head = b"\x93NUMPY\x01\x00\x76\x00" + shape.ljust(117).encode() + b"\n"
        write(f"{self.dir}/x.npy", head + bytes(32 * 32 * 3))
        predict = ["predict", f"weights={self.dir}/none.pth", f"data={self.dir}/x.npy"]
        self.levin([*predict, "model=timm/resnet18", "output=-"], 1, ["none.pth: cannot open"])
        self.levin([*predict, "model=timm/resnet200", "output=-"], USAGE, ["it names a network"])

    def test_a_batch_per_device_or_of_all(self):
        for arguments, noted in (
            (["gpus=2", "num_nodes=2", "batch_size=8"], True),
            (["num_nodes=2", "batch_size=8"], True),
            (["gpus=0", "batch_size=8"], False),
            (["devices=2", "batch_size=8"], False),
            (["gpus=2", "batch_size_per_device=4"], False),
        ):
            reported = self.plan(["accelerator=cpu", *arguments], None)[1]
            self.assertEqual("batch_size_per_device=8" in reported, noted, reported)
        for argument in ("batch_size=auto", "bs=Auto"):
            self.plan([argument], USAGE, ["levin tune batch-size with the same arguments"])

    def test_an_early_end_without_a_metric(self):
        def watched(*arguments, file=""):
            write(f"{self.dir}/job.yaml", file.encode() or b"seed: 0\n")
            run = ["train", "classify", *SHAPES, "max_epochs=1", "overwrite=true", "quiet=true"]
            self.levin([*run, f"config={self.dir}/job.yaml", f"out={self.out}", *arguments], OK)
            with open(f"{self.out}/config.yaml", encoding="utf-8") as f:
                lines = dict(line.strip().split(": ", 1) for line in f if ": " in line)
            keys = ("early_stopping.monitor", "early_stopping.patience", "checkpoint.monitor")
            return [lines.get(key, "null") for key in keys]

        self.assertEqual(watched("early_stopping=True"), ["val/loss", "3", "null"])
        self.assertEqual(watched(file="early_stopping: yes\npatience: 0\n")[:2], ["val/loss", "0"])
        self.assertEqual(watched("patience=3"), ["val/loss", "3", "null"])
        self.assertEqual(watched("early_stop_callback=False"), ["null", "3", "null"])
        self.assertEqual(watched(file="early_stopping.patience: 3\n"), ["null", "3", "null"])
        self.assertEqual(watched("checkpoint.monitor=val_loss")[2], "val/loss")
        self.assertEqual(watched("early_stopping.monitor=train_acc")[0], "train/acc")

    def test_names_of_the_tables_in_other_forms(self):
        for theirs, ours in (
            ("training.num_gpus=0", "accelerator=cpu"),
            ("n_gpus=0", "accelerator=cpu"),
            ("nb_nodes=1", "num_nodes=1"),
            ("training.train_batch_size=8", "batch_size=8"),
            ("optim_args.lr=0.1", "optim.lr=0.1"),
            ("use_amp=False", "precision=32-true"),
            ("use_amp=True", "precision=16-mixed"),
            ("amp_level=O0", "precision=32-true"),
            ("amp_level='O1'", "precision=16-mixed"),
            ("amp_level=O3", "precision=16-mixed"),
            ("layer_decay=0.7", "optim.layer_decay=0.7"),
            ("every_n_train_steps=7", "checkpoint.every_n_steps=7"),
        ):
            self.assertEqual(*(self.plan([argument])[0] for argument in (theirs, ours)), theirs)
        for theirs, ours in (
            ("strategy=ddp_find_unused_parameters_false", "strategy=ddp"),
            ("strategy=deepspeed_stage_2", "strategy=sharded"),
        ):
            plans = (self.plan([argument, "devices=2"])[0] for argument in (theirs, ours))
            self.assertEqual(*plans, theirs)

    def test_a_level_beside_the_switch_has_no_effect(self):
        """As the guide has it: Trainer(amp_level='O2', use_amp=False)."""
        off, on = (self.plan([f"precision={p}"])[0] for p in ("32-true", "16-mixed"))
        self.assertNotEqual(off, on)
        for switch, plan in (("false", off), ("true", on)):
            for level in ("O0", "O2"):
                both = [f"amp_level={level}", f"use_amp={switch}"]
                self.assertEqual(self.plan(both)[0], plan)
                self.assertEqual(self.plan(both[::-1])[0], plan)
                write(f"{self.dir}/job.yaml", "\n".join(both).replace("=", ": ").encode())
                self.assertEqual(self.plan([f"config={self.dir}/job.yaml"])[0], plan)
        self.plan(["amp_level=O4"], USAGE, ["expected O0, O1, O2 or O3"])
        self.plan(["use_amp=true", "amp_level=O4"], USAGE, ["expected O0, O1, O2 or O3"])
        self.plan(["use_amp=maybe"], USAGE, ["expected true or false"])
        self.plan(["use_amp=true", "precision=32-true"], USAGE, ["two names of `precision`"])

    def test_ids_of_devices_are_a_list(self):
        """gpu=1 is the second device and not one device, gpu=0 not the CPU."""
        sim = {"LEVIN_SIM_DEVICES": "2"}
        run = ["train", "classify", *SHAPES, "accelerator=sim", "max_steps=1", "fast_dev_run=true"]
        for argument, device in (("gpu=0", 0), ("gpu=1", 1), ("gpu_ids=[1]", 1)):
            self.levin([*run, argument], OK, [f"device: sim:{device},"], env=sim)
        self.levin([*run, "gpu_ids=2"], USAGE, ["gpu_ids [2]: there is no device 2"], env=sim)
        self.levin([*run, "gpu_ids=-1"], USAGE, ["-1 is not the index"], env=sim)

    def test_an_interval_that_is_steps_or_epochs(self):
        for argument in ("val_interval=1", "--val-every=1", "eval_interval=1"):
            self.plan([argument], USAGE, ["check_val_every_n_epoch=N", "val_check_interval=N"])

    def test_a_file_with_all_its_keys(self):
        """As Lightning writes one: null is what was not given."""
        text = "".join(
            f"{key}: null\n"
            for key in "max_time limit_train_batches limit_val_batches max_epochs precision "
            "accumulate_grad_batches log_every_n_steps callbacks plugins amp_level profiler "
            "val_check_interval gradient_clip_val accelerator strategy devices".split()
        )
        write(f"{self.dir}/job.yaml", (text + "detect_anomaly: ~\n").encode())
        config = f"config={self.dir}/job.yaml"
        self.assertEqual(self.plan([config])[0], self.plan([])[0])
        write(f"{self.dir}/job.yaml", b"max_epochs: 'null'\n")
        self.plan([config], USAGE, ["max_epochs"])
        write(f"{self.dir}/job.yaml", b"limit_train_batchs: null\n")
        self.plan([config], USAGE, ["did you mean `limit_train_batches`?"])
        write(f"{self.dir}/job.yaml", text.replace("null", "None").encode())
        self.assertEqual(self.plan([config])[0], self.plan([])[0])
        arguments = text.replace(": null", "=None").split("\n")[:-1]
        self.assertEqual(self.plan(arguments)[0], self.plan([])[0])

    def test_a_map_of_accumulation(self):
        config, line = f"config={self.dir}/job.yaml", ["accumulate_grad_batches=0:8,4:4"]
        for text in ("{0: 8, 4: 4}", "{'0': 8,'4': 4}", '{"0":8,"4":4}'):
            self.assertEqual(
                self.plan([f"accumulate_grad_batches={text}"])[0], self.plan(line)[0], text
            )
        self.assertEqual(
            self.plan(["--grad-accum-steps", "{0: 8, 4: 4}"])[0], self.plan(line)[0]
        )
        for text in (
            "accumulate_grad_batches: {0: 8, 4: 4}\n",
            "accumulate_grad_batches:\n  0: 8\n  4: 4\n",
            "grad_accum_steps: {0: 8, 4: 4}\n",
        ):
            write(f"{self.dir}/job.yaml", text.encode())
            self.assertEqual(self.plan([config])[0], self.plan(line)[0], text)
        for text, expects in (
            ("accumulate_grad_batches: {4: 8, 0: 4}\n", "accumulate_grad_batches"),
            ("accumulate_grad_batches: {0: [1]}\n", "this map holds plain values only"),
            ("accumulate_grad_batches: {}\n", "accumulate_grad_batches"),
            ("seed: {0: 1}\n", "seed: expected a value, not a map"),
        ):
            write(f"{self.dir}/job.yaml", text.encode())
            self.plan([config], USAGE, [expects])

    def test_sections_of_another_program(self):
        """Each is one mistake with the keys of here, beside the file's others."""
        write(
            f"{self.dir}/job.yaml",
            b"optimizer:\n  lr: 0.1\n  weight_decay: {a: [1, {b: 2}]}\n  own: 3\n"
            b"seed: few\ntrainer: {max_epochs: 2, devices: 1}\nfoo:\n  bar: 1\n",
        )
        _, err = self.plan(
            [f"config={self.dir}/job.yaml", "batchsz=3"],
            USAGE,
            [
                "5 mistakes:\n",
                "`optimizer` is not a section here: give its keys as optim.lr, "
                f"optim.weight_decay  ({self.dir}/job.yaml:2)\n",
                "seed `few`",
                "`trainer` is not a section here: give its keys as max_epochs, devices  (",
                "unknown key `foo`",
                "batchsz",
            ],
        )
        self.assertNotIn("did you mean `optimizer`", err)

    def test_patience_alone(self):
        """It is of val/loss, except where scheduler=plateau has one of its own."""
        self.plan(
            ["patience=3", "scheduler=plateau"],
            USAGE,
            ["give scheduler.patience for that, or early_stopping.monitor=val/loss as well"],
        )
        self.plan(["patience=3", "val_split=0"], USAGE, ["early_stopping.monitor=val/loss"])
        self.plan(["patience=3", "early_stopping.monitor=val/loss"])

    def test_what_is_not_here_reports_what_is(self):
        for argument, expects in (
            ("amp=true", "use precision=bf16-mixed or precision=16-mixed"),
            ("--amp", "use precision"),
            ("strategy=fsdp", "use strategy=sharded"),
            ("strategy=ddp_cpu", "use strategy=ddp"),
            ("strategy=deepspeed_stage_3", "use strategy=sharded"),
            ("precision=fp16", "use precision=16-mixed"),
            ("accelerator=tpu", "use accelerator=cpu"),
            ("accelerator=cuda:0", "use accelerator=gpu devices=[0], the numbers"),
            ("min_lr=1e-5", "scheduler.end_factor=F"),
            ("device=0", "use accelerator=gpu devices=[0]"),
            ("device=1,2", "use accelerator=gpu devices=[1,2]"),
            ("accelerator=cuda:x", "use accelerator=gpu devices=[N]"),
            ("plateau=true", "use scheduler.name=plateau with scheduler.monitor=val/loss"),
            ("lr_noise=1", "exponential, polynomial, restarts, onecycle, plateau"),
            ("save_weights_only=true", "levin export model=RUN writes the weights alone"),
            ("checkpoint.dirpath=x", "checkpoints stand in DIR/checkpoints"),
            ("train_time_interval=1h", "use checkpoint.every_n_minutes=30"),
            ("save_last=false", "the last and the best checkpoint are kept"),
            ("monitor=val/loss", "use checkpoint.monitor=val/loss for the best checkpoint"),
            ("naflex_loader=1", "images have one size, image_size"),
            ("val_split=validation", "is found by its name"),
        ):
            self.plan([argument], USAGE, ["is not in this version: ", expects, "(command line)"])
        write(f"{self.dir}/job.yaml", b"seed: 1\ncallbacks: early\n")
        self.plan(
            [f"config={self.dir}/job.yaml"],
            USAGE,
            ["`callbacks` is not in this version", "job.yaml:2"],
        )

    def test_patterns_in_a_hint_name_parameters(self):
        """What the answer proposes is taken as it stands, by the network that it is about."""
        for argument in ("layer_decay_min_scale=0.7", "freeze_backbone=true"):
            reported = self.plan([argument], USAGE, ["is not in this version: "])[1]
            proposed = re.search(r" (\S+=(?:\[\S+\]|backbone))", reported).group(1)
            self.plan([proposed, "model=resnet18"])

    def test_meaning_before_spelling(self):
        for argument, expects in (
            ("optimzer=sgd", "did you mean `optimizer` (optim.name)?"),
            ("optimizer.lr=1", "did you mean `optim.lr`?"),
            ("trainer.max_epochs=3", "did you mean `max_epochs`?"),
            ("bachsize=3", "did you mean `batch_size`?"),
            (
                "timeout_minuts=1",
                "did you mean `timeout_minutes`? It is not in this version: use max_time=90m",
            ),
            ("model=resnet-18", "did you mean `resnet18`?"),
        ):
            self.plan([argument], USAGE, [expects])
        for model in ("resnet200", "vit_b_32", "resnet34d2"):
            reported = self.plan(
                [f"model={model}"],
                USAGE,
                ["expected one of cnn, mlp, resnet18, resnet34, resnet50"],
            )[1]
            self.assertNotIn("did you mean", reported)

    def test_empty_paths(self):
        """Every row that is a path, in every command, by every way: $UNSET is not another run."""
        commands = {
            "train.classify": ["plan", "train", "classify"],
            "predict": ["predict"],
            "eval": ["eval"],
            "export": ["export"],
            "launch": ["launch"],
        }
        behind = {"launch": ["--", "true"]}
        for topic, command in commands.items():
            paths = [
                line.split()[0]
                for line in self.levin(["help", topic], OK)[0].splitlines()
                if line.startswith("  ") and line.split()[1:2] == ["path,"]
            ]
            self.assertTrue(paths)
            for key in paths:
                for arguments in ([f"{key}="], [f"--{key}", ""], [f"{key}=''"], [f"{key}=  "]):
                    if key != "config" or arguments[-1] in ("config=", ""):
                        self.levin(
                            [*command, *arguments, *behind.get(topic, [])],
                            USAGE,
                            [f"`{key}`: the path is empty"],
                        )
            texts = ["''", '""', "  ", ""]
            for key, text in zip(paths, texts):
                write(f"{self.dir}/job.yaml", f"{key}: {text}\n".encode())
                if key != "config":
                    self.levin(
                        [*command, f"config={self.dir}/job.yaml", *behind.get(topic, [])],
                        USAGE,
                        [f"`{key}`: the path is empty", "job.yaml:1"],
                    )
        write(f"{self.dir}/job.yaml", b"weights: null\n")
        self.plan([f"config={self.dir}/job.yaml", "out=null"])


class Lines(Case):
    """A path without its key gets the line that works, copied into a shell."""

    def is_refused(self, arguments, expects):
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=self.dir,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual(done.returncode, USAGE)
        self.assertIn(expects, done.stderr)

    def setUp(self):
        super().setUp()
        for name in (
            "photos/a/1.png",
            "photos/b/1.png",
            "my 'best' photos/a/1.png",
            "run/checkpoints/last.safetensors",
            "run/config.yaml",
            "alone.safetensors",
            "train.py",
            "job.yaml",
            "x.npy",
            "esc\x1b[31m/a/1.png",
        ):
            write(f"{self.dir}/{name}", b"")

    def line(self, *arguments):
        """The line that the error shows; run by a shell it must fail otherwise, or not at all."""
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=self.dir,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""), done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        line = done.stderr.strip().partition(": levin ")[2]
        again = subprocess.run(
            ["bash", "-c", f"'{LEVIN}' {line} --probe"],
            cwd=self.dir,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertNotIn("has no key", again.stderr)
        self.assertNotIn("is not a switch", again.stderr)
        if not line.startswith("launch"):  # all words in front of it were taken
            taken = "unknown key `probe`|in reading the model alone.safetensors"
            self.assertRegex(again.stderr, taken, done.stderr)
        return line

    def test_folders_files_and_scripts(self):
        for arguments, line in (
            (["train", "classify", "photos"], "train classify data=photos"),
            (["train", "photos", "epochs=3"], "train classify data=photos epochs=3"),
            (
                ["train", "classify", "--epochs", "3", "my 'best' photos", "out=a b"],
                r"train classify --epochs 3 'data=my '\''best'\'' photos' 'out=a b'",
            ),
            (["plan", "train", "classify", "photos"], "plan train classify data=photos"),
            (["train", "classify", "job.yaml"], "train classify config=job.yaml"),
            (["train", "classify", "run"], "train classify out=run resume=true"),
            (
                ["train", "classify", "alone.safetensors"],
                "train classify weights=alone.safetensors",
            ),
            (["train", "train.py", "--lr", "0.1"], "launch train.py --lr 0.1"),
            (["train", "classify", "train.py", "a b"], "launch train.py 'a b'"),
            (["train.py"], "launch train.py"),
            (["predict", "run", "photos"], "predict model=run data=photos"),
            (["predict", "x.npy"], "predict data=x.npy"),
            (["eval", "photos", "model=run"], "eval data=photos model=run"),
            (["export", "run"], "export model=run"),
            (["export", "alone.safetensors"], "export model=alone.safetensors"),
            (["train", "classify", "esc\x1b[31m"], r"train classify $'data=esc\x1b[31m'"),
        ):
            self.assertEqual(self.line(*arguments), line)

    def test_resume_with_a_path(self):
        for arguments, line in (
            (["resume=run"], "out=run resume=true"),
            (["--resume", "run", "epochs=4"], "out=run resume=true epochs=4"),
            (["resume=run/"], "out=run/ resume=true"),
            (["out=other", "--resume=run/checkpoints/last.safetensors"], "out=run resume=true"),
            (["resume=alone.safetensors", "data=photos"], "weights=alone.safetensors data=photos"),
        ):
            self.assertEqual(self.line("train", "classify", *arguments), f"train classify {line}")
        self.levin(
            ["train", "classify", "resume=nowhere"],
            USAGE,
            ["resume `nowhere`", "use resume=true with out=DIR"],
        )
        write(f"{self.dir}/resume.yaml", b"resume: run\n")
        self.levin(
            ["train", "classify", f"config={self.dir}/resume.yaml"],
            USAGE,
            ["use resume=true with out=DIR", "resume.yaml:1"],
        )

    def test_what_a_space_has_parted(self):
        """Around =, and in a value without quotes."""
        train = ["train", "classify"]
        mine = r"train classify 'data=my '\''best'\'' photos'"
        for arguments, line in (
            ([*train, "data", "=", "photos", "epochs=3"], "train classify data=photos epochs=3"),
            ([*train, "data", "=photos"], "train classify data=photos"),
            ([*train, "data=", "photos"], "train classify data=photos"),
            ([*train, "data", "photos"], "train classify data=photos"),
            ([*train, "data", "=", "photos", "lr", "=", "1"], "train classify data=photos lr=1"),
            ([*train, "data=photos", "optim.lr=", "1"], "train classify data=photos optim.lr=1"),
            ([*train, "data=my", "'best'", "photos"], mine),
            ([*train, "data", "=", "my", "'best'", "photos"], mine),
            ([*train, "--data", "my", "'best'", "photos", "lr=1"], None),
            ([*train, "data=no", "such", "photos"], "train classify 'data=no such photos'"),
            ([*train, "data=photos", "out=my", "dir"], "train classify data=photos 'out=my dir'"),
            (["predict", "data=a", "b", "model=run"], "predict 'data=a b' model=run"),
            (["eval", "model=run", "data=no", "photos"], "eval model=run 'data=no photos'"),
            (["plan", *train, "data=a", "b"], "plan train classify 'data=a b'"),
        ):
            shown = self.line(*arguments)
            if line is not None:
                self.assertEqual(shown, line, arguments)
        for arguments, expects in (
            (["data", "=", "photos"], "`data` is not key=value, with no spaces around =: levin"),
            (["data=a", "b"], "`b` is behind a space, and a value with spaces needs quotes: levin"),
            (["data=photos", "model=cnn", "x"], "`x` is not understood"),
            (["data=photos", "x"], "`x` is not understood"),
            (["data=photos", "max_epochs"], "`max_epochs` has no value: max_epochs=VALUE, with no"),
        ):
            self.is_refused([*train, *arguments], expects)

    def test_what_is_no_path_is_an_error_as_before(self):
        for arguments, expects in (
            (["train", "classify", "nothere"], "`nothere` is not understood"),
            (["train", "nothere"], "unknown recipe nothere"),
            (["train", "classify", "--unknown", "photos"], "unknown key `unknown`"),
            (["train", "classify", "--data", "photos", "xx=1"], "unknown key `xx`"),
        ):
            self.is_refused(arguments, expects)


class Help(Case):
    def help(self, *arguments, code=OK, expects=()):
        out, err = self.levin(["help", *arguments], code, expects)
        return (
            [
                line.split()[0]
                for line in out.splitlines()
                if line.startswith("  ") and line[2] != " "
            ],
            out,
            err,
        )

    def test_a_key(self):
        """By its name, an alias, another trainer's name, as an option; of all commands or one."""
        for key in ("optim.lr", "lr", "base_lr", "learning-rate", "--lr", "optim.lr=0.1"):
            keys, out, _ = self.help(key)
            linear = ["lr"] if key.strip("-") == "lr" else []  # of eval linear
            self.assertEqual(keys, ["optim.lr", *linear])
            self.assertIn("levin help train.classify", out)
            self.assertIn("number, default 0.001", out)
        # training, use of a model (predict, eval), job scripts, launch
        self.assertEqual(self.help("devices")[1].count("levin help "), 4)
        self.assertEqual(self.help("launch", "nproc_per_node")[0], ["nproc"])
        self.assertEqual(self.help("train", "classify", "wd")[0], ["optim.weight_decay"])
        self.assertEqual(self.help("train.classify", "wd"), self.help("plan", "wd"))
        self.assertEqual(self.help("train", "classify")[1], self.help("train.classify")[1])
        for command in ("train", "predict", "eval"):
            named = self.help(f"{command}.gan")[0]
            self.assertIn({"train": "num_z_valid"}.get(command, "num_samples"), named)
            self.assertEqual(self.help(command, "gan")[0], named)
            self.assertIn(f"levin help {command}.gan", self.help(command)[1])

    def test_a_beginning(self):
        keys = self.help("scheduler")[0]
        self.assertEqual(keys[0], "scheduler.name")
        self.assertGreater(len(keys), 5)
        self.assertTrue(all(key.startswith("scheduler.") for key in keys))
        self.assertEqual([k for k in self.help("ema")[0] if not k.startswith("ema.")], [])

    def test_what_is_not_here(self):
        self.assertIn("use precision=bf16-mixed or precision=16-mixed", self.help("amp")[1])
        self.assertIn("did you mean `optim.lr`?", self.help("optim.lrr", code=USAGE)[2])
        self.assertIn("did you mean plan?", self.help("plann", code=USAGE)[2])
        self.assertIn("all keys: `levin help train.classify`", self.help("frob", code=USAGE)[2])


if __name__ == "__main__":
    main()
