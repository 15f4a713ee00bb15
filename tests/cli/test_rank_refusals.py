"""What a run of several ranks refuses, before a process is started or once, by one of them.

usage: test_rank_refusals.py LEVIN [test names]
"""

import os
import re
import subprocess

from case import Case, LEVIN, main, OK, USAGE, WAIT_S
from rank_case import TRAIN_SHAPES
from rank_processes import drop_identity

RESOURCE = 69
drop_identity()


class Refused(Case):
    def reported(self, *arguments, code=USAGE, env=None):
        """Standard error, when nothing may appear in an empty folder."""
        done = subprocess.run(
            [LEVIN, *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
            env=dict(os.environ, **(env or {})),
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(os.listdir(self.dir), [], done.stderr)
        return done.stderr

    def test_a_plan_that_cannot_be(self):
        """By one process, as ranks that are threads would: a launcher would add its report."""
        for arguments, sentence in (
            (
                ["devices=500", "~batch_size"],
                "batch_size 32 cannot be cut into 500 micro-batches (500 devices x 1 "
                "accumulation step): at least one "
                "sample each; smallest that works: 500 (or devices=32)",
            ),
            (
                ["devices=4", "micro_batches=3"],
                "4 devices cannot share 3 micro-batches: at least one micro-batch "
                "each; nearest that works: devices=3 (or micro_batches=4)",
            ),
            (
                ["devices=2", "group=4"],
                "group=4 does not divide 2 micro-batches: every group needs as many; "
                "nearest that works: 2",
            ),
        ):
            for strategy in ("ddp", "dp"):
                self.assertEqual(
                    self.reported(
                        *TRAIN_SHAPES, "accelerator=cpu", f"strategy={strategy}", *arguments
                    ),
                    f"error: {sentence}\n",
                )

    def test_threads_exchange_no_messages(self):
        for command in (TRAIN_SHAPES, ["plan", *TRAIN_SHAPES]):
            self.assertEqual(
                self.reported(
                    *command, "accelerator=cpu", "devices=2", "strategy=dp", "transport=net"
                ),
                "error: transport=net with 2 ranks: it is for processes (strategy=ddp), and these "
                "are threads of one; use transport=auto\n",
            )

    def test_gpus_are_no_ranks_of_the_cpu(self):
        for command in (TRAIN_SHAPES, ["plan", *TRAIN_SHAPES]):
            for arguments, more in (
                (["gpus=4"], "4"),
                (["num_gpus=4", "strategy=dp"], "4"),
                (["gpus=-1"], "N"),
                (["gpus=[0,1]"], "2"),
                (["gpus=GPU-1f"], "1"),
            ):
                text = self.reported(*command, *arguments, code=RESOURCE)
                text = re.sub(r"^note: batch_size=6 is of all devices .*\n", "", text)
                first, rest = text.split("\n", 1)
                self.assertRegex(
                    first,
                    "^levin: error E106: GPUs are asked for, but this process sees none: "
                    "(this levin was built without its GPU backend|cuda: .* driver)",
                )
                build = (
                    "  fix: or build the backend for GPUs: `make` where nvcc is, else `make cuda` "
                    "in the folder of levin's sources\n"
                )
                self.assertEqual(
                    rest,
                    f"  found: {arguments[0]} (command line)\n  fix: devices={more} "
                    "for ranks on the CPU\n"
                    "  fix: or accelerator=sim, simulated devices, with "
                    f"LEVIN_SIM_DEVICES={more} in the environment\n"
                    + (build if "was built without" in first else ""),
                )
        self.assertIn("gpus a: cannot read 'a' as a number", self.reported(*TRAIN_SHAPES, "gpus=a"))

    def test_devices_that_cannot_be_meant(self):
        """What is right, and where the wrong argument stands; accelerator=cpu is not among them
        here."""
        listed = (
            "error: devices [0,1]: a list names GPUs; on the CPU give the number of ranks: "
            "devices=2\n"
        )
        none = (
            "error: devices 0: give at least 1; devices=1 is one rank on the CPU "
            "(accelerator=cpu)\n"
        )
        for command in (TRAIN_SHAPES, ["plan", *TRAIN_SHAPES]):
            for more in ([], ["accelerator=cpu"]):
                self.assertEqual(
                    self.reported(*command, "devices=[0,1]", *more),
                    listed + "  in devices=[0,1] (command line)\n",
                )
                self.assertEqual(
                    self.reported(*command, "devices=0", *more),
                    none + "  in devices=0 (command line)\n",
                )
        with open(f"{self.dir}/c.yaml", "w") as f:
            f.write("batch_size: 6\ndevices: 0\n")
        done = subprocess.run(
            [LEVIN, *TRAIN_SHAPES, "config=c.yaml"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
        )
        self.assertEqual(
            (done.returncode, done.stderr), (USAGE, none + "  in devices=0 (c.yaml:2)\n")
        )

    def test_gpus_that_are_there(self):
        for arguments in (["gpus=0"], ["gpus=2", "accelerator=cpu"], ["gpus=2", "accelerator=sim"]):
            out, _ = self.levin(
                ["plan", *TRAIN_SHAPES, *arguments],
                OK,
                env={"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "64MiB"},
            )
            self.assertEqual("rank 1 owns" in out, arguments != ["gpus=0"], out)

    def test_no_folder_stays(self):
        """Not the one of runs without a name either."""
        arguments = ["train", "classify", "data=nowhere", "devices=2"]
        self.assertIn("nowhere", self.reported(*arguments))
        self.reported(*arguments, "out=a/b/run")
        os.mkdir(f"{self.dir}/out")
        done = subprocess.run(
            [LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S, cwd=self.dir
        )
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertEqual(os.listdir(self.dir), ["out"])
        self.assertEqual(os.listdir(f"{self.dir}/out"), [])

    def test_without_standard_descriptors(self):
        """As some daemons start programs: what is opened next must not take their numbers."""
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
            done = subprocess.run(
                [
                    "sh",
                    "-c",
                    f'exec "$0" "$@" {closed}',
                    LEVIN,
                    *TRAIN_SHAPES,
                    "devices=2",
                    "overwrite=true",
                    f"out={self.dir}/run",
                ],
                timeout=WAIT_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.assertEqual(done.returncode, OK, closed)

    def test_reported_once_and_not_tried_again(self):
        """Names that lead nowhere: known before there are ranks, by rank 0 alone, by all ranks."""
        again = ["devices=2", "accelerator=cpu", "max_restarts=2"]
        sentence = (
            "data=nowhere: No such file or directory; give a folder with one sub-folder of images "
            "per class"
        )
        self.assertEqual(
            self.reported("train", "classify", "data=nowhere", *again),
            f"error: {sentence}\n  in data=nowhere (command line)\n",
        )
        self.assertRegex(
            self.reported(*TRAIN_SHAPES, "weights=none.safetensors", *again),
            r"\Aerror: weights: none\.safetensors: [^\n]*No such file[^\n]*\n\Z",
        )
        os.mkdir(f"{self.dir}/empty")
        done = subprocess.run(
            [LEVIN, "train", "classify", "data=empty", *again],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
        )
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertEqual(
            done.stderr.count("error: empty: no images (JPEG or PNG) in this folder or below\n"),
            1,
            done.stderr,
        )
        self.assertNotIn("restart", done.stderr)
        if (
            "stopped: SIGTERM" not in done.stderr
        ):  # rank 0 had no time to report it: then the launcher does
            self.assertNotIn("levin launch", done.stderr)
        self.assertEqual(os.listdir(self.dir), ["empty"])

    def test_a_rank_that_lost_its_number(self):
        self.assertRegex(
            self.reported(
                *TRAIN_SHAPES, "accelerator=cpu", "devices=2", env={"LEVIN_LAUNCHED": "1"}
            ),
            r"\Aerror: devices=2: .* starts no others; [^\n]*\n\Z",
        )

    def test_a_launcher_of_somebodys_own(self):
        """Its report names the rank, but does not repeat what rank 0 has reported."""
        done = subprocess.run(
            [
                LEVIN,
                "launch",
                "-n",
                "2",
                "--max-restarts=2",
                "--crash-loop=0",
                "--no-prefix",
                "--",
                LEVIN,
                "train",
                "classify",
                "data=nowhere",
            ],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
        )
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertEqual(done.stderr.count("data=nowhere: No such file"), 1, done.stderr)
        self.assertIn("failed first: exit code 64", done.stderr)
        self.assertNotIn("restart", done.stderr)


if __name__ == "__main__":
    main()
