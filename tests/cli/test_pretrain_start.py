"""How levin pretrain starts: what it chooses itself, and runs without an epoch.

usage: test_pretrain_start.py SOURCE_DIR LEVIN     registered in tests/cli/CMakeLists.txt
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from patterns import draw_patterns
from rank_processes import drop_identity
from today import OfToday

SOURCE = os.path.abspath(sys.argv.pop(1))
LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()
SMALL = (
    "data=builtin:shapes data.count=48 model=cnn method_args.hidden_dim=16 num_workers=0".split()
)
TASK = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
TWO = {
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_JOB_NODELIST": "localhost",
}


class Start(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-start-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def levin(self, *arguments, code=0, env=None):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=self.dir, capture_output=True, text=True, timeout=100,
            env=dict(os.environ, **(env or {})),
        )  # fmt: skip
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def chosen(self, *arguments, env=None, plan=False):
        """{key: (value, reason)} in the order of the line."""
        command = ["plan", "train", "pretrain"] if plan else ["pretrain"]
        text = self.levin(*command, *arguments, "accelerator=cpu", env=env)
        lines = [line[6:] for line in text.splitlines() if line.startswith("auto: ")]
        self.assertLessEqual(len(lines), 1)
        items = re.findall(r"([\w.]+) (\S+) \(([^)]*)\)", lines[0] if lines else "")
        return {key: (value, why) for key, value, why in items}

    def test_each_choice_is_printed_with_its_reason(self):
        usual = ["data=builtin:shapes", "data.count=48", "model=cnn", "max_steps=1"]
        usual.append("overwrite=true")
        found = self.chosen(*usual, "batch_size=16", "out=a")
        self.assertEqual(self.chosen(*usual, "batch_size=16", plan=True), found)
        workers = found.pop("num_workers")
        self.assertRegex(workers[1], r"^\d+ cores?( less one|, 8 at most)$")
        by_method = "method=simclr"
        self.assertEqual(
            list(found.items()),
            [
                ("transform_args.image_size", ("32", "that of the images")),
                ("max_epochs", ("100", by_method)),
                ("precision", ("32-true", "accelerator=cpu")),
                ("devices", ("1", "the CPU")),
                ("optim.name", ("sgd", by_method)),
                ("method", ("simclr", "the default")),
            ],
        )
        given = ["image_size=16", "epochs=2", "precision=32", "devices=1", "optim=adamw"]
        given += ["method=simclr", "num_workers=0", "batch_size=16"]
        self.assertEqual(self.chosen(*usual, *given, "out=a"), {})
        self.assertEqual(
            list(self.chosen(*usual, *given[:-3], "out=a")), ["batch_size", "num_workers", "method"]
        )
        draw_patterns(f"{self.dir}/photos", 2)
        found = self.chosen(*usual[2:], "data=photos", "batch_size=2", "out=a")
        self.assertEqual(found["transform_args.image_size"], ("224", by_method))
        found = self.chosen(*usual[2:], "data=photos/rings", "batch_size=9", "out=a")
        self.assertEqual(found["transform_args.image_size"], ("224", by_method))
        self.assertEqual(found["batch_size"], ("2", "all images"))
        # what a saved run has is not chosen again
        found = self.chosen("out=a", "resume=true", "max_steps=2")
        self.assertEqual(sorted(found), ["devices", "num_workers"])

    def test_help_without_any_key(self):
        for arguments in (["pretrain"], ["train", "pretrain"]):
            text = self.levin(*arguments)
            self.assertEqual(text, self.levin(*arguments, "--help"))
            self.assertIn("method_args.temperature", text)
        self.assertIn("data= is missing", self.levin("train", "classify", code=64))

    def test_workers_under_slurm(self):
        cpus = len(os.sched_getaffinity(0))
        env = dict(TASK, SLURM_CPUS_PER_TASK=str(cpus))
        found = self.chosen(*SMALL[:-1], "batch_size=16", "max_steps=1", "out=a", env=env)
        self.assertEqual(found["num_workers"][0], str(cpus - 1))
        self.assertIn(f"SLURM_CPUS_PER_TASK={cpus}", found["num_workers"][1])

    def test_the_python_script_of_the_manual(self):
        """Two tasks of Slurm that start it are one run, with the bits of two devices."""
        with open(f"{SOURCE}/docs/pretrain.md", encoding="utf-8") as f:
            [script] = re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
        small = {"torchvision/resnet50": "cnn"}
        more = {"image_size": "16", "batch_size": "4", "max_steps": "2", "accelerator": "cpu"}
        for old, new in small.items():
            self.assertIn(old, script)
            script = script.replace(old, new)
        end = '        model="cnn",\n'
        self.assertIn(end, script)
        script = script.replace(end, f"{end}        **{more},\n")
        with open(f"{self.dir}/my_train_script.py", "w", encoding="utf-8") as f:
            f.write(script)
        draw_patterns(f"{self.dir}/photos", 2)
        os.makedirs(f"{self.dir}/bin")
        os.symlink(LEVIN, f"{self.dir}/bin/levin")
        cpus = len(os.sched_getaffinity(0))
        tasks = [
            subprocess.Popen(
                [sys.executable, "my_train_script.py"], cwd=self.dir, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, PATH=f"{self.dir}/bin:{os.environ['PATH']}", **TASK)
                | TWO | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)}
                | {"SLURM_CPUS_PER_TASK": str(cpus)},
            )
            for i in range(2)
        ]  # fmt: skip
        text = [task.communicate(timeout=60)[0] for task in tasks]
        self.assertEqual([task.returncode for task in tasks], [0, 0], text)
        self.assertIn("devices 2 (the tasks of Slurm)", text[0])
        self.assertIn(f"num_workers {cpus - 1} (SLURM_CPUS_PER_TASK={cpus}", text[0])
        self.assertIn("2 ranks: processes", text[0])
        usual = ["data=photos", "model=cnn", *(f"{k}={v}" for k, v in more.items())]
        self.levin("pretrain", *usual, "devices=2", "out=plain")
        self.assertEqual(
            self.levin("ckpt", "hash", "out/my_experiment"), self.levin("ckpt", "hash", "plain")
        )

    def test_what_a_file_of_weights_does_not_have_is_new(self):
        """A checkpoint has all, an export the backbone; a line lists the rest."""
        usual = [*SMALL, "batch_size=16", "max_steps=1", "image_size=16", "overwrite=true"]
        self.levin("pretrain", *usual, "out=a")
        dino = "method=dino transform_args.local_view.view_size=8 method_args.output_dim=16".split()
        new = "new in this run: "
        text = self.levin("pretrain", *usual, "out=b", "checkpoint=a")
        self.assertRegex(text, r"(\d+) of the model's \1 tensors")
        self.assertNotIn(new, text)
        for ending in ("pt", "safetensors"):
            export = f"checkpoint=a/exported_models/exported_last.{ending}"
            text = self.levin("pretrain", *usual, "out=b", export)
            self.assertIn(f"{new}projection_head (10 tensors)\n", text)
            text = self.levin("pretrain", *usual, "out=b", "embed_dim=8", export)
            self.assertIn(f"{new}embedding, projection_head (12 tensors)\n", text)
            text = self.levin("pretrain", *usual, *dino, "out=b", export)
            heads = "student.projection_head, teacher.projection_head, center"
            self.assertRegex(text, rf"{new}{heads} \(\d+ tensors\)\n")
        # of another method, whose heads are others
        better = "weights=a/exported_models/exported_last.safetensors"
        text = self.levin("pretrain", *usual, *dino, "out=b", "checkpoint=a")
        self.assertIn(f"weights=a: {better[8:]}, 17 of the model's 17 tensors", text)
        last = "checkpoint=a/checkpoints/last.safetensors"
        text = self.levin("pretrain", *usual, *dino, "out=b", last, code=1)
        self.assertIn(f"the model that its run has exported is {better}", text)
        text = self.levin("pretrain", *usual, "out=b", "checkpoint=nothere.pt", code=64)
        self.assertIn("nothere.pt: cannot open", text)
        text = self.levin("pretrain", *usual[:-1], "out=a", "checkpoint=a", "resume=true", code=64)
        self.assertIn("a resumed run keeps its weights", text)

    def test_resume_interrupted_begins_a_run(self):
        """In an empty folder, with a warning; then it resumes. resume=true never begins one."""
        more = [*SMALL, "batch_size=16", "micro_batches=2", "wgrad_threads=1", "accelerator=cpu"]
        more += ["scheduler=constant", "scheduler.warmup_steps=0"]
        self.levin("pretrain", *more, "max_steps=4", "out=whole")
        more.append("resume_interrupted=true")
        for out, layout in (("one", []), ("two", ["devices=2"])):
            text = self.levin("pretrain", *more, *layout, "max_steps=2", f"out={out}")
            warning = f"warning: resume_interrupted=true: out={out} has no run"
            self.assertEqual(text.count(warning), 1)
            text = self.levin("pretrain", *more, *layout, "max_steps=4", f"out={out}")
            self.assertNotIn("warning", text)
            self.assertIn("resuming from", text)
            self.assertEqual(
                self.levin("ckpt", "hash", out), self.levin("ckpt", "hash", "whole")
            )  # fmt: skip
        text = self.levin("pretrain", *more, "out=b", "checkpoint=one", code=64)
        self.assertIn("`resume_interrupted` (true) and `checkpoint` (one)", text)
        self.levin("pretrain", *more[:-1], "out=b", "resume=true", code=64)
        text = self.levin("pretrain", "out=b", "resume_interrupted=true", code=64)
        self.assertIn("`model` is missing", text)
        os.makedirs(f"{self.dir}/other/folder")
        self.levin("pretrain", *more, "out=other", code=64)

    def test_auto_is_as_if_not_given(self):
        usual = [*SMALL, "batch_size=16", "max_steps=2", "quiet=true"]
        self.levin("pretrain", *usual, "out=plain")
        auto = "precision=auto optim=auto epochs=auto num_workers=auto devices=auto".split()
        self.levin("pretrain", *usual[:-1], *auto, "out=auto")
        one = self.levin("ckpt", "hash", "plain")
        self.assertEqual(self.levin("ckpt", "hash", "auto"), one)
        self.levin("pretrain", *usual, "out=adamw", "optim=adamw")
        self.assertNotEqual(self.levin("ckpt", "hash", "adamw"), one)
        text = self.levin("pretrain", *usual, "epochs=3", "trainer_args.max_epochs=auto", code=64)
        self.assertIn("`trainer_args.max_epochs` auto beside `epochs` 3", text)

    def test_the_batch_is_the_default_with_auto(self):
        plan = ["plan", "pretrain", *SMALL, "max_steps=1", "out=x"]
        plain = self.levin(*plan)
        self.assertIn("batch_size=48", plain)  # all images
        self.assertEqual(self.levin(*plan, "batch_size=auto"), plain)
        self.assertEqual(self.levin(*plan, "batch_size='auto'"), plain)
        with open(f"{self.dir}/a.yaml", "w", encoding="utf-8") as f:
            f.write("batch_size: 16\n")
        text = self.levin(*plan, "config=a.yaml", "batch_size=auto", code=64)
        self.assertIn("or leave the key out for the default", text)

    def test_a_text_in_quotes_is_the_value_itself(self):
        plan = ["plan", "train", "pretrain", *SMALL[:2], "max_steps=1", "out=x", "batch_size=8"]
        plain = self.levin(*plan, "model=resnet18", "image_size=32")
        for quote in "'\"":
            with open(f"{self.dir}/q.yaml", "w", encoding="utf-8") as f:
                f.write(f"model: {quote}torchvision/resnet18{quote}\n")
                f.write(f"embed_dim: {quote}auto{quote}\noptim: {quote}auto{quote}\n")
            self.assertEqual(
                self.levin(*plan, "config=q.yaml", "image_size=32"),
                plain.replace("model=resnet18", "model=resnet18"),
            )
        auto = '{"image_size": "auto", "color_jitter": "auto"}'
        one = self.levin(*plan, "model=cnn")
        self.assertEqual(self.levin(*plan, "model=cnn", f"transform_args={auto}"), one)
        teacher = "method_args={'teacher': 'dinov2/vitb14'}"
        text = self.levin(*plan, "model=cnn", "method=distillation", teacher, code=64)
        self.assertNotIn("method_args.teacher:", text)
        self.assertIn("`method_args.teacher_weights` is missing", text)

    def test_names_of_lightly_train(self):
        same = {
            "loader_args.num_workers=1": "num_workers=1",
            "trainer_args.precision=bf16-mixed": "precision=bf16-mixed",
            "trainer_args.accelerator=cpu": "accelerator=cpu",
            "trainer_args.devices=1": "devices=1",
            "callbacks.model_checkpoint.every_n_epochs=3": "checkpoint.every_n_epochs=3",
            "callbacks.early_stopping.monitor=train/loss": "early_stopping.monitor=train/loss",
            "callbacks.early_stopping.mode=min": "early_stopping.mode=min",
            "callbacks.early_stopping.patience=2": "early_stopping.patience=2",
        }
        plan = ["pretrain", *SMALL[:-1], "batch_size=24", "max_steps=1", "image_size=16"]
        self.levin(*plan, *same, "out=a", "overwrite=true")
        self.levin(*plan, *same.values(), "out=b", "overwrite=true")
        texts = []
        for name in "ab":
            with open(f"{self.dir}/{name}/config.yaml", encoding="utf-8") as f:
                texts.append([line for line in f if not line.startswith(("out:", "run_id"))])
        self.assertEqual(*texts)
        self.assertIn("checkpoint.every_n_epochs: 3\n", texts[0])
        self.assertIn("early_stopping.patience: 2\n", texts[0])

    def test_one_image_has_no_other(self):
        draw_patterns(f"{self.dir}/photos", 1)
        one = ["data=photos/rings/0.png", "model=cnn", "max_steps=1", "out=x", "image_size=32"]
        for command in (["pretrain"], ["plan", "pretrain"]):
            text = self.levin(*command, *one, code=64)
            self.assertIn("batch_size=1: method=simclr compares each image with the others", text)

    def test_a_run_without_an_epoch(self):
        """Its files are those of the model as it begins, from where a resumed run goes on."""
        more = [*SMALL, "batch_size=16", "scheduler=constant", "scheduler.warmup_steps=0"]
        more += ["micro_batches=2", "wgrad_threads=1"]
        for name, layout in (("one", []), ("two", ["devices=2"])):
            text = self.levin("pretrain", *more, *layout, "epochs=0", f"out={name}")
            self.assertIn("done after 0 steps (max_epochs=0)", text)
            files = {
                os.path.relpath(f"{at}/{file}", f"{self.dir}/{name}")
                for at, _, files in os.walk(f"{self.dir}/{name}")
                for file in files
                if "/logs" not in at
            }
            kinds = [f"exported_models/exported_{k}" for k in ("last", "best")]
            self.assertEqual(
                files,
                {"config.yaml", "run_id", "train.log"}
                | {f"checkpoints/{k}.safetensors" for k in ("last", "best")}
                | {f"{kind}.{ending}" for kind in kinds for ending in ("pt", "safetensors")},
            )
        self.assertEqual(
            self.levin("ckpt", "hash", "one"), self.levin("ckpt", "hash", "two")
        )  # fmt: skip
        export = "one/exported_models/exported_last"
        self.levin("ckpt", "convert", f"{export}.pt", "back.safetensors")
        text = self.levin("ckpt", "diff", "back.safetensors", f"{export}.safetensors", code=1)
        self.assertEqual(text.strip(), f"levin.step: only in {export}.safetensors")
        # a step with a rate of 0 leaves these weights
        self.levin(
            "pretrain", *more, "max_steps=1", "optim.lr=0", "optim.weight_decay=0", "out=still"
        )
        still = "still/exported_models/exported_last.safetensors"
        text = self.levin("ckpt", "diff", f"{export}.safetensors", still, code=1)
        names = set(re.findall(r"^[\w.]+", text, re.M))
        self.assertEqual({n for n in names if re.search("weight|bias", n)}, set(), text)
        self.levin("pretrain", "out=one", "resume=true", "epochs=2")
        self.levin("pretrain", *more, "epochs=2", "out=whole")
        self.assertEqual(self.levin("ckpt", "hash", "one"), self.levin("ckpt", "hash", "whole"))
        text = self.levin("pretrain", "out=two", "resume=true")
        self.assertIn("nothing to do", text)

    def test_what_was_measured_before_the_first_step_stays(self):
        keys = [*SMALL, "batch_size=16", "knn.data=builtin:shapes", "knn.count=40", "knn.seed=1"]
        self.levin("pretrain", *keys, "epochs=0", "logger=[csv,tensorboard]", "out=run")
        self.levin("pretrain", "out=run", "resume=true", "epochs=1")
        with open(f"{self.dir}/run/metrics.jsonl", encoding="utf-8") as lines:
            first, *others = [json.loads(line) for line in lines]
        self.assertEqual(first["step"], 0)
        self.assertIn("val/knn", first)
        self.assertEqual({row["step"] for row in others}, {3})
        with open(f"{self.dir}/run/metrics.csv", encoding="utf-8", newline="") as lines:
            first, *others = list(csv.DictReader(lines))
        self.assertEqual(first["step"], "0")
        self.assertNotEqual(first["val/knn"], "")
        self.assertEqual({row["step"] for row in others}, {"3"})
        files = [name for _, _, names in os.walk(f"{self.dir}/run") for name in names]
        self.assertEqual(len([name for name in files if "tfevents" in name]), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=0, testLoader=OfToday(2))
