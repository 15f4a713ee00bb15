"""The run directory: what is in it is what README.md lists, however the run ended; and it works
from every current directory, also when it was moved.

usage: test_run_dir.py LEVIN [names]
"""

import glob
import os
import re
import shutil
import signal
import subprocess
from fnmatch import fnmatch

from case import Case, FAILURE, LEVIN, OK, SIGINT, WAIT_S, main, photos, read, write
from rank_processes import drop_identity

drop_identity()
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../README.md")
SMALL = ["model=mlp", "image_size=16", "batch_size=6", "accelerator=cpu", "quiet=true"]
ALWAYS = [
    "config.yaml",
    "train.log",
    "metrics.jsonl",
    "data.index",
    "checkpoints/last.safetensors",
    "checkpoints/best.safetensors",
    "run_id",
    "exported_models/exported_last.safetensors",
    "exported_models/exported_best.safetensors",
]
LOGGERS = {
    "csv": "metrics.csv",
    "tensorboard": "events.out.tfevents.*",
    "exec:cat >/dev/null": "logger.log",
}


def listed():
    """{name: README's line about it}; a name that ends in / stands for all below it."""
    with open(README, encoding="utf-8") as f:
        table = f.read().split("| file | what it is |\n| --- | --- |\n")[1].split("\n\n")[0]
    rows = {}
    for line in table.splitlines():
        names, text = line.strip("|").split("|", 1)
        rows.update({name: text for name in re.findall(r"`([^`]+)`", names)})
    return rows


def files(out):
    return sorted(
        os.path.relpath(os.path.join(d, name), out)
        for d, _, names in os.walk(out)
        for name in names
    )


class Listed(Case):
    def rows_of(self, out):
        """The rows that the files belong to; each must have one."""
        rows = listed()
        found = {
            name: [
                row
                for row in rows
                if fnmatch(name, row) or (row[-1] == "/" and name.startswith(row))
            ]
            for name in files(out)
        }
        self.assertEqual([name for name, of in found.items() if len(of) != 1], [])
        return {of[0] for of in found.values()}

    def begin(self, *arguments, code=OK):
        self.out += "x"
        self.levin(["train", "classify", f"out={self.out}", *SMALL, *arguments], code)

    def test_every_row_and_every_file(self):
        rows = listed()
        self.begin(f"data={self.photos}", "max_epochs=2")
        self.assertEqual(self.rows_of(self.out), set(ALWAYS))
        several = [
            re.search(r"`(devices=\d|max_restarts=\d)`", text)[1]
            for text in (rows["logs/"], rows["errors/"], rows["launch_id"])
        ]
        self.begin(f"data={self.photos}", "max_epochs=2", several[0])
        self.assertEqual(self.rows_of(self.out), {*ALWAYS, "logs/"})
        self.begin(f"data={self.photos}", "max_epochs=2", several[0], several[2])
        self.assertEqual(self.rows_of(self.out), {*ALWAYS, "logs/", "launch_id"})
        self.begin(f"data={self.photos}", "max_epochs=2", f"logger=[{','.join(LOGGERS)}]")
        page = "augmentations.png"
        self.assertEqual(self.rows_of(self.out), {*ALWAYS, *LOGGERS.values(), page})
        for name, file in LOGGERS.items():
            self.assertIn(f"`logger={name.split(':')[0]}", rows[file])
        self.begin(f"data={self.photos}", "max_epochs=3", "checkpoint.save_top_k=2")
        kept = "checkpoints/epoch=*-step=*.safetensors"
        self.assertEqual(self.rows_of(self.out), {*ALWAYS, kept})
        self.assertIn("`checkpoint.save_top_k=", rows[kept])
        self.out += "g"
        tiny = ["im_size=32", "gen_channels=4", "disc_channels=4", "disc_stages=3", "data.count=8"]
        gan = ["data=builtin:mass", *tiny, "max_epochs=1", "quiet=true"]
        self.levin(["train", "gan", f"out={self.out}", *gan], OK)
        images, indexed = {kept, "images/"}, set(ALWAYS) - {"data.index"}
        self.assertEqual(self.rows_of(self.out), indexed | images)
        self.levin(["report", self.out], OK)
        self.assertEqual(self.rows_of(self.out), indexed | images | {"report.html"})
        self.levin(["report", self.out, "format=svg"], OK)
        self.assertEqual(self.rows_of(self.out), indexed | images | {"report.html", "report.svg"})
        reports = {f"report.{kind}" for kind in ("html", "png", "svg")}
        rest = {*images, page, "logs/", "errors/", "launch_id", "job_id", "requeued", *reports}
        self.assertEqual(set(rows), {*ALWAYS, *LOGGERS.values(), *rest})

    def test_after_a_stop_and_a_failure(self):
        for devices in (1, 3):
            self.out += "s"
            p = self.start(
                "checkpoint.every_n_steps=1", "val_split=0", f"devices={devices}", "accelerator=cpu"
            )
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, SIGINT)
            self.assertLessEqual(self.rows_of(self.out), {*ALWAYS, "logs/"})
            self.assertFalse(os.path.exists(f"{self.out}/errors"))
            self.assertLessEqual(set(ALWAYS[:3] + ALWAYS[4:5]), self.rows_of(self.out))
            data = f"{self.dir}/late{devices}"
            photos(data, n=12)
            index = f"{self.dir}/index{devices}"
            self.begin(
                f"data={data}", f"data.index={index}", "max_epochs=1"
            )  # the images are known now, and looked at later
            for path in glob.glob(f"{data}/*/*.png"):
                info = os.stat(path)
                content = read(path)
                write(path, content[:60] + b"\0" * (len(content) - 60))
                os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
            self.begin(
                f"data={data}",
                f"data.index={index}",
                "max_epochs=1",
                f"devices={devices}",
                code=FAILURE,
            )
            self.assertLessEqual(self.rows_of(self.out), {*ALWAYS, "logs/", "errors/"})
            self.assertEqual("errors/" in self.rows_of(self.out), devices > 1)


