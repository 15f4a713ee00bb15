"""output=FILE of predict, eval and export: by its ending, refused, or to standard output alone.

usage: test_outputs.py LEVIN [test names]
"""

import os
import struct
import subprocess

from case import Case, LEVIN, main, OK, read, USAGE, write
from screen import open_terminal

WAIT_S = 60


def npy(path, shape, data):
    head = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    write(path, b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data)


class Outputs(Case):
    def setUp(self):
        super().setUp()
        npy(
            f"{self.dir}/x.npy",
            (3, 16, 16, 3),
            struct.pack("<2304f", *[(i % 97) / 97 for i in range(2304)]),
        )

    def raw(self, *arguments, code=OK, stdout=subprocess.PIPE):
        done = subprocess.run(
            [LEVIN, *arguments],
            cwd=self.dir,
            stdout=stdout,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
            check=False,
        )
        self.assertEqual(
            done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr.decode()}"
        )
        return done.stdout, done.stderr.decode()

    def commands(self):
        """Each way to write a result: the words, and the endings that it takes."""
        predict = ["predict", f"model={self.model}"]
        return (
            ([*predict, f"data={self.photos}"], (".csv", ".jsonl")),
            ([*predict, f"data={self.photos}", "json=true"], (".jsonl",)),
            (["export", f"model={self.model}"], (".safetensors",)),
            ([*predict, "data=x.npy"], (".npy",)),
        )

    def test_the_ending_reports_what_is_written(self):
        first = {
            ".csv": b"file,class,probability",
            ".jsonl": b'{"file": ',
            ".safetensors": b'"format":"pt"',
            ".npy": b"\x93NUMPY",
        }
        for arguments, endings in self.commands():
            for ending in endings:
                self.raw(*arguments, f"output=o{ending}")
                self.assertIn(first[ending], read(f"{self.dir}/o{ending}")[:8192])
                os.remove(f"{self.dir}/o{ending}")

    def test_other_endings_are_refused_before_the_work(self):
        """What is named works; nothing is written or left."""
        for arguments, endings in self.commands()[:3]:
            for name in (
                "o.txt",
                "o",
                "o.pt",
                "o.parquet",
                ".csv",
                "o.csv.gz",
                "o.png",
                "csv",
                "o.safetensors.bak",
            ):
                before = sorted(os.listdir(self.dir))
                _, reported = self.raw(*arguments, f"output={name}", code=USAGE)
                self.assertIn(f"output={name}: ", reported)
                self.assertIn(
                    f"give a name that ends in {' or '.join(endings)}, or output=- for stdout",
                    reported,
                )
                self.assertEqual(sorted(os.listdir(self.dir)), before)

    def test_a_dash_is_standard_output(self):
        """The same bytes as the file, and not one more; a file of that name is not made."""
        for arguments, endings in self.commands()[:3]:
            ending = endings[0]
            self.raw(*arguments, f"output=o{ending}")
            self.assertEqual(self.raw(*arguments, "output=-")[0], read(f"{self.dir}/o{ending}"))
            self.assertEqual(
                self.raw(
                    *arguments,
                    "output=-",
                    *(["devices=1", "sheet=s.png"] if arguments[0] == "predict" else []),
                )[0],
                read(f"{self.dir}/o{ending}"),
            )
        array = ["predict", "model=mlp", "weights=w.safetensors", "data=x.npy"]
        self.raw("export", f"model={self.model}", "output=w.safetensors")
        self.raw(*array, "output=o.npy")
        self.assertEqual(self.raw(*array, "output=-")[0], read(f"{self.dir}/o.npy"))
        for argument in (
            "json=true",
            "top_k=2",
            "probabilities=true",
        ):  # logits have no rows of classes
            _, reported = self.raw(*array, argument, code=USAGE)
            self.assertIn("this has no effect on the logits of an array", reported)
        self.assertFalse(os.path.exists(f"{self.dir}/-"))

    def test_a_dash_with_ranks(self):
        """Lines come through the launcher as they are; bytes would not, and are refused."""
        arguments = ["predict", f"model={self.model}", f"data={self.photos}", "accelerator=cpu"]
        self.assertEqual(
            self.raw(*arguments, "output=-", "devices=2")[0], self.raw(*arguments, "output=-")[0]
        )
        self.raw("export", f"model={self.model}", "output=w.safetensors")
        _, reported = self.raw(
            "predict",
            "model=mlp",
            "weights=w.safetensors",
            "data=x.npy",
            "accelerator=cpu",
            "output=-",
            "devices=2",
            code=USAGE,
        )
        self.assertIn("use devices=1, or the name of a file", reported)

    def test_output_that_cannot_be_written(self):
        """A full disk behind standard output is an error, as with a file."""
        with open("/dev/full", "wb") as full:
            for arguments, _ in self.commands()[:3]:
                _, reported = self.raw(*arguments, "output=-", code=1, stdout=full)
                self.assertIn("No space left on device", reported)
            _, reported = self.raw(
                "eval",
                f"model={self.model}",
                f"data={self.photos}",
                "json=true",
                code=1,
                stdout=full,
            )
            self.assertIn("No space left on device", reported)

    def test_report_that_cannot_be_written(self):
        """So is one behind what a command prints."""
        plan = ("plan", "train", "classify", f"data={self.photos}", "image_size=32")
        with open("/dev/full", "wb") as full:
            for arguments in (
                ("help",),
                ("--version",),
                ("help", "optim.lr"),
                ("ops",),
                ("slurm", "env", "--json"),
                ("doctor",),
                ("ckpt", "hash", self.model),
                plan,
            ):
                _, reported = self.raw(*arguments, code=1, stdout=full)
                self.assertIn("cannot write all of it to standard output", reported)
            _, reported = self.raw("help", "nothing-such", code=USAGE, stdout=full)
            self.assertNotIn("standard output", reported)

    def test_no_bytes_for_a_terminal(self):
        leader, follower = open_terminal()
        try:
            _, reported = self.raw(
                "export", f"model={self.model}", "output=-", code=USAGE, stdout=follower
            )
            self.assertIn("which is not for a terminal", reported)
        finally:
            os.close(leader)
            os.close(follower)


if __name__ == "__main__":
    main()
