"""levin launch: its arguments, the program's, and what Slurm's variables add.

usage: test_launch_arguments.py LEVIN [test names]
"""

import os
import re
import subprocess

from launch_case import Case, CLEAN, LEVIN, main, WAIT_S


class Words(Case):
    def test_bad_arguments(self):
        for arguments, expects in (
            (["-n", "2"], "no program: give levin launch"),
            (["-n", "2", "A=1", "env"], "unknown key `A`"),
            (["-z", "ls"], "`-z` is not understood"),
            (["--standalone", "x.py"], "x.py: there is no such script"),
            (["-n2", "python3", "x.py"], "`-n2` is not understood"),
            (["-n", "0", "--", "ls"], "nproc 0"),
            (["-n", "two", "--", "ls"], "nproc two"),
            (["--shw", "0", "--", "ls"], "did you mean `show`"),
            (["--show", "2", "-n", "2", "--", "ls"], "0 to 1"),
            (["--prefix", "%q", "--", "ls"], "%q"),
            (["--env", "A", "--", "ls"], "NAME=VALUE"),
            (["--grace=-1", "--", "ls"], "grace"),
            (["--output", "x.txt", "-n", "2", "--", "ls"], "--output-append-shared"),
            (["--nodes=2", "--", "ls"], "E109"),
            (["--node-rank=1", "--", "ls"], "node_rank"),
            (["--run-id", "a/b", "--", "ls"], "run_id"),
        ):
            done = subprocess.run(
                [LEVIN, "launch", *arguments],
                cwd=self.dir,
                env=CLEAN,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            self.assertEqual(done.returncode, 64, (arguments, done.stderr))
            self.assertIn(expects, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_no_dashes_before_the_program(self):
        """The line that works is named."""
        for arguments, line in (
            (["-n", "2", "python3", "x.py"], "-n 2 -- python3 x.py"),
            (["--nproc=2", "-v", "--dry-run", "./x", "a=3"], "--nproc=2 -v --dry-run -- ./x a=3"),
            (
                ["nproc=2", "--max-restarts", "1", "sh", "-c", "echo 'a'"],
                r"nproc=2 --max-restarts 1 -- sh -c 'echo '\''a'\'''",
            ),
            (["ls", "--", "-l"], "-- ls -- -l"),
            (["--quiet", "true", "--env", "A=1", "env"], "--quiet true --env A=1 -- env"),
        ):
            done = subprocess.run(
                [LEVIN, "launch", *arguments],
                cwd=self.dir,
                env=CLEAN,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            self.assertEqual(
                (done.returncode, done.stdout, done.stderr),
                (64, "", f"error: put -- before the program: levin launch {line}\n"),
            )
            self.assertEqual(os.listdir(self.dir), [])

    def test_a_command_before_the_program(self):
        """No line with -- before `train` could work."""
        for arguments, line in (
            (["train", "classify", "data=x"], "-n N -- levin train classify data=x"),
            (["-n", "3", "eval", "model=x"], "-n 3 -- levin eval model=x"),
        ):
            done = subprocess.run(
                [LEVIN, "launch", *arguments],
                cwd=self.dir,
                env=CLEAN,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            self.assertEqual(
                (done.returncode, done.stderr),
                (64, f"error: put -- levin before the command: levin launch {line}\n"),
            )

    def test_both_spellings(self):
        self.assertEqual(
            self.launch(
                "nproc=2",
                "no-prefix=true",
                "--max_restarts=1",
                "show=1",
                sh="echo $LEVIN_MAX_RESTARTS $RANK",
            )[0],
            "1 1\n",
        )

    def test_help_of_the_program_is_the_programs(self):
        self.assertEqual(self.launch(program=["printf", "%s", "--help"])[0], "--help")
        done = subprocess.run(
            [LEVIN, "launch", "--help"], capture_output=True, text=True, check=True
        )
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
        batch = {
            "SLURM_JOB_ID": "1",
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "SLURM_NODEID": "0",
            "SLURM_NTASKS": "4",
            "SLURM_NTASKS_PER_NODE": "2",
            "SLURM_TASKS_PER_NODE": "2(x2)",
            "SLURM_JOB_NODELIST": "n[08-09]",
            "SLURM_JOB_NUM_NODES": "2",
        }
        out, _ = self.launch("--dry-run", program=["prog"], env=batch)
        self.assertEqual(out, "srun --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 prog\n")
        self.assertIn(
            "--cpus-per-task=12 ",
            self.launch("--dry-run", program=["prog"], env=dict(batch, SLURM_CPUS_PER_TASK="12"))[
                0
            ],
        )
        self.assertEqual(
            self.launch(
                "--srun", "never", "-n", "2", "--no-prefix", program=["echo", "x"], env=batch
            )[0],
            "x\nx\n",
        )
        one = dict(
            batch,
            SLURM_NTASKS="1",
            SLURM_TASKS_PER_NODE="1",
            SLURM_NTASKS_PER_NODE="1",
            SLURM_JOB_NUM_NODES="1",
        )
        self.assertEqual(
            self.launch("-n", "2", "--no-prefix", program=["echo", "x"], env=one)[0], "x\nx\n"
        )
        self.assertIn("E119", self.launch("--nodes", "3", program=["prog"], env=batch, code=64)[1])
        with open(f"{self.dir}/srun", "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\necho "srun got $* with A=$A"\n')
        os.chmod(f"{self.dir}/srun", 0o755)
        out, _ = self.launch(
            "--env",
            "A=1",
            program=["prog", "x"],
            env=dict(batch, PATH=f"{self.dir}:{CLEAN['PATH']}"),
        )
        self.assertEqual(
            out, "srun got --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 prog x with A=1\n"
        )

    def test_what_srun_passes_on(self):
        """Variables reach the tasks, what an earlier launcher left does not, and what only a
        launcher can do is named."""
        batch = {
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "4",
            "SLURM_TASKS_PER_NODE": "2(x2)",
            "SLURM_JOB_NODELIST": "n[08-09]",
            "SLURM_JOB_NUM_NODES": "2",
        }
        with open(f"{self.dir}/srun", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nexec env\n")
        os.chmod(f"{self.dir}/srun", 0o755)
        with open(f"{self.dir}/vars", "w", encoding="utf-8") as f:
            f.write("A=1\nB=2\n")
        batch["PATH"] = f"{self.dir}:{CLEAN['PATH']}"

        def run(*options, **env):
            out, err = self.launch(*options, program=["prog"], env=dict(batch, **env))
            return dict(line.partition("=")[::2] for line in out.splitlines() if "=" in line), err

        env, err = run(
            "--env-file",
            "vars",
            "--env",
            "B=5%%",
            "--rdzv-timeout",
            "7",
            "--master-port",
            "29400",
            RANK="3",
            LEVIN_STORE_FD="9",
            MASTER_ADDR="n08",
        )
        wanted = {
            "A": "1",
            "B": "5%",
            "LEVIN_RDZV_TIMEOUT": "7",
            "MASTER_PORT": "29400",
            "LEVIN_MASTER_PORT": "29400",
            "MASTER_ADDR": "n08",
        }
        self.assertEqual({name: env.get(name) for name in wanted}, wanted)
        self.assertEqual(err, "")
        for name in ("RANK", "LEVIN_STORE_FD"):
            self.assertNotIn(name, env)
        env, err = run(
            "--timeout",
            "9",
            "--devices",
            "2",
            "--run-dir",
            "r",
            "--env",
            "A=%r",
            LEVIN_LAUNCHED="1",
            MASTER_PORT="1",
        )
        self.assertNotIn("MASTER_PORT", env)
        self.assertEqual(err.count("\n"), 1, err)
        for piece in ("W218", "timeout", "devices", "run_dir", "%r"):
            self.assertIn(piece, err)
        self.assertEqual(run("--timeout", "9", "--quiet")[1], "")

    def test_in_a_slurm_step(self):
        """One launcher per node takes its place from the step; a person's shell counts for itself;
        several launchers on a node are refused."""
        job = 100000 + os.getpid()
        step = {
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "SLURM_NODEID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_STEP_NODELIST": "n[08-09]",
            "SLURM_NTASKS": "2",
        }
        show = (
            "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, "
            "node $GROUP_RANK of $GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
        )
        for node in range(2):
            out, _ = self.launch(
                "-n",
                "2",
                "--no-prefix",
                sh=show,
                env=dict(step, SLURM_PROCID=str(node), SLURM_NODEID=str(node)),
            )
            self.assertEqual(
                sorted(out.splitlines()),
                [
                    f"{2 * node + i} of 4, {i} of 2, node {node} of 2 at n08:{15000 + job % 10000}"
                    for i in range(2)
                ],
            )
        shell = dict(
            step,
            SLURM_STEP_NUM_TASKS="1",
            SLURM_STEP_NUM_NODES="1",
            SLURM_STEP_TASKS_PER_NODE="1",
            SLURM_STEP_NODELIST="n08",
            SLURM_NTASKS="1",
            SLURM_JOB_NAME="bash",
        )
        for one in (shell, dict(shell, SLURM_JOB_NAME="job")):
            out, _ = self.launch(
                "--devices", "2", "--accelerator", "cpu", "--no-prefix", sh=show, env=one
            )
            self.assertEqual(
                [re.sub(":.*", "", line) for line in sorted(out.splitlines())],
                [f"{i} of 2, {i} of 2, node 0 of 1 at 127.0.0.1" for i in range(2)],
            )
        two = dict(
            shell,
            SLURM_JOB_NAME="job",
            SLURM_STEP_NUM_TASKS="2",
            SLURM_STEP_TASKS_PER_NODE="2",
            SLURM_NTASKS="2",
        )
        self.assertIn("E103", self.launch("-n", "2", sh=show, env=two, code=64)[1])


main()
