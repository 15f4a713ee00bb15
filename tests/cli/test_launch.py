"""levin launch as people use it: what ranks get, where their output goes, who is named when one dies, and that nothing is left behind.

usage: test_launch.py LEVIN [names of cases]     Python's standard library only
"""
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
WAIT_S = 60
MANY = [name for name in os.environ if name.startswith(("LEVIN_", "SLURM_", "TORCHELASTIC_", "MASTER_", "OMP_", "GOMP_", "CUDA_"))]
CLEAN = {k: v for k, v in os.environ.items() if k not in MANY + ["RANK", "WORLD_SIZE", "LOCAL_RANK"]}


def alive(pid):
    """A zombie is dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-launch-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def command(self, *options, program):
        return [LEVIN, "launch", *options, "--", *program]

    def launch(self, *options, sh=None, program=None, code=0, stdin=None, env=None, seconds=WAIT_S):
        """Runs it to its end; returns standard output and standard error."""
        words = self.command(*options, program=program or ["sh", "-c", sh])
        done = subprocess.run(words, cwd=self.dir, env=dict(CLEAN, **(env or {})), input=stdin, capture_output=True, text=True, timeout=seconds,
                              **({} if stdin is not None else {"stdin": subprocess.DEVNULL}))
        told = f"{' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, told)
        self.assertNotIn("Sanitizer", done.stderr, told)
        self.assertNotIn("runtime error:", done.stderr, told)
        return done.stdout, done.stderr

    def start(self, *options, sh, **how):
        p = subprocess.Popen(self.command(*options, program=["sh", "-c", sh]), cwd=self.dir, env=CLEAN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, **how)
        self.addCleanup(self.end, p)
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stdout.close()
        p.stderr.close()

    def wait_for(self, condition, seconds=WAIT_S, what="nothing happened"):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.005)

    def pids(self, n, name="pid"):
        """The numbers that processes wrote into files pid.*, when there are n of them."""

        def read():
            found = []
            for file in os.listdir(self.dir):
                if file.startswith(name + "."):
                    with open(f"{self.dir}/{file}", encoding="utf-8") as f:
                        found += [int(word) for word in f.read().split()]
            return found

        self.wait_for(lambda: len(read()) >= n, what="the ranks did not start")
        return read()

    def gone(self, pids, seconds):
        self.wait_for(lambda: not any(alive(pid) for pid in pids), seconds, f"left behind, of {pids}")

    def read(self, name):
        with open(f"{self.dir}/{name}", encoding="utf-8") as f:
            return f.read()


class Environment(Case):
    def test_torchrun_variables(self):
        out, _ = self.launch("-n", "4", "--run-dir", "r", program=["env"])
        ranks = {}
        for line in out.splitlines():
            rank, text = re.fullmatch(r"\[(\d)\] (.*)", line).groups()
            name, _, value = text.partition("=")
            ranks.setdefault(int(rank), {})[name] = value
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        for rank, env in ranks.items():
            for name in ("RANK", "LEVIN_RANK", "LOCAL_RANK", "LEVIN_LOCAL_RANK"):
                self.assertEqual(env[name], str(rank))
            for name in ("WORLD_SIZE", "LEVIN_WORLD_SIZE", "LOCAL_WORLD_SIZE", "LEVIN_LOCAL_WORLD_SIZE"):
                self.assertEqual(env[name], "4")
            expected = {"GROUP_RANK": "0", "LEVIN_NODE_RANK": "0", "GROUP_WORLD_SIZE": "1", "LEVIN_NNODES": "1", "MASTER_ADDR": "127.0.0.1",
                        "LEVIN_MASTER_ADDR": "127.0.0.1", "LEVIN_LAUNCHED": "1", "LEVIN_RESTART_COUNT": "0", "TORCHELASTIC_RESTART_COUNT": "0",
                        "LEVIN_MAX_RESTARTS": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "GOMP_SPINCOUNT": "2000",
                        "LEVIN_ERROR_FILE": f"{os.path.realpath(self.dir)}/r/errors/attempt_0_rank_{rank}.json"}
            self.assertEqual(expected, {name: env.get(name) for name in expected})
            self.assertRegex(env["LEVIN_RUN_ID"], "^[0-9a-f]{16}$")
            self.assertEqual(env["LEVIN_RUN_ID"], env["TORCHELASTIC_RUN_ID"])
            self.assertGreaterEqual(int(env["OMP_NUM_THREADS"]), 1)
            self.assertEqual("LEVIN_STORE_FD" in env, rank == 0)
        for name in ("MASTER_PORT", "LEVIN_MASTER_PORT", "LEVIN_RUN_ID"):
            self.assertEqual(len({env[name] for env in ranks.values()}), 1, name)
        self.assertNotEqual(ranks[0]["MASTER_PORT"], ranks[0]["LEVIN_MASTER_PORT"])

    def test_what_an_earlier_launcher_left_is_removed(self):
        stale = {"RANK": "7", "NODE_RANK": "3", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "LEVIN_STORE_FD": "9", "LEVIN_SIM_DEVICES": "2"}
        out, _ = self.launch("-n", "2", "--show", "1", "--no-prefix", program=["env"], env=stale)
        env = dict(line.partition("=")[::2] for line in out.splitlines())
        self.assertEqual(env["RANK"], "1")
        self.assertNotEqual(env["MASTER_PORT"], "1")
        self.assertEqual(env["LEVIN_SIM_DEVICES"], "2")
        self.assertEqual(env["TORCHELASTIC_USE_AGENT_STORE"], "False")
        for name in ("NODE_RANK", "LEVIN_STORE_FD"):
            self.assertNotIn(name, env)

    def test_sockets(self):
        """Rank 0 inherits a socket that listens at LEVIN_MASTER_PORT; MASTER_PORT is free for it to open, and held against others."""
        program = """
