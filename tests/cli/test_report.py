"""levin report: the page and the figure of a run, of one that goes on, was killed or has damaged
files.

usage: test_report.py LEVIN [test names]
"""

import base64
import html.parser
import json
import os
import re
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

from case import Case, LEVIN, main, read, write
from small_png import pixel_rows, read_colours, write_png

SHAPES = ["data=builtin:shapes", "data.count=120", "image_size=8", "batch_size=12"]
VOID = {"img", "meta", "link", "line", "br", "circle", "polyline", "polygon"}


class Page(html.parser.HTMLParser):
    """What is on a page; its elements are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.addresses, self.names, self.points = [], [], [], [], []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset") or name.startswith("on"):
                self.addresses.append(value)
            if name == "xlink:href":
                assert value.startswith(("#", "data:image/png;base64,")), value
            if name == "points":
                self.points += value.split()

    def handle_endtag(self, tag):
        if tag not in VOID and tag not in ("th", "td", "tr", "li"):
            while self.open[-1] in ("th", "td", "tr", "li") and self.open[-1] != tag:
                self.open.pop()
        assert tag in VOID or self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append(data)

    def has(self, text):
        return any(text in t for t in self.texts)


class Report(Case):
    def setUp(self):
        super().setUp()
        self.run_dir = f"{self.dir}/run"

    def start(self, *more, code=0):
        line = [LEVIN, "train", "classify", *SHAPES, f"out={self.run_dir}", "max_epochs=2"]
        done = subprocess.run([*line, *more], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def report(self, *more, code=0, expects=()):
        line = [LEVIN, "report", self.run_dir, *more]
        done = subprocess.run(line, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for text in expects:
            self.assertIn(text, done.stderr)
        return done.stdout

    def page(self, name="report.html"):
        page = Page(read(f"{self.run_dir}/{name}").decode())
        self.assertEqual([a for a in page.addresses if not a.startswith("data:")], [])
        self.assertNotIn("script", page.names)
        for point in page.points:
            x, y = (float(v) for v in point.split(","))
            self.assertTrue(0 <= x <= 480 and 0 <= y <= 220, point)
        return page

    def test_a_run_that_was_resumed(self):
        self.start("optim.lr=0.002")
        self.start("resume=true", "max_epochs=3")
        self.assertEqual(self.report(), f"{self.run_dir}/report.html\n")
        page = self.page()
        for text in ("Finished", "loss", "train/loss", "val/acc", "resuming from", "device cpu"):
            self.assertTrue(page.has(text), text)
        # what differs from the defaults, with these beside it
        at = page.texts.index("optim.lr")
        self.assertEqual([t for t in page.texts[at : at + 4] if t.strip()][1:3], ["0.002", "0.001"])
        rows = read(f"{self.run_dir}/metrics.jsonl").decode().splitlines()
        last = [json.loads(r)["val/loss"] for r in rows if "val/loss" in r][-1]
        at = page.texts.index("val/loss", page.texts.index("Values"))
        self.assertAlmostEqual(float(page.texts[at + 1]), last, delta=1e-4 * abs(last))
        printed = self.report("output=-")
        self.assertEqual(printed.encode(), read(f"{self.run_dir}/report.html"))

    def test_a_run_that_goes_on(self):
        """Its last row is half there; the log has no end."""
        self.start()
        rows = read(f"{self.run_dir}/metrics.jsonl")
        write(f"{self.run_dir}/metrics.jsonl", rows[: len(rows) - 20])
        log = read(f"{self.run_dir}/train.log").splitlines(keepends=True)
        write(f"{self.run_dir}/train.log", b"".join(x for x in log if b"done after" not in x))
        self.report()
        self.assertTrue(self.page().has("it is running, or was killed"))
        self.assertTrue(self.page().has("1 line of metrics.jsonl is damaged"))

    def test_a_run_that_was_stopped(self):
        """The last line of its log is the headline, on the page and in the figure."""
        self.start()
        log = read(f"{self.run_dir}/train.log")
        end = b"stopped: Ctrl-C after step 48 (epoch 1); the checkpoint is saved"
        write(f"{self.run_dir}/train.log", re.sub(rb"done after [^\n]*", end, log))
        self.report()
        self.assertTrue(self.page().has("Stopped: Ctrl-C after step 48"))
        figure = f"{self.dir}/curves.svg"
        self.report(f"output={figure}")  # its ending is the format
        self.assertIn(b"<svg", read(figure)[:200])
        self.assertIn(b"stopped: Ctrl-C after step 48", read(figure))

    def test_damaged_and_missing_files(self):
        self.start()
        for name in ("metrics.jsonl", "train.log", "config.yaml"):
            write(f"{self.run_dir}/{name}", os.urandom(5000))
            self.report()
            self.page()
        for name in ("metrics.jsonl", "train.log"):
            os.remove(f"{self.run_dir}/{name}")
            self.report()
            self.page()
        write(f"{self.run_dir}/metrics.jsonl", b'{"step": 4000000000000000, "train/loss": 1.5}\n')
        self.report()  # an axis on which one more is the same number
        self.page()
        os.remove(f"{self.run_dir}/metrics.jsonl")
        os.remove(f"{self.run_dir}/config.yaml")
        self.report(code=1, expects=["holds no config.yaml, train.log or metrics.jsonl"])

    def test_files_that_cannot_be_read(self):
        """Folders in their place, or far too large: a page with a warning."""
        self.start()
        config = f"{self.run_dir}/config.yaml"
        write(config, read(config) + b"# more\n" * 700000)
        self.report()
        self.assertTrue(self.page().has(f'Warning: "{config}" is larger than the 4194304'))
        self.assertTrue(self.page().has("train/loss"))
        self.report("data=builtin:shapes", code=1, expects=[config])
        for name in ("config.yaml", "train.log", "metrics.jsonl"):
            os.remove(f"{self.run_dir}/{name}")
            os.mkdir(f"{self.run_dir}/{name}")
            self.report()
            self.assertTrue(self.page().has(f"Warning: {self.run_dir}/{name}: cannot read"))
            if name == "train.log":
                self.report("format=svg")
            self.assertEqual(self.page().has("train/loss"), name != "metrics.jsonl")
        self.assertTrue(self.page().has("Its train.log cannot be read"))

    def test_a_configuration_that_is_not_yaml(self):
        """Its lines are shown, with the place of the mistake."""
        self.start()
        config = f"{self.run_dir}/config.yaml"
        good = read(config)
        self.report()
        self.assertFalse(self.page().has("Warning: "))
        lines = good.count(b"\n")
        for bad, place in (
            (b"a: [1, 2\n", f"{config}:{lines + 2}:1: did not find expected ',' or ']'"),
            (b"a: 1: 2\n", f"{config}:{lines + 1}:5: mapping values are not allowed"),
            (b"a: " + b"[" * 100000 + b"\n", f"{config}:{lines + 1}:19: maps are nested deeper"),
            (b"a: \x01\n", f"{config}: byte {len(good) + 3}: control characters"),
        ):
            write(config, good + bad)
            self.report()
            self.assertTrue(self.page().has(f"Warning: {place}"), bad)
            self.assertTrue(self.page().has("batch_size"))
        write(config, b"- a\n")
        self.report()
        self.assertTrue(self.page().has(f"Warning: {config}:1:1: expected `key: value` lines"))

    def test_the_name_of_a_run(self):
        """The folder's, wherever the command is called and whatever file of it is given."""
        self.start()
        title = read(f"{self.run_dir}/report.html") if self.report() else b""
        self.assertIn(f"<title>{self.run_dir}</title>".encode(), title)
        os.mkdir(f"{self.run_dir}/sub")
        for here, given, name, svg in (
            (self.run_dir, ".", "run", "./report.svg"),
            (self.run_dir, "./", "run", "./report.svg"),
            (f"{self.run_dir}/sub", "..", "run", "../report.svg"),
            (self.dir, "run/.", "run", "run/./report.svg"),
            (self.dir, "./run//", "./run", "./run//report.svg"),
            (self.run_dir, "metrics.jsonl", "run", "./report.svg"),
            (self.dir, "run/metrics.jsonl", "run", "run/report.svg"),
            (self.dir, "run/train.log", "run", "run/report.svg"),
            (self.dir, "run/config.yaml", "run", "run/report.svg"),
        ):
            for output, form in ((svg, "svg"), (svg.replace(".svg", ".html"), "html")):
                line = [LEVIN, "report", given, f"format={form}"]
                done = subprocess.run(line, capture_output=True, text=True, cwd=here)
                self.assertEqual(done.stdout, output + "\n", done.stderr)
                found = re.search(b"<title[^>]*>(.*?)</title>", read(f"{here}/{output}"))
                self.assertEqual(found[1].decode(), name, (here, given))
        model = f"{self.run_dir}/checkpoints/last.safetensors"
        done = subprocess.run([LEVIN, "report", model], capture_output=True, text=True)
        self.assertEqual(done.returncode, 64)
        self.assertIn(f"{model} is a file: give the directory of a run", done.stderr)

    def test_texts_are_escaped(self):
        os.mkdir(self.run_dir)
        evil = '</script><script>alert(1)</script><img src=x onerror="y">&\x1b[31m'
        row = {"step": 1, "epoch": 1, "time_s": 1, evil: 1.5, "train/" + evil: 2, "val/" + evil: 3}
        text = json.dumps(row) + "\n" + json.dumps({**row, "step": 2}) + "\n"
        write(f"{self.run_dir}/metrics.jsonl", text.encode())
        line = f"[2026-11-28 20:53:30,003][WARNING] {evil}\xff\n"
        write(f"{self.run_dir}/train.log", line.encode("latin-1"))
        write(f"{self.run_dir}/config.yaml", f"data: {evil}\n".encode())
        self.report()
        page = self.page()
        self.assertNotIn("img", page.names)
        self.assertTrue(page.has("<script>"))

    def test_the_last_images(self):
        """The last four of gan's, as they are; what is not an image or too large is left out."""
        os.makedirs(f"{self.run_dir}/images/step=9.png")
        write(f"{self.run_dir}/config.yaml", b"recipe: gan\n")
        for step in (10, 300, 20, 100, 200):
            path = Path(f"{self.run_dir}/images/step={step:07}.png")
            write_png(path, 5 + step, (step % 256, 0, 9))
        self.report()
        page = self.page()
        found = [a.partition(",") for a in page.addresses if a != "data:,"]
        self.assertEqual({f[0] for f in found}, {"data:image/png;base64"})
        steps = (300, 200, 100)  # step=9.png is the last by its name
        files = [read(f"{self.run_dir}/images/step={step:07}.png") for step in steps]
        self.assertEqual([base64.b64decode(f[2], validate=True) for f in found], files)
        self.assertTrue(page.has("images/: 4 of 6"))
        write(f"{self.run_dir}/images/step=0000300.png", b"no image")
        write(f"{self.run_dir}/images/step=0000200.png", files[1] + bytes(1 << 19))
        self.report()
        self.assertEqual(len([a for a in self.page().addresses if a != "data:,"]), 1)

    def test_a_long_run_has_a_small_page(self):
        os.mkdir(self.run_dir)
        with open(f"{self.run_dir}/metrics.jsonl", "w", encoding="ascii") as f:
            for i in range(100000):
                names = ",".join(f'"m{k}":{(i * (k + 1)) % 997}.25' for k in range(8))
                f.write(f'{{"step":{10 * i},"epoch":1,"time_s":{i},{names}}}\n')
        self.report()
        self.assertLess(os.path.getsize(f"{self.run_dir}/report.html"), 3 << 20)
        self.assertTrue(self.page().has("100000 rows"))

    def ends_with_its_command(self, out):
        """It works when pasted, where levin is installed."""
        last = out.splitlines()[-1]
        self.assertTrue(last.startswith("levin report "), out)
        path = os.path.dirname(LEVIN) + ":" + os.environ["PATH"]
        done = subprocess.run(
            ["bash", "-c", last], env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        self.assertEqual(done.stdout, f"{self.run_dir}/report.html\n", done.stderr)
        return read(f"{self.run_dir}/report.html")

    def test_a_run_ends_with_its_command(self):
        """report=true has written the same page before, also of a run that was stopped, failed or
        is resumed."""
        self.run_dir = f"{self.dir}/a b's lr=1"
        for more, text, code in (
            (["report=true"], "Finished", 0),
            (["overwrite=true", "report=true", "max_steps=1"], "Finished", 0),
            (["overwrite=true", "report=true", "optim=sgd", "optim.lr=1e38"], "Failed: ", 1),
            (["overwrite=true", "report=true", "devices=2", "accelerator=cpu"], "2 ranks: ", 0),
            (["resume=true", "max_epochs=3"], "resuming from", 0),
            (["resume=true", "max_epochs=4", "report=true"], "resuming from", 0),
        ):
            out = self.start(*more, code=code)
            page = read(f"{self.run_dir}/report.html")
            self.assertTrue(self.page().has(text), text)
            self.assertEqual(self.ends_with_its_command(out), page, more)
        log = read(f"{self.run_dir}/train.log").decode()
        self.assertNotIn("levin report", log)
        self.assertNotIn("so far this run had", log)
        out = self.start("overwrite=true")
        self.assertFalse(os.path.exists(f"{self.run_dir}/report.html"))
        self.assertNotIn(b"levin report ", self.ends_with_its_command(out))
        self.assertEqual(self.start("overwrite=true", "quiet=true"), "")

    def test_a_stopped_run_has_its_page(self):
        line = [LEVIN, "train", "classify", *SHAPES, f"out={self.run_dir}", "report=true"]
        run = subprocess.Popen([*line, "max_epochs=-1"], stdout=subprocess.PIPE, text=True)
        rows = f"{self.run_dir}/metrics.jsonl"
        while run.poll() is None and not (os.path.exists(rows) and os.path.getsize(rows)):
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130)
        self.assertTrue(self.page().has("stopped"))
        self.ends_with_its_command(out)

    def test_predictions_of_a_classifier(self):
        """As eval measures them, of data given: matrix, table and mistakes."""
        self.start("optim.lr=0.01")
        data = [*SHAPES[:2], "split=val"]
        line = [LEVIN, "eval", f"model={self.run_dir}", *data, "json=true"]
        done = subprocess.run(line, capture_output=True, text=True)
        of = json.loads(done.stdout)
        wrong = of["n"] - of["right"]
        self.assertGreater(wrong, 0)
        Path(f"{self.dir}/two.yml").write_text("devices: 2\naccelerator: cpu\n")
        self.assertEqual(
            self.report(*data, f"config={self.dir}/two.yml"), f"{self.run_dir}/report.html\n"
        )
        page = self.page()
        self.assertTrue(page.has(f"{of['right']} of {of['n']} right: accuracy {of['acc']:.4f}"))
        names = [c["name"] for c in of["classes"]]
        cells = {
            f"{names[i]} as {names[j]}: {n}"
            for i, row in enumerate(of["confusion"])
            for j, n in enumerate(row)
            if n > 0
        }
        (described,) = (t for t in page.texts if " as " in t and ": " in t)
        self.assertEqual(set(described.split("; ")), cells)
        self.assertEqual(page.names.count("svg"), page.texts.count("step") + 1)
        for c in of["classes"]:
            at = page.texts.index(c["name"], page.texts.index("F1"))
            row = [t for t in page.texts[at : at + 12] if t.strip()]
            self.assertEqual(row[1:3], [str(c["right"]), str(c["n"])])
        shown = [base64.b64decode(a.partition(",")[2]) for a in page.addresses if a != "data:,"]
        self.assertEqual(len(shown), min(wrong, 16))
        self.assertTrue(all(s.startswith(b"\x89PNG\r\n\x1a\n") for s in shown))
        self.assertEqual(len([t for t in page.texts if t.startswith("is ")]), len(shown))
        os.environ["LEVIN_CAIRO_LIBRARY"] = "/none/libcairo.so"
        try:
            self.report(*data)
        finally:
            del os.environ["LEVIN_CAIRO_LIBRARY"]
        self.assertTrue(self.page().has("libcairo2 and fonts-dejavu-core"))
        self.assertTrue(self.page().has("F1"))
        self.report()  # without data: without
        self.assertFalse(self.page().has("accuracy"))

    def test_predictions_on_a_page_are_text(self):
        """Names of classes and files come from outside; large images are made smaller."""
        for i in range(10):
            for k, name in enumerate(("<b>&x", "y" * 40)):
                write_png(Path(f"{self.dir}/photos/{name}/<i>{i}.png"), 250, (90 + k, i, 100))
        photos = f"data={self.dir}/photos"
        line = [LEVIN, "train", "classify", photos, f"out={self.run_dir}", "image_size=230"]
        run = [*line, "max_steps=1", "model=mlp", "optim.lr=0.000001"]
        self.assertEqual(subprocess.run(run, capture_output=True).returncode, 0)
        self.report(photos, "split=all")
        page = self.page()
        self.assertNotIn("b", page.names)
        self.assertTrue(page.has("; 16 of these images were trained on"))
        self.assertTrue(page.has("<b>&x"))
        (described,) = (t for t in page.texts if " as " in t and ": " in t)
        for cell in described.split("; "):
            self.assertLessEqual(set(cell.split(": ")[0].split(" as ")), {"<b>&x", "y" * 40})
        shown = [base64.b64decode(a.partition(",")[2]) for a in page.addresses if a != "data:,"]
        self.assertEqual({int.from_bytes(s[16:20], "big") for s in shown}, {76})  # 230 / 3

    def metrics(self, rows):
        os.makedirs(self.run_dir, exist_ok=True)
        with open(f"{self.run_dir}/metrics.jsonl", "w", encoding="ascii") as f:
            for step, row in rows:
                f.write(json.dumps({"step": step, "epoch": 1, "time_s": step, **row}) + "\n")

    def size_and_panels(self, name="report.png"):
        """Width and height of a figure in pixels, and the frames in it: lines of ink that are wider
        than anything else, two pixels high, above and below each panel."""
        rows = list(pixel_rows(f"{self.run_dir}/{name}"))
        edges = sum(row.count(b"\x20" * 3 * 600) for row in rows)
        self.assertEqual(edges % 4, 0)
        return len(rows[0]) // 3, len(rows), edges // 4

    def test_a_figure(self):
        """Loss, accuracy, learning rate, norm and throughput, two panels in a row; the colours of
        training and validation are in it, and the state of a run that is going on, too."""
        self.start("max_epochs=4")
        self.assertEqual(self.report("format=png"), f"{self.run_dir}/report.png\n")
        self.assertEqual(self.size_and_panels(), (2160, 2 * (64 + 3 * 336), 5))
        colours = read_colours(f"{self.run_dir}/report.png")
        self.assertGreater(colours[(0, 114, 178)], 1000)
        self.assertGreater(colours[(213, 94, 0)], 500)
        self.assertGreater(colours[(0, 158, 115)], 200)
        self.assertFalse(os.path.exists(f"{self.run_dir}/report.html"))
        other = f"{self.dir}/other.svg"
        self.assertEqual(self.report("--format", "svg", f"output={other}"), other + "\n")
        self.assertTrue(os.path.exists(other))
        self.assertFalse(os.path.exists(f"{self.run_dir}/report.svg"))
        self.assertIn("train/acc, val/acc, train/acc_step, lr, ", self.described(other))
        self.start("overwrite=true", "max_steps=1")
        self.assertFalse(os.path.exists(f"{self.run_dir}/report.png"))

    def described(self, path):
        """An SVG file is XML; the description in it."""
        root = xml.etree.ElementTree.parse(path).getroot()
        name = {"svg": "http://www.w3.org/2000/svg"}
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertGreater(len(root.findall(".//svg:path", name)), 20)
        self.assertEqual(root.find("svg:title", name).text, self.run_dir)
        return root.find("svg:desc", name).text

    def test_names_in_a_figure_are_text(self):
        evil = '</desc><script x="1">&amp;\'\x1b\uffff]]>'
        self.run_dir = f"{self.dir}/a <b> & 'c'"
        self.metrics([(1, {"train/" + evil: 1.5}), (2, {"train/" + evil: 2, "val/m": 1})])
        self.report("format=svg")
        described = self.described(f"{self.run_dir}/report.svg")
        self.assertIn(". Curves over the step: train/</desc><script x=", described)
        self.assertTrue(described.endswith(", val/m"))
        self.report("format=png")
        self.assertEqual(self.size_and_panels(), (2160, 2 * (64 + 336), 2))

    def test_a_figure_of_what_is_there(self):
        """Damaged lines, values that are not finite, one point, more charts than panels."""
        self.metrics([(5, {"val/loss": 1.0})])
        self.report("format=png")
        self.assertEqual(self.size_and_panels(), (1080, 2 * (64 + 336), 1))
        self.assertGreater(read_colours(f"{self.run_dir}/report.png")[(0, 114, 178)], 200)
        self.metrics((i, {"loss": 10.0**i, "none": None, "big": -1e300 * i}) for i in range(9))
        with open(f"{self.run_dir}/metrics.jsonl", "ab") as f:
            f.write(os.urandom(999) + b'\n{"step": 12, "lo')
        self.report("format=png")
        self.assertEqual(self.size_and_panels()[2], 2)
        self.metrics((i, {f"m{k}": k for k in range(30)}) for i in range(3))
        self.report("format=png")
        self.assertEqual(self.size_and_panels(), (3240, 2 * (64 + 8 * 336), 24))
        # values within a bucket are a band in a tint, and a rate on a logarithmic axis is there
        self.metrics((i, {"lr": 10.0 ** -(i % 7)}) for i in range(4000))
        self.report("format=png")
        self.assertGreater(read_colours(f"{self.run_dir}/report.png")[(192, 220, 236)], 50000)

    def test_no_figure(self):
        """What cannot be drawn is an error with the reason, and no file is written."""
        os.mkdir(self.run_dir)
        self.report("format=png", code=1, expects=["no curve to draw", "0 rows (0 damaged)"])
        write(f"{self.run_dir}/metrics.jsonl", b'{"step": 1, "x": null}\nno row\n')
        self.report("format=svg", code=1, expects=["no curve to draw", "1 row (1 damaged)"])
        self.metrics([(1, {"train/loss": 1.0})])
        for more, texts in (
            (["format=pmg"], ["format `pmg`: expected one of html, png, svg", "mean `png`?"]),
            (["format=png", "output=-"], ["output=- with format=png", "ends in .png"]),
            (["format=png", "output=a.svg"], ["output=a.svg with format=png", "ends in .png"]),
            (["format=svg", "data=x"], ["data=x with format=svg", "format=html"]),
        ):
            self.report(*more, code=64, expects=texts)
        os.environ["LEVIN_CAIRO_LIBRARY"] = "/none/libcairo.so"
        try:
            self.report("format=png", code=1, expects=["libcairo2 and fonts-dejavu-core"])
        finally:
            del os.environ["LEVIN_CAIRO_LIBRARY"]
        self.assertEqual(os.listdir(self.run_dir), ["metrics.jsonl"])

    def test_mistakes(self):
        line = [LEVIN, "report"]
        for more, text in (
            ([], "the directory of a run is missing"),
            (["a", "b"], "does not take b"),
            (["a", "--colour=x"], "does not take --colour=x"),
            (["a", "data=b", "devices=2"], "does not take devices=2"),
        ):
            done = subprocess.run([*line, *more], capture_output=True, text=True)
            self.assertEqual(done.returncode, 64)
            self.assertIn(text, done.stderr)
        self.report(code=1, expects=["holds no config.yaml"])
        os.mkdir(self.run_dir)
        write(f"{self.run_dir}/config.yaml", b"recipe: gan\n")
        self.report("data=x", code=64, expects=["data=x: the page of a run of gan shows"])


if __name__ == "__main__":
    main(turns=2)
