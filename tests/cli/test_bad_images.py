"""Bad folders, and images that other programs wrote.

usage: test_bad_images.py LEVIN [test names]
"""

import os
import re
import shutil
import struct
import subprocess
import unittest

from case import (
    Case,
    FAILURE,
    GREY_JPEG,
    half,
    JPEG,
    LEVIN,
    main,
    OK,
    photos,
    png,
    read,
    USAGE,
    with_orientation,
    write,
)

MODULE = f"{os.path.dirname(LEVIN)}/levin_video.so"
OTHER_KINDS = {  # how their files begin
    "heic": b"\0\0\0\x18ftypheic\0\0\0\0",
    "avif": b"\0\0\0\x18ftypavif\0\0\0\0",
}
KIND_OF = r"""#!/bin/sh
case $(head -c 12 "$3" | tr -d '\000') in
*ftypheic) echo image/heic ;;
*ftypavif) echo image/avif ;;
*) echo image/jpeg ;;
esac
"""


class Images(Case):
    """What lies in a data folder."""

    def test_missing_folder(self):
        self.refused(
            [f"data={self.dir}/none"],
            [f"data={self.dir}/none: No such file", "give a folder with one sub-folder"],
        )

    def test_prediction_needs_no_classes(self):
        wanted = "an image, a folder of images, or a list"
        for data in ([], [f"data={self.dir}/none"], [f"data={self.photos}/cat/*.png"]):
            self.levin(["predict", f"model={self.model}", *data], USAGE, [wanted])
            _, printed = self.levin(["eval", f"model={self.model}", *data], USAGE)
            self.assertNotIn(wanted, printed)

    def test_a_file_is_no_folder(self):
        self.refused(
            [f"data={self.photos}/cat/0.png"],
            ["0.png is a file", "one sub-folder of images per class"],
        )

    def test_empty_folder(self):
        os.mkdir(f"{self.dir}/empty")
        self.refused([f"data={self.dir}/empty"], [f"{self.dir}/empty: no images (JPEG or PNG)"])

    def test_one_class(self):
        photos(f"{self.dir}/one", ["cat"])
        self.refused(
            [f"data={self.dir}/one"],
            [f"{self.dir}/one", "two or more classes, found 1: cat", "add a sub-folder"],
        )

    def test_loose_images(self):
        self.refused([f"data={self.photos}/cat"], ["6 of 6 images lie in no class folder", "0.png"])

    def bad_image(self, name, content, *expects, early=True):
        """on_error=stop ends the start when the header shows it, with its name; a photo whose
        header was right ends no run. on_error=skip names it once and trains with the rest, and
        predict of that run skips it, too."""
        data = f"{self.dir}/data"
        photos(data)
        write(f"{data}/cat/{name}", content)
        _, reported = self.train(
            "val_split=0",
            "max_steps=3",
            data=data,
            code=FAILURE if early else OK,
            expects=[f"cat/{name}: ", *expects, *(["on_error=skip"] if early else [])],
        )
        self.assertEqual(os.path.exists(self.out), not early)
        lines = reported.count("1 unreadable training sample left out: ")
        self.assertEqual(lines, 0 if early else 1)
        self.no_leftovers()
        printed, reported = self.train(
            "val_split=0",
            "max_steps=-1",
            "max_epochs=2",
            "on_error=skip",
            "overwrite=true",
            data=data,
        )
        self.assertEqual(reported.count(f"cat/{name}: {expects[0]}"), 1, reported)
        once = (
            f"1 of 13 images cannot be used: {data}/cat/{name}: "
            if early
            else f"1 unreadable training sample left out (on_error=skip): cat/{name}: "
        )
        self.assertIn(once, reported)
        self.assertEqual(reported.count("unreadable training sample"), 0 if early else 1, reported)
        counts = (
            "12 images in 2 classes (cat 6, dog 6) and 1 that cannot be used; 12 to train, 0 to "
            if early
            else "13 images in 2 classes (cat 7, dog 6); 13 to train, 0 to "
        )
        self.assertIn(counts, printed)
        self.assertIn("cat/" + name, read(f"{self.out}/train.log").decode())
        self.levin(
            [
                "predict",
                f"model={self.out}",
                f"data={data}",
                f"output={self.dir}/p.csv",
                "on_error=stop",
            ],
            FAILURE,
            [name, *expects],
        )
        self.assertFalse(os.path.exists(f"{self.dir}/p.csv"))
        _, reported = self.levin(
            ["predict", f"model={self.out}", f"data={data}", f"output={self.dir}/p.csv"],
            OK,
            [name, f"on_error=skip, as {self.out}/config.yaml has it"],
        )
        self.assertEqual(reported.count(f"cat/{name}: {expects[0]}"), 1, reported)
        rows = read(f"{self.dir}/p.csv").decode().splitlines()
        self.assertEqual(len(rows), 1 + 12)
        self.assertFalse([r for r in rows if name in r])

    def test_predictions_leave_out_what_the_run_did(self):
        """Of a run with on_error=stop, which goes on without a few photos, eval and predict do,
        too; not with one too many, nor with a model without its run."""
        data, alone = self.damaged("few", 24, 5), f"{self.dir}/alone.safetensors"
        self.train("val_split=0", "max_steps=-1", "max_epochs=1", data=data)
        write(alone, read(f"{self.out}/exported_models/exported_last.safetensors"))
        table = f"{self.dir}/p.csv"
        use = [["predict", f"output={table}"], ["eval", "split=all"]]
        warning = "10 unreadable samples left out"
        for command in use:
            for model in (self.out, f"{self.out}/exported_models/exported_last.safetensors"):
                self.levin([*command, f"model={model}", f"data={data}"], OK, [warning])
            self.assertEqual(len(read(table).splitlines()), 1 + 48 - 10)
            for stops in ([f"model={self.out}", "on_error=stop"], [f"model={alone}"]):
                self.levin([*command, *stops, f"data={data}"], FAILURE, [".png: damaged PNG"])
        with open(f"{data}/cat/20.png", "r+b") as f:
            f.seek(60)
            f.write(b"\0" * 40)
        write(table, b"kept")
        expects = ["11 of 48 samples could not be read, and a run leaves out 10 at most"]
        for command in use:
            self.levin([*command, f"model={self.out}", f"data={data}"], FAILURE, expects)
        self.assertEqual(read(table), b"kept")

    def test_more_pixels_than_the_limit(self):
        """Of what an image claims, before anything is decoded; also where a list has the sizes."""
        data = f"{self.dir}/data"
        photos(data)
        png(f"{data}/dog/large.png", 40, 30, lambda x, y: (x, y, 0))
        expects = [
            f"{data}/dog/large.png: an image of 40 x 30 = 1200 pixels, more than "
            "data.max_pixels=1199",
            "give data.max_pixels=1200",
        ]
        self.train("data.max_pixels=1199", "val_split=0", data=data, code=FAILURE, expects=expects)
        self.train("data.max_pixels=1200", "val_split=0", data=data)
        again = [
            "train",
            "classify",
            f"data={data}",
            f"out={self.out}",
            "resume=true",
            "max_steps=4",
        ]
        self.levin([*again, "data.max_pixels=1199"], FAILURE, expects)
        skipped = f"1 of 13 images cannot be used: {data}/dog/large.png: an image of 40 x 30"
        _, reported = self.levin(
            [*again, "data.max_pixels=1199", "on_error=skip", "max_epochs=2", "max_steps=-1"], OK
        )
        self.assertIn(skipped, reported)
        self.levin(
            [
                "predict",
                f"model={self.out}",
                f"data={data}",
                "data.max_pixels=1199",
                "on_error=stop",
                f"output={self.dir}/p.csv",
            ],
            FAILURE,
            expects[:1],
        )

    def test_zero_bytes(self):
        self.bad_image("zero.jpg", b"", "the file is empty (0 bytes)")

    def test_truncated_jpeg(self):
        self.bad_image("cut.jpg", JPEG[:-6], "damaged JPEG data", "Premature end", early=False)

    def test_no_image_at_all(self):
        self.bad_image("text.png", b"hello", "neither a JPEG nor a PNG", "5 bytes")

    def test_no_image_under_the_name_of_one(self):
        self.bad_image("text.webp", b"hello", "neither a JPEG nor a PNG", "5 bytes")

    def test_damaged_png(self):
        whole = read(f"{self.photos}/cat/0.png")
        self.bad_image("cut.png", whole[:-20], "damaged PNG", early=False)

    def test_images_of_other_kinds(self):
        """One message for each kind, whatever its files are called; its command converts them, and
        then nothing is reported any more."""
        data, tools = f"{self.dir}/my data", f"{self.dir}/tools"
        photos(data)
        for i, (kind, head) in enumerate(OTHER_KINDS.items()):
            write(f"{data}/cat/n{i}.{kind}", head)
            write(f"{data}/dog/x{i}.jpg", head)
            write(f"{data}/dog/.hidden.{kind}", head)
        write(f"{data}/dog/done.webp", b"RIFF\x24\0\0\0WEBPVP8 ")  # whose copy is read
        png(f"{data}/dog/done.png", 20, 18, half)
        write(f"{data}/dog/shot.HEIC", OTHER_KINDS["heic"])  # as phones name the two
        png(f"{data}/dog/shot.PNG", 20, 18, half)
        reasons = [f"dog/x{i}.jpg: the image is {k.upper()}" for i, k in enumerate(OTHER_KINDS)]
        _, reported = self.train(
            data=data, code=FAILURE, expects=["2 of 16 images cannot be used: ", *reasons]
        )
        lines = [line for line in reported.splitlines() if "images are not read" in line]
        self.assertEqual(len(lines), len(OTHER_KINDS), reported)
        # a stand-in for file, which looks at the first letters, and one for ImageMagick
        write(f"{tools}/file", KIND_OF.encode())
        write(f"{tools}/convert", f'#!/bin/sh\ncp "{self.photos}/cat/0.png" "$3"\n'.encode())
        for tool in ("file", "convert"):
            os.chmod(f"{tools}/{tool}", 0o755)
        for line in lines:
            self.assertIn(f"warning: data={data}: 2 ", line)
            command = line.split("convert them: ")[1].split("  (")[0]
            env = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}")
            subprocess.run(["sh", "-c", command], check=True, env=env, cwd=self.dir)
        printed, reported = self.train(data=data)
        self.assertNotIn("not read", reported)
        self.assertNotIn("cannot be used", reported)
        self.assertIn("18 images in 2 classes (cat 8, dog 10)", printed)
        os.mkdir(f"{self.dir}/one")
        write(f"{self.dir}/one/a.heic", OTHER_KINDS["heic"])
        self.levin(
            ["predict", f"model={self.model}", f"data={self.dir}/one", f"output={self.dir}/p.csv"],
            USAGE,
            ["no images (JPEG or PNG)", "1 HEIC image is not read", "-exec sh -c"],
        )

    def test_images_that_the_module_decodes(self):
        """PPM and BMP of the same pixels train as PNG does; without the module each is an error
        that has its packages. A file beside its converted copy is left out."""
        data = f"{self.dir}/others"
        for c, name in enumerate(("cat", "dog")):
            for i in range(6):
                pixels = [
                    (30 + 170 * c, (x * 5 + i * 9) % 256, y * 7)
                    for y in range(18)
                    for x in range(20)
                ]
                if i % 2 == 0:
                    head = b"P6 20 18 255\n"
                    write(f"{data}/{name}/{i}.ppm", head + b"".join(map(bytes, pixels)))
                else:
                    rows = [pixels[20 * y : 20 * y + 20] for y in reversed(range(18))]
                    turned = b"".join(bytes(p[::-1]) for row in rows for p in row)
                    head = struct.pack("<IiiHHIIiiII", 40, 20, 18, 1, 24, 0, 1080, 0, 0, 0, 0)
                    write(
                        f"{data}/{name}/{i}.bmp",
                        b"BM" + struct.pack("<III", 54 + 1080, 0, 54) + head + turned,
                    )
        if not os.path.exists(MODULE):
            kind = "images of the kind PNM cannot be read: there is no levin_video.so"
            self.refused([f"data={data}"], [kind, "libavcodec-dev"], FAILURE)
            return
        printed, _ = self.train(data=data)
        self.assertIn("12 images in 2 classes", printed)
        found = self.hashes().splitlines()[0]
        shutil.rmtree(self.out)
        self.train()
        self.assertEqual(found, self.hashes().splitlines()[0])

    @unittest.skipUnless(os.path.exists(MODULE), "levin is built without levin_video.so")
    def test_cut_ppm(self):
        cut = b"P6 20 18 255\n" + bytes(1000)
        self.bad_image("cut.ppm", cut, "this PNM cannot be decoded", early=False)

    @unittest.skipUnless(os.path.exists(MODULE), "levin is built without levin_video.so")
    def test_header_of_a_gif(self):
        self.bad_image("head.gif", b"GIF89a\1", "damaged GIF: the header is missing or cut off")

    def test_damage_is_reported_before_the_first_step(self):
        data = f"{self.dir}/data"
        photos(data)
        for name in ("cat/zero.jpg", "cat/text.png", "dog/zero.jpg"):
            write(f"{data}/{name}", b"")
        self.refused(
            [f"data={data}"],
            [
                "3 of 15 images cannot be used: ",
                f"{data}/cat/text.png: the file is empty (0 bytes); cat/zero.jpg: the file is "
                "empty (0 bytes); dog/zero.jpg: the file is empty (0 bytes)",
                "on_error=skip",
            ],
            FAILURE,
        )
        self.levin(
            ["plan", *self.arguments(data, self.out)], FAILURE, ["3 of 15 images cannot be used"]
        )
        printed, _ = self.levin(["plan", *self.arguments(self.photos, self.out)], OK)
        self.assertIn("; images of 20x18 pixels, ", printed)
        self.assertIn(", decoding ", printed)

    def aged(self, *more, parts=("",)):
        """A folder that was not changed lately, with `more` empty images."""
        data = f"{self.dir}/data"
        for part in parts:
            photos(f"{data}/{part}")
        for name in more:
            write(f"{data}/{name}", b"")
        past = os.stat(data).st_mtime - 100
        for folder, _, files in os.walk(data, topdown=False):
            for name in files + ["."]:
                os.utime(os.path.join(folder, name), (past, past))
        return data

    def test_damage_elsewhere(self):
        """A damaged image in the training part does not concern the validation part, with or
        without the index of the run."""
        data = self.aged("train/cat/zero.png", parts=("train", "val"))
        self.train("on_error=skip", data=data)
        for model in (self.out, f"{self.out}/exported_models/exported_last.safetensors"):
            stop = ["eval", f"model={model}", f"data={data}", "on_error=stop"]
            self.levin([*stop, "split=val"], OK)
            self.levin([*stop, "split=train"], FAILURE, ["train/cat/zero.png", "on_error=skip"])
            self.levin(["eval", f"model={model}", f"data={data}", "split=train"], OK, ["12 of 12"])

    def test_early_words_are_in_the_log(self):
        data = self.aged("cat/zero.png")
        write(f"{self.dir}/c.yaml", b"optim.momentum: 0.8\noptim.name: adamw\n")
        _, reported = self.train("on_error=skip", f"config={self.dir}/c.yaml", data=data)
        log = read(f"{self.out}/train.log").decode()
        for piece in ("1 of 13 images cannot be used", "optim.momentum"):
            self.assertEqual(reported.count(piece), 1, reported)
            self.assertEqual(log.count(piece), 1, log)
        os.utime(f"{data}/cat/3.png", (9, 9))
        self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=3"],
            OK,
            ["its images are listed again"],
        )
        self.assertIn("its images are listed again", read(f"{self.out}/train.log").decode())

    def test_only_a_run_writes_its_index(self):
        data, index = self.aged(), f"{self.dir}/x.index"
        given = [*self.arguments(data, self.out), f"data.index={index}"]
        self.levin(["plan", *given], OK)
        self.assertFalse(os.path.exists(index))
        self.levin([*given, "batch_size=0"], USAGE)
        self.levin([*given, "weights=none.safetensors"], USAGE)
        self.assertFalse(os.path.exists(index))
        self.levin(given, OK)
        self.assertEqual(read(index).count(b"\npicture "), 12)
        self.assertFalse(os.path.exists(f"{self.out}/data.index"))
        write(f"{data}/cat/zero.png", b"")
        self.levin(given, USAGE, [f"out={self.out} exists"])  # reported before the folder is read
        os.remove(f"{data}/cat/zero.png")
        inside = [
            *self.arguments(data, self.out),
            f"data.index={self.out}/data.index",
            "overwrite=true",
        ]
        for _ in range(2):  # made, then taken
            self.levin(inside, OK)
            self.assertEqual(read(f"{self.out}/data.index").count(b"\npicture "), 12)

    def test_link_that_leads_nowhere_yet(self):
        """A disk that was away: its class is there when the disk is, whatever index there is."""
        data = self.aged()
        os.symlink(f"{self.dir}/disk/dog", f"{data}/dog/more")
        past = os.stat(data).st_mtime
        os.utime(f"{data}/dog", (past, past))
        self.train(
            "val_split=0",
            data=data,
            expects=[f"the list of its images is not kept: {data}/dog/more leads to no folder"],
        )
        self.assertFalse(os.path.exists(f"{self.out}/data.index"))
        photos(f"{self.dir}/disk", ["dog"])
        self.levin(["predict", f"model={self.out}", f"data={data}", f"output={self.dir}/p.csv"], OK)
        self.assertEqual(len(read(f"{self.dir}/p.csv").splitlines()), 1 + 18)

    def test_index_of_a_run(self):
        """Taken while the folder is as it was; a change is reported once, and the run goes on with
        what is there now."""
        data, index = self.aged(), f"{self.out}/data.index"
        past = os.stat(data).st_mtime
        listed_again = "its images are listed again"
        use = {
            "resume": ["train", "classify", f"out={self.out}", "resume=true", "max_steps=3"],
            "eval": ["eval", f"model={self.out}", f"data={data}"],
            "predict": ["predict", f"model={self.out}", f"data={data}", f"output={self.dir}/p.csv"],
        }
        self.train(data=data)
        first = read(index)
        self.assertEqual(first.count(b"\npicture "), 12)
        for arguments in use.values():
            self.assertNotIn(listed_again, "".join(self.levin(arguments, OK)))
        self.assertEqual(read(index), first)
        os.utime(f"{data}/cat/3.png", (past + 9, past + 9))
        for arguments in (use["eval"], use["predict"], use["resume"][:-1] + ["max_steps=4"]):
            self.levin(
                arguments,
                OK,
                [
                    f"data={data} is not as {index} has it: {data}/cat/3.png was "
                    f"written again; {listed_again}"
                ],
            )
        self.assertNotEqual(read(index), first)
        self.assertNotIn(listed_again, self.levin(use["eval"], OK)[1])
        png(f"{data}/dog/6.png", 30, 18, half)
        self.levin(
            use["predict"],
            OK,
            [f"something was added to {data}/dog, removed or renamed; " f"{listed_again}"],
        )
        self.assertEqual(len(read(f"{self.dir}/p.csv").splitlines()), 1 + 13)
        write(index, first[:100])
        self.levin(use["eval"], OK, [f"{index} is damaged; {listed_again}"])

    def test_all_unreadable(self):
        data = f"{self.dir}/data"
        for c in ("cat", "dog"):
            for i in range(4):
                write(f"{data}/{c}/{i}.jpg", b"")
        expects = [
            "8 of 8 images cannot be used",
            "error: none of the training samples",
            "8 samples",
        ]
        self.train("val_split=0", "on_error=skip", data=data, code=FAILURE, expects=expects)
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])  # no model that learned nothing
        write(f"{self.dir}/p.csv", b"kept")
        use = [f"model={self.model}", f"data={data}", "on_error=skip"]
        self.levin(
            ["predict", *use, f"output={self.dir}/p.csv"],
            FAILURE,
            [f"data={data}", "none of its 8 images could be read"],
        )
        self.assertEqual(read(f"{self.dir}/p.csv"), b"kept")
        self.levin(["eval", *use], FAILURE, [f"data={data}", "none of its 8 images could be read"])

    def test_validation_all_unreadable(self):
        """With on_error=skip the run goes on, and the best model is the one of the best training
        loss."""
        data = f"{self.dir}/data"
        photos(f"{data}/train")
        write(f"{data}/val/cat/0.jpg", b"")
        self.train(
            "max_steps=-1",
            "max_epochs=1",
            "on_error=skip",
            data=data,
            expects=[f"1 of 13 images cannot be used: {data}/val/cat/0.jpg"],
        )
        self.assertEqual(self.hashes(), self.hashes(which="best"))

    def damaged(self, name, n, bad):
        """Photos whose header is right; of `bad` the pixels are not."""
        data = f"{self.dir}/{name}"
        photos(data, n=n)
        for c in ("cat", "dog"):
            for i in range(bad):
                with open(f"{data}/{c}/{i}.png", "r+b") as f:
                    f.seek(60)
                    f.write(b"\0" * 40)
        return data

    def ends(self, data, *more):
        """The sentence that a run ends with, whichever rank it was, and the lines about what was
        left out."""
        given = ["val_split=0", "max_steps=-1", "max_epochs=2", *more]
        self.train(*given, data=data, code=FAILURE, env={"LEVIN_SIM_DEVICES": "2"})
        log = read(f"{self.out}/train.log").decode().splitlines()
        last = [line.split("[ERROR] ")[1] for line in log if "[ERROR] " in line][-1]
        lines = [line.split("[WARNING] ")[1] for line in log if "unreadable" in line]
        return re.sub(r"^rank \d \([^)]*\) failed first at step \d+: ", "", last), lines

    def test_too_many_damaged_images(self):
        """They lie in one batch, or are decoded ahead; how many threads and ranks there are, and
        whether the host is a step ahead of the device, decides nothing."""
        few, many = self.damaged("few", 24, 9), self.damaged("many", 128, 127)
        for data, size, n in ((many, 128, 256), (few, 4, 48)):
            all_ends = []
            for workers in (0, 1, 4):
                for devices, kind in ((1, "cpu"), (2, "cpu"), (1, "sim"), (2, "sim")):
                    given = [f"batch_size={size}", "micro_batches=2", f"num_workers={workers}"]
                    given += [f"devices={devices}", f"accelerator={kind}", "overwrite=true"]
                    all_ends.append(self.ends(data, *given))
            self.assertEqual(all_ends, len(all_ends) * all_ends[:1])
            self.assertIn(f"11 of {n} training samples could not be read", all_ends[0][0])
            self.assertEqual(all_ends[0][1] == [], n == 256)

    def test_too_many_damaged_images_of_a_resumed_run(self):
        data = self.damaged("few", 24, 9)
        given = ["batch_size=4", "micro_batches=2"]
        whole = self.ends(data, *given)
        self.assertRegex(whole[0], r"^11 of 48 training .* and 5 more; step \d+ \(epoch 1\) is ")
        for k in (1, 2, 3):
            self.train("val_split=0", f"max_steps={k}", *given, "overwrite=true", data=data)
            devices = f"devices={1 + k % 2}"
            self.assertEqual(self.ends(data, *given, "resume=true", devices), whole, k)

    def predictions(self, folder):
        self.levin(
            ["predict", f"model={self.model}", f"data={folder}", f"output={self.dir}/p.csv"], OK
        )
        return dict(
            row.split(",", 1) for row in read(f"{self.dir}/p.csv").decode().splitlines()[1:]
        )

    def test_grey_jpeg(self):
        """A JPEG in grey gives what the same image in colour gives, and can be trained on."""
        data = f"{self.dir}/data"
        photos(data)
        write(f"{data}/cat/grey.jpg", GREY_JPEG)
        png(f"{data}/cat/grey.png", 24, 16, half)
        p = self.predictions(data)
        self.assertEqual(p["cat/grey.jpg"], p["cat/grey.png"])
        self.assertNotEqual(p["cat/grey.jpg"], p["cat/0.png"])
        self.train("max_epochs=1", data=data)

    def test_exif_rotation(self):
        """Turned as the camera's Exif asks: the same prediction as for an image that was turned
        before."""
        data = f"{self.dir}/turned"
        as_seen = {
            1: (24, 16, half),
            2: (24, 16, lambda x, y: half(23 - x, y)),
            3: (24, 16, lambda x, y: half(23 - x, 15 - y)),
            6: (16, 24, lambda x, y: half(y, x)),
            8: (16, 24, lambda x, y: half(23 - y, x)),
        }
        for value, (width, height, pixel) in as_seen.items():
            write(f"{data}/{value}.jpg", with_orientation(JPEG, value))
            png(f"{data}/{value}.png", width, height, pixel)
        p = self.predictions(data)
        for value in as_seen:
            self.assertEqual(p[f"{value}.jpg"], p[f"{value}.png"], f"orientation {value}")
        self.assertEqual(len({p[f"{v}.png"] for v in (1, 3, 6, 8)}), 4)  # they differ

    def test_no_permission(self):
        data = f"{self.dir}/data"
        photos(data)
        who = self.other_user()
        os.chmod(f"{data}/cat/3.png", 0)
        expects = [f"{data}/cat/3.png", "Permission denied", "on_error=skip"]
        self.train("val_split=0", data=data, code=FAILURE, expects=expects, before=who)
        self.train(
            "val_split=0",
            "max_epochs=1",
            "on_error=skip",
            "overwrite=true",
            data=data,
            expects=["cat/3.png: cannot open: Permission denied; left out (on_error=skip)"],
            before=who,
        )
        os.chmod(f"{data}/dog", 0)
        self.train(
            "overwrite=true",
            "on_error=skip",
            data=data,
            code=FAILURE,
            expects=[f"{data}/dog", "Permission denied"],
            before=who,
        )
        os.chmod(f"{data}/dog", 0o755)


if __name__ == "__main__":
    main()
