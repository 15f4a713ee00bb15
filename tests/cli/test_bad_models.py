"""Models that other programs wrote, and an environment that spoils teams of threads.

usage: test_bad_models.py LEVIN [test names]
"""

import json
import os
import shutil
import stat
import struct

from case import Case, FAILURE, main, OK, photos, png, read, USAGE, write


class Models(Case):
    """predict and eval."""

    def predict(self, model, expects, code=FAILURE, data=None):
        output = f"{self.dir}/p.csv"
        self.levin(
            ["predict", f"model={model}", f"data={data or self.photos}", f"output={output}"],
            code,
            expects,
        )
        self.assertFalse(os.path.exists(output))

    def test_missing(self):
        self.predict(
            f"{self.dir}/none",
            [f"{self.dir}/none does not exist", "a run directory or an exported .safetensors file"],
        )
        self.levin(["predict", f"data={self.photos}"], USAGE, ["model= is missing"])
        self.levin(["predict", f"model={self.model}"], USAGE, ["data= is missing"])
        self.levin(
            ["eval", f"model={self.model}", f"data={self.dir}/none"],
            USAGE,
            [f"data={self.dir}/none: No such file"],
        )
        self.levin(
            ["predict", f"model={self.model}", "ouput=x"],
            USAGE,
            ["unknown key `ouput`", "did you mean `output`?"],
        )

    def test_as_many_classes_with_other_names(self):
        """Measured, with a warning; those of the same names without one."""
        shapes = ["eval", "data=builtin:shapes", "data.classes=2"]
        warning = "warning: the model was trained on other classes: class 0 was cat and is circle"
        self.levin([*shapes, f"model={self.model}"], OK, [warning])
        out = f"{self.dir}/shapes"
        train = ["train", "classify", *shapes[1:], "data.count=40", "model=mlp", "image_size=8"]
        self.levin([*train, "max_steps=1", f"out={out}"], OK)
        written = "".join(self.levin([*shapes, f"model={out}", "data.seed=3"], OK))
        self.assertNotIn("warning: ", written)

    def test_of_another_kind(self):
        whole = read(self.exported)  # tensors alone, as PyTorch's
        n = struct.unpack("<Q", whole[:8])[0]
        head = json.loads(whole[8 : 8 + n])
        del head["__metadata__"]
        text = json.dumps(head).encode()
        write(f"{self.dir}/bare.safetensors", struct.pack("<Q", len(text)) + text + whole[8 + n :])
        self.predict(
            f"{self.dir}/bare.safetensors",
            ["is not a classifier of levin", "run directory", "exported_models/", "checkpoints"],
        )
        self.predict(f"{self.model}/config.yaml", ["config.yaml", "not a safetensors file"])

    def test_folder_that_is_no_run(self):
        """One folder too high or too low, and a run that has saved nothing."""
        rule = "has no exported_models/: model= takes the directory of a run that has saved a model"
        runs = f"{self.dir}/runs"
        for name in ("older", "newest", "unfinished"):
            os.makedirs(f"{runs}/{name}" + ("" if name == "unfinished" else "/exported_models"))
        os.utime(f"{runs}/older/exported_models", (1, 1))
        newest = f"did you mean model={runs}/newest\n"
        os.makedirs(f"{self.dir}/empty/sub")
        for path, expects in (
            (runs, newest),
            (f"{runs}/unfinished/", "or an exported .safetensors file\n"),
            (f"{self.model}/checkpoints", f"did you mean model={self.model}\n"),
            (f"{self.model}/exported_models/", f"did you mean model={self.model}\n"),
            (f"{self.dir}/empty", "or an exported .safetensors file\n"),
        ):
            for which in ([], ["checkpoint=last"]):
                given = [f"model={path}", *which]
                for use in (
                    ["predict", f"data={self.photos}", f"output={self.dir}/p.csv"],
                    ["eval", f"data={self.photos}"],
                    ["export", f"output={self.dir}/w.safetensors"],
                ):
                    self.levin([*use, *given], FAILURE, [path, rule, expects])

    def test_a_run_names_its_checkpoint(self):
        """Where its model is damaged, or not exported yet."""
        run, data = f"{self.dir}/copy", f"data={self.photos}"
        shutil.copytree(self.model, run)
        write(f"{run}/exported_models/exported_best.safetensors", read(self.exported)[:1000])
        best, last = (f"model={run}/checkpoints/{name}.safetensors" for name in ("best", "last"))
        damaged = f"; it was exported from a checkpoint: {best}\n"
        for use in (["eval"], ["predict", f"output={self.dir}/p.csv"], ["report", run]):
            model = [] if run in use else [f"model={run}"]
            self.levin([*use, data, *model], FAILURE, ["exported_best.safetensors", damaged])
        self.levin(["eval", data, best], OK)
        os.remove(f"{run}/exported_models/exported_best.safetensors")
        os.remove(f"{run}/exported_models/exported_last.safetensors")
        missing = f"{run}/exported_models/exported_last.safetensors does not exist: "
        newest = f"the run has not exported a model yet; {last} takes its newest checkpoint\n"
        self.levin(["eval", data, f"model={run}"], FAILURE, [missing, newest])
        self.levin(["eval", data, last], OK)
        os.remove(f"{run}/checkpoints/last.safetensors")
        begun = "not exported a model yet, which it does with its first checkpoint"
        self.levin(["eval", data, f"model={run}"], FAILURE, [missing, begun, "resume=true"])
        stray = f"{self.dir}/stray.safetensors"
        write(stray, read(self.exported)[:1000])
        _, reported = self.levin(["eval", data, f"model={stray}"], FAILURE)
        self.assertNotIn("checkpoint", reported)

    def test_averages(self):
        """A run with ema.decay has two sets of weights; the exported file has one of them."""
        self.train("ema.decay=0.9", "optim.lr=0.0001", "max_steps=4")
        table = {}
        for use in ("true", "false"):
            output = f"{self.dir}/{use}.csv"
            self.levin(
                [
                    "predict",
                    f"model={self.out}",
                    "checkpoint=last",
                    f"data={self.photos}",
                    f"output={output}",
                    f"use_ema={use}",
                ],
                OK,
            )
            table[use] = read(output)
            self.levin(
                [
                    "predict",
                    f"model={self.out}/checkpoints/last.safetensors",
                    f"data={self.photos}",
                    f"output={output}",
                    f"use_ema={use}",
                ],
                OK,
            )
            self.assertEqual(read(output), table[use])
        self.assertNotEqual(table["true"], table["false"])
        alone = f"{self.dir}/alone.safetensors"
        write(alone, read(f"{self.out}/exported_models/exported_last.safetensors"))
        self.levin(
            ["predict", f"model={alone}", f"data={self.photos}", f"output={self.dir}/p.csv"], OK
        )
        self.levin(
            [
                "predict",
                f"model={alone}",
                f"data={self.photos}",
                f"output={self.dir}/p.csv",
                "use_ema=false",
            ],
            FAILURE,
            ["averaged weights (ema.decay=0.9)", "give model= the run directory", alone],
        )

    def crafted(self, name, card=None, change=lambda data: data):
        """An exported model without checksums, as another program may write it."""
        whole = read(self.exported)
        n = struct.unpack("<Q", whole[:8])[0]
        head = json.loads(whole[8 : 8 + n])
        own = json.loads(head["__metadata__"]["classifier"])
        head["__metadata__"] = {"format": "pt", "classifier": json.dumps({**own, **(card or {})})}
        text = json.dumps(head).encode()
        path = f"{self.dir}/{name}.safetensors"
        write(path, struct.pack("<Q", len(text)) + text + change(whole[8 + n :]))
        return path

    def test_corrupted(self):
        whole = read(self.exported)
        path = f"{self.dir}/m.safetensors"
        for content, expects in (
            (b"", "0 bytes are too few"),
            (whole[:2000], "cut off or damaged"),
            (whole[:-4], "cut off"),
            (whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:], "does not match its checksum"),
            (whole[:9] + b"\xff" + whole[10:], "the header is damaged"),
        ):
            write(path, content)
            self.predict(path, [path, expects])

    def test_description_is_nonsense(self):
        for key, value in (
            ("image_size", 0),
            ("image_size", -5),
            ("image_size", 10**9),
            ("dropout", 7),
            ("std", [0, 1, 1]),
        ):
            path = self.crafted("m", {key: value})
            self.predict(path, [path, "its model card has", key])
        box = {"filter": "box", "resize": 20, "crop": 16}
        for value, expects in (
            ({}, "filter=nothing"),
            ([], "filter=nothing"),
            ({"filter": "cubic"}, "filter=cubic"),
            ({**box, "resize": 10**9}, "crop=16: must be"),
            ({**box, "crop": -1}, "crop=-1: must be"),
        ):
            path = self.crafted("m", {"eval": value})
            self.predict(path, [path, "its model card has eval", expects])
        self.predict(
            self.crafted("m", {"eval": None, "eval_crop": -3}),
            ["its model card has eval_crop=-3"],
        )
        self.predict(self.crafted("m", {"mean": []}), ["its model card is not complete"])
        self.predict(
            self.crafted("m", {"classes": ["a"]}), ["head.weight is (2, ", "this model needs (1, "]
        )
        self.predict(self.crafted("m", {"model": "vgg"}), ["holds a model vgg", "does not have"])

    def test_the_error_is_that_of_the_model_before_the_data(self):
        """Which may take long to open, and are as wrong here."""
        empty = f"{self.dir}/empty"
        os.mkdir(empty)
        path = self.crafted("m", {"classes": ["a"]})
        for use in (["predict", f"output={self.dir}/p.csv"], ["eval"]):
            error = self.levin([*use, f"model={path}", f"data={empty}"], FAILURE)[1]
            self.assertIn("this model needs (1, ", error)
            self.assertIn(f"reading the model {path}", error)
            error = self.levin([*use, f"model={self.exported}", f"data={empty}"], None)[1]
            self.assertIn(empty, error)

    def test_weights_are_not_finite(self):
        path = self.crafted("m", change=lambda data: b"\0\0\xc0\x7f" * (len(data) // 4))
        self.predict(path, [path, "weights are not finite"])
        self.levin(
            ["eval", f"model={path}", f"data={self.photos}"],
            FAILURE,
            [path, "weights are not finite"],
        )

    def test_team_of_the_training(self):
        """Where forward passes see the team, predict and eval must use the one of the training."""

        def team(path):
            whole = read(path)
            head = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
            return json.loads(head["__metadata__"]["classifier"])["wgrad_threads"]

        self.train("wgrad_threads=3", "micro_batches=2")
        self.assertEqual(team(f"{self.out}/exported_models/exported_last.safetensors"), 3)
        for value in (0, 17, "3"):
            path = self.crafted("m", {"wgrad_threads": value})
            self.predict(path, [path, "its model card has wgrad_threads", "1 to 16"])
        whole = read(self.exported)
        head = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
        card = json.loads(head["__metadata__"]["classifier"])
        del card["wgrad_threads"]  # of an early version: 1
        head["__metadata__"] = {"format": "pt", "classifier": json.dumps(card)}
        text = json.dumps(head).encode()
        write(
            f"{self.dir}/early.safetensors",
            struct.pack("<Q", len(text)) + text + whole[8 + struct.unpack("<Q", whole[:8])[0] :],
        )
        self.levin(
            [
                "predict",
                f"model={self.dir}/early.safetensors",
                f"data={self.photos}",
                f"output={self.dir}/p.csv",
            ],
            OK,
        )

    def test_more_classes_than_the_model(self):
        """predict does not know labels: a page of images must not look for their names."""
        shapes = ["data=builtin:shapes", "data.count=40"]
        self.levin(
            [
                "train",
                "classify",
                *shapes,
                "data.classes=3",
                f"out={self.out}",
                "model=mlp",
                "image_size=16",
                "max_steps=1",
            ],
            OK,
        )
        self.levin(
            [
                "predict",
                f"model={self.out}",
                *shapes,
                "data.classes=8",
                f"sheet={self.dir}/s.png",
                f"output={self.dir}/p.csv",
            ],
            OK,
        )
        self.assertEqual(read(f"{self.dir}/s.png")[:4], b"\x89PNG")
        self.assertEqual(len(read(f"{self.dir}/p.csv").splitlines()), 1 + 40)
        self.levin(
            ["eval", f"model={self.out}", *shapes, "data.classes=8", f"sheet={self.dir}/t.png"],
            FAILURE,
            ["data.classes=3"],
        )

    def test_page(self):
        use = ["eval", f"model={self.model}", f"data={self.photos}"]
        self.levin(
            [*use, f"sheet={self.dir}/page.jpg"],
            USAGE,
            [f"sheet={self.dir}/page.jpg", "ends in .png"],
        )
        self.levin([*use, f"sheet={self.dir}/page.png/"], USAGE, ["ends in .png"])
        printed, _ = self.levin(
            [*use, f"sheet={self.dir}/none/page.png"], FAILURE, [f"{self.dir}/none/page.png"]
        )
        self.assertRegex(
            printed,
            r"^acc [01]\.\d{4}  loss \d+\.\d{4}  \(\d+ of 12 right\)\n  class .*\n  cat  +\d/6 ",
        )  # the page's trouble costs no result
        printed, _ = self.levin([*use, f"sheet={self.dir}/page.PNG"], OK)
        self.assertTrue(printed.endswith(f"\nsheet in {self.dir}/page.PNG\n"), printed)
        self.assertEqual(read(f"{self.dir}/page.PNG")[:4], b"\x89PNG")

    def test_figures(self):
        """By a library, which is asked for before any work; what needs none does not miss it."""
        use = ["eval", f"model={self.model}", f"data={self.photos}"]
        none = {"LEVIN_CAIRO_LIBRARY": "/none/libcairo.so"}
        for key in (f"sheet={self.dir}/x.png", f"confusion={self.dir}/x.svg"):
            printed, _ = self.levin(
                [*use, key],
                FAILURE,
                [key.split("=")[0] + "=: drawing needs cairo", "/none/libcairo.so", "libcairo2"],
                env=none,
            )
            self.assertEqual((printed, os.listdir(self.dir)), ("", []))
        self.levin([*use, f"confusion={self.dir}/m.csv"], OK, env=none)
        for name, begins in (("m.png", b"\x89PNG"), ("m.svg", b"<?xml"), ("m.PNG", b"\x89PNG")):
            printed, _ = self.levin([*use, f"confusion={self.dir}/{name}"], OK)
            self.assertTrue(printed.endswith(f"\nconfusion matrix in {self.dir}/{name}\n"), printed)
            self.assertTrue(read(f"{self.dir}/{name}").startswith(begins), name)
        self.assertEqual(read(f"{self.dir}/m.png"), read(f"{self.dir}/m.PNG"))
        printed, _ = self.levin(
            [*use, f"confusion={self.dir}/none/m.png"], FAILURE, [f"{self.dir}/none/m.png"]
        )
        self.assertEqual(printed, "")

    def test_output_is_no_plain_file(self):
        use = ["predict", f"model={self.model}", f"data={self.photos}"]
        pipe, link, table = f"{self.dir}/pipe", f"{self.dir}/link.csv", f"{self.dir}/table.csv"
        os.mkfifo(pipe)
        write(table, b"old")
        os.symlink(table, link)
        self.levin([*use, f"output={pipe}"], USAGE, [f"{pipe} is a device or pipe"])
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))
        self.levin([*use, "output=/dev/full"], USAGE, ["/dev/full is a device or pipe"])
        self.levin([*use, f"output={self.photos}"], USAGE, [f"{self.photos} is a folder"])
        self.levin(
            [*use, f"output={self.model}/checkpoints/last.safetensors"],
            USAGE,
            ["predictions of images are a table or JSON lines", "ends in .csv"],
        )
        self.levin(
            [*use, f"output={self.dir}/p.npy"],
            USAGE,
            ["predictions of images are a table or JSON lines"],
        )
        self.levin([*use, f"output={link}"], OK)
        self.assertTrue(os.path.islink(link))
        self.assertTrue(read(table).startswith(b"file,class,probability"))

    def test_split(self):
        """12 images, 5 of each 6 trained on."""

        def of(*arguments, model=self.model, code=OK, expects=()):
            return self.levin(["eval", f"model={model}", *arguments], code, expects)

        note = "images were trained on"
        self.assertIn(" of 2 right)", of(f"data={self.photos}", "split=val")[0])
        self.assertIn(" of 10 right)", of(f"data={self.photos}", "split=train")[0])
        printed, reported = of(f"data={self.photos}")
        self.assertIn(" of 12 right)", printed)
        self.assertIn(f"note: 10 of these 12 {note}; split=val measures the others\n", reported)
        moved = f"{self.dir}/moved"
        shutil.copytree(self.photos, moved)
        self.assertIn(f"10 of these 12 {note}", of(f"data={moved}")[1])
        png(f"{moved}/cat/more.png", 20, 18, lambda x, y: (x, y, 0))
        self.assertNotIn(note, of(f"data={moved}")[1])
        of(
            f"data={moved}",
            "split=val",
            code=USAGE,
            expects=["split=val", moved, "here 13 images ", "then 12 images ", "split=all"],
        )
        of(
            f"data={self.photos}",
            "split=test",
            code=USAGE,
            expects=["split=test", "no images in a folder test/"],
        )
        of(
            f"data={self.photos}",
            "split=tets",
            code=USAGE,
            expects=["split", "one of auto, all, train, val, test"],
        )

        own = f"{self.dir}/own"  # a folder with its own parts
        photos(f"{own}/train")
        photos(f"{own}/val", n=3)
        self.assertIn(" of 6 right)", of(f"data={own}", "split=val")[0])
        self.train(data=own)
        self.assertIn(f"12 of these 18 {note}", of(f"data={own}", "split=all", model=self.out)[1])

        shapes = ["data=builtin:shapes", "data.count=30", "data.classes=3"]
        self.train(*shapes, "overwrite=true", "val_split=0")
        self.assertIn(f"all of these 30 {note}", of(*shapes, model=self.out)[1])
        self.assertNotIn(note, of(*shapes, "data.seed=1", model=self.out)[1])
        of(
            *shapes,
            "split=val",
            model=self.out,
            code=USAGE,
            expects=["split=val: this part has no images", "val_split of the training was 0"],
        )

    def test_shapes_are_those_of_the_training(self):
        """Keys that are not given: 60 images of 3 classes, 12 of them not trained on."""
        run, shapes = f"{self.dir}/shapes", "data=builtin:shapes"
        keys = ["data.count=60", "data.classes=3", "data.seed=7", "image_size=8", "model=cnn"]
        self.levin(["train", "classify", shapes, *keys, f"out={run}", "max_steps=2"], OK)
        use = ["eval", f"model={run}", shapes]
        printed, reported = self.levin(use, OK)
        self.assertIn(" of 60 right)", printed)
        self.assertIn("note: 48 of these 60 images were trained on", reported)
        self.assertIn(" of 12 right)", self.levin([*use, "split=val"], OK)[0])
        printed, reported = self.levin([*use, "data.count=100"], OK)
        self.assertIn(" of 100 right)", printed)
        self.assertNotIn("trained on", reported)
        self.levin([*use, "data.seed=1", "split=val"], USAGE, ["here builtin:shapes count=60"])
        self.levin([*use, "data.classes=4"], FAILURE, ["give data.classes=3"])

    def test_split_is_not_recorded(self):
        path = self.crafted("m", {"data": None})  # as in early versions
        use = ["eval", f"model={path}", f"data={self.photos}"]
        self.assertNotIn("trained on", self.levin(use, OK)[1])
        self.levin([*use, "split=val"], USAGE, [path, "does not record its split", "split=all"])
        for key, value in (("val_split", 1), ("val_split", "x"), ("seed", -1), ("seed", 0.5)):
            self.predict(self.crafted("m", {key: value}), ["its model card has " + key])

    def test_unknown_classes(self):
        data = f"{self.dir}/data"
        photos(data, ["cat", "wolf"])
        self.levin(
            ["eval", f"model={self.model}", f"data={data}"],
            FAILURE,
            [data, "the class wolf", "not trained on", "cat ... dog", "rename or remove"],
        )
        self.levin(
            ["eval", f"model={self.model}", "data=builtin:shapes", "data.classes=3"],
            FAILURE,
            ["the model has 2 classes", "data.classes=2"],
        )


class Environment(Case):
    def test_hostile_openmp(self):
        """Limits and dynamic teams of OpenMP would drop parts of a gradient: the command does not
        let them."""
        arguments = [
            "model=cnn",
            "wgrad_threads=2",
            "micro_batches=2",
            "max_steps=1",
            "val_split=0",
        ]
        want = None
        for n, env in enumerate(
            (
                {},
                {"OMP_NUM_THREADS": "1", "OMP_DYNAMIC": "true"},
                {"OMP_THREAD_LIMIT": "1"},
                {
                    "OMP_MAX_ACTIVE_LEVELS": "0",
                    "OMP_NESTED": "false",
                    "OMP_SCHEDULE": "dynamic,1",
                    "OMP_PROC_BIND": "true",
                    "OMP_PLACES": "{0}",
                    "GOMP_CPU_AFFINITY": "0",
                    "OMP_STACKSIZE": "nonsense",
                    "OMP_WAIT_POLICY": "active",
                },
            )
        ):
            self.out = f"{self.dir}/run{n}"
            self.train(*arguments, env=env)
            want = want or self.hashes()
            self.assertEqual(self.hashes(), want, str(env))


if __name__ == "__main__":
    main()
