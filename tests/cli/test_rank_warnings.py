"""What a run of several ranks is warned of when it starts, each time once; threads that load data;
and the simulated devices that ranks get to see.

usage: test_rank_warnings.py LEVIN [test names]
"""

import os
import re
import signal
import socket
import subprocess
import time

from case import Case, LEVIN, main, OK, SIGINT, USAGE, WAIT_S
from rank_processes import children, drop_identity, thread_names

RESOURCE = 69
drop_identity()
SHAPES = [
    "classify",
    "data=builtin:shapes",
    "data.count=24",
    "image_size=16",
    "model=mlp",
    "batch_size=4",
    "max_steps=2",
    "val_split=0",
    "accelerator=cpu",
    "num_workers=0",
]
TASK = {
    "SLURM_JOB_ID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_STEP_NODELIST": "n08",
}
SIM = {"LEVIN_SIM_DEVICES": "4", "LEVIN_SIM_MEMORY": "64MiB"}
CPUS = len(os.sched_getaffinity(0))


class Warnings(Case):
    def warned(self, *arguments, env=None):
        """Of a run that ends well, the warnings: [("W202", its sentence)]."""
        out = f"{self.dir}/run"
        _, reported = self.levin(
            ["train", *SHAPES, f"out={out}", "overwrite=true", *arguments], OK, env=env
        )
        return re.findall(r"^warning: (W\d+): (.*)$", reported, re.M)

    def one(self, code, sentence, *arguments, env=None):
        ((found, printed),) = self.warned(*arguments, env=env)
        self.assertEqual((found, printed[: len(sentence)]), (code, sentence))

    def test_more_workers_than_processors(self):
        for strategy in ("ddp", "dp"):
            self.one(
                "W202",
                f"{CPUS} workers x 2 ranks are more than the {CPUS} processors of this node",
                "devices=2",
                f"strategy={strategy}",
                f"num_workers={CPUS}",
            )
            self.assertEqual(
                self.warned("devices=2", f"strategy={strategy}", "num_workers=auto"), []
            )

    def test_tasks_with_fewer_processors_than_asked_for(self):
        more = str(CPUS + 5)
        self.one(
            "W208",
            f"SLURM_CPUS_PER_TASK={more}, but this task may use {CPUS}: export SRUN_CPUS_PER_TASK",
            env=dict(TASK, SLURM_CPUS_PER_TASK=more),
        )
        self.one(
            "W209",
            f"workers ({CPUS}) must be smaller than cpus-per-task ({CPUS})",
            f"num_workers={CPUS}",
            env=dict(TASK, SLURM_CPUS_PER_TASK=str(CPUS)),
        )

    def test_an_allocation_without_srun(self):
        self.one(
            "W210",
            "inside an allocation of 2 tasks, but alone",
            env={"SLURM_JOB_ID": "6", "SLURM_JOB_NAME": "interactive", "SLURM_NTASKS": "2"},
        )

    def test_a_list_of_devices_under_slurm(self):
        self.one(
            "W201",
            "devices is a list inside of Slurm",
            "accelerator=sim",
            "devices=[1]",
            env=dict(TASK, **SIM),
        )
        self.one(
            "W201",
            "gpus is a list inside of Slurm",
            "accelerator=sim",
            "gpus=[1]",
            env=dict(TASK, **SIM),
        )

    def test_a_strategy_for_one_device(self):
        self.one(
            "W211",
            "strategy=single is for one device, and this run has 2: switched to ddp",
            "devices=2",
            "strategy=none",
        )
        self.assertEqual(self.warned("devices=2"), [])

    def test_ranks_on_the_cpu_for_want_of_a_gpu(self):
        """Where no option asks for them; reported once, whichever launcher starts the ranks."""
        printed = "2 ranks run on the CPU, because no GPU is visible"
        for arguments in ((), ("strategy=dp",)):
            self.one("W206", printed, "devices=2", "accelerator=auto", *arguments)
        self.assertEqual(self.warned("devices=1", "accelerator=auto"), [])
        self.assertEqual(self.warned("accelerator=auto"), [])
        self.assertEqual(self.warned("devices=2"), [])
        arguments = ["train", *SHAPES, "accelerator=auto", "overwrite=true", f"out={self.dir}/run"]
        _, reported = self.levin(
            [
                "launch",
                "--no-prefix",
                f"--run-dir={self.dir}/logs",
                "--devices",
                "2",
                "--",
                LEVIN,
                *arguments,
            ],
            OK,
        )
        self.assertEqual(len(re.findall("W206", reported)), 1, reported)
        _, reported = self.levin(
            arguments
            + ["resume=true", "overwrite=false", "accelerator=auto", "devices=2", "max_steps=4"],
            OK,
        )
        self.assertIn("W206", reported)  # reported again: this start
        env = {
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "LEVIN_RDZV": f"file:{self.dir}/meet",
        }
        both = [
            subprocess.Popen(
                [LEVIN, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=dict(os.environ, RANK=r, LOCAL_RANK=r, **env),
            )
            for r in "01"
        ]
        reported = [p.communicate(timeout=WAIT_S)[1] for p in both]
        self.assertEqual([p.returncode for p in both], [OK, OK], reported)
        self.assertEqual([len(re.findall(f"W206: {printed}", t)) for t in reported], [1, 0])


class Strict(Case):
    """strict=true, --strict and LEVIN_STRICT=1 make every warning with a number an error, before
    anything is made."""

    LONE = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
    }

    def refused(self, code, arguments, env=None):
        _, reported = self.levin(arguments, USAGE, env=env)
        self.assertEqual(reported.count("levin: error W"), 1, reported)
        self.assertTrue(reported.startswith(f"levin: error {code}: "), reported)
        self.assertTrue(
            reported.endswith(
                "  fix: warnings are errors here (strict=true, or LEVIN_STRICT=1): fix "
                "what they report, or set strict=false\n"
            ),
            reported,
        )
        self.assertEqual(os.listdir(self.dir), [])

    def test_of_a_training(self):
        more = str(CPUS + 5)
        for code, arguments, env in (
            ("W201", ["accelerator=sim", "devices=[1]"], dict(TASK, **SIM)),
            ("W202", ["devices=2", f"num_workers={CPUS}"], {}),
            ("W202", ["devices=2", f"num_workers={CPUS}", "strategy=dp"], {}),
            ("W204", [], self.LONE),
            ("W205", [], dict(self.LONE, MASTER_PORT="1023")),
            ("W206", ["devices=2", "accelerator=auto"], {}),
            ("W208", [], dict(TASK, SLURM_CPUS_PER_TASK=more)),
            ("W209", [f"num_workers={CPUS}"], dict(TASK, SLURM_CPUS_PER_TASK=str(CPUS))),
            (
                "W210",
                [],
                {"SLURM_JOB_ID": "6", "SLURM_JOB_NAME": "interactive", "SLURM_NTASKS": "2"},
            ),
            ("W211", ["devices=2", "strategy=none"], {}),
        ):
            train = ["train", *SHAPES, f"out={self.dir}/run", *arguments]
            self.refused(code, [*train, "strict=true"], env)
            self.refused(code, train, dict(env, LEVIN_STRICT="1"))

    def test_idle_devices(self):
        """Two tasks of a job that shows four devices: W207."""
        self.refused(
            "W207",
            ["train", *SHAPES, f"out={self.dir}/run", "accelerator=sim", "strict=true"],
            dict(
                TASK,
                **SIM,
                SLURM_STEP_NUM_TASKS="2",
                SLURM_NTASKS="2",
                SLURM_STEP_TASKS_PER_NODE="2",
                SLURM_NTASKS_PER_NODE="4",
            ),
        )

    def test_of_a_launcher(self):
        for code, arguments, env in (
            ("W201", ["--accelerator", "sim", "--devices", "[1]"], dict(SIM, **TASK)),
            ("W206", ["--devices", "2"], {}),
            ("W214", ["-n", "1", "--env", "NCCL_SOKET_IFNAME=eth0"], {}),
            ("W214", ["-n", "1"], {"NCCL_SOCKET_IFNMAE": "eth0"}),
        ):
            launch = ["launch", f"--run-dir={self.dir}/logs", *arguments]
            program = ["--", "touch", f"{self.dir}/started"]
            self.refused(code, [*launch, "--strict", *program], env)
            self.refused(code, [*launch, "--dry-run", *program], dict(env, LEVIN_STRICT="1"))

    def test_of_other_commands(self):
        self.refused("W204", ["slurm", "env", "--strict"], self.LONE)
        self.refused(
            "W203",
            ["export", f"model={self.dir}/run"],
            dict(self.LONE, MASTER_PORT="2000", LEVIN_STRICT="1"),
        )
        model = f"{self.dir}/run"
        self.levin(["train", *SHAPES, f"out={model}"], OK)
        _, reported = self.levin(
            [
                "eval",
                f"model={model}",
                "data=builtin:shapes",
                "devices=2",
                "accelerator=auto",
                "strict=true",
            ],
            USAGE,
        )
        self.assertTrue(reported.startswith("levin: error W206: "), reported)

    def test_no_warning_no_error(self):
        _, reported = self.levin(
            ["train", *SHAPES, f"out={self.dir}/run", "devices=2", "strict=true"],
            OK,
            env={"LEVIN_STRICT": "1"},
        )
        self.assertNotIn("W2", reported)
        _, reported = self.levin(
            ["train", *SHAPES, f"out={self.dir}/two"], USAGE, env={"LEVIN_STRICT": "yes"}
        )
        self.assertTrue(
            reported.startswith("levin: error E100: LEVIN_STRICT='yes' is neither 0 nor 1\n"),
            reported,
        )

    def test_the_nearer_word_wins(self):
        train = ["train", *SHAPES, f"out={self.dir}/run", f"num_workers={CPUS + 1}"]
        self.assertIn(
            "W202", self.levin([*train, "strict=false"], OK, env={"LEVIN_STRICT": "1"})[1]
        )
        launch = ["launch", f"--run-dir={self.dir}/logs", "--no-prefix", "-n", "2"]
        for more, env in (
            (["--strict"], {}),
            ([], {"LEVIN_STRICT": "1"}),
        ):  # the ranks are to be strict, too
            self.assertIn(
                "levin: error W202: ",
                self.levin([*launch, *more, "--", LEVIN, *train, "overwrite=true"], USAGE, env=env)[
                    1
                ],
            )
        self.assertIn(
            "warning: W202",
            self.levin(
                [*launch, "--strict", "--", LEVIN, *train, "overwrite=true", "strict=false"], OK
            )[1],
        )

    def test_quiet_hides_warnings(self):
        """And does not keep strict from refusing."""
        train = [
            "train",
            *SHAPES,
            f"out={self.dir}/run",
            "devices=2",
            "accelerator=auto",
            "quiet=true",
        ]
        self.refused("W206", [*train, "strict=true"])
        self.assertEqual(self.levin(train, OK)[1], "")