class Elsewhere(Case):
    """Every option that names a file, relative, in one directory; then from another."""

    def at(self, cwd, *arguments, code=OK):
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            stdin=subprocess.DEVNULL,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("from here on", done.stderr)
        return done.stdout + done.stderr

    def setUp(self):
        super().setUp()
        self.home, self.away = f"{self.dir}/home dir", f"{self.dir}/away/deep"
        os.makedirs(self.away)
        os.makedirs(self.home)
        photos(f"{self.home}/photos")
        write(f"{self.home}/classes.txt", b"cat: 1\ndog: 2\n")
        self.arguments = [
            "train",
            "classify",
            *SMALL,
            "data=./photos",
            "class_weights=classes.txt",
            f"weights=../{os.path.basename(self.home)}/start.safetensors",
            "max_steps=2",
        ]
        shutil.copy(self.exported, f"{self.home}/start.safetensors")
        self.at(self.home, *self.arguments, "out=runs/one")
        self.run_dir = f"{self.home}/runs/one"

    def test_paths_are_absolute(self):
        config = read(f"{self.run_dir}/config.yaml").decode()
        for key, value in (
            ("data", f"{self.home}/photos"),
            ("class_weights", "[1,2]"),
            ("weights", f"{self.home}/../home dir/start.safetensors"),
        ):
            self.assertIn(f'\n{key}: "{value}"\n', config)
        self.assertNotRegex(config, r": \"?\.")
        self.at(
            self.home,
            "train",
            "classify",
            *SMALL,
            "data=builtin:shapes",
            "data.count=60",
            "max_steps=1",
            "out=shapes",
        )
        config = read(f"{self.home}/shapes/config.yaml").decode()
        self.assertIn('\ndata: "builtin:shapes"\n', config)

    def test_from_another_directory(self):
        self.at(
            self.away,
            "train",
            "classify",
            "config=../../home dir/runs/one/config.yaml",
            "out=again",
            "quiet=true",
        )
        hashes = [
            self.at(self.home, "ckpt", "hash", path)
            for path in (self.run_dir, f"{self.away}/again")
        ]
        self.assertEqual(hashes[0], hashes[1])
        self.at(
            self.away,
            "train",
            "classify",
            "out=../../home dir/runs/one",
            "resume=true",
            "max_steps=4",
            "quiet=true",
        )
        self.at(
            self.home, *self.arguments, "out=runs/one", "resume=true", "max_steps=6"
        )  # repeated where it began: no other weights
        self.at(
            self.away,
            "predict",
            "model=../../home dir/runs/one",
            "data=../../home dir/photos",
            "output=p.csv",
        )
        self.assertEqual(read(f"{self.away}/p.csv").count(b"\n"), 13)
        self.at(self.away, "eval", f"model={self.run_dir}", f"data={self.home}/photos", "split=val")
        self.at(self.away, "export", "model=../../home dir/runs/one", "output=m.safetensors")

    def test_ranks_in_directories_of_their_own(self):
        """As on nodes that each have a copy of the data on a disk of their own."""
        for rank in ("0", "1"):
            photos(f"{self.away}/{rank}/photos")
        ranks = ["launch", "-n", "2", "--", "sh", "-c", 'cd "$RANK"; exec "$0" "$@"', LEVIN]
        arguments = ["train", "classify", *SMALL, "data=photos", "max_steps=2"]
        self.at(self.away, *ranks, *arguments, f"out={self.out}")
        self.at(f"{self.away}/0", *arguments, "devices=2", "out=together")
        hashes = [self.at(self.away, "ckpt", "hash", path) for path in (self.out, "0/together")]
        self.assertEqual(hashes[0], hashes[1])
        config = read(f"{self.out}/config.yaml").decode()
        self.assertIn(f"data: {self.away}/0/photos\n", config)

    def test_moved(self):
        moved = f"{self.dir}/moved"
        os.rename(self.run_dir, moved)
        self.at(self.away, "predict", f"model={moved}", f"data={self.home}/photos", "output=p.csv")
        self.at(self.away, "eval", f"model={moved}", f"data={self.home}/photos", "split=val")
        self.at(
            self.away,
            "train",
            "classify",
            f"out={moved}",
            "resume=true",
            "max_steps=4",
            "quiet=true",
        )
        os.rename(f"{self.home}/photos", f"{self.dir}/photos")
        reported = self.at(
            self.away,
            "train",
            "classify",
            f"out={moved}",
            "resume=true",
            "max_steps=6",
            "quiet=true",
            code=64,
        )
        self.assertIn(f"data={self.home}/photos", reported)
        self.assertEqual(files(self.away), ["p.csv"])
        done = subprocess.run(
            [
                LEVIN,
                "train",
                "classify",
                f"out={moved}",
                "resume=true",
                "max_steps=6",
                "quiet=true",
                "data=../../photos",
            ],
            cwd=self.away,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(done.stderr.count("data is "), 1, done.stderr)


if __name__ == "__main__":
    main()