import os, socket
fd = int(os.environ["LEVIN_STORE_FD"])
s = socket.socket(fileno=fd)
assert s.getsockname() == ("127.0.0.1", int(os.environ["LEVIN_MASTER_PORT"])) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
for family in (socket.AF_INET6, socket.AF_INET) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
    t = socket.socket(family)
    t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    t.bind(("", int(os.environ["MASTER_PORT"])))
    t.listen()
    t.close()
print("fine", [int(d) for d in os.listdir("/proc/self/fd") if int(d) > 2 and d != str(fd) and os.path.exists(f"/proc/self/fd/{d}")])
"""
        self.assertEqual(self.launch(program=[sys.executable, "-c", program])[0], "fine []\n")

    def test_variables_of_the_user(self):
        self.write("vars", "# comment\nexport A=1\nB='two words'\n\n")
        out, _ = self.launch("-n", "2", "--env", "C=%r/%w 5%%", "--env=D=%Y", "--env-file", "vars", "--unset", "E", "--no-prefix", "--show", "1",
                             sh='echo "$A,$B,$C,$D,${E-unset}"', env={"E": "x"})
        self.assertEqual(out, "1,two words,1/2 5%,%Y,unset\n")

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def test_variables_of_a_pipe(self):
        """It can be read but once."""
        out, _ = self.launch("-n", "2", "--no-prefix", "--env-file=/dev/stdin", sh="echo $A $B", stdin="A=1\nB=%r%%\n")
        self.assertEqual(sorted(out.splitlines()), ["1 0%", "1 1%"])

    def test_threads(self):
        self.assertEqual(self.launch("--omp", "3", sh="echo $OMP_NUM_THREADS")[0], "3\n")
        self.assertEqual(self.launch(sh="echo $OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "5"})[0], "5\n")
        cpus = len(os.sched_getaffinity(0))
        self.assertEqual(self.launch("--bind", "none", sh="echo $OMP_NUM_THREADS")[0], f"{cpus}\n")

    def test_binding(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("one CPU here: nothing to deal out")
        out, _ = self.launch("-n", "2", "--bind", "cores", "--no-prefix", program=[sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"])
        masks = [line.split() for line in out.splitlines()]
        self.assertEqual(len(masks), 2)
        self.assertEqual(sorted(masks[0] + masks[1]), sorted(map(str, cpus)))
        self.assertEqual(self.launch("--bind", "cores", "-n", "4096", program=["true"], code=64)[0], "")

    def test_devices(self):
        sim = {"LEVIN_SIM_DEVICES": "4"}
        show = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"'
        for devices, n, visible in (("all", 4, "0,1,2,3"), ("2", 2, "0,1"), ("[1,3]", 2, "1,3"), ("3,", 1, "3")):
            out, _ = self.launch("--accelerator", "sim", "--devices", devices, "--no-prefix", sh=show, env=sim)
            self.assertEqual(out, f"{visible} PCI_BUS_ID\n" * n, devices)
        out, _ = self.launch("--accelerator", "sim", "--strategy", "ddp2", "--devices", "3", sh=show, env=sim)
        self.assertEqual(out, "0,1,2 PCI_BUS_ID\n")
        for devices in ("5", "[4]", "[1,1]", "[]", "-2"):
            _, err = self.launch("--accelerator", "sim", "--devices", devices, sh="echo started >&2", code=64, env=sim)
            self.assertNotIn("started", err)
        self.assertIn("0-3", self.launch("--accelerator", "sim", "--devices", "[4]", sh="true", code=64, env=sim)[1])
        out, err = self.launch("--accelerator", "sim", "--backend", "dp", "--devices", "2", "--nodes", "2", "--node-rank", "0", "--master-addr", "h", "--master-port",
                               str(free_port()), "--no-prefix", sh=show, env=sim)
        self.assertEqual(out, "0,1 PCI_BUS_ID\n" * 2)
        self.assertIn("W211", err)
        self.launch("--accelerator", "sim", "--backend", "ddp2", "-n", "2", sh="true", code=64, env=sim)
        self.launch("--accelerator", "sim", "--devices", "[0,1]", "-n", "3", sh="true", code=64, env=sim)
        self.launch("--accelerator", "sim", sh="true", code=69)  # none visible

    def test_two_nodes_by_hand(self):
        port = free_port()
        both = ["--nodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port), "-n", "2"]
        show = 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $LEVIN_NNODES at $MASTER_ADDR:$MASTER_PORT id $LEVIN_RUN_ID'
        outs = [self.launch(*both, "--node-rank", str(node), "--run-dir", f"n{node}", sh=show)[0].splitlines() for node in (0, 1)]
        lines = [re.sub(r" id [0-9a-f]{16}$", "", line) for out in outs for line in sorted(out)]
        self.assertEqual(lines, [f"[{r}] {r} of 4, {r % 2} of 2, node {r // 2} of 2 at 127.0.0.1:{port}" for r in range(4)])
        self.assertEqual(len({line.split()[-1] for out in outs for line in out}), 1, "the run has one name")
        _, err = self.launch("--nodes", "2", "-n", "2", sh="true", code=64)
        for word in ("E109", "--node-rank", "--master-addr", "--master-port"):
            self.assertIn(word, err)

    def test_dry_run(self):
        out, _ = self.launch("-n", "2", "--dry-run", "--run-dir", "r", program=["prog", "a"], code=127)
        out, _ = self.launch("-n", "2", "--dry-run", "--run-dir", "r", program=["echo", "a"])
        self.assertRegex(out, r"rank 1 on \S+: echo a\n(  .*\n)*  RANK=1\n")
        self.assertEqual(os.listdir(self.dir), [])


class Words(Case):
    def test_bad_words(self):
        for words, says in ((["-n", "2"], "which program"), (["-n", "2", "A=1", "env"], "unknown key `A`"), (["-z", "ls"], "`-z` is not understood"),
                            (["--standalone", "x.py"], "x.py: there is no such script"),
                            (["-n2", "python3", "x.py"], "`-n2` is not understood"),
                            (["-n", "0", "--", "ls"], "nproc 0"), (["-n", "two", "--", "ls"], "nproc two"),
                            (["--shw", "0", "--", "ls"], "did you mean `show`"), (["--show", "2", "-n", "2", "--", "ls"], "0 to 1"),
                            (["--prefix", "%q", "--", "ls"], "%q"), (["--env", "A", "--", "ls"], "NAME=VALUE"), (["--grace=-1", "--", "ls"], "grace"),
                            (["--output", "x.txt", "-n", "2", "--", "ls"], "--output-append-shared"), (["--nodes=2", "--", "ls"], "E109"),
                            (["--node-rank=1", "--", "ls"], "node_rank"), (["--run-id", "a/b", "--", "ls"], "run_id")):
            done = subprocess.run([LEVIN, "launch", *words], cwd=self.dir, env=CLEAN, capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual(done.returncode, 64, (words, done.stderr))
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_no_dashes_before_the_program(self):
        """The line that works is named."""
        for words, line in ((["-n", "2", "python3", "x.py"], "-n 2 -- python3 x.py"), (["--nproc=2", "-v", "--dry-run", "./x", "a=3"], "--nproc=2 -v --dry-run -- ./x a=3"),
                            (["nproc=2", "--max-restarts", "1", "sh", "-c", "echo 'a'"], r"nproc=2 --max-restarts 1 -- sh -c 'echo '\''a'\'''"),
                            (["ls", "--", "-l"], "-- ls -- -l"), (["--quiet", "true", "--env", "A=1", "env"], "--quiet true --env A=1 -- env")):
            done = subprocess.run([LEVIN, "launch", *words], cwd=self.dir, env=CLEAN, capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (64, "", f"error: put -- before the program: levin launch {line}\n"))
            self.assertEqual(os.listdir(self.dir), [])

    def test_a_command_before_the_program(self):
        """No line with -- before `train` could work."""
        for words, line in ((["train", "classify", "data=x"], "-n N -- levin train classify data=x"), (["-n", "3", "eval", "model=x"], "-n 3 -- levin eval model=x")):
            done = subprocess.run([LEVIN, "launch", *words], cwd=self.dir, env=CLEAN, capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (64, f"error: put -- levin before the command: levin launch {line}\n"))

    def test_both_spellings(self):
        self.assertEqual(self.launch("nproc=2", "no-prefix=true", "--max_restarts=1", "show=1", sh="echo $LEVIN_MAX_RESTARTS $RANK")[0], "1 1\n")

    def test_help_of_the_program_is_the_programs(self):
        self.assertEqual(self.launch(program=["printf", "%s", "--help"])[0], "--help")
        done = subprocess.run([LEVIN, "launch", "--help"], capture_output=True, text=True, check=True)
        self.assertIn("max_restarts", done.stdout)

    def test_no_program(self):
        """One message, before anything is started."""
        out, err = self.launch("-n", "2", program=["./nonexistent"], code=127)
        self.assertEqual((out, err.count("\n")), ("", 1))
        self.write_script("data", 0o644)
        self.launch("-n", "2", program=["./data"], code=126)
        self.launch(program=["levin-no-such-program"], code=127)
        self.assertEqual(os.listdir(self.dir), ["data"])

    def write_script(self, name, mode):
        with open(f"{self.dir}/{name}", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho ran\n")
        os.chmod(f"{self.dir}/{name}", mode)

    def test_a_script_whose_interpreter_is_missing(self):
        with open(f"{self.dir}/x", "w", encoding="utf-8") as f:
            f.write("#!/nonexistent/interpreter\n")
        os.chmod(f"{self.dir}/x", 0o755)
        self.assertEqual(self.launch("-n", "2", program=["./x"], code=127)[1].count("\n"), 1)

    def test_srun_in_an_allocation(self):
        batch = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2",
                 "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_NODELIST": "n[08-09]", "SLURM_JOB_NUM_NODES": "2"}
        out, _ = self.launch("--dry-run", program=["prog"], env=batch)
        self.assertEqual(out, "srun --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 prog\n")
        self.assertIn("--cpus-per-task=12 ", self.launch("--dry-run", program=["prog"], env=dict(batch, SLURM_CPUS_PER_TASK="12"))[0])
        self.assertEqual(self.launch("--srun", "never", "-n", "2", "--no-prefix", program=["echo", "x"], env=batch)[0], "x\nx\n")
        one = dict(batch, SLURM_NTASKS="1", SLURM_TASKS_PER_NODE="1", SLURM_NTASKS_PER_NODE="1", SLURM_JOB_NUM_NODES="1")
        self.assertEqual(self.launch("-n", "2", "--no-prefix", program=["echo", "x"], env=one)[0], "x\nx\n")
        self.assertIn("E119", self.launch("--nodes", "3", program=["prog"], env=batch, code=64)[1])
        with open(f"{self.dir}/srun", "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\necho "srun got $* with A=$A"\n')
        os.chmod(f"{self.dir}/srun", 0o755)
        out, _ = self.launch("--env", "A=1", program=["prog", "x"], env=dict(batch, PATH=f"{self.dir}:{CLEAN['PATH']}"))
        self.assertEqual(out, "srun got --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 prog x with A=1\n")


    def test_what_srun_passes_on(self):
        """Variables reach the tasks, what an earlier launcher left does not, and what only a launcher can do is named."""
        batch = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_NODELIST": "n[08-09]", "SLURM_JOB_NUM_NODES": "2"}
        with open(f"{self.dir}/srun", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nexec env\n")
        os.chmod(f"{self.dir}/srun", 0o755)
        with open(f"{self.dir}/vars", "w", encoding="utf-8") as f:
            f.write("A=1\nB=2\n")
        batch["PATH"] = f"{self.dir}:{CLEAN['PATH']}"

        def run(*options, **env):
            out, err = self.launch(*options, program=["prog"], env=dict(batch, **env))
            return dict(line.partition("=")[::2] for line in out.splitlines() if "=" in line), err

        env, err = run("--env-file", "vars", "--env", "B=5%%", "--rdzv-timeout", "7", "--master-port", "29400", RANK="3", LEVIN_STORE_FD="9", MASTER_ADDR="n08")
        wanted = {"A": "1", "B": "5%", "LEVIN_RDZV_TIMEOUT": "7", "MASTER_PORT": "29400", "LEVIN_MASTER_PORT": "29400", "MASTER_ADDR": "n08"}
        self.assertEqual({name: env.get(name) for name in wanted}, wanted)
        self.assertEqual(err, "")
        for name in ("RANK", "LEVIN_STORE_FD"):
            self.assertNotIn(name, env)
        env, err = run("--timeout", "9", "--devices", "2", "--run-dir", "r", "--env", "A=%r", LEVIN_LAUNCHED="1", MASTER_PORT="1")
        self.assertNotIn("MASTER_PORT", env)
        self.assertEqual(err.count("\n"), 1, err)
        for word in ("W218", "timeout", "devices", "run_dir", "%r"):
            self.assertIn(word, err)
        self.assertEqual(run("--timeout", "9", "--quiet")[1], "")

    def test_in_a_slurm_step(self):
        """One launcher per node takes its place from the step; a person's shell counts for itself; several launchers on a node are refused."""
        job = 100000 + os.getpid()
        step = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NODELIST": "n[08-09]", "SLURM_NTASKS": "2"}
        show = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
        for node in range(2):
            out, _ = self.launch("-n", "2", "--no-prefix", sh=show, env=dict(step, SLURM_PROCID=str(node), SLURM_NODEID=str(node)))
            self.assertEqual(sorted(out.splitlines()), [f"{2 * node + i} of 4, {i} of 2, node {node} of 2 at n08:{15000 + job % 10000}" for i in range(2)])
        shell = dict(step, SLURM_STEP_NUM_TASKS="1", SLURM_STEP_NUM_NODES="1", SLURM_STEP_TASKS_PER_NODE="1", SLURM_STEP_NODELIST="n08", SLURM_NTASKS="1",
                     SLURM_JOB_NAME="bash")
        for one in (shell, dict(shell, SLURM_JOB_NAME="job")):
            out, _ = self.launch("--devices", "2", "--accelerator", "cpu", "--no-prefix", sh=show, env=one)
            self.assertEqual([re.sub(":.*", "", line) for line in sorted(out.splitlines())], [f"{i} of 2, {i} of 2, node 0 of 1 at 127.0.0.1" for i in range(2)])
        two = dict(shell, SLURM_JOB_NAME="job", SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="2", SLURM_NTASKS="2")
        self.assertIn("E103", self.launch("-n", "2", sh=show, env=two, code=64)[1])