class Nccl(Case):
    def test_a_misspelled_variable(self):
        """NCCL itself does not report it; known names, and programs that do not use NCCL, are not
        warned of."""

        def reported(*arguments, **env):
            shown, err = self.levin(
                [
                    "launch",
                    f"--run-dir={self.dir}/logs",
                    "--no-prefix",
                    *arguments,
                    "--",
                    "sh",
                    "-c",
                    "env | grep ^NCCL_ | sort",
                ],
                OK,
                env=env,
            )
            return shown.split(), err

        shown, err = reported(NCCL_SOCKET_IFNMAE="eth0", NCCL_DEBUG="WARN", NCCL_IB_HCA="mlx5")
        self.assertEqual(shown, ["NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5", "NCCL_SOCKET_IFNMAE=eth0"])
        self.assertEqual(
            err,
            "levin: warning W214: NCCL_SOCKET_IFNMAE is not a known variable of NCCL "
            "(did you mean NCCL_SOCKET_IFNAME?); "
            "it is passed on as it is\n",
        )
        self.assertIn(
            "W214: NCCL_QWERTZUIOP is not a known variable of NCCL; it is passed on",
            reported("--env", "NCCL_QWERTZUIOP=1")[1],
        )
        self.assertEqual(reported("--env", "NCCL_QWERTZUIOP=1", "--quiet")[1], "")
        self.assertEqual(reported("--env", "NCCL_QWERTZUIOP=1", "--accelerator", "cpu")[1], "")
        _, err = self.levin(
            ["train", *SHAPES, f"out={self.dir}/run", "devices=2"], OK, env={"NCCL_QWERTZUIOP": "1"}
        )
        self.assertNotIn("W2", err)


