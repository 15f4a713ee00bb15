"""`levin predict` and `levin eval` over several ranks: the same bytes as one rank gives, from
threads and from processes, on the CPU and on the simulated accelerator, with chunks that do not go
round; one message when something fails; nothing left behind.

usage: test_predict_ranks.py LEVIN DATA [test names]   DATA: folder with clothing/ (photos in 10
classes); absent: reported, and left out
"""

import csv
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from case import Case, LEVIN, main, OK, FAILURE, photos, read, SIGTERM, USAGE, WAIT_S, write

PHOTOS = os.path.join(sys.argv.pop(1), "clothing") if len(sys.argv) > 1 else ""
for name in ("LEVIN_SIM_DEVICES", "LEVIN_SIM_MEMORY"):
    os.environ.pop(name, None)
SIM = {"LEVIN_SIM_DEVICES": "5", "LEVIN_SIM_MEMORY": "64MiB"}
SHAPES = ["data=builtin:shapes", "data.count=45", "eval_batch_size=4", "num_workers=1"]
LAYOUTS = [
    ("cpu", "dp", 2),
    ("cpu", "ddp", 2),
    ("cpu", "dp", 5),
    ("cpu", "ddp", 3),
    ("sim", "dp", 3),
    ("sim", "ddp", 2),
]


def layout(accelerator, strategy, ranks):
    return [f"accelerator={accelerator}", f"strategy={strategy}", f"devices={ranks}"]