class Output(Case):
    def test_lines_do_not_mix(self):
        sh = 'i=0; while [ $i -lt 300 ]; do echo "out $RANK $i abcdefghijklmnopqrstuvwxyz"; echo "err $RANK $i" >&2; i=$((i+1)); done'
        out, err = self.launch("-n", "3", sh=sh)
        for rank in range(3):
            mine = [line for line in out.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] out {rank} {i} abcdefghijklmnopqrstuvwxyz" for i in range(300)])
            self.assertEqual([line for line in err.splitlines() if line.startswith(f"[{rank}] ")], [f"[{rank}] err {rank} {i}" for i in range(300)])

    def test_log_files_and_show(self):
        out, err = self.launch("-n", "4", "--output", "logs/r%3r.txt", "--show", "0", "--run-dir", "d", sh="echo $RANK; echo e >&2")
        self.assertEqual((out, err), ("[0] 0\n", "[0] e\n"))
        self.assertEqual(sorted(os.listdir(f"{self.dir}/logs")), [f"r00{r}.txt" for r in range(4)])
        for r in range(4):
            self.assertEqual(sorted(self.read(f"logs/r00{r}.txt").split()), [str(r), "e"])

    def test_files_of_the_run(self):
        out, _ = self.launch("-n", "2", "--run-dir", "d", "--redirect", sh="echo $RANK; echo e >&2")
        self.assertEqual(out, "")
        for r in range(2):
            self.assertEqual(self.read(f"d/logs/attempt_0/rank_{r}/stdout.log"), f"{r}\n")
            self.assertEqual(self.read(f"d/logs/attempt_0/rank_{r}/stderr.log"), "e\n")
        self.launch("--run-id", "mine", sh="true")
        self.assertTrue(os.path.isdir(f"{self.dir}/levin-runs/mine/logs"))
        self.launch("-n", "2", "--output", "%r-%p-%a-%w-%n-%l-%j.log", "--run-id", "x", sh='echo $$ > pid.$RANK')
        for r in range(2):
            pid = self.read(f"pid.{r}").strip()
            self.assertTrue(os.path.exists(f"{self.dir}/{r}-{pid}-0-2-0-{r}-x.log"), os.listdir(self.dir))

    def test_a_folder_that_others_can_write_into_is_not_taken(self):
        """Where no folder can be made the run goes to one in /tmp: only if nobody else can put files there."""
        usual = f"/tmp/levin-runs-{os.geteuid()}"
        if not os.path.lexists(usual):
            os.mkdir(usual, 0o700)
            self.addCleanup(lambda: os.listdir(usual) or os.rmdir(usual))
        if os.path.islink(usual) or os.stat(usual).st_uid != os.geteuid():
            self.skipTest(f"{usual} is another's")
        mode = os.stat(usual).st_mode & 0o7777
        for now, taken in ((0o700, usual), (0o777, usual + "-")):
            with self.subTest(mode=oct(now)):
                os.chmod(usual, now)
                try:
                    done = subprocess.run(self.command("--run-id", f"test-{os.getpid()}", program=["true"]), cwd="/proc", env=CLEAN, capture_output=True,
                                          text=True, timeout=WAIT_S, check=False)
                finally:
                    os.chmod(usual, mode)
                self.assertEqual(done.returncode, 0, done.stderr)
                path = re.search(r"logs and error records go to (\S+)", done.stderr).group(1)
                self.addCleanup(shutil.rmtree, path if taken == usual else os.path.dirname(path))
                self.assertTrue(path.startswith(taken + "/" if taken == usual else taken), path)
                self.assertEqual(os.lstat(os.path.dirname(path)).st_mode & 0o22, 0)

    def test_one_process_is_passed_through(self):
        done = subprocess.run(self.command(program=["sh", "-c", "printf 'a\\rb\\nc'; printf d >&2"]), cwd=self.dir, env=CLEAN, capture_output=True, check=True)
        self.assertEqual((done.stdout, done.stderr), (b"a\rb\nc", b"d"))

    def test_a_mebibyte_without_a_newline(self):
        n = 1 << 20
        out, _ = self.launch("-n", "2", "--run-dir", "d", program=[sys.executable, "-c", f"import os; os.environ['RANK'] == '1' and print('x' * {n}, end='')"])
        lines = out.splitlines(keepends=True)
        self.assertTrue(all(line.startswith("[1] x") and len(line) <= 65536 for line in lines))
        self.assertTrue(all(line.endswith("x\\\n") for line in lines[:-1]))
        self.assertEqual(sum(line.count("x") for line in lines), n)
        self.assertEqual(os.path.getsize(f"{self.dir}/d/logs/attempt_0/rank_1/stdout.log"), n)

    def test_progress_bars_and_silence(self):
        """A line that stands still is shown after a second; a '\\r' ends a line."""
        p = self.start("-n", "2", sh="[ $RANK = 0 ] && printf '10%%\\r20%%\\rmore? '; sleep 60")
        seen = b""
        end = time.monotonic() + WAIT_S
        while not seen.endswith(b"more? "):
            self.assertLess(time.monotonic(), end)
            if select.select([p.stdout], [], [], 1)[0]:
                seen += os.read(p.stdout.fileno(), 4096)
        self.assertEqual(seen, b"[0] 10%\r[0] 20%\r[0] more? ")
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)

    def test_a_terminal_for_rank_0(self):
        """With --pty rank 0 writes to a terminal where the launcher does, of the same size; unfinished lines show at once."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        program = "import os, time; n = [fd for fd in (1, 2) if os.isatty(fd)]; print(n, n and os.get_terminal_size(1), end='', flush=True); time.sleep(60)"
        words = self.command("-n", "2", "--pty", program=[sys.executable, "-c", program])
        with subprocess.Popen(words, cwd=self.dir, env=CLEAN, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave) as p:
            os.close(slave)
            seen, start = b"", time.monotonic()
            while b"lines=33)" not in seen or b"[1] [] []" not in seen:
                self.assertLess(time.monotonic() - start, WAIT_S, seen)
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)
            self.assertIn(b"[0] [1, 2] os.terminal_size(columns=77, lines=33)", seen)
            p.terminate()
            self.assertEqual(p.wait(WAIT_S), 143)
        os.close(master)

    def test_a_reader_that_stands_still(self):
        """Log files go on, and nothing is lost when it reads again."""
        lines = 60000
        p = self.start("-n", "2", "--run-dir", "d", sh=f"seq 1 {lines}; touch done.$RANK; sleep 60")
        self.wait_for(lambda: all(os.path.exists(f"{self.dir}/done.{r}") for r in range(2)))
        logs = [f"{self.dir}/d/logs/attempt_0/rank_{r}/stdout.log" for r in range(2)]
        full = sum(len(str(i)) + 1 for i in range(1, lines + 1))
        self.wait_for(lambda: all(os.path.getsize(log) == full for log in logs))
        p.terminate()
        out, _ = p.communicate(timeout=WAIT_S)
        for r in range(2):
            mine = [line[4:] for line in out.splitlines() if line.startswith(f"[{r}] ")]
            self.assertEqual(mine, [str(i) for i in range(1, lines + 1)])

    def test_a_reader_that_goes_away(self):
        """As with tee, the work goes on."""
        p = self.start("-n", "2", "--run-dir", "d", sh="sleep 0.2; seq 1 1000; echo end >&2")
        p.stdout.close()
        self.assertEqual(p.wait(WAIT_S), 0)
        self.assertEqual(len(self.read("d/logs/attempt_0/rank_1/stdout.log").split()), 1000)

    def test_stdin(self):
        for option, expected in (("rank0", ["[0] hi"]), ("all", ["[0] hi", "[1] hi", "[2] hi"]), ("none", [])):
            self.assertEqual(sorted(self.launch("-n", "3", "--stdin", option, program=["cat"], stdin="hi\n")[0].splitlines()), expected)
        self.assertEqual(self.launch("-n", "2", program=["cat"], stdin="hi\n")[0], "")
        self.assertEqual(self.launch(program=["cat"], stdin="hi\n")[0], "hi\n")
        text = "".join(f"line {i}\n" for i in range(50000))
        out, _ = self.launch("-n", "2", "--stdin", "all", program=["cksum"], stdin=text)
        sums = {line[4:] for line in out.splitlines()}
        self.assertEqual(len(sums), 1)
        self.assertIn(str(len(text)), sums.pop())


class Failure(Case):
    def test_the_first_is_named_and_all_end(self):
        start = time.monotonic()
        sh = 'echo $$ > pid.$RANK; if [ $RANK = 2 ]; then echo reason >&2; sleep 0.3; exit 3; fi; sleep 600'
        _, err = self.launch("-n", "4", "--run-dir", "d", sh=sh, code=3)
        self.assertLess(time.monotonic() - start, 0.3 + 2)
        self.assertRegex(err, r"levin launch: rank 2 \(pid \d+, node \S+\) failed first: exit code 3 after 0\.[3-9] s")
        self.assertIn("  | reason\n", err)
        self.assertRegex(err, r"(?m)^ +0  \S+ +SIGTERM \(stopped\) .*d/logs/attempt_0/rank_0/stderr.log$")
        self.gone(self.pids(4), 0.1)

    def test_who_ignores_sigterm_is_killed(self):
        start = time.monotonic()
        sh = "trap '' TERM; [ $RANK = 1 ] && { sleep 0.1; exit 7; }; echo $$ > pid.$RANK; while :; do sleep 0.2; done"
        self.launch("-n", "3", "--grace", "0.5", sh=sh, code=7)
        self.assertLess(time.monotonic() - start, 0.1 + 0.5 + 2)
        self.gone(self.pids(2), 0.1)

    def test_who_is_stopped_ends_too(self):
        start = time.monotonic()
        self.launch("-n", "2", sh="[ $RANK = 0 ] && { sleep 0.2; exit 5; }; kill -STOP $$", code=5)
        self.assertLess(time.monotonic() - start, 2.2)

    def test_signals_are_named(self):
        for name, code in (("SEGV", 139), ("KILL", 137), ("ABRT", 134)):
            _, err = self.launch("-n", "2", sh=f"ulimit -c 0; [ $RANK = 1 ] && kill -{name} $$; sleep 600", code=code)
            self.assertRegex(err, rf"rank 1 .* failed first: killed by SIG{name}")
        self.assertIn("out of memory", self.launch(sh="kill -KILL $$", code=137)[1])

    def test_the_record_decides(self):
        """Rank 0 dies first, of a lost peer; rank 2, which was the cause, later and with a record."""
        record = {"rank": 2, "host": "h", "pid": 1, "time_ns": 1700000000000000000, "kind": "nan", "code": 1, "message": "the loss is nan", "where": "loop.c:5",
                  "stack": ["step 12"]}
        program = f"""