class Workers(Case):
    def threads(self, *arguments, env=None):
        """How many load data for rank 0, seen while it trains."""
        out = f"{self.dir}/run"
        p = subprocess.Popen(
            [
                LEVIN,
                "train",
                *SHAPES[:-1],
                "data.count=240",
                "max_steps=-1",
                "max_epochs=100000",
                "overwrite=true",
                f"out={out}",
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, **(env or {})),
        )
        self.addCleanup(self.end, p)
        names = []

        def trains():
            for pid in children(out):
                names[:] = thread_names(pid)
                if "lvn-save" in names:  # made after the threads that load
                    return True
            return False

        self.wait_for(trains, p)
        p.send_signal(signal.SIGINT)
        _, reported = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, SIGINT, reported)
        return sum(name.startswith("lvn-load") for name in names)

    def test_as_many_as_processors_but_one(self):
        self.assertEqual(self.threads(), min(CPUS - 1, 8))
        self.assertEqual(self.threads("num_workers=3", "quiet=true"), 3)
        self.assertEqual(self.threads(env=dict(TASK, SLURM_CPUS_PER_TASK="1")), 0)


class Devices(Case):
    def shown(self, *arguments, code=OK, **env):
        show = ["sh", "-c", 'echo "$WORLD_SIZE:$CUDA_VISIBLE_DEVICES:$CUDA_DEVICE_ORDER"']
        out, err = self.levin(
            [
                "launch",
                "--show",
                "0",
                "--no-prefix",
                f"--run-dir={self.dir}/logs",
                *arguments,
                "--",
                *show,
            ],
            code,
            env=dict(SIM, **env),
        )
        return out.strip() if code == OK else err

    def test_what_a_launcher_shows(self):
        """Numbers count what is visible already, and the ranks see that alone."""
        sim = ["--accelerator", "sim"]
        self.assertEqual(
            self.shown(*sim, "--devices", "[1]", CUDA_VISIBLE_DEVICES="1,3"), "1:3:PCI_BUS_ID"
        )
        self.assertEqual(
            self.shown(*sim, "--devices", "all", CUDA_VISIBLE_DEVICES="0,1"), "2:0,1:PCI_BUS_ID"
        )
        self.assertEqual(
            self.shown(*sim, "gpus=0, 1", CUDA_DEVICE_ORDER="FASTEST_FIRST"), "2:0,1:FASTEST_FIRST"
        )
        self.assertEqual(self.shown("gpus=0"), "1::")
        self.assertEqual(self.shown("--accelerator", "cpu"), "1::")
        self.assertIn("--accelerator cpu", self.shown("--devices", "0", code=USAGE))

    def test_what_the_ranks_of_a_training_take(self):
        """All ways to write two devices, and the places of CUDA_VISIBLE_DEVICES: named by the
        numbers of the machine."""

        def taken(*arguments, **env):
            reported, _ = self.levin(
                [
                    "train",
                    *SHAPES,
                    f"out={self.dir}/run",
                    "overwrite=true",
                    "accelerator=sim",
                    *arguments,
                ],
                OK,
                env=dict(SIM, **env),
            )
            return re.search(
                r"^2 ranks: (?:processes|threads) \(.*\), devices (.*)$", reported, re.M
            ).group(1)

        for argument in ("gpus=2", "gpus=[0,1]", "gpus=0, 1", "devices=0,1"):
            self.assertEqual(taken(argument, "strategy=dp"), "sim:0,sim:1", argument)
        self.assertEqual(taken("devices=[3,1]"), "sim:3,sim:1")
        self.assertEqual(
            taken("devices=[2,0]", "strategy=dp", CUDA_VISIBLE_DEVICES="3,2,1"), "sim:1,sim:3"
        )
        self.assertEqual(taken("devices=[2,0]", CUDA_VISIBLE_DEVICES="3,2,1"), "sim:1,sim:3")

    def test_what_slurm_shows_stays(self):
        """And still the ranks take the devices of the list."""
        sim = ["--accelerator", "sim"]
        self.assertEqual(
            self.shown(*sim, "--devices", "1", CUDA_VISIBLE_DEVICES="1,3", **TASK), "1:1,3:"
        )
        self.assertEqual(
            self.shown(*sim, "--devices", "[1]", CUDA_VISIBLE_DEVICES="1,3", **TASK), "1:1,3:"
        )
        shell = dict(SIM, **TASK, SLURM_JOB_NAME="bash", CUDA_VISIBLE_DEVICES="0,2,3")
        arguments = ["train", *SHAPES, f"out={self.dir}/run", "overwrite=true", "accelerator=sim"]
        for command in (
            [*arguments, "devices=[2,0]"],
            [
                "launch",
                "--accelerator",
                "sim",
                "--devices",
                "[2,0]",
                "--no-prefix",
                f"--run-dir={self.dir}/logs",
                "--",
                LEVIN,
                *arguments,
            ],
        ):
            out, reported = self.levin(command, OK, env=shell)
            self.assertEqual(
                re.findall(r"W\d+: gpus|W\d+: devices", reported), ["W201: devices"], reported
            )
            self.assertIn("2 ranks: processes (strategy=ddp), devices sim:3,sim:0\n", out)


class Port(Case):
    def test_a_port_that_is_taken(self):
        """A port that was asked for is not replaced by another; reported at once, with the process
        that has it."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            start = time.monotonic()
            _, reported = self.levin(
                ["train", *SHAPES, f"out={self.dir}/run"],
                RESOURCE,
                env={
                    "RANK": "0",
                    "WORLD_SIZE": "2",
                    "LOCAL_RANK": "0",
                    "LOCAL_WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
            )
            self.assertLess(time.monotonic() - start, 10)
        self.assertTrue(reported.startswith("levin: error E110: "), reported)
        self.assertIn(f"port {port}: pid {os.getpid()} ", reported)


if __name__ == "__main__":
    main()
