"""What is reported of a folder: parts, classes and counts, ignored files, what eval measures.

usage: test_layouts.py LEVIN [test names]
"""

import json
import os
import re

from case import Case, FAILURE, JPEG, main, OK, photos, png, read, USAGE, write


def folder(path, counts):
    """counts: class folder -> number of images; a class has its colour in every part."""
    for name, n in counts.items():
        red = 30 + 170 * (sum(name.rsplit("/", 1)[-1].encode()) % 3) // 2
        for i in range(n):
            png(f"{path}/{name}/{i}.png", 20, 18, lambda x, y: (red, (x * 5 + i * 9) % 256, y * 7))


class Layouts(Case):
    def setUp(self):
        super().setUp()
        self.data = f"{self.dir}/data"

    def plan(self, *more, code=OK, expects=()):
        return self.levin(["plan", *self.arguments(self.data, self.out, *more)], code, expects)

    def right(self, *more):
        """How many images eval measured, and what it printed beside."""
        printed, reported = self.levin(
            ["eval", f"model={self.out}", f"data={self.data}", *more], OK
        )
        return int(re.search(r"of (\d+) right", printed).group(1)), reported

    def test_counts_of_classes(self):
        folder(self.data, {"cat": 5, "dog": 7, "ape": 2})
        printed, _ = self.plan()
        self.assertIn(
            "14 images in 3 classes (ape 2, cat 5, dog 7); 11 to train, 3 to val", printed
        )
        folder(self.data, {f"more{i}": 1 for i in range(18)})
        printed, reported = self.plan()
        self.assertIn("32 images in 21 classes (smallest: more0 1, largest: dog 7)", printed)
        self.assertRegex(
            reported, "too few images to validate any of: more0, more1, .*, and 10 more"
        )
        self.assertNotIn("too few", self.plan("val_split=0")[1])

    def test_parts(self):
        folder(
            self.data,
            {"Train/cat": 6, "Train/dog": 6, "validation/dog": 3, "TEST/cat": 4, "TEST/dog": 1},
        )
        printed, reported = self.plan()
        self.assertIn(
            "15 images in 2 classes (cat 6, dog 9); 12 to train, 3 to validate; ", printed
        )
        self.assertIn("; TEST/ is left to eval", printed)
        self.assertIn("the validation part has no image of: cat", reported)
        self.train(data=self.data)
        sizes = {"train": 12, "val": 3, "test": 5, "all": 20}
        for split, n in sizes.items():
            self.assertEqual(self.right(f"split={split}")[0], n, split)
        n, reported = self.right()
        self.assertEqual(n, 5)
        self.assertIn("split=test: ", reported)
        out = self.levin(["eval", f"model={self.out}", f"data={self.data}", "--json"], OK)[0]
        self.assertEqual(json.loads(out)["split"], "test")
        # predict knows no classes; where it names that of the folder, eval counts it
        self.levin(
            ["predict", f"model={self.out}", f"data={self.data}", f"output={self.dir}/p.csv"], OK
        )
        rows = [row.split(",")[:2] for row in read(f"{self.dir}/p.csv").decode().splitlines()[1:]]
        for part, split in (
            ("Train/", "train"),
            ("validation/", "val"),
            ("TEST/", "test"),
            ("", "all"),
        ):
            good = sum(f"/{name}/" in file for file, name in rows if file.startswith(part))
            printed = self.levin(
                ["eval", f"model={self.out}", f"data={self.data}", f"split={split}"], OK
            )[0]
            self.assertIn(f"({good} of {sizes[split]} right)", printed)

    def test_test_without_val(self):
        folder(self.data, {"train/cat": 5, "train/dog": 5, "test/cat": 3})
        self.assertIn("(cat 5, dog 5); 8 to train, 2 to validate; test/ is left", self.plan()[0])
        self.train(data=self.data)
        self.assertEqual(
            [self.right(f"split={s}")[0] for s in ("train", "val", "test", "all", "auto")],
            [8, 2, 3, 13, 3],
        )
        hashes = self.hashes()
        os.rename(f"{self.data}/test", f"{self.dir}/test")  # it takes no part in training
        self.train("overwrite=true", data=self.data)
        n, reported = self.right()
        self.assertEqual(n, 10)
        self.assertIn("8 of these 10 images were trained on", reported)
        self.assertEqual(self.hashes(), hashes)

    def test_names_of_parts_change_no_bit(self):
        hashes = set()
        for train, val in (("train", "val"), ("TRAIN", "Validation")):
            data = f"{self.dir}/{train}"
            folder(data, {f"{train}/cat": 4, f"{train}/dog": 4, f"{val}/cat": 2, f"{val}/dog": 2})
            self.train("overwrite=true", "augment.hflip=0.5", data=data)
            hashes.add(self.hashes().split()[1])  # the state knows the paths
        self.assertEqual(len(hashes), 1, hashes)

    def test_parts_are_not_taken_for_classes(self):
        folder(self.data, {"train/cat": 3, "train/dog": 3, "dev/cat": 2})
        for arguments in (
            ["plan", *self.arguments(self.data, self.out)],
            ["eval", f"model={self.model}", f"data={self.data}"],
        ):
            self.levin(
                arguments,
                USAGE,
                ["parts of the data, or classes?", "dev", "train", "data.layout=classes"],
            )
        self.refused([f"data={self.data}"], ["parts of the data, or classes?"])
        self.assertIn("8 images in 2 classes (dev 2, train 6)", self.plan("data.layout=classes")[0])
        data = f"{self.dir}/nested"
        folder(data, {"one/cat": 3, "one/dog": 3, "two/cat": 2, "two/dog": 1})
        self.refused(
            [f"data={data}"],
            [
                "all 2 folders",
                "hold the same sub-folders (cat, dog)",
                f"data={data}/one",
                "data.layout=classes",
            ],
        )

    def test_the_spelling_of_classes(self):
        folder(self.data, {"Cat": 3, "dog": 3})
        self.levin(
            ["eval", f"model={self.model}", f"data={self.data}"],
            FAILURE,
            ["has the class Cat, which the model calls cat"],
        )
        folder(f"{self.dir}/parts", {"train/Cat": 3, "train/dog": 3, "val/cat": 1})
        self.refused([f"data={self.dir}/parts"], ["val/ has the class cat, which train/ calls Cat"])

    def test_ignored_files(self):
        photos(self.data)
        for name in ("cat/a.heic", "cat/b.HEIC", "notes.txt"):
            write(f"{self.data}/{name}", b"RIFF")
        for name in (
            "cat/x.jfif",
            "dog/x",
            "__MACOSX/cat/x.jpg",
            "cat/._x.jpg",
            "@eaDir/x.jpg",
            "dog/.ipynb_checkpoints/x.jpg",
            "dog/Thumbs.db",
        ):
            write(f"{self.data}/{name}", JPEG)
        line = "ignored: 2 .heic, 1 .txt\n"
        printed, _ = self.plan()
        self.assertIn("14 images in 2 classes (cat 7, dog 7)", printed)
        self.assertIn(line, printed)
        past = os.stat(self.data).st_mtime - 100
        for where, _, _ in os.walk(self.data):
            os.utime(where, (past, past))
        self.train(data=self.data, expects=[line])
        self.assertIn(line, read(f"{self.out}/train.log").decode())
        self.assertEqual(read(f"{self.out}/data.index").count(b"\nignored "), 2)
        for arguments in (["eval"], ["predict", f"output={self.dir}/p.csv"]):
            self.assertIn(
                line, self.levin([*arguments, f"model={self.out}", f"data={self.data}"], OK)[1]
            )
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=3"], OK, [line]
        )  # from the index
        self.assertEqual(read(f"{self.dir}/p.csv").count(b"\n"), 1 + 14)

    def test_classes_called_like_parts(self):
        """Nothing is reported about a part that is none, and what chooses otherwise is named."""
        folder(self.data, {"test": 5, "prod": 5})
        for arguments in ([], ["data.layout=classes"]):
            printed = self.plan(*arguments)[0]
            self.assertIn("10 images in 2 classes (prod 5, test 5); 8 to train, 2 to val", printed)
            self.assertNotIn("left to eval", printed)
        os.rename(f"{self.data}/prod", f"{self.data}/train")
        self.train("data.layout=classes", data=self.data)
        self.levin(
            ["eval", f"model={self.out}", f"data={self.data}"],
            USAGE,
            ["lie in no class folder", "data.layout=classes"],
        )
        self.assertEqual(self.right("data.layout=classes")[0], 10)

    def test_class_without_images(self):
        photos(self.data)
        write(f"{self.data}/hat/a.heic", b"RIFF")
        self.refused(
            [f"data={self.data}"],
            ["no image (JPEG or PNG) in the class folder hat (ignored: 1 .heic)", "on_error=skip"],
        )
        self.train(
            "on_error=skip",
            data=self.data,
            expects=["no image (JPEG or PNG) in the class folder hat", "12 images in 2 classes"],
        )
        write(f"{self.data}/coat/b.jpg", b"RIFF")
        write(f"{self.data}/coat/c.jpg", b"RIFF")
        self.train(
            "overwrite=true",
            data=self.data,
            code=FAILURE,
            expects=["2 of 14 images cannot be used", "on_error=skip"],
        )
        self.train(
            "on_error=skip",
            "overwrite=true",
            data=self.data,
            expects=["no image can be read of the classes coat"],
        )


if __name__ == "__main__":
    main()
