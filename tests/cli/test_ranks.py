"""Reproducibility over ranks: one configuration, trained by any number of ranks as threads or
processes, on the CPU or the simulated accelerator, stopped and resumed on other ranks: one hash of
weights, one of the state, and the same metrics, digit by digit.

The images come in short last steps (some micro-batches then are empty), the network has batch norm
and dropout. Cases take a part of the matrix; LEVIN_TEST_SLOW=1 takes all of it.

usage: test_ranks.py LEVIN DATA [test names]   DATA: folder with clothing/ (341 photos in 10
classes); absent: reported, and left out
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import time

from case import Case, LEVIN, main, OK, SIGINT, SIGTERM, USAGE, WAIT_S
from reproducibility_lines import first_difference, reproducibility_lines
from rank_processes import being_written, children, drop_identity, is_held, rank_pid

PHOTOS = os.path.join(sys.argv.pop(1), "clothing") if len(sys.argv) > 1 else ""
SLOW = os.environ.get("LEVIN_TEST_SLOW", "0") not in ("", "0")
drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "8", "LEVIN_SIM_MEMORY": "256MiB"}
SHAPES = ["data=builtin:shapes", "data.count=230", "image_size=16"]
NETWORK = [
    "model=cnn",
    "model.dropout=0.1",
    "augment.hflip=0.5",
    "augment.hue=0.1",
    "gradient_clip_val=1",
    "ema.decay=0.9",
    "wgrad_threads=1",
    "val_split=0.2",
    "eval_batch_size=7",
    "log_every_n_steps=1",
    "quiet=true",
    "seed=7",
]
SIX = ["batch_size=30", "micro_batches=6"]  # 182 images: the last step has 2
EIGHT = ["batch_size=32", "micro_batches=8"]  # the last step has 22
WEIGHTED = [
    "class_weights=[1,2,3,1,1,0.5]",
    "label_smoothing=0.1",
    "sampler=balanced",
]  # micro-batches weigh other than they have samples
ALL = 1 << 30  # all gradients in one bucket


def layout(strategy, devices, accelerator="cpu", bucket=4194304, workers=1):
    return [
        f"strategy={strategy}",
        f"devices={devices}",
        f"accelerator={accelerator}",
        f"bucket_bytes={bucket}",
        f"num_workers={workers}",
    ]


def matrix(some, ranks):
    if not SLOW:
        return [layout(*one) for one in some]
    return [
        layout(*one)
        for one in itertools.product(
            ("dp", "ddp"), ranks, ("cpu", "sim"), (16384, 4194304, ALL), (0, 1, 3)
        )
    ]


class Ranks(Case):
    def run_on(self, name, *arguments, code=OK, expects=(), env=None):
        return self.levin(
            ["train", "classify", *arguments, f"out={self.dir}/{name}"],
            code,
            expects,
            dict(SIM, **(env or {})),
        )

    def same(self, a, b, what, which=("last",)):
        for file in which:
            self.assertEqual(
                self.hashes(f"{self.dir}/{a}", file), self.hashes(f"{self.dir}/{b}", file), what
            )
        self.assertEqual(
            first_difference(
                reproducibility_lines(f"{self.dir}/{a}"), reproducibility_lines(f"{self.dir}/{b}")
            ),
            "",
            what,
        )

    def same_on_all(self, arguments, layouts, which=("last", "best")):
        """The run on one device, then on all of these."""
        self.run_on("one", *arguments, *layout("single", 1, workers=0), "overwrite=true")
        for words_of_layout in layouts:
            self.run_on("other", *arguments, *words_of_layout, "overwrite=true")
            self.same("other", "one", " ".join(words_of_layout), which)
        return reproducibility_lines(f"{self.dir}/one")


class Layouts(Ranks):
    def test_six_micro_batches(self):
        lines = self.same_on_all(
            [*SHAPES, *NETWORK, *SIX, *WEIGHTED, "max_steps=20"],
            matrix(
                [
                    ("dp", 2, "cpu", 16384, 0),
                    ("dp", 3, "sim", ALL, 1),
                    ("dp", 6, "cpu", 4194304, 3),
                    ("ddp", 2, "sim", 16384, 2),
                    ("ddp", 3, "cpu", ALL, 0),
                    ("ddp", 6, "sim"),
                ],
                (2, 3, 6),
            ),
        )
        self.assertEqual(sum("val/loss" in row for _, row in lines), 2)
        self.assertEqual(lines[-1][0], 20)

    def test_eight_micro_batches(self):
        """Ranks need not have equally many micro-batches."""
        self.same_on_all(
            [*SHAPES, *NETWORK, *EIGHT, "max_steps=20"],
            matrix(
                [
                    ("dp", 3, "cpu"),
                    ("dp", 8, "sim", 16384),
                    ("dp", 4, "cpu", ALL, 3),
                    ("ddp", 2, "cpu", 16384, 3),
                    ("ddp", 4, "sim", ALL, 0),
                    ("ddp", 6, "cpu"),
                    ("ddp", 8, "cpu", 16384, 0),
                ],
                (2, 3, 4, 6, 8),
            ),
        )

    def test_photos(self):
        if not os.path.isdir(PHOTOS):
            self.skipTest("no photos: LEVIN_TEST_DATA names no folder with clothing/")
        arguments = [f"data={PHOTOS}", "image_size=32", *NETWORK, "max_steps=20"]  # 273 to train
        some = [("dp", 3, "sim", 16384, 3), ("ddp", 2, "cpu", 16384, 2)]
        self.same_on_all([*arguments, *SIX], matrix(some, (2, 6)))
        if SLOW:
            self.same_on_all([*arguments, *EIGHT], matrix(some, (3, 8)))

    def test_bf16_mixed(self):
        arguments = [*SHAPES, *NETWORK, *SIX, "max_steps=10", "precision=bf16-mixed"]
        _, reported = self.levin(["plan", "train", "classify", *arguments], None)
        if "no bf16 products" in reported:
            self.skipTest(reported)
        self.same_on_all(
            arguments, matrix([("dp", 3, "sim", 16384), ("ddp", 2, "cpu", ALL)], (2, 6))
        )

    def test_f16_that_overflows(self):
        """Micro-batches of one sample overflow in the first steps, until the loss scale is small
        enough; all ranks skip the same."""
        network = ["model=mlp" if key == "model=cnn" else key for key in NETWORK]
        lines = self.same_on_all(
            [
                *SHAPES,
                *network,
                *WEIGHTED,
                "batch_size=12",
                "micro_batches=12",
                "max_steps=8",
                "precision=16-mixed",
            ],
            matrix([("dp", 2, "cpu", 16384), ("ddp", 3, "sim", ALL)], (2, 3)),
        )
        self.assertGreater(int(lines[-1][1]["amp/skipped_steps"]), 0)

    def test_micro_batches_of_a_group(self):
        """sync_batchnorm in groups that lie within a rank."""
        self.same_on_all(
            [*SHAPES, *NETWORK, *EIGHT, "max_steps=10", "sync_batchnorm=true", "group=2"],
            matrix([("dp", 2, "cpu", 16384), ("ddp", 2, "sim", ALL), ("ddp", 4, "cpu")], (2, 4)),
        )

    def test_both_dialects(self):
        """batch_size counts all devices, batch_size_per_device one; both before accumulation."""
        arguments = [*SHAPES, *NETWORK, "max_steps=10"]
        self.run_on(
            "one", *arguments, "batch_size=15", "accumulate_grad_batches=2", "micro_batches=6"
        )
        for name, strategy, devices, dialect in (
            ("all", "ddp", 3, ["batch_size=15", "micro_batches=6"]),
            ("each", "ddp", 3, ["batch_size_per_device=5"]),
            ("threads", "dp", 3, ["batch_size_per_device=5"]),
        ):
            self.run_on(
                name, *arguments, *layout(strategy, devices), *dialect, "accumulate_grad_batches=2"
            )
            self.same(name, "one", name)


class Resume(Ranks):
    def begin(self, *arguments):
        """A run without an end, stopped after a few steps; returns the process."""
        p = subprocess.Popen(
            [LEVIN, "train", "classify", *arguments, f"out={self.out}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=dict(os.environ, **SIM),
        )
        self.addCleanup(self.end, p)
        return p

    def stop(self, p, who, number, steps):
        """who: rank, "launcher", or "group" (what the terminal's Ctrl-C does). Returns the step
        that is saved."""
        self.wait_for(lambda: self.steps() >= steps, p)
        if who == "group":
            os.killpg(p.pid, number)
        else:
            os.kill(p.pid if who == "launcher" else rank_pid(self.out, who), number)
        asked = time.monotonic()
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertLess(time.monotonic() - asked, 30, reported)
        self.assertEqual(p.returncode, SIGINT if number == signal.SIGINT else SIGTERM, reported)
        self.assertEqual(reported.count("stopped: "), 1, reported)
        self.assertIn("the checkpoint is saved", reported)
        self.assertEqual(children(self.out), [])
        self.no_leftovers()
        return int(re.search(r"after step (\d+)", reported)[1])

    def chain(self, arguments, stops, last):
        """Stopped several times, each time resumed on other ranks; then the run to the same step
        without a stop."""
        here, extra = 0, arguments
        for strategy, devices, who, number in stops:
            p = self.begin(*extra, *layout(strategy, devices), "max_steps=-1", "max_epochs=-1")
            here = self.stop(p, who, number, here + 3)
            extra = ["resume=true", "quiet=true"]
        self.run_on("run", *extra, *layout(*last), f"max_steps={here + 4}")
        self.run_on("whole", *arguments, "max_epochs=-1", f"max_steps={here + 4}")
        self.same("run", "whole", "resumed")

    def test_stopped_and_resumed_on_other_ranks(self):
        self.chain(
            [
                *SHAPES,
                *NETWORK,
                *SIX,
                "scheduler=step",
                "scheduler.interval=step",
                "scheduler.step_size=9",
            ],
            [
                ("ddp", 2, 1, signal.SIGTERM),
                ("dp", 3, "launcher", signal.SIGTERM),
                ("ddp", 3, "launcher", signal.SIGTERM),
                ("ddp", 6, "group", signal.SIGINT),
                ("ddp", 2, 0, signal.SIGTERM),
            ],
            ("single", 1),
        )

    def test_stopped_during_validation(self):
        """1000 images, nearly all for validation, one at a time: it is nearly always validating."""
        self.chain(
            [
                "data=builtin:shapes",
                "data.count=1000",
                "image_size=16",
                *NETWORK,
                *SIX,
                "val_split=0.94",
                "eval_batch_size=1",
            ],
            [("ddp", 2, 1, signal.SIGTERM), ("dp", 2, "launcher", signal.SIGTERM)],
            ("ddp", 3),
        )

    def test_the_others_wait_for_the_checkpoint(self):
        """Rank 0 takes longer to write it than the launcher waits once one rank is gone."""
        arguments = [
            "data=builtin:shapes",
            "data.count=96",
            "batch_size=8",
            "image_size=32",
            "model=resnet18",
            "micro_batches=2",
            "optim=adam",
            "val_split=0",
            "quiet=true",
        ]
        p = subprocess.Popen(
            [
                LEVIN,
                "launch",
                "nproc=2",
                "grace=1.5",
                f"run_dir={self.dir}/logs",
                "--",
                LEVIN,
                "train",
                "classify",
                *arguments,
                "log_every_n_steps=1",
                "max_epochs=-1",
                f"out={self.out}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(self.end, p)
        self.wait_for(lambda: self.steps() >= 1, p)
        first = rank_pid(self.out, 0)
        os.kill(rank_pid(self.out, 1), signal.SIGTERM)
        self.wait_for(lambda: being_written(self.out), p)
        os.kill(first, signal.SIGSTOP)
        if being_written(self.out):  # else it was quicker than this test
            time.sleep(2)
            self.assertEqual(len([r for r in (0, 1) if rank_pid(self.out, r)]), 2)
        os.kill(first, signal.SIGCONT)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGTERM, reported)
        self.assertIn("the checkpoint is saved", reported)
        self.no_leftovers()

    def test_killed_and_resumed_on_other_ranks(self):
        """What was saved last is whole; the launcher and all ranks are gone at once."""
        p = self.begin(
            *SHAPES,
            *NETWORK,
            *SIX,
            *layout("ddp", 3),
            "checkpoint.every_n_steps=1",
            "max_epochs=-1",
        )
        self.wait_for(lambda: os.path.exists(f"{self.out}/checkpoints/last.safetensors"), p)
        p.kill()
        p.communicate()
        end = time.monotonic() + 20
        while (children(self.out) or is_held(self.out)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(children(self.out), [])
        here = self.steps() + 4
        self.run_on("run", "resume=true", *layout("dp", 2), f"max_steps={here}")
        self.run_on("whole", *SHAPES, *NETWORK, *SIX, "max_epochs=-1", f"max_steps={here}")
        self.same("run", "whole", "killed and resumed")

    def test_started_again_after_a_failure(self):
        """max_restarts= goes on from the last checkpoint, though the command has overwrite=true;
        what is asked for is not a failure."""
        arguments = [
            *SHAPES,
            *NETWORK,
            *SIX,
            "max_epochs=-1",
            "max_steps=100",
            "checkpoint.every_n_steps=10",
        ]
        os.makedirs(f"{self.out}/checkpoints")
        p = self.begin(*arguments, *layout("ddp", 3), "max_restarts=1", "overwrite=true")
        self.wait_for(lambda: self.steps() >= 20, p)
        os.kill(rank_pid(self.out, 2), signal.SIGKILL)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)
        self.assertIn("restart 1 of 1", reported)
        self.run_on("whole", *arguments)
        self.same("run", "whole", "started again")
        self.no_leftovers()
        another = {"LEVIN_RESTART_COUNT": "1", "LEVIN_RUN_ID": "another", "LEVIN_MAX_RESTARTS": "1"}
        self.run_on(
            "run", *arguments, code=USAGE, expects=["exists"], env=another
        )  # it is not the one that was begun before
        for layout_words, expects in (
            (layout("single", 1), "levin launch -n 1 --max-restarts 2"),
            (layout("dp", 2), "strategy=ddp"),
        ):
            self.run_on(
                "never", *arguments, *layout_words, "max_restarts=2", code=USAGE, expects=[expects]
            )

    def test_the_batch_stays_when_the_devices_change(self):
        arguments = [*SHAPES, *NETWORK, "batch_size_per_device=5"]
        self.run_on("whole", *arguments, *layout("dp", 6), "max_steps=8")
        self.run_on("run", *arguments, *layout("ddp", 6), "max_steps=4")
        reported, _ = self.run_on(
            "run", "resume=true", *layout("ddp", 2), "max_steps=8", "quiet=false"
        )
        self.same("run", "whole", reported)
        self.assertEqual(
            reported.count(
                "6 ranks wrote this checkpoint, 2 resume: the results do not depend on the "
                "number of ranks\n"
            ),
            1,
            reported,
        )
        reported, _ = self.run_on(
            "run", "resume=true", *layout("ddp", 2), "max_steps=14", "quiet=false"
        )
        self.assertNotIn("wrote this checkpoint", reported)
        reported, _ = self.run_on(
            "run", "resume=true", *layout("single", 1), "max_steps=15", "seed=8", "quiet=false"
        )  # another run from here on
        self.assertIn("2 ranks wrote this checkpoint, 1 resumes\n", reported)


class Started(Ranks):
    def by_hand(self, ranks, arguments, name, local=True):
        """As torchrun, or anything that sets its variables, would; Kubeflow sets no LOCAL_RANK."""
        import socket

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        all_ranks = []
        for rank in range(ranks):
            env = dict(
                os.environ,
                **SIM,
                RANK=str(rank),
                WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                LEVIN_TOKEN="one text of this test for all ranks",
            )
            env.update({"LOCAL_RANK": str(rank)} if local else {})
            p = subprocess.Popen(
                [LEVIN, "train", "classify", *arguments, f"out={self.dir}/{name}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=env,
            )
            self.addCleanup(self.end, p)
            all_ranks.append(p)
        return [(p.communicate(timeout=WAIT_S)[1], p.returncode) for p in all_ranks]

    def test_variables_set_by_hand(self):
        arguments = [*SHAPES, *NETWORK, *SIX, "max_steps=10"]
        self.run_on("one", *arguments)
        self.assertEqual(self.by_hand(3, arguments, "hand"), 3 * [("", OK)])
        self.same("hand", "one", "RANK, WORLD_SIZE, LOCAL_RANK set by hand")
        self.assertEqual(self.by_hand(2, arguments, "pods", local=False), 2 * [("", OK)])
        self.same("pods", "one", "RANK and WORLD_SIZE alone")

    def test_levin_launch(self):
        arguments = [*SHAPES, *NETWORK, *SIX, "max_steps=10"]
        self.run_on("one", *arguments)
        self.levin(
            [
                "launch",
                "-n",
                "2",
                "--run-dir",
                f"{self.dir}/logs",
                "--",
                LEVIN,
                "train",
                "classify",
                *arguments,
                f"out={self.dir}/launched",
            ],
            OK,
            env=SIM,
        )
        self.same("launched", "one", "levin launch -n 2 -- levin train")

    def test_one_device_for_several(self):
        arguments = [
            *SHAPES,
            *NETWORK,
            "model=mlp",
            *SIX,
            "max_steps=3",
            "allow_shared_device=true",
        ]
        self.same_on_all(
            arguments, [layout("ddp", "[0,0]", "sim"), layout("dp", "[1,1,0]", "sim")], ("last",)
        )

    def test_many_runs_at_once(self):
        """None of them is given a port."""
        arguments = [
            "train",
            "classify",
            *SHAPES,
            *NETWORK,
            "model=mlp",
            *SIX,
            "max_steps=5",
            *layout("ddp", 2, workers=0),
        ]
        runs = [
            subprocess.Popen(
                [LEVIN, *arguments, f"out={self.dir}/run{i}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in range(8)
        ]
        for p in runs:
            self.addCleanup(self.end, p)
        for p in runs:
            self.assertEqual((p.communicate(timeout=WAIT_S)[1], p.returncode), ("", OK))
        self.assertEqual(len({self.hashes(f"{self.dir}/run{i}") for i in range(8)}), 1)


class Refused(Ranks):
    def nothing(self, arguments, expects, code=USAGE, env=None):
        """One sentence, whatever the number of ranks, and nothing left behind."""
        done = subprocess.run(
            [LEVIN, "train", "classify", f"out={self.out}", *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**os.environ, **SIM, **(env or {})},
        )
        reported = done.stderr
        self.assertEqual(done.returncode, code, reported)
        for piece in expects:
            self.assertIn(piece, reported)
        self.assertEqual(
            len(set(re.findall(r"^ *(error: .*)", reported, re.M))), 1, reported
        )  # the launcher's report may repeat it
        self.assertNotIn("warning: ", reported)
        self.assertFalse(os.path.exists(self.out), reported)
        self.assertEqual(children(self.out), [])

    def test_devices(self):
        arguments = [*SHAPES, *NETWORK, *SIX]
        four = {"LEVIN_SIM_DEVICES": "4"}
        self.nothing([*arguments, "devices=0"], ["devices 0", "accelerator=cpu"])
        self.nothing(
            [*arguments, "devices=[0,5]", "accelerator=sim"],
            ["there is no device 5", "0-3"],
            env=four,
        )
        self.nothing([*arguments, "devices=5", "accelerator=sim"], ["5", "4"], env=four)
        self.nothing(
            [*arguments, "devices=[0,0]", "accelerator=sim"],
            ["device 0 is listed twice", "allow_shared_device=true"],
            env=four,
        )

    def test_more_ranks_than_micro_batches(self):
        for strategy in ("dp", "ddp"):
            self.nothing(
                [*SHAPES, *NETWORK, *SIX, "devices=8", f"strategy={strategy}"],
                ["8", "6 micro-batches"],
            )
            self.nothing(
                [*SHAPES, *NETWORK, *EIGHT, "devices=9", f"strategy={strategy}"],
                ["9", "8 micro-batches"],
            )

    def test_what_no_rank_can_do(self):
        for strategy in ("dp", "ddp"):
            where = [f"strategy={strategy}", "devices=3", "accelerator=cpu"]
            self.nothing([f"data={self.dir}/none", *where], [f"{self.dir}/none"])
            self.nothing([*SHAPES, "model=resnet19", *where], ["resnet18"])
            self.nothing([*SHAPES, "precision=bf17", *where], ["bf16"])
            self.nothing([*SHAPES, "optim.lr=-1", *where], ["optim.lr"])
            self.nothing([*SHAPES, "weights=/none.safetensors", *where], ["/none.safetensors"])


if __name__ == "__main__":
    main(turns=2)