import json, os, sys, time, signal
rank = int(os.environ["RANK"])
if rank == 0:
    time.sleep(0.2)
    open(os.environ["LEVIN_ERROR_FILE"], "w").write(json.dumps(dict({record!r}, kind="peer", message="rank 2 is gone")))
    sys.exit(76)
if rank == 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.5)
    open(os.environ["LEVIN_ERROR_FILE"], "w").write(json.dumps({record!r}))
    sys.exit(1)
time.sleep(600)
"""
        _, err = self.launch("-n", "3", program=[sys.executable, "-c", program], code=1)
        self.assertIn("rank 2 (", err.splitlines()[0])
        for piece in ("nan: the loss is nan", "at loop.c:5", "in step 12"):
            self.assertIn(piece, err)

    def test_last_lines_that_the_record_has_not(self):
        """What the record says is not said again, but what stands beside it is not lost."""
        record = '{"message": "boom happened", "kind": "error", "stack": ["data=x"]}'
        sh = f"""echo 'error: boom happened' >&2; echo '  in data=x' >&2; $MORE; echo '{record}' > $LEVIN_ERROR_FILE; exit 1"""
        for more, want in (("echo important detail: see core >&2", "  last lines of its standard error:\n  | important detail: see core\n"), ("true", "")):
            _, err = self.launch("-n", "2", "--redirect", sh=f"[ $RANK = 0 ] && exec sleep 600; {sh.replace('$MORE', more)}", code=1)
            self.assertIn(f"  error: boom happened\n  in data=x\n{want}   rank  host", err)

    def test_records_of_an_earlier_run_do_not_count(self):
        sh = """[ $RANK = 1 ] && { echo '{"message": "old", "kind": "error"}' > $LEVIN_ERROR_FILE; exit 1; }; sleep 600"""
        self.assertIn("error: old", self.launch("-n", "2", "--run-dir", "d", sh=sh, code=1)[1])
        _, err = self.launch("-n", "2", "--run-dir", "d", sh="[ $RANK = 1 ] && exit 1; sleep 600", code=1)
        self.assertNotIn("old", err)

    def test_a_lost_peer_is_blamed_only_alone(self):
        _, err = self.launch("-n", "2", sh="if [ $RANK = 0 ]; then while [ ! -e ready ]; do sleep 0.01; done; exit 76; fi; trap '' TERM; touch ready; sleep 0.3; exit 9", code=9)
        self.assertIn("rank 1 (", err.splitlines()[0])
        _, err = self.launch("-n", "2", sh="[ $RANK = 0 ] && exit 76; sleep 600", code=76)
        self.assertRegex(err.splitlines()[0], r"no rank failed by itself; rank 0 \(.* another one was gone")

    def test_deaths_noticed_together(self):
        """Rank 1 is killed, rank 0 ends because of it; the launcher sees both at once, and rank 0 first."""
        for code in (1, 76):
            with self.subTest(code=code):
                sh = f"echo $$ > pid.$RANK; while [ ! -e go.$RANK ]; do sleep 0.01; done; [ $RANK = 1 ] && kill -KILL $$; exit {code}"
                p = self.start("-n", "2", sh=sh)
                self.pids(2)
                p.send_signal(signal.SIGSTOP)
                for rank in (1, 0):
                    pid = int(self.read(f"pid.{rank}"))
                    with open(f"{self.dir}/go.{rank}", "w", encoding="utf-8"):
                        pass
                    self.wait_for(lambda pid=pid: not alive(pid))
                p.send_signal(signal.SIGCONT)
                err = p.communicate(timeout=WAIT_S)[1]
                self.assertEqual(p.returncode, 137, err)
                self.assertRegex(err.splitlines()[0], "rank 1 .* failed first: killed by SIGKILL")
                for name in ("go.0", "go.1", "pid.0", "pid.1"):
                    os.unlink(f"{self.dir}/{name}")

    def test_requeue_is_no_failure(self):
        _, err = self.launch("-n", "2", sh="[ $RANK = 0 ] && exit 85; sleep 0.3; exit 0", code=85)
        self.assertEqual(err, "")

    def test_a_dry_run_removes_nothing(self):
        os.makedirs(f"{self.dir}/d/e")
        self.launch("--dry-run", "--keep-logs", "started", "--run-dir", "d/e", "--output", "same.txt", "-n", "2", program=["true"], code=64)
        self.assertTrue(os.path.isdir(f"{self.dir}/d/e"))

    def test_daemons_end(self):
        """In a session of their own, of a failed rank and of a good one."""
        sh = 'setsid sh -c "echo \\$\\$ > pid.$RANK; exec sleep 600" & until [ -s pid.0 ] && [ -s pid.1 ]; do sleep 0.01; done; '
        self.launch("-n", "2", sh=sh + "exit $RANK", code=1)
        self.gone(self.pids(2), 0.1)
        for r in range(2):
            os.unlink(f"{self.dir}/pid.{r}")
        self.launch("-n", "2", sh=sh + "exit 0")
        self.gone(self.pids(2), 0.1)
        for r in range(2):
            os.unlink(f"{self.dir}/pid.{r}")
        self.launch("-n", "2", "--grace", "0.3", sh="trap '' TERM; " + sh + "exit 0")  # the daemon ignores SIGTERM
        self.gone(self.pids(2), 0.1)

    def test_no_zombies(self):
        p = self.start(sh='i=0; while [ $i -lt 20 ]; do (sh -c "exit 0" &) ; i=$((i+1)); done; touch done; sleep 60')
        self.wait_for(lambda: os.path.exists(f"{self.dir}/done"))

        def zombies():
            children = subprocess.run(["ps", "-o", "stat=", "--ppid", str(p.pid)], capture_output=True, text=True, check=False).stdout
            return children.count("Z")

        if shutil.which("ps"):
            self.wait_for(lambda: zombies() == 0, 1)
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)

    def test_timeout(self):
        start = time.monotonic()
        _, err = self.launch("-n", "2", "--timeout", "0.4", sh="sleep 600", code=124)
        self.assertLess(time.monotonic() - start, 2.4)
        self.assertIn("--timeout", err)

    def test_a_reader_that_stands_still_delays_no_end(self):
        """More than a pipe takes, and nobody reads: a failure, a timeout and a signal end the launcher all the same."""
        for options, end, code in (((), "exit 3", 3), (("--timeout", "0.5"), "sleep 600", 124), ((), "touch ready; sleep 600", 143)):
            with self.subTest(code=code):
                p = self.start(*options, sh=f"seq 1 60000; {end}")
                if code == 143:
                    self.wait_for(lambda: os.path.exists(f"{self.dir}/ready"))
                    p.terminate()
                self.assertEqual(p.wait(20), code)

    def test_straggler(self):
        _, err = self.launch("-n", "2", "--straggler-timeout", "0.2", sh="[ $RANK = 1 ] || sleep 600", code=1)
        self.assertIn("rank 1 ended early", err)

    def test_kill_of_the_launcher(self):
        """Ranks, and what they started, end with it."""
        p = self.start("-n", "2", sh='sleep 600 & echo $! $$ > pid.$RANK; wait')
        pids = self.pids(4)
        p.kill()
        p.wait()
        self.gone(pids, 1)

    def test_a_port_that_needs_a_privilege(self):
        """Told before anything is started."""
        self.assertIn("warning W205: port 1023 ", self.launch("--dry-run", "--master-port=1023", sh="true")[1])
        self.assertIn("error W205: port 1023 ", self.launch("--strict", "--master-port=1023", sh="echo ran", code=64)[1])
        self.assertEqual(os.listdir(self.dir), [])

    def test_busy_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            _, err = self.launch("--master-port", str(s.getsockname()[1]), sh="true", code=69)
            self.assertIn("E110", err)
            self.assertIn(f"pid {os.getpid()}", err)

    def test_a_port_of_another_launcher(self):
        """Its program has not opened it yet, and still nobody else is given it; afterwards it is free."""
        port = str(free_port())
        p = self.start("--master-port", port, sh="touch ready; sleep 600")
        self.wait_for(lambda: os.path.exists(f"{self.dir}/ready"))
        _, err = self.launch("--master-port", port, sh="true", code=69)
        self.assertIn("E110", err)
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)
        self.launch("--master-port", port, sh="true")

    def test_many_files(self):
        """More ranks than open files are allowed for at first; the ranks get the limit of the launcher."""

        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        done = subprocess.run(self.command("-n", "16", "--no-prefix", program=["sh", "-c", "ulimit -n"]), cwd=self.dir, env=CLEAN, preexec_fn=few,
                              capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "40\n" * 16), done.stderr)


class Signals(Case):
    def test_sigint(self):
        p = self.start("-n", "2", sh='trap "touch int.$RANK; exit 130" INT; echo $$ > pid.$RANK; while :; do sleep 0.02; done')
        pids = self.pids(2)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(WAIT_S), 130)
        self.assertTrue(all(os.path.exists(f"{self.dir}/int.{r}") for r in range(2)))
        self.gone(pids, 0.1)

    def test_sigint_twice(self):
        p = self.start("-n", "2", sh='trap "touch int.$RANK" INT; echo $$ > pid.$RANK; while :; do sleep 0.02; done')
        pids = self.pids(2)
        p.send_signal(signal.SIGINT)
        self.wait_for(lambda: all(os.path.exists(f"{self.dir}/int.{r}") for r in range(2)))
        time.sleep(0.1)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(3), 130)
        self.gone(pids, 0.1)

    def test_sigterm(self):
        for number, name, code in ((signal.SIGTERM, "TERM", 143), (signal.SIGHUP, "HUP", 129), (signal.SIGQUIT, "QUIT", 131)):
            for end, expected in ((f"exit {code}", code), ("exit 0", 0), ("exit 85", 85)):
                with self.subTest(signal=name, end=end):
                    p = self.start("-n", "2", sh=f'trap "{end}" {name}; echo $$ > pid.$RANK; while :; do sleep 0.02; done')
                    self.pids(2)
                    p.send_signal(number)
                    self.assertEqual(p.wait(WAIT_S), expected)
                    for r in range(2):
                        os.unlink(f"{self.dir}/pid.{r}")

    def test_sigusr1_arrives_once(self):
        program = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(1))
open("pid." + os.environ["RANK"], "w").write(str(os.getpid()))
while not os.path.exists("stop"):
    time.sleep(0.01)
print(len(got))
"""
        words = self.command("-n", "2", "--no-prefix", program=[sys.executable, "-c", program])
        with subprocess.Popen(words, cwd=self.dir, env=CLEAN, stdout=subprocess.PIPE, text=True) as p:
            self.pids(2)
            p.send_signal(signal.SIGUSR1)
            time.sleep(0.3)
            self.assertIsNone(p.poll())
            with open(f"{self.dir}/stop", "w", encoding="utf-8"):
                pass
            self.assertEqual(p.communicate(timeout=WAIT_S)[0], "1\n1\n")


