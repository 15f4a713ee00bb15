"""examples/13_autoencoder: images without classes, codes of them as predictions.

Has one hash with 1 and 2 ranks and when resumed; its codes are the same from a run and from an
exported file, a row for each image; what it learned is measured again by eval. Images of what it
makes of some are drawn while it trains. Damaged images are treated as those of classify.

usage: test_autoencoder.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
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
from pathlib import Path

from patterns import draw_patterns
from rank_processes import drop_identity
from small_png import pixel_rows
from today import OfToday

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
os.environ["LEVIN_SIM_DEVICES"] = "2"
CODE = 16
SMALL = ("image_size=16", f"code={CODE}", "width=8", "wgrad_threads=1", "quiet=true")


def levin(*arguments, status=0):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=200
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def train(out, *arguments, data="patterns"):
    levin("train", MINE, f"data={data}", f"out={out}", *SMALL, *arguments)
    return levin("ckpt", "hash", out)


def curve(out, name):
    lines = map(json.loads, Path(FOLDER, out, "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def compile_with(name, before, after):
    """The example with a change."""
    text = Path(SOURCE).read_text()
    assert before in text, before
    Path(FOLDER, f"{name}.c").write_text(text.replace(before, after))
    levin("cc", f"{name}.c")
    return f"./{name}.so"


def images(out):
    folder = Path(FOLDER, out, "images")
    return {f.name: f.read_bytes() for f in folder.iterdir()} if folder.exists() else {}


def brightness(out, name):
    """Of an image in (row, column) of the sheet: 64 x 64 pixels behind a margin of 2."""
    rows, places = list(pixel_rows(f"{FOLDER}/{out}/images/{name}")), range(0, 64, 4)
    assert (len(rows[0]) // 3, len(rows)) == (8 * 66 + 2, 2 * 66 + 2), (len(rows[0]), len(rows))

    def image(top, left):
        return [rows[top + y][3 * (left + x)] for y in places for x in places]

    return [[image(2 + 66 * r, 2 + 66 * c) for c in range(8)] for r in range(2)]


PREVIEW = "    return lvn_stack(rows, 2, 0);"


class Autoencoder(unittest.TestCase):
    def test_layouts_and_resume(self):
        steps = ("max_epochs=2", "micro_batches=2", "batch_size=8", "scheduler=constant")
        # 5 steps in an epoch
        layouts = {"one": (), "ddp": ("devices=2", "strategy=ddp"), "parts": ("max_steps=7",)}
        for name, layout in layouts.items():
            train(name, *steps, *layout)
        self.assertEqual(len(curve("parts", "val/explained")), 1)
        levin("train", MINE, "resume=true", "out=parts", "max_steps=-1", "quiet=true")
        hashes = {name: levin("ckpt", "hash", name) for name in layouts}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        metrics = {tuple(curve(name, "val/explained")) for name in layouts}
        self.assertEqual(len(metrics), 1, metrics)

    def test_shapes_are_learned_measured_and_exported(self):
        train("shapes", "max_epochs=2", "batch_size=16", "optim.lr=5e-3", data="builtin:shapes")
        explained = curve("shapes", "val/explained")
        self.assertGreater(explained[-1], 0.4)  # 0: the mean colour
        above, below = (sum(row, []) for row in brightness("shapes", "step=0000200.png"))
        mean = sum(above) / len(above)
        error = sum((a - b) ** 2 for a, b in zip(above, below))
        self.assertLess(error, 0.7 * sum((a - mean) ** 2 for a in above))
        shown = json.loads(levin("eval", MINE, "model=shapes", "--json").splitlines()[0])
        self.assertEqual(shown["samples"], 400)
        self.assertEqual(shown["metrics"]["explained"], explained[-1])
        self.codes(levin("predict", MINE, "model=shapes", "output=-"), 2000)

    def codes(self, shown, count):
        """name: code of a table."""
        rows = list(csv.reader(line for line in shown.splitlines() if "," in line))
        start = rows.index(["sample", *map(str, range(CODE))])
        table = {row[0]: row[1:] for row in rows[start + 1 :] if len(row) == CODE + 1}
        self.assertEqual(len(table), count)
        self.assertEqual(len({tuple(code) for code in table.values()}), count)
        return table

    def test_codes(self):
        train("coded", "max_epochs=1")
        levin("export", MINE, "model=coded", "output=net.safetensors")
        all_codes = levin("predict", MINE, "model=coded", "output=-")
        codes = self.codes(all_codes, 48)  # those kept for validation, too
        again = levin("predict", MINE, "model=net.safetensors", "data=patterns", "output=-")
        self.assertEqual(self.codes(again, 48), codes)
        one = levin("predict", MINE, "model=coded", "data=patterns/rings/3.png", "output=-")
        self.assertEqual(self.codes(one, 1), {"3.png": codes["rings/3.png"]})

    def damaged(self, name, *pixels):
        """Images below `name` whose headers are right, but not all of their pixels."""
        draw_patterns(Path(FOLDER, name), 12)
        for image in pixels:
            file = Path(FOLDER, name, image)
            data = bytearray(file.read_bytes())
            data[60:100] = bytes(40)
            file.write_bytes(data)
        return f"data={name}"

    def test_damaged_images(self):
        """No training ends at a few whose header was right, whatever the layout; eval and predict
        of it leave them out, too."""
        data = self.damaged("few", "down/3.png", "rings/3.png")  # one of either part
        run = ("train", MINE, data, *SMALL, "max_epochs=2", "micro_batches=2", "batch_size=8")
        left_out = {
            "warning: 1 unreadable training sample left out: down/3.png: damaged PNG: ",
            "warning: 1 unreadable validation sample left out: rings/3.png: damaged PNG: ",
        }
        hashes, ranks = set(), ("devices=2", "accelerator=cpu")
        for name, layout in (("few-one", ()), ("few-two", ranks)):
            shown = levin(*run, f"out={name}", *layout)
            lines = {line.split("IDAT")[0] for line in shown.splitlines() if "unreadable" in line}
            self.assertEqual(lines, left_out)
            hashes.add(levin("ckpt", "hash", name))
        self.assertEqual(len(hashes), 1, hashes)
        use = ("model=few-two", *ranks)
        shown = levin("eval", MINE, *use, "split=val")
        self.assertIn("1 unreadable sample left out: rings/3.png: damaged PNG", shown)
        self.assertIn("2 unreadable samples left out: down", levin("predict", MINE, *use))
        message = levin("predict", MINE, *use, "on_error=stop", status=1)
        self.assertIn("3.png: damaged PNG", message)
        self.damaged("few", *[f"{k}/{i}.png" for k in ("across", "checks") for i in range(12)])
        message = levin(*run, "out=many", status=1)
        self.assertRegex(message, "11 of 38 training samples could not be read, and a run leaves ")

    def test_damage_that_a_header_shows(self):
        """Ends a training before its first step, of either folder where there are two."""
        data, out = self.damaged("empty"), ("out=empty-run", *SMALL, "max_steps=2")
        Path(FOLDER, "empty", "rings", "zero.jpg").touch()
        Path(FOLDER, "empty", "rings", "x.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0")
        refused = (
            "2 of 50 images cannot be used: empty/rings/x.jpg: the image is HEIC; convert it to "
            "JPEG or PNG; rings/zero.jpg: the file is empty (0 bytes)"
        )
        shown = levin("train", MINE, data, *out, status=1)
        self.assertIn(f"{refused}; repair or remove them, or omit them with on_error=skip", shown)
        self.assertEqual(shown.count("1 HEIC image is not read"), 1)
        self.assertFalse(Path(FOLDER, "empty-run").exists())
        self.assertIn(refused, levin("plan", "train", MINE, data, *out, status=1))
        shown = levin("train", MINE, data, *out, "on_error=skip")
        self.assertEqual(shown.count(f"{refused}; left out (on_error=skip)"), 1)
        self.assertNotIn("unreadable", shown)
        parts = compile_with(
            "parts",
            'LVN_IMAGE_FOLDER(lvn_key_text(k, "data"), .flat = true, .part = part,',
            'LVN_IMAGE_FOLDER(part == LVN_IMAGES_TRAIN ? "patterns" : "empty", .flat = true,',
        )
        shown = levin("train", parts, data, "out=parts-run", *SMALL, "max_steps=2", status=1)
        self.assertIn(refused, shown)
        self.damaged("empty", "down/2.png")
        for name in ("zero", "x"):
            Path(FOLDER, "empty", "rings", f"{name}.jpg").unlink()
        shown = levin("train", parts, data, "out=parts-run", *SMALL, "max_steps=2")
        self.assertIn("1 unreadable validation sample left out: down/2.png", shown)

    def test_images_of_samples(self):
        """After the first epoch and each second one: of rank 0 alone, the same on every layout and
        when resumed, which draws none again; the weights do not change."""
        steps = ("max_epochs=4", "micro_batches=2", "batch_size=8", "scheduler=constant")
        some = (*steps, "image_every_n_epochs=2")
        hashes = {train("off", *steps, "image_every_n_epochs=0")}
        self.assertFalse(Path(FOLDER, "off", "images").exists())
        layouts = {"drawn": (), "by_processes": ("ddp",), "by_threads": ("dp",)}
        for name, layout in layouts.items():
            ranks = [a for s in layout for a in ("devices=2", f"strategy={s}", "accelerator=cpu")]
            hashes.add(train(name, *some, *ranks))
        names = ["step=0000005.png", "step=0000015.png"]  # 5 steps in an epoch
        drawn = images("drawn")
        self.assertEqual(sorted(drawn), names)
        self.assertEqual([images(name) for name in layouts], [drawn] * 3)
        hashes.add(train("sim", *some, "devices=2", "accelerator=sim"))
        self.assertEqual(images("sim"), drawn)
        train("cut", *some, "max_steps=12")
        first = Path(FOLDER, "cut", "images", names[0])
        first.write_bytes(b"mine")
        self.assertEqual(sorted(images("cut")), names[:1])
        levin("train", MINE, "resume=true", "out=cut", "max_steps=-1", "quiet=true")
        self.assertEqual(images("cut"), {names[0]: b"mine", names[1]: drawn[names[1]]})
        hashes.add(levin("ckpt", "hash", "cut"))
        self.assertEqual(len(hashes), 1, hashes)
        train("cut", *steps, "overwrite=true", "max_steps=1", "image_every_n_epochs=0")
        self.assertEqual(images("cut"), {})

    def test_what_is_in_them(self):
        """The originals above what comes back; with a validation each second epoch the one at or
        behind every third."""
        steps = ("max_epochs=12", "batch_size=8", "optim.lr=1e-2", "scheduler=constant")
        train("shown", *steps, "image_every_n_epochs=3", "check_val_every_n_epoch=2")
        names = [f"step={s:07}.png" for s in (10, 20, 40, 50)]  # epochs 2, 4, 8, 10, of 5 steps
        self.assertEqual(sorted(images("shown")), names)
        (above, begun), (again, below) = (brightness("shown", f"step={i:07}.png") for i in (10, 50))
        self.assertEqual(again, above)
        for original in above:
            self.assertGreater(max(original) - min(original), 60)  # stripes, checks or rings
        self.assertNotEqual(below, begun)
        # one of an epoch with several validations, also where it is taken up within the epoch
        within = ("max_epochs=4", *steps[1:], "image_every_n_epochs=2", "val_check_interval=2")
        train("within", *within)
        names = ["step=0000002.png", "step=0000012.png"]  # epochs 1 and 3
        self.assertEqual(sorted(images("within")), names)
        train("within_parts", *within, "max_steps=3")
        for end in (13, -1):
            again = ("resume=true", "out=within_parts", f"max_steps={end}")
            levin("train", MINE, *again, "quiet=true")
        parts = images("within_parts")
        self.assertTrue(parts == images("within"), parts.keys())
        # fewer images than a row has, of one channel, no cairo, a run that keeps nothing
        few = "lvn_slice(lvn_stack(rows, 2, 0), 1, 0, 3)"
        grey = compile_with("grey", PREVIEW, f"    return lvn_slice({few}, 4, 0, 1);")
        os.environ["LEVIN_CAIRO_LIBRARY"] = "/none/libcairo.so"
        levin("train", grey, "data=patterns", "out=grey", *SMALL, "max_epochs=1")
        del os.environ["LEVIN_CAIRO_LIBRARY"]
        rows = list(pixel_rows(f"{FOLDER}/grey/images/step=0000002.png"))
        self.assertEqual((len(rows[0]) // 3, len(rows)), (3 * 66 + 2, 2 * 66 + 2))
        self.assertTrue(all(row[::3] == row[1::3] == row[2::3] for row in rows))
        levin("train", grey, "data=patterns", "out=dev", *SMALL, "fast_dev_run=true")
        self.assertFalse(Path(FOLDER, "dev").exists())

    def test_images_that_are_a_batch(self):
        """They are drawn after the whole validation, when other batches are in its memory."""
        batch = "lvn_reshape({}, LVN_SHAPE(1, lvn_size(batch->image, 0), 16, 16, 3))"
        drawn = []
        for name, of in (("copied", "lvn_neg(lvn_neg(batch->image))"), ("viewed", "batch->image")):
            mine = compile_with(name, PREVIEW, f"    (void)rows;\n    return {batch.format(of)};")
            for workers in (0, 2):
                out = f"{name}{workers}"
                levin("train", mine, "data=patterns", f"out={out}", *SMALL, "max_epochs=1",
                      "batch_size=8", "eval_batch_size=2", f"num_workers={workers}", "min_scale=1")
                drawn.append(images(out)["step=0000005.png"])
        self.assertEqual(len(set(drawn)), 1)

    def test_memory_of_images(self):
        """The estimate counts what makes them of a large chunk, and so does a finder."""
        few = ("data=builtin:shapes", "batch_size=8", "eval_batch_size=256", "accelerator=sim")
        few += ("devices=1", "limit_train_batches=3", "max_epochs=2", "log_every_n_steps=1")
        few += ("verbose=true",)
        peaks = []
        for every in (0, 1):
            out = f"memory{every}"
            shown = levin("train", MINE, *few, f"out={out}", f"image_every_n_epochs={every}")
            estimate = float(re.search(r"at peak, ([0-9.]+) MiB of it on sim:0", shown)[1])
            peaks.append(max(curve(out, "memory/device_peak_bytes")) / (1 << 20))
            self.assertLess(abs(estimate - peaks[-1]), 0.02 * peaks[-1], (estimate, peaks))
        self.assertGreater(peaks[1], 1.1 * peaks[0])
        for limit, code in ((peaks[0] + peaks[1]) / 2, 69), (1.05 * peaks[1], 0):
            shown = levin("tune", "batch-size", MINE, *few, f"tune.memory_limit={limit:.1f}MiB",
                          "tune.max_size=8", status=code)
            measured = [float(m) for m in re.findall(r"measured ([0-9.]+) MiB", shown)]
            self.assertEqual(len(measured) > 0, code == 0, shown)
            self.assertIn("validation takes more than training" if code else "Maximum", shown)
        self.assertGreater(min(measured), 0.98 * peaks[1], shown)

    def test_wrong_images(self):
        """Before a step is trained: the recipe's mistake in a sentence, and a key that it takes."""
        shape = "f32 (R, N, H, W, C)"
        for name, code, texts in (
            ("flat", "return rows[1];", [": preview gives f32 (10, 16, 16, 3)", shape]),
            ("pairs", "return lvn_slice(lvn_stack(rows, 2, 0), 4, 0, 2);", ["16, 16, 2)", shape]),
            ("nothing", "(void)rows;\n    return NULL;", ["preview of the recipe autoencoder"]),
            (
                "huge",
                "lvn_tensor *y = lvn_stack(rows, 2, 0), *all[500];\n"
                "    for (int i = 0; i < 500; i++) {\n        all[i] = y;\n    }\n"
                "    return lvn_concat(all, 500, 0);",
                ["R = 1000, H = 16 and W = 16", "give smaller or fewer ones"],
            ),
        ):
            wrong = compile_with(name, PREVIEW, f"    {code}")
            message = levin("train", wrong, "data=patterns", f"out={name}", *SMALL, status=1)
            for text in [f"{name}.so", *texts] if name != "nothing" else texts:
                self.assertIn(text, message)
            self.assertEqual(images(name), {})
            self.assertEqual(curve(name, "lr"), [])
        taken = compile_with("taken", '{"width", ', '{"image_every_n_epochs", ')
        message = levin("train", taken, "data=patterns", "out=taken", *SMALL, status=1)
        self.assertIn("image_every_n_epochs is one of every training with .preview", message)
        self.assertIn("image_every_n_epochs", levin("help", MINE))

    def test_mistakes(self):
        out = ("out=wrong", "data=patterns")
        self.assertIn("data= is missing", levin("train", MINE, "out=wrong", status=64))
        self.assertIn("a multiple of 8", levin("train", MINE, "image_size=20", *out, status=64))
        self.assertIn("1 to 4096 numbers", levin("train", MINE, "code=0", *out, status=64))
        missing = levin("train", MINE, "data=nowhere", "out=wrong", status=1)
        self.assertIn("data=nowhere: No such file or directory; give a folder of images", missing)
        other = levin("train", MINE, "data=builtin:mass", "out=wrong", status=64)
        self.assertIn("data=builtin:mass: the only built-in set is builtin:shapes", other)
        self.assertFalse(Path(FOLDER, "wrong").exists())


with tempfile.TemporaryDirectory() as FOLDER:
    draw_patterns(Path(FOLDER, "patterns"), 12)
    shutil.copy(SOURCE, os.path.join(FOLDER, "autoencoder.c"))
    levin("cc", "autoencoder.c")
    MINE = "./autoencoder.so"
    unittest.main(testLoader=OfToday(2))
