"""levin launch with the words of torchrun: scripts, modules, flags, and what scripts find.

usage: test_torchrun_arguments.py LEVIN [names of cases]     Python's standard library only
"""

import json
import os
import subprocess
import sys
import tempfile
import shutil
import unittest

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
WAIT_S = 60
DROP = (
    "LEVIN_",
    "SLURM_",
    "TORCH",
    "MASTER_",
    "OMP_",
    "GOMP_",
    "CUDA_",
    "ROLE_",
    "GROUP_",
    "LOCAL_",
    "PYTHON",
    "PET_",
)
CLEAN = {
    k: v
    for k, v in os.environ.items()
    if not k.startswith(DROP) and k not in ("RANK", "WORLD_SIZE")
}

# One JSON line: arguments, whether output is buffered, and the environment.
SCRIPT = """import json, os, sys
buffered = not getattr(sys.stdout, "write_through", False)
print(json.dumps({"argv": sys.argv, "buffered": buffered, "env": dict(os.environ)}))
print("to stderr", file=sys.stderr)
"""

# What torchrun of PyTorch 2.15 sets for each worker (its local_elastic_agent.py).
TORCHRUN = {
    "RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "OMP_NUM_THREADS",
}


class Torchrun(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-torchrun-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.write("train.py", SCRIPT)

    def write(self, name, text, mode=0o644):
        path = f"{self.dir}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def run_launch(self, *arguments, env=None):
        return subprocess.run(
            [LEVIN, "launch", *arguments],
            cwd=self.dir,
            env=dict(CLEAN, **(env or {})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def ranks(self, *arguments, env=None):
        """What the script printed, by rank."""
        done = self.run_launch("--no-prefix", *arguments, env=env)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        printed = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted(printed, key=lambda one: int(one["env"]["RANK"]))

    def refused(self, *arguments, expects):
        before = os.listdir(self.dir)
        done = self.run_launch(*arguments)
        self.assertEqual((done.returncode, done.stdout), (64, ""), f"{arguments}\n{done.stderr}")
        for piece in expects:
            self.assertIn(piece, done.stderr)
        self.assertEqual(os.listdir(self.dir), before)

    def test_help_behind_the_script_is_the_scripts(self):
        for before in (["train.py"], ["-m", "train"], ["--no-python", "./run"]):
            self.write("run", "#!/usr/bin/env python3\n" + SCRIPT, 0o755)
            for flag in ("--help", "-h"):
                (one,) = self.ranks("-n", "1", *before, flag)
                self.assertEqual(one["argv"][1:], [flag])
        done = self.run_launch("-n", "2", "--help")
        self.assertIn("usage: levin launch", done.stdout)

    def test_variables_of_torchrun(self):
        """Each option is read from PET_..., too; arguments take precedence."""
        env = {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "w", "PET_MONITOR_INTERVAL": "5"}
        two = self.ranks("train.py", env=env)
        self.assertEqual([one["env"]["ROLE_NAME"] for one in two], ["w", "w"])
        self.assertEqual(len(self.ranks("-n", "1", "train.py", env=env)), 1)
        done = self.run_launch("train.py", env=env)
        self.assertIn("note: PET_MONITOR_INTERVAL has no effect", done.stderr)
        env.update(PET_NNODES="2", PET_NODE_RANK="1", PET_MASTER_ADDR="h", PET_MASTER_PORT="29777")
        done = self.run_launch("--dry-run", "train.py", env=env)
        for line in ("RANK=2", "RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=29777"):
            self.assertIn(f"  {line}\n", done.stdout)

    def test_a_script_and_its_environment(self):
        """Arguments are the script's from its name on; all that torchrun sets is there."""
        two = self.ranks(
            "--standalone",
            "--nnodes=1",
            "--nproc_per_node",
            "2",
            "--role",
            "worker",
            "--max-restarts=3",
            "--rdzv-id",
            "j7",
            "train.py",
            "--lr",
            "0.1",
            "-n",
            "3",
            "out=x",
            "--",
            "last",
        )
        self.assertEqual(len(two), 2)
        for rank, one in enumerate(two):
            env = one["env"]
            self.assertEqual(
                one["argv"], ["train.py", "--lr", "0.1", "-n", "3", "out=x", "--", "last"]
            )
            self.assertFalse(one["buffered"])
            self.assertEqual(TORCHRUN - set(env), set())
            expected = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "ROLE_RANK": rank,
                "WORLD_SIZE": 2,
                "LOCAL_WORLD_SIZE": 2,
                "ROLE_WORLD_SIZE": 2,
                "GROUP_RANK": 0,
                "GROUP_WORLD_SIZE": 1,
                "ROLE_NAME": "worker",
                "TORCHELASTIC_RUN_ID": "j7",
                "MASTER_ADDR": "127.0.0.1",
                "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 3,
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
            }
            self.assertEqual(
                {k: env[k] for k in expected}, {k: str(v) for k, v in expected.items()}
            )
            self.assertGreater(int(env["MASTER_PORT"]), 0)
        self.assertEqual(two[0]["env"]["MASTER_PORT"], two[1]["env"]["MASTER_PORT"])

    def test_modules_and_programs(self):
        self.write("pack/job.py", SCRIPT)
        for arguments in (
            ["-m", "pack.job", "a"],
            ["--module", "pack.job", "a"],
            ["--module", "--", "pack.job", "a"],
        ):
            (one,) = self.ranks("-n", "1", *arguments)
            self.assertEqual((one["argv"][1:], one["buffered"]), (["a"], False))
        self.write("tool", "#!/usr/bin/env python3\n" + SCRIPT)
        self.assertEqual(
            self.ranks("-n", "1", "tool", "b")[0]["argv"], ["tool", "b"]
        )  # no suffix, not executable: a script all the same
        self.write("tool", f"#!{sys.executable}\n" + SCRIPT, 0o755)
        for arguments in (
            ["--no-python", "./tool", "c"],
            ["--no_python", "--", "./tool", "c"],
            ["--", "./tool", "c"],
        ):
            (one,) = self.ranks("-n", "1", *arguments)
            self.assertEqual((one["argv"], one["buffered"]), (["./tool", "c"], True))
        self.refused("-m", "--no-python", "x", expects=["give one of them"])
        self.refused("nope.py", expects=["nope.py: there is no such script"])
        self.refused("-n", "2", expects=["SCRIPT.py", "-- PROGRAM"])

    def test_which_python(self):
        """python3 of PATH, PYTHON_EXEC before it, python where there is no other."""
        body = '#!/bin/sh\necho "{\\"argv\\": \\"$0 $*\\", \\"env\\": {\\"RANK\\": 0}}"\n'
        for name in ("one/python3", "one/python", "two/python", "mine"):
            self.write(name, body, 0o755)
        for env, printed in (
            ({"PATH": f"{self.dir}/one:{self.dir}/two:/bin"}, "one/python3"),
            ({"PATH": f"{self.dir}/two"}, "two/python"),
            ({"PYTHON_EXEC": f"{self.dir}/mine"}, "mine"),
        ):
            if printed == "two/python" and os.path.exists(f"{self.dir}/two/python3"):
                continue
            (one,) = self.ranks("-n", "1", "train.py", "a", env=env)
            self.assertEqual(one["argv"], f"{self.dir}/{printed} -u train.py a")
        done = self.run_launch("-n", "1", "train.py", env={"PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 127)
        self.assertIn("python3: there is no such program", done.stderr)

    def test_where_ranks_meet(self):
        port = lambda *arguments: self.ranks("-n", "1", *arguments, "train.py")[0]["env"][
            "MASTER_PORT"
        ]
        self.assertEqual(port("--master-addr", "localhost", "--master-port", "28417"), "28417")
        self.assertEqual(port("--rdzv-endpoint=localhost:28418"), "28418")
        for arguments in (
            ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:28418"],
            ["--rdzv-endpoint", "localhost:0"],
            ["--rdzv-endpoint", "localhost"],
            ["--standalone", "--rdzv-endpoint=localhost:28418"],
            ["--rdzv_backend", "static", "--node_rank", "0"],
        ):
            self.assertNotIn(port(*arguments), ("28418", "29400", "0"))
        reported = subprocess.run(
            [
                LEVIN,
                "launch",
                "--dry-run",
                "-n",
                "1",
                "--nnodes=2",
                "--node-rank=1",
                "--rdzv-backend=c10d",
                "--rdzv-endpoint=[::1]:28419",
                "train.py",
            ],
            cwd=self.dir,
            env=CLEAN,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for line in ("MASTER_ADDR=::1", "RANK=1", "WORLD_SIZE=2"):
            self.assertIn(f"  {line}\n", reported)

    def test_what_is_refused_reports_what_to_do(self):
        for arguments, expects in (
            (["--nnodes=1:4"], ["nodes 1:4", "give nnodes=4"]),
            (["--nnodes", "4:2"], ["give a number of nodes"]),
            (
                ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"],
                ["E109", "--node-rank", "--node-rank 0"],
            ),
            (["--nnodes=2", "--standalone"], ["--standalone is one node"]),
            (["--rdzv-backend=etcd"], ["use rdzv_backend=static"]),
            (["--nproc-per-node=xpu"], ["auto, gpu or cpu"]),
            (["--monitor-interval", "5"], ["leave it out"]),
            (["--rdzv-conf", "join_timeout=9"], ["rdzv_timeout=SECONDS"]),
            (["--tee", "0:9"], ["give 0 none"]),
            (["-r", "1,2"], ["give 0 none"]),
            (["--rdzv-endpoint", "host:"], ["give HOST:PORT"]),
        ):
            self.refused(*arguments, "train.py", expects=expects)

    def test_redirects_and_folders(self):
        """-r keeps streams from the terminal; --tee takes torchrun's numbers; files have all."""
        for arguments, lines in (
            (["-r", "3"], (0, 0)),
            (["-r", "1"], (0, 2)),
            (["--redirects=0:1,1:2"], (1, 1)),
            (["-t", "3"], (2, 2)),
            (["--tee=0"], (2, 2)),
            (["--tee", "0:3"], (2, 2)),
            (["--tee=false"], (0, 0)),
            (["-r", "0"], (2, 2)),
        ):
            done = self.run_launch(
                "-n", "2", "--log-dir", "logs", "--rdzv-id", "r", *arguments, "train.py"
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(
                (done.stdout.count("argv"), done.stderr.count("to stderr")), lines, arguments
            )
            for rank in (0, 1):
                with open(
                    f"{self.dir}/logs/r/logs/attempt_0/rank_{rank}/stderr.log", encoding="utf-8"
                ) as f:
                    self.assertEqual(f.read(), "to stderr\n")


if __name__ == "__main__":
    unittest.main()