class Patience(Case):
    def test_ranks_that_save_are_waited_for(self):
        """The launcher is told to stop: its ranks have more time than those whose neighbour has failed."""
        sh = "trap 'sleep 1; echo saved; exit 0' TERM; echo $$ > pid.$RANK; while :; do sleep 0.05; done"
        for patience, saved in (("30", 2), ("0.1", 0)):
            p = self.start("-n", "2", "--no-prefix", "--show=all", "--grace=0.2", f"--stop-grace={patience}", sh=sh)
            pids = self.pids(2)
            p.send_signal(signal.SIGTERM)
            out, err = p.communicate(timeout=WAIT_S)
            self.assertEqual(out.count("saved"), saved, err)
            self.assertEqual("killed" in err, saved == 0, err)
            self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])
            for rank in (0, 1):
                os.remove(f"{self.dir}/pid.{rank}")

    def test_nohup(self):
        p = subprocess.Popen(self.command("-n", "2", program=["sh", "-c", "echo $$ > pid.$RANK; sleep 0.5; echo done"]), cwd=self.dir, env=CLEAN,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.pids(2)
        p.send_signal(signal.SIGHUP)
        out, err = p.communicate(timeout=WAIT_S)
        self.assertEqual((p.returncode, out.count("done")), (0, 2), err)


class Restarts(Case):
    def test_restarts(self):
        sh = 'echo $LEVIN_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $LEVIN_MASTER_PORT $MASTER_PORT; [ $RANK = 1 ] && [ $LEVIN_RESTART_COUNT -lt 2 ] && exit 1; sleep 0.2'
        out, err = self.launch("-n", "2", "--max-restarts", "2", "--crash-loop", "0", "--show", "1", "--no-prefix", "--run-dir", "d", sh=sh)
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual([row[:2] for row in rows], [["0", "0"], ["1", "1"], ["2", "2"]])
        self.assertEqual(len({row[2] for row in rows}), 3)
        self.assertIn("restart 2 of 2", err)
        self.assertEqual(sorted(os.listdir(f"{self.dir}/d/logs")), ["attempt_0", "attempt_1", "attempt_2"])
        self.launch("-n", "2", "--max-restarts", "1", "--crash-loop", "0", sh="exit 4", code=4)

    def test_a_crash_loop_ends(self):
        _, err = self.launch("--max-restarts", "9", sh="echo x >> runs; exit 4", code=4)
        self.assertIn("crash loop", err)
        self.assertEqual(self.read("runs"), "x\nx\n")

    def test_no_restart_makes_sense(self):
        for code in (64, 85):
            self.launch("--max-restarts", "3", "--crash-loop", "0", sh=f"echo x >> runs.{code}; exit {code}", code=code)
            self.assertEqual(self.read(f"runs.{code}"), "x\n")
        self.launch("--max-restarts", "3", "--crash-loop", "0", sh="echo x >> asked; exit 143", code=143)
        self.assertEqual(self.read("asked"), "x\n")
        p = self.start("--max-restarts", "3", "--crash-loop", "0", sh="echo x >> runs; echo $$ > pid.0; sleep 600")
        self.pids(1)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(WAIT_S), 130)
        self.assertEqual(self.read("runs"), "x\n")


class Torch(Case):
    def test_a_plain_script(self):
        """torch.distributed as under torchrun, two launches at once."""
        python = "/usr/bin/python3"
        if subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"{python} has no torch with gloo")
        script = f"{self.dir}/sum.py"
        with open(script, "w", encoding="utf-8") as f:
            f.write("import os, torch, torch.distributed as dist\n"
                    "dist.init_process_group('gloo')\n"
                    "t = torch.tensor([float(dist.get_rank() + 1)])\n"
                    "dist.all_reduce(t)\n"
                    "print(dist.get_rank(), dist.get_world_size(), int(os.environ['LOCAL_RANK']), t.item())\n")
        both = [subprocess.Popen(self.command("-n", "2", "--no-prefix", program=[python, script]), cwd=self.dir, env=CLEAN, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for p in both:
            out, err = p.communicate(timeout=150)
            self.assertEqual(p.returncode, 0, err)
            self.assertEqual(sorted(out.splitlines()), ["0 2 0 3.0", "1 2 1 3.0"])


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} LEVIN [names of cases]")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores the two, and hands that down
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    unittest.main(verbosity=1)
