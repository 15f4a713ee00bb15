"""levin launch: what ranks get of it: variables, sockets, devices, cores.

usage: test_launch_environment.py LEVIN [test names]
"""

import os
import re
import sys

from launch_case import Case, free_port, main


class Environment(Case):
    def test_torchrun_variables(self):
        out, _ = self.launch("-n", "4", "--run-dir", "r", program=["env"])
        ranks = {}
        for line in out.splitlines():
            rank, text = re.fullmatch(r"\[(\d)\] (.*)", line).groups()
            name, _, value = text.partition("=")
            ranks.setdefault(int(rank), {})[name] = value
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        here = os.path.realpath(self.dir)
        for rank, env in ranks.items():
            for name in ("RANK", "LEVIN_RANK", "LOCAL_RANK", "LEVIN_LOCAL_RANK"):
                self.assertEqual(env[name], str(rank))
            for name in (
                "WORLD_SIZE",
                "LEVIN_WORLD_SIZE",
                "LOCAL_WORLD_SIZE",
                "LEVIN_LOCAL_WORLD_SIZE",
            ):
                self.assertEqual(env[name], "4")
            expected = {
                "GROUP_RANK": "0",
                "LEVIN_NODE_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "LEVIN_NNODES": "1",
                "MASTER_ADDR": "127.0.0.1",
                "LEVIN_MASTER_ADDR": "127.0.0.1",
                "LEVIN_LAUNCHED": "1",
                "LEVIN_RESTART_COUNT": "0",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "LEVIN_MAX_RESTARTS": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0",
                "GOMP_SPINCOUNT": "2000",
                "LEVIN_ERROR_FILE": f"{here}/r/errors/attempt_0_rank_{rank}.json",
            }
            self.assertEqual(expected, {name: env.get(name) for name in expected})
            self.assertRegex(env["LEVIN_RUN_ID"], "^[0-9a-f]{16}$")
            self.assertEqual(env["LEVIN_RUN_ID"], env["TORCHELASTIC_RUN_ID"])
            self.assertGreaterEqual(int(env["OMP_NUM_THREADS"]), 1)
            self.assertEqual("LEVIN_STORE_FD" in env, rank == 0)
        for name in ("MASTER_PORT", "LEVIN_MASTER_PORT", "LEVIN_RUN_ID"):
            self.assertEqual(len({env[name] for env in ranks.values()}), 1, name)
        self.assertNotEqual(ranks[0]["MASTER_PORT"], ranks[0]["LEVIN_MASTER_PORT"])

    def test_what_an_earlier_launcher_left_is_removed(self):
        stale = {
            "RANK": "7",
            "NODE_RANK": "3",
            "MASTER_PORT": "1",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "LEVIN_STORE_FD": "9",
            "LEVIN_SIM_DEVICES": "2",
        }
        out, _ = self.launch("-n", "2", "--show", "1", "--no-prefix", program=["env"], env=stale)
        env = dict(line.partition("=")[::2] for line in out.splitlines())
        self.assertEqual(env["RANK"], "1")
        self.assertNotEqual(env["MASTER_PORT"], "1")
        self.assertEqual(env["LEVIN_SIM_DEVICES"], "2")
        self.assertEqual(env["TORCHELASTIC_USE_AGENT_STORE"], "False")
        for name in ("NODE_RANK", "LEVIN_STORE_FD"):
            self.assertNotIn(name, env)

    def test_sockets(self):
        """Rank 0 inherits a socket that listens at LEVIN_MASTER_PORT; MASTER_PORT is free for it to
        open, and held against others."""
        program = """
import os, socket
fd = int(os.environ["LEVIN_STORE_FD"])
s = socket.socket(fileno=fd)
assert s.getsockname() == ("127.0.0.1", int(os.environ["LEVIN_MASTER_PORT"]))
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
both = (socket.AF_INET6, socket.AF_INET)
for family in both if socket.has_dualstack_ipv6() else both[1:]:
    t = socket.socket(family)
    t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    t.bind(("", int(os.environ["MASTER_PORT"])))
    t.listen()
    t.close()
others = [int(d) for d in os.listdir("/proc/self/fd") if int(d) not in (0, 1, 2, fd)]
print("fine", [d for d in others if os.path.exists(f"/proc/self/fd/{d}")])
"""
        self.assertEqual(self.launch(program=[sys.executable, "-c", program])[0], "fine []\n")

    def test_variables_of_the_user(self):
        self.write("vars", "# comment\nexport A=1\nB='two words'\n\n")
        out, _ = self.launch(
            "-n",
            "2",
            "--env",
            "C=%r/%w 5%%",
            "--env=D=%Y",
            "--env-file",
            "vars",
            "--unset",
            "E",
            "--no-prefix",
            "--show",
            "1",
            sh='echo "$A,$B,$C,$D,${E-unset}"',
            env={"E": "x"},
        )
        self.assertEqual(out, "1,two words,1/2 5%,%Y,unset\n")

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def test_variables_of_a_pipe(self):
        """It can be read but once."""
        out, _ = self.launch(
            "-n",
            "2",
            "--no-prefix",
            "--env-file=/dev/stdin",
            sh="echo $A $B",
            stdin="A=1\nB=%r%%\n",
        )
        self.assertEqual(sorted(out.splitlines()), ["1 0%", "1 1%"])

    def test_threads(self):
        self.assertEqual(self.launch("--omp", "3", sh="echo $OMP_NUM_THREADS")[0], "3\n")
        self.assertEqual(
            self.launch(sh="echo $OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "5"})[0], "5\n"
        )
        cpus = len(os.sched_getaffinity(0))
        self.assertEqual(self.launch("--bind", "none", sh="echo $OMP_NUM_THREADS")[0], f"{cpus}\n")

    def test_binding(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("one CPU here: nothing to deal out")
        out, _ = self.launch(
            "-n",
            "2",
            "--bind",
            "cores",
            "--no-prefix",
            program=[sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"],
        )
        masks = [line.split() for line in out.splitlines()]
        self.assertEqual(len(masks), 2)
        self.assertEqual(sorted(masks[0] + masks[1]), sorted(map(str, cpus)))
        self.assertEqual(
            self.launch("--bind", "cores", "-n", "4096", program=["true"], code=64)[0], ""
        )

    def test_devices(self):
        sim = {"LEVIN_SIM_DEVICES": "4"}
        show = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"'
        for devices, n, visible in (
            ("all", 4, "0,1,2,3"),
            ("2", 2, "0,1"),
            ("[1,3]", 2, "1,3"),
            ("3,", 1, "3"),
        ):
            out, _ = self.launch(
                "--accelerator", "sim", "--devices", devices, "--no-prefix", sh=show, env=sim
            )
            self.assertEqual(out, f"{visible} PCI_BUS_ID\n" * n, devices)
        out, _ = self.launch(
            "--accelerator", "sim", "--strategy", "ddp2", "--devices", "3", sh=show, env=sim
        )
        self.assertEqual(out, "0,1,2 PCI_BUS_ID\n")
        for devices in ("5", "[4]", "[1,1]", "[]", "-2"):
            _, err = self.launch(
                "--accelerator",
                "sim",
                "--devices",
                devices,
                sh="echo started >&2",
                code=64,
                env=sim,
            )
            self.assertNotIn("started", err)
        self.assertIn(
            "0-3",
            self.launch("--accelerator", "sim", "--devices", "[4]", sh="true", code=64, env=sim)[1],
        )
        out, err = self.launch(
            "--accelerator",
            "sim",
            "--backend",
            "dp",
            "--devices",
            "2",
            "--nodes",
            "2",
            "--node-rank",
            "0",
            "--master-addr",
            "h",
            "--master-port",
            str(free_port()),
            "--no-prefix",
            sh=show,
            env=sim,
        )
        self.assertEqual(out, "0,1 PCI_BUS_ID\n" * 2)
        self.assertIn("W211", err)
        self.launch(
            "--accelerator", "sim", "--backend", "ddp2", "-n", "2", sh="true", code=64, env=sim
        )
        self.launch(
            "--accelerator", "sim", "--devices", "[0,1]", "-n", "3", sh="true", code=64, env=sim
        )
        self.launch("--accelerator", "sim", sh="true", code=69)  # none visible

    def test_two_nodes_by_hand(self):
        port = free_port()
        both = ["--nodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port), "-n", "2"]
        show = (
            "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, "
            "node $GROUP_RANK of $LEVIN_NNODES at $MASTER_ADDR:$MASTER_PORT id $LEVIN_RUN_ID"
        )
        outs = [
            self.launch(*both, "--node-rank", str(node), "--run-dir", f"n{node}", sh=show)[
                0
            ].splitlines()
            for node in (0, 1)
        ]
        lines = [re.sub(r" id [0-9a-f]{16}$", "", line) for out in outs for line in sorted(out)]
        self.assertEqual(
            lines,
            [
                f"[{r}] {r} of 4, {r % 2} of 2, node {r // 2} of 2 at 127.0.0.1:{port}"
                for r in range(4)
            ],
        )
        self.assertEqual(
            len({line.split()[-1] for out in outs for line in out}), 1, "the run has one name"
        )
        _, err = self.launch("--nodes", "2", "-n", "2", sh="true", code=64)
        for piece in ("E109", "--node-rank", "--master-addr", "--master-port"):
            self.assertIn(piece, err)

    def test_dry_run(self):
        out, _ = self.launch(
            "-n", "2", "--dry-run", "--run-dir", "r", program=["prog", "a"], code=127
        )
        out, _ = self.launch("-n", "2", "--dry-run", "--run-dir", "r", program=["echo", "a"])
        self.assertRegex(out, r"rank 1 on \S+: echo a\n(  .*\n)*  RANK=1\n")
        self.assertEqual(os.listdir(self.dir), [])


main()