class Ranks(Case):
    def setUp(self):
        super().setUp()
        here = os.getcwd()
        os.chdir(self.dir)  # where the launcher's files would be
        self.addCleanup(os.chdir, here)

    def one_and_many(self, command, *arguments, layouts=LAYOUTS, output=None):
        """What one rank prints and writes, compared with what every layout does. Returns what it
        prints and its warnings."""
        first = None
        for where in [("cpu", "auto", 1), *layouts]:
            more = [f"output={output}"] if output and command == "predict" else []
            reported, warned = self.levin(
                [command, *arguments, *layout(*where), *more], OK, env=SIM
            )
            found = reported, read(output) if output else b""
            if first is None:
                first, printed = found, warned
            self.assertEqual(found, first, f"{command} {arguments} on {where}")
            self.assertEqual(os.listdir("."), [output] if output else [], where)
        if output:
            os.remove(output)
        return first[0], printed

    def test_tables(self):
        self.one_and_many("predict", f"model={self.model}", *SHAPES, output="table.csv")

    def test_fewer_chunks_than_ranks(self):
        few = [("cpu", "dp", 5), ("cpu", "ddp", 3)]
        self.one_and_many(
            "predict",
            f"model={self.model}",
            "data=builtin:shapes",
            "data.count=9",
            layouts=few,
            output="table.csv",
        )
        self.one_and_many(
            "predict",
            f"model={self.model}",
            "data=builtin:shapes",
            "data.count=2",
            "eval_batch_size=1",
            layouts=few,
            output="table.csv",
        )

    def test_measures(self):
        reported, _ = self.one_and_many(
            "eval", f"model={self.model}", f"data={self.photos}", "eval_batch_size=5"
        )
        self.assertIn("of 12 right", reported)
        # All numbers, to the last digit, and the matrix in a file.
        reported, _ = self.one_and_many(
            "eval",
            f"model={self.model}",
            f"data={self.photos}",
            "eval_batch_size=5",
            "--json",
            "confusion=m.csv",
            output="m.csv",
        )
        found = json.loads(reported)
        self.assertEqual(found["n"], sum(map(sum, found["confusion"])))
        self.assertEqual(found["right"], sum(row[i] for i, row in enumerate(found["confusion"])))
        self.assertAlmostEqual(found["acc"], found["right"] / 12)

    def test_numbers_that_no_layout_divides(self):
        """499 images are measured and 1,003 predicted: each once, in order."""
        odd = [("cpu", "dp", n) for n in (2, 3, 4, 7)] + [("cpu", "ddp", 3)]
        use = [f"model={self.model}", "data=builtin:shapes", "eval_batch_size=7", "num_workers=0"]
        classes = ["data.classes=2", "data.count=1003"]
        self.one_and_many("predict", *use, *classes, layouts=odd, output="table.csv")
        self.levin(["predict", *use, *classes, "devices=3", "output=t.csv"], OK)
        with open("t.csv", newline="", encoding="utf-8") as f:
            self.assertEqual(sum(1 for _ in csv.reader(f)), 1 + 1003)
        os.remove("t.csv")
        with tempfile.TemporaryDirectory() as folder:
            photos(folder, n=250)
            os.remove(f"{folder}/cat/0.png")
            use = [f"model={self.model}", f"data={folder}", "eval_batch_size=7", "--json"]
            reported, _ = self.one_and_many("eval", *use, layouts=odd)
            self.assertEqual(json.loads(reported)["n"], 499)

    def test_json_lines(self):
        """stdout holds the lines and nothing else; the table of all probabilities agrees."""
        few = [("cpu", "dp", 2), ("cpu", "ddp", 2)]
        reported, _ = self.one_and_many(
            "predict",
            f"model={self.model}",
            f"data={self.photos}",
            "eval_batch_size=5",
            "top_k=2",
            "probabilities=true",
            "--json",
            layouts=few,
        )
        lines = [json.loads(line) for line in reported.splitlines()]
        self.assertEqual(len(lines), 12)
        self.levin(
            [
                "predict",
                f"model={self.model}",
                f"data={self.photos}",
                "eval_batch_size=5",
                "top_k=2",
                "probabilities=true",
                "output=t.csv",
            ],
            OK,
        )
        with open("t.csv", newline="") as f:
            table = list(csv.DictReader(f))
        for line, row in zip(lines, table, strict=True):
            self.assertEqual(
                (line["file"], line["class"], line["top"][1]["class"]),
                (row["file"], row["class"], row["class_2"]),
            )
            self.assertEqual(line["top"][0]["probability"], max(line["probabilities"].values()))
            self.assertAlmostEqual(sum(line["probabilities"].values()), 1, places=5)
            for name, p in line["probabilities"].items():
                self.assertAlmostEqual(float(row[f"p_{name}"]), p, places=5)
        for wrong, expects in (
            (["--json", "output=t.csv"], "ends in .jsonl"),
            (["output=t.txt"], "ends in .csv or .jsonl"),
            (["top_k=0"], "top_k"),
            (["top_k=3"], "the model"),
        ):
            self.levin(
                ["predict", f"model={self.model}", f"data={self.photos}", *wrong], USAGE, [expects]
            )
        self.levin(
            ["eval", f"model={self.model}", f"data={self.photos}", "confusion=t.txt"],
            USAGE,
            ["ends in .csv, .png or .svg"],
        )

    def test_lanes(self):
        """Waves of several chunks, and ranks that would like waves of different lengths."""
        self.one_and_many(
            "predict",
            f"model={self.model}",
            *SHAPES,
            "lanes=3",
            layouts=[("cpu", "dp", 2), ("cpu", "ddp", 2)],
            output="table.csv",
        )

    def test_photos(self):
        if not os.path.isdir(PHOTOS):
            self.skipTest("no photos: LEVIN_TEST_DATA names no folder with clothing/")
        self.one_and_many(
            "predict",
            f"model={self.model}",
            f"data={PHOTOS}",
            "eval_batch_size=16",
            layouts=[("cpu", "dp", 3), ("cpu", "ddp", 2)],
            output="table.csv",
        )

    def test_arrays(self):
        n = 11 * 16 * 16 * 3
        head = (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (11, 16, 16, 3), }".ljust(117) + "\n"
        )
        array = f"{self.shared}/x.npy"
        write(
            array,
            b"\x93NUMPY\1\0"
            + struct.pack("<H", len(head))
            + head.encode()
            + struct.pack(f"<{n}f", *(i % 17 / 9 - 1 for i in range(n))),
        )
        for chunk in (2, 6):  # a short last round; fewer chunks than ranks
            self.one_and_many(
                "predict",
                f"model={self.model}",
                f"data={array}",
                f"eval_batch_size={chunk}",
                output="logits.npy",
            )

    def test_page(self):
        for where in (("cpu", "auto", 1), ("cpu", "ddp", 2)):
            self.levin(
                [
                    "eval",
                    f"model={self.model}",
                    f"data={self.photos}",
                    "eval_batch_size=5",
                    f"sheet={where[2]}.png",
                    *layout(*where),
                ],
                OK,
            )
        self.assertEqual(read("1.png"), read("2.png"))

    def test_started_by_another_launcher(self):
        """Ranks that a launcher started share the work unasked; rank 0 prints."""
        alone, _ = self.levin(
            ["eval", f"model={self.model}", f"data={self.photos}", "eval_batch_size=5"], OK
        )
        shared, _ = self.levin(
            [
                "launch",
                "-n",
                "3",
                "--no-prefix",
                "--run-dir",
                f"{self.dir}/logs",
                "--",
                LEVIN,
                "eval",
                f"model={self.model}",
                f"data={self.photos}",
                "eval_batch_size=5",
            ],
            OK,
        )
        self.assertEqual(alone, shared)

    # ---- failures ----

    def test_unreadable_images(self):
        photos("cats", n=8)
        for i in (1, 6):
            write(f"cats/dog/{i}.png", b"no image")
        data = [f"model={self.model}", f"data={self.dir}/cats", "eval_batch_size=2"]
        tables = []
        few = [("cpu", "auto", 1), ("cpu", "dp", 3), ("cpu", "ddp", 2)]
        for where, given in [(w, ["on_error=skip"]) for w in few] + [(w, []) for w in few]:
            _, warned = self.levin(
                ["predict", *data, *layout(*where), *given, "output=table.csv"], OK
            )
            self.assertIn("dog/1.png", warned)
            self.assertIn("dog/6.png", warned)
            tables.append(read("table.csv"))
            os.remove("table.csv")
        self.assertEqual(tables, 6 * tables[:1])
        data.append("on_error=stop")
        self.one_report_of_all_ranks()
        self.levin(
            ["predict", *data, *layout("cpu", "dp", 3), "output=table.csv"], FAILURE, [".png"]
        )
        done = subprocess.run(
            [LEVIN, "predict", *data, *layout("cpu", "ddp", 3), "output=table.csv"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertEqual(
            len(re.findall(r"levin launch: rank \d .* failed first", done.stderr)), 1, done.stderr
        )
        self.assertIn("  error: ", done.stderr)
        self.assertIn("neither a JPEG nor a PNG file", done.stderr)
        self.assertEqual(
            sorted(os.listdir(".")), ["cats", "levin-runs"]
        )  # the ranks' output is kept

    def one_report_of_all_ranks(self):
        """Of what is found when it is decoded: in the order of the images, for any layout."""
        photos("damaged", n=8)
        for i in (0, 3, 4, 7):
            with open(f"damaged/cat/{i}.png", "r+b") as f:
                f.seek(60)
                f.write(b"\0" * 40)
        names = [f"cat/{i}.png: damaged PNG: IDAT stream error" for i in (0, 3, 4, 7)]
        want = "warning: 4 unreadable samples left out (on_error=skip): " + "; ".join(names)
        for command in ("predict", "eval"):
            for where in (("cpu", "auto", 1), ("cpu", "dp", 3), ("cpu", "ddp", 2)):
                arguments = [f"model={self.model}", f"data={self.dir}/damaged", "on_error=skip"]
                arguments += ["eval_batch_size=1", *layout(*where)]
                arguments += ["output=table.csv"] if command == "predict" else []
                _, warned = self.levin([command, *arguments], OK)
                found = [line for line in warned.splitlines() if "unreadable" in line]
                self.assertEqual(found, [want], (command, where))
        os.remove("table.csv")
        shutil.rmtree("damaged")

    def test_mistakes_are_reported_once(self):
        """Before ranks are started: no report, nothing written."""
        model = f"model={self.model}"
        for arguments, expects, code in (
            ([], "model= is missing", USAGE),
            ([model, "output=t.npy"], "give a name that ends in .csv", USAGE),
            ([model, "output=no/such/t.csv"], "no/such", FAILURE),
            (["model=nowhere"], "nowhere does not exist", FAILURE),
        ):
            _, reported = self.levin(
                ["predict", "data=builtin:shapes", "devices=3", "accelerator=cpu", *arguments],
                code,
                [expects],
            )
            self.assertEqual(len(reported.splitlines()), 1, reported)
        folder, array = (
            "error: data=nofolder: No such file or directory; ",
            'error: data: cannot open "none.npy": No such file or directory; ',
        )
        for arguments, expects in (
            (["predict", "data=nofolder"], folder),
            (["eval", "data=nofolder"], folder),
            (["predict", "data=none.npy", "output=o.npy"], array),
        ):
            alone, many = (
                self.levin(
                    [*arguments, model, f"devices={n}", "accelerator=cpu"], USAGE, [expects]
                )[1]
                for n in (1, 2)
            )
            self.assertEqual(alone, many)
        self.assertEqual(os.listdir("."), [])

    def test_signals(self):
        """To the command: all ranks end, and leave nothing. To one rank: the report names it."""
        for strategy in ("dp", "ddp"):
            p = self.begin(strategy)
            p.send_signal(signal.SIGTERM)
            _, reported = p.communicate(timeout=WAIT_S)
            self.assertIn(p.returncode, (SIGTERM, -signal.SIGTERM), reported)
            self.assertEqual(os.listdir("."), [], reported)
        p = self.begin("ddp")
        rank = self.ranks(p)[1]
        os.kill(rank, signal.SIGTERM)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGTERM, reported)
        self.assertIn(f"(pid {rank}, ", reported)
        self.assertEqual(os.listdir("."), ["levin-runs"])

    def begin(self, strategy):
        """A prediction that would take minutes, well on its way."""
        p = subprocess.Popen(
            [
                LEVIN,
                "predict",
                f"model={self.model}",
                "data=builtin:shapes",
                "data.count=100000000",
                "output=t.csv",
                *layout("cpu", strategy, 2),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(p.kill)
        end = time.monotonic() + WAIT_S
        while (
            strategy == "ddp"
            and len(self.ranks(p)) < 2
            and time.monotonic() < end
            and p.poll() is None
        ):
            time.sleep(0.02)
        time.sleep(0.3)
        self.assertIsNone(p.poll())
        return p

    @staticmethod
    def ranks(p):
        """The processes that the launcher started and that are levin's ranks, in order."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                arguments = read(f"/proc/{pid}/environ").split(b"\0")
                parent = int(read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[1])
            except OSError:
                continue
            rank = [w[len(b"LEVIN_RANK=") :] for w in arguments if w.startswith(b"LEVIN_RANK=")]
            if rank and parent == p.pid:
                found[int(rank[0])] = int(pid)
        return [found[r] for r in sorted(found)]

    # ---- one rank's work ----

    def test_rank_0_works_alone(self):
        """Of several ranks one writes the file, and reports it."""
        file = f"{self.model}/checkpoints/last.safetensors"
        for arguments in (
            ["ckpt", "hash", file],
            ["export", f"model={self.model}", "output=w.safetensors"],
            ["plan", *self.arguments(self.photos, "elsewhere")],
        ):
            alone, _ = self.levin(arguments, OK)
            printed = []
            for rank in range(3):
                env = {
                    "RANK": str(rank),
                    "WORLD_SIZE": "3",
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": "3",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": "29511",
                }
                printed.append(self.levin(arguments, OK, env=env))
            self.assertEqual([s[0] for s in printed], [alone, "", ""])
            self.assertIn(
                f"warning W203: levin {arguments[0]} is the work of one rank: rank 0 does it",
                printed[0][1],
            )
            self.assertEqual([s[1] for s in printed[1:]], ["", ""])


main(turns=2)
