"""Runs that go on: damaged checkpoints, moved ends, keys that do not fit.

usage: test_bad_resume.py LEVIN [test names]
"""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess

from case import Case, FAILURE, LEVIN, main, OK, photos, read, tree, USAGE, WAIT_S, write
from reproducibility_lines import reproducibility_lines


class Resume(Case):
    """A run directory in a bad state."""

    def spoil(self, which, at=-50):
        """One bit of a file of its own (best may be a second name of last)."""
        path = f"{self.out}/checkpoints/{which}.safetensors"
        data = bytearray(read(path))
        data[at] ^= 1
        os.remove(path)
        write(path, bytes(data))

    def test_nothing_there(self):
        expects = [f"there is no run in out={self.out}", "omit resume=true to start a new one"]
        self.train("resume=true", code=USAGE, expects=[*expects, "which does not exist"])
        for command in (["train"], ["plan", "train"]):
            self.levin([*command, "classify", f"out={self.out}", "resume=true"], USAGE, expects)
            self.levin([*command, "classify", "resume=true"], USAGE, ["resume=true needs out=DIR"])
        os.mkdir(self.out)
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true"],
            USAGE,
            [*expects, "no config.yaml, train.log or checkpoints/"],
        )
        self.assertEqual(os.listdir(self.out), [])
        self.levin(
            ["train", "classify", f"data={self.photos}", "resume=true"],
            USAGE,
            ["resume=true needs out=DIR"],
        )

    def test_what_a_kill_left_out_is_made(self):
        """Killed after `last` was saved and before best, or one of the exported models, was:
        resuming makes them, byte for byte."""
        arguments = ["val_split=0", "max_steps=-1", "ema.decay=0.5"]
        names = [
            "checkpoints/best",
            "exported_models/exported_last",
            "exported_models/exported_best",
        ]
        self.train(*arguments, "max_epochs=1")
        early = {name: read(f"{self.out}/{name}.safetensors") for name in names}
        resume = ["train", "classify", f"out={self.out}", "resume=true", "max_epochs=4"]
        self.levin(resume, OK)
        late = {name: read(f"{self.out}/{name}.safetensors") for name in names}
        self.assertEqual(
            self.hashes(which="best"), self.hashes()
        )  # the loss falls: the last one is the best
        for name in names:
            self.assertNotEqual(early[name], late[name])
            for content in (early[name], None):
                path = f"{self.out}/{name}.safetensors"
                os.remove(path)  # a file of its own: the others are links to it
                if content is not None:
                    write(path, content)
                self.levin(resume, OK, [f"{name.split('/')[-1]}.safetensors"])
                for other in names:
                    self.assertEqual(
                        read(f"{self.out}/{other}.safetensors"), late[other], (name, other)
                    )
        self.assertNotIn("made again", "".join(self.levin(resume, OK)))
        self.no_leftovers()

    def best_behind_last(self):
        """Killed between the saving of last (epoch 3) and of best (epoch 1), each a file of its
        own. Returns best's bytes."""
        arguments = ["val_split=0", "max_steps=-1"]
        self.train(*arguments, "max_epochs=1")
        best = f"{self.out}/checkpoints/best.safetensors"
        early = read(best)
        self.levin(["train", "classify", f"out={self.out}", "resume=true", "max_epochs=3"], OK)
        os.remove(best)
        write(best, early)
        return early

    def test_a_damaged_last_replaces_nothing(self):
        """By its header, which is whole, it is the best; best is the only good one."""
        early = self.best_behind_last()
        export = f"{self.out}/exported_models/exported_last.safetensors"
        late = read(export)
        os.remove(export)
        self.spoil("last", at=-5)
        for content, expects in (
            (None, "is missing and cannot be made again"),
            (b"no model", "stays as it is"),
            (late, ""),
        ):
            if content is not None:
                write(export, content)
            reported = "".join(
                self.levin(
                    ["train", "classify", f"out={self.out}", "resume=true", "max_epochs=1"],
                    OK,
                    ["passed over", "best.safetensors: step 2"],
                )
            )
            self.assertNotIn("checkpoints/best.safetensors: made again", reported)
            self.assertEqual(read(f"{self.out}/checkpoints/best.safetensors"), early)
            warned = [
                line
                for line in reported.splitlines()
                if line.startswith("warning: exported_models/exported_last.safetensors")
            ]
            self.assertEqual(len(warned), 1 if expects else 0, reported)
            for line in warned:
                self.assertIn(f"{expects}: {self.out}/checkpoints/last.safetensors", line)
                self.assertIn("checksum", line)
            self.assertEqual(os.path.exists(export) and read(export), content or False)
        self.levin(["train", "classify", f"out={self.out}", "resume=true", "max_epochs=3"], OK)
        self.assertEqual(read(export), late)  # the run has come there again

    # ---- whose checkpoint ----

    def other(self, *more):
        """A second run, in another directory; returns its last checkpoint."""
        self.levin(self.arguments(self.photos, f"{self.dir}/other", "val_split=0", *more), OK)
        return f"{self.dir}/other/checkpoints/last.safetensors"

    def run_id(self, out):
        text = read(f"{out}/run_id").decode()
        self.assertRegex(text, r"\A[0-9a-f]{32}\n\Z")
        return text.strip()

    def without_run_id(self, path):
        """As a version that knew none has written it; the checksums go, too."""
        data = read(path)
        n = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8 : 8 + n])
        self.assertEqual(head["__metadata__"].pop("run_id"), self.run_id(self.out))
        for key in ("levin.checksums", "levin.header_checksum"):
            del head["__metadata__"][key]
        text = json.dumps(head).encode()
        os.remove(path)
        write(path, struct.pack("<Q", len(text)) + text + data[8 + n :])

    def test_a_checkpoint_of_another_run(self):
        """Which differs in nothing but its seed, or not even in that, in place of last or best."""
        self.train("val_split=0")
        saved = tree(f"{self.out}/checkpoints")
        for more in (["seed=1"], [], ["max_steps=4"]):
            last = self.other(*more, "overwrite=true")
            ids = [self.run_id(self.out), self.run_id(f"{self.dir}/other")]
            self.assertNotEqual(*ids)
            for name in ("last", "best", "step_2"):
                path = f"{self.out}/checkpoints/{name}.safetensors"
                if name == "step_2" and "max_steps=4" not in more:
                    continue  # not the newest: not looked at
                if os.path.exists(path):
                    os.remove(path)  # best is a second name of last
                shutil.copy(last, path)
                expects = [f"{path} is a checkpoint of another run", *ids, f"weights={path}"]
                self.levin(
                    ["train", "classify", f"out={self.out}", "resume=true", "max_steps=6"],
                    USAGE,
                    expects,
                )
                os.remove(path)
                for file, data in saved.items():
                    write(f"{self.out}/checkpoints/{file}", data)
        self.levin(["train", "classify", f"out={self.out}", "resume=true", "max_steps=6"], OK)

    def test_a_copied_run_goes_on(self):
        """All of it, or its checkpoints and configuration alone."""
        self.train("val_split=0")
        shutil.copytree(self.out, f"{self.dir}/copy")
        os.mkdir(f"{self.dir}/part")
        shutil.copytree(f"{self.out}/checkpoints", f"{self.dir}/part/checkpoints")
        shutil.copy(f"{self.out}/config.yaml", f"{self.dir}/part")
        for out in (f"{self.dir}/copy", f"{self.dir}/part"):
            self.levin(["train", "classify", f"out={out}", "resume=true", "max_steps=4"], OK)
            self.assertEqual(self.run_id(out), self.run_id(self.out))

    def test_a_run_of_an_earlier_version_goes_on(self):
        """It has no number, nor have its checkpoints; from then on both have one."""
        self.train("val_split=0")
        for name in ("last", "best"):
            self.without_run_id(f"{self.out}/checkpoints/{name}.safetensors")
        first = self.run_id(self.out)
        for steps in (4, 6):
            if steps == 4:
                os.remove(f"{self.out}/run_id")
            self.levin(
                ["train", "classify", f"out={self.out}", "resume=true", f"max_steps={steps}"], OK
            )
            self.assertNotEqual(self.run_id(self.out), first)
        shutil.copy(self.other(), f"{self.out}/checkpoints/last.safetensors")
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=8"],
            USAGE,
            ["is a checkpoint of another run"],
        )

    def test_a_new_run_in_the_same_directory_is_another_one(self):
        self.train("val_split=0")
        first, last = self.run_id(self.out), read(f"{self.out}/checkpoints/last.safetensors")
        self.train("val_split=0", "overwrite=true")
        self.assertNotEqual(self.run_id(self.out), first)
        os.remove(f"{self.out}/checkpoints/last.safetensors")
        write(f"{self.out}/checkpoints/last.safetensors", last)
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=4"],
            USAGE,
            [first, self.run_id(self.out)],
        )

    def test_a_best_of_another_model_is_reported(self):
        """Of a version whose checkpoints do not name a run."""
        self.train("val_split=0", "max_steps=6", "max_epochs=9")
        self.levin(
            self.arguments(
                self.photos,
                f"{self.dir}/other",
                "model=cnn",
                "val_split=0",
                "max_steps=6",
                "max_epochs=9",
            ),
            OK,
        )
        best, export = (
            f"{self.out}/checkpoints/best.safetensors",
            f"{self.out}/exported_models/exported_best.safetensors",
        )
        os.remove(best)
        os.remove(export)
        shutil.copy(f"{self.dir}/other/checkpoints/last.safetensors", best)
        shutil.copy(f"{self.dir}/other/run_id", self.out)  # for a moment
        self.without_run_id(best)
        os.remove(f"{self.out}/run_id")
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true"],
            OK,
            [
                "warning: exported_models/exported_best.safetensors is missing and "
                f"cannot be made again: {best} is of another model: it has "
            ],
        )
        self.assertFalse(os.path.exists(export))

    def test_exports_of_earlier_versions(self):
        """They do not name the step that they are of, and are there."""
        self.train("val_split=0")
        paths = {
            name: f"{self.out}/exported_models/exported_{name}.safetensors"
            for name in ("last", "best")
        }
        whole = {name: read(path) for name, path in paths.items()}
        for path in paths.values():
            data = read(path)
            n = struct.unpack("<Q", data[:8])[0]
            head = json.loads(data[8 : 8 + n])
            del head["__metadata__"]["levin.step"]
            text = json.dumps(head).encode()
            os.remove(path)
            write(path, struct.pack("<Q", len(text)) + text + data[8 + n :])
        reported, _ = self.levin(
            ["train", "classify", f"out={self.out}", "resume=true"],
            OK,
            [
                f"exported_models/exported_{name}.safetensors: it had no step; made again of step 2"
                for name in paths
            ],
        )
        self.assertNotIn("it was missing", reported)
        self.assertEqual({name: read(path) for name, path in paths.items()}, whole)

    def test_skipped_steps_are_counted_over_the_stop(self):
        """Gradients of single samples overflow in the first steps of 16-mixed; stopped after some
        of them, the epoch's count and every line are those of the whole run."""
        arguments = [
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=300",
            "model=mlp",
            "precision=16-mixed",
            "batch_size=16",
            "micro_batches=16",
            "val_split=0",
            "log_every_n_steps=1",
            "max_epochs=1",
        ]
        _, whole = self.levin([*arguments, f"out={self.dir}/whole"], OK)
        count = re.search(r"epoch 1: (\d+) of its steps were skipped", whole)
        self.assertIsNotNone(count, whole)
        self.assertGreaterEqual(int(count.group(1)), 3)
        self.levin([*arguments, "max_steps=6", f"out={self.out}"], OK)
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=-1"],
            OK,
            [count.group(0)],
        )
        self.assertEqual(
            reproducibility_lines(self.out), reproducibility_lines(f"{self.dir}/whole")
        )
        self.assertEqual(self.hashes(), self.hashes(f"{self.dir}/whole"))

    def lose_checkpoints(self):
        """As of a run that was killed before its first one."""
        shutil.rmtree(f"{self.out}/checkpoints")
        shutil.rmtree(f"{self.out}/exported_models")
        os.remove(f"{self.out}/train.log")

    def test_no_checkpoint_yet(self):
        self.train()
        self.lose_checkpoints()
        self.train("resume=true", expects=["has no checkpoint yet", "starts from its beginning"])

    def test_checkpoints_are_gone(self):
        """Of a run that has finished, or has exported a model: nothing is written over."""
        self.train()
        model = f"{self.out}/exported_models/exported_last.safetensors"
        gone = "and its checkpoints are gone: it would start from its beginning"
        shutil.rmtree(f"{self.out}/checkpoints")
        for devices in (1, 2):
            before = tree(self.out)
            how = ["resume=true", "max_steps=4", f"devices={devices}", "micro_batches=2"]
            self.train(
                *how,
                code=USAGE,
                expects=["has finished", gone, f"another out and weights={model}, or replace"],
            )
            after = tree(self.out)  # and what the ranks of the failure printed
            self.assertEqual([name for name in before if before[name] != after.get(name)], [])
        log = read(f"{self.out}/train.log")
        os.remove(f"{self.out}/train.log")
        before = tree(self.out)
        self.train("resume=true", code=USAGE, expects=["has exported a model", gone])
        self.assertEqual(tree(self.out), before)
        shutil.rmtree(f"{self.out}/exported_models")
        write(f"{self.out}/train.log", log)
        self.train("resume=true", code=USAGE, expects=["has finished", "another out, or replace"])
        self.train("overwrite=true")

    def test_a_run_that_trains_nothing_writes_nothing(self):
        self.train()
        before = read(f"{self.out}/config.yaml")
        self.train("resume=true", "optim.lr=5", expects=["nothing to do", "optim.lr is 5"])
        self.assertEqual(read(f"{self.out}/config.yaml"), before)

    def test_changed_keys_are_reported(self):
        self.train()
        _, reported = self.train(
            "resume=true",
            "max_steps=4",
            "optim.lr=0.002",
            expects=["warning: optim.lr is 0.002 from here on; so far this run had 0.001"],
        )
        self.assertNotIn("max_steps is", reported)
        self.train(
            "resume=true",
            "max_steps=6",
            "label_smoothing=0.1",
            "eval.resize=20",
            expects=[
                "label_smoothing is 0.1 from here on; so far this run had 0",
                "eval.resize is 20 from here on; so far this run had unset",
            ],
        )

    def test_a_change_is_reported_once(self):
        """As what the run is, where that follows from the key."""
        self.train()
        _, reported = self.train("resume=true", "max_steps=9", "batch_size=4", "micro_batches=2")
        warnings = [line for line in reported.splitlines() if line.startswith("warning: ")]
        self.assertEqual(
            [line.split("=")[0] for line in warnings if "is another run" in line],
            ["warning: effective_batch", "warning: micro_batches"],
            reported,
        )
        self.assertNotIn("from here on", reported)

    def test_two_processes_in_one_run(self):
        os.mkdir(self.out)
        holder = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        self.train(code=USAGE, expects=["another process is training in", self.out])
        self.assertEqual(os.listdir(self.out), [])
        os.close(holder)
        self.train()

    def test_overwrite_replaces_runs_only(self):
        os.mkdir(self.out)
        write(f"{self.out}/thesis.txt", b"do not touch")
        self.train(
            "overwrite=true",
            code=USAGE,
            expects=["is not a run directory", "overwrite=true replaces runs only"],
        )
        self.assertEqual(os.listdir(self.out), ["thesis.txt"])

    def test_newest_is_damaged(self):
        """Falls back to the newest that is whole, and reports it."""
        self.train("max_steps=-1", "max_epochs=1")  # best and last: step 2
        shutil.copy(f"{self.out}/checkpoints/best.safetensors", f"{self.dir}/older")
        self.train("max_steps=3", "max_epochs=9", "resume=true")
        shutil.move(f"{self.dir}/older", f"{self.out}/checkpoints/best.safetensors")
        goal = self.hashes()
        self.spoil("last")
        self.train(
            "max_steps=3",
            "max_epochs=9",
            "resume=true",
            expects=[
                "warning: checkpoint passed over",
                "last.safetensors",
                "does not match its checksum",
                "resuming from",
                "best.safetensors: step 2",
            ],
        )
        self.assertEqual(self.hashes(), goal)

    def test_all_are_damaged(self):
        self.train()
        self.spoil("best")
        self.spoil("last", at=9)
        before = tree(f"{self.out}/checkpoints")
        config = read(f"{self.out}/config.yaml")
        self.train(
            "resume=true",
            code=FAILURE,
            expects=["none of its 2 checkpoints can be used", "overwrite=true", "checksum"],
        )
        self.assertEqual(tree(f"{self.out}/checkpoints"), before)
        self.assertEqual(read(f"{self.out}/config.yaml"), config)

    def test_weights_have_moved(self):
        """The checkpoint has what came of them."""
        shutil.copy(self.exported, f"{self.dir}/start.safetensors")
        self.train(f"weights={self.dir}/start.safetensors", "max_steps=4", "max_epochs=9")
        goal = self.hashes()
        self.train(
            "overwrite=true", f"weights={self.dir}/start.safetensors", "max_steps=2", "max_epochs=9"
        )
        os.remove(f"{self.dir}/start.safetensors")
        self.train("resume=true", "max_steps=4", "max_epochs=9", expects=["resuming from"])
        self.assertEqual(self.hashes(), goal)
        self.lose_checkpoints()  # now they are needed
        self.train("resume=true", code=USAGE, expects=[f"{self.dir}/start.safetensors"])

    def test_weights_of_a_run_that_has_no_checkpoint_yet(self):
        """The same bits as a fresh start: the average and bf16 weights begin with them."""
        for more in (["ema.decay=0.9"], ["precision=bf16-true"]):
            arguments = [
                f"weights={self.exported}",
                "overwrite=true",
                "max_steps=1",
                "optim.lr=1e-9",
                *more,
            ]
            done = subprocess.run(
                [LEVIN, *self.arguments(self.photos, self.out, *arguments)],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
            if "has no bf16 products" in done.stderr:
                continue
            self.assertEqual(done.returncode, OK, done.stderr)
            goal = self.hashes()
            self.lose_checkpoints()
            self.train("resume=true", "max_steps=1", expects=["has no checkpoint yet"])
            self.assertEqual(self.hashes(), goal)

    def test_a_resumed_run_keeps_its_weights(self):
        self.train()
        hashes = self.hashes()
        for argument in (f"weights={self.exported}", "reset_head=true"):
            self.train(
                "resume=true",
                argument,
                "max_steps=4",
                code=USAGE,
                expects=[
                    argument.split("=")[0],
                    "a resumed run keeps its weights",
                    "last.safetensors",
                ],
            )
        self.assertEqual(self.hashes(), hashes)

    def test_a_precision_that_this_cpu_has_not(self):
        """It is refused before overwrite=true empties the run."""
        self.train()
        before = tree(self.out)
        self.train(
            "overwrite=true",
            "precision=bf16-mixed",
            code=FAILURE,
            expects=["has no bf16 products"],
            env={"ONEDNN_MAX_CPU_ISA": "AVX2"},
        )
        self.assertEqual(tree(self.out), before)

    def test_a_run_stands_for_its_last_checkpoint(self):
        """For `ckpt hash` and weights=."""
        self.assertEqual(self.levin(["ckpt", "hash", self.model], OK)[0], self.hashes(self.model))
        self.train(f"weights={self.model}", "max_steps=1", "optim.lr=0")
        of_weights = [out.split()[1] for out in (self.hashes(), self.hashes(self.model))]
        self.assertEqual(*of_weights)
        os.mkdir(f"{self.dir}/empty")
        expects = [f"{self.dir}/empty is a folder without checkpoints/last.safetensors"]
        self.levin(["ckpt", "hash", f"{self.dir}/empty"], FAILURE, expects)
        self.train("overwrite=true", f"weights={self.dir}/empty", code=USAGE, expects=expects)
        self.levin(["ckpt", "hash", f"{self.dir}/none"], FAILURE, [f"{self.dir}/none"])

    def test_the_end_has_moved(self):
        """The same step of a cosine has another learning rate then: reported, once."""
        self.train(
            "scheduler=cosine", "max_epochs=3", "max_steps=-1", "optim.lr=0.01"
        )  # 2 steps each
        reported, _ = self.train(
            "resume=true",
            "max_epochs=4",
            "max_steps=-1",
            expects=["scheduler=cosine ends at step 8 now, at step 6 in the saved run"],
        )
        self.assertEqual(reported.count("another curve"), 1)
        reported, _ = self.train("resume=true", "max_epochs=4", "max_steps=-1")
        self.assertNotIn("another curve", reported)
        self.train("optim.weight_decay_end=0.2", "max_epochs=3", "max_steps=-1", "overwrite=true")
        self.train(
            "resume=true",
            "max_epochs=4",
            "max_steps=-1",
            expects=["optim.weight_decay_end ends at step 8 now, at step 6 in the saved run"],
        )

    def test_layout_is_not_saved(self):
        """What a resumed run takes over is what its bits hang on: micro-batches and the kind of
        device, and no lanes, threads or numbers of devices."""
        self.train("lanes=1", "num_workers=1", "micro_batches=2", "max_epochs=9")
        config = read(f"{self.out}/config.yaml").decode()
        for line in ("accelerator: cpu", "micro_batches: 2"):
            self.assertIn(line, config.splitlines())
        self.assertNotRegex(config, r"(?m)^(lanes|num_workers|devices|strategy):")
        whole = read(f"{self.out}/checkpoints/last.safetensors")
        head = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
        saved = json.loads(head["__metadata__"]["levin.config"])
        self.assertEqual([saved.get(key) for key in ("accelerator", "micro_batches")], ["cpu", 2])
        self.assertEqual(
            [key for key in ("lanes", "num_workers", "devices", "strategy") if key in saved], []
        )
        write(
            f"{self.out}/config.yaml", (config + "lanes: 64\nnum_workers: 256\n").encode()
        )  # as early versions wrote it
        self.train("resume=true", "max_steps=4")
        self.assertNotRegex(read(f"{self.out}/config.yaml").decode(), r"(?m)^(lanes|num_workers):")

    def test_keys_that_do_not_fit(self):
        """They are refused and leave the run as it was."""
        self.train()
        config, hashes = read(f"{self.out}/config.yaml"), self.hashes()
        for argument, expects in (
            ("model=cnn", "another model"),
            ("optim=sgd", "another optimizer: give optim.name"),
        ):
            self.train(
                "resume=true",
                argument,
                "max_steps=4",
                code=USAGE,
                expects=["last.safetensors", expects, "weights="],
            )
            self.assertEqual(read(f"{self.out}/config.yaml"), config)
            self.assertEqual(self.hashes(), hashes)
        self.levin(
            [
                "train",
                "classify",
                f"data={self.photos}",
                f"out={self.out}",
                "resume=true",
                "max_steps=4",
            ],
            OK,
            ["resuming from"],
        )

    def test_a_photo_is_another_one(self):
        """Under its name, from the size and the first 4 KiB of each file; a time is nothing. Until
        it is refused or the run goes on with it, the value stays that of the saved run."""
        data, changed = f"{self.dir}/data", "another size or other first 4 KiB"
        photos(data)
        path = f"{data}/dog/3.png"
        was = read(path)
        resume = ["train", "classify", f"out={self.out}", "resume=true"]
        self.train("max_steps=2", data=data)
        os.utime(path, (9, 9))
        os.utime(f"{data}/cat/1.png", (10, 10))
        _, reported = self.levin([*resume, "max_steps=3", "data_changed=error"], OK)
        self.assertNotIn(changed, reported)
        for content in (was + b"\0", was[:-5] + bytes(5)):  # another size, the same size
            write(path, content)
            refused = ["data_changed=error: files of data= have another size", "data_changed=warn"]
            self.levin([*resume, "max_steps=4", "data_changed=error"], USAGE, refused)
        os.rename(path, f"{self.dir}/away.png")
        write(path, was)
        self.levin([*resume, "max_steps=4", "data_changed=error"], OK)
        shutil.copy(f"{data}/cat/0.png", path)
        self.levin([*resume, "max_steps=5", "data_changed=warn"], OK, [changed])
        _, reported = self.levin([*resume, "max_steps=6"], OK)  # it is this run's now
        self.assertNotIn(changed, reported)

    def test_other_classes_are_refused(self):
        """Their number may be the same: the labels would swap without a warning."""
        data = f"{self.dir}/data"
        photos(data)
        shutil.copytree(f"{data}/dog", f"{data}/hat")
        again = ["val_split=0", "resume=true", "max_steps=4"]
        self.train("val_split=0", data=data)
        before = tree(f"{self.out}/checkpoints"), read(f"{self.out}/config.yaml")
        last = f"{self.out}/checkpoints/last.safetensors"
        advice = [last, f"weights={last} reset_head=true", "in another out"]
        os.rename(f"{data}/cat", f"{data}/zat")
        self.train(
            *again,
            data=data,
            code=USAGE,
            expects=[
                "the class zat",
                "no longer has the class cat",
                "3 classes now, 3 then",
                *advice,
            ],
        )
        for name in ("ant", "cat"):
            shutil.copytree(f"{data}/zat", f"{data}/{name}")
        self.train(
            *again,
            data=data,
            code=USAGE,
            expects=["the data has the class ant, zat (5 classes now, 3 then)", *advice],
        )
        os.rename(f"{data}/hat", f"{self.dir}/hat")
        for name in ("ant", "zat"):
            shutil.rmtree(f"{data}/{name}")
        _, reported = self.train(
            *again,
            data=data,
            code=USAGE,
            expects=["it no longer has the class hat (2 classes now, 3 then)", *advice],
        )
        self.assertNotIn("the data has the class", reported)
        self.assertEqual((tree(f"{self.out}/checkpoints"), read(f"{self.out}/config.yaml")), before)
        os.rename(f"{self.dir}/hat", f"{data}/hat")
        self.train(*again, data=data, expects=["resuming from"])


if __name__ == "__main__":
    main(turns=2)
