"""`levin train` as the tasks of a real Slurm: the bits of one device, or the error with what to do.

usage: test_slurm_cluster.py SOURCE_DIR LEVIN [test names]
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from slurm_cluster_case import (
    Cluster,
    LEVIN,
    SEEDS,
    SIM,
    SOURCE,
    STEPS,
    TRAIN,
    WAIT_S,
    bind_somewhere,
    command,
    main,
)
from small_png import write_png

RCGAN = """# a configuration of rcGAN, with a small network
experience: mass_mapping
checkpoint_dir: DIR/
data_path: builtin:mass
in_chans: 2
out_chans: 2
im_size: 32
gen_channels: 4
gen_levels: 2
disc_channels: 4
disc_stages: 3
data.count: 40
num_z_train: 2
num_z_valid: 4
lr: 0.001
beta_1: 0
beta_2: 0.99
gp_weight: 10
adv_weight: 1e-5 #dead
batch_size: 2
accumulate_grad_batches: 2
num_epochs: 1
psnr_gain_tol: 0.25
num_workers: 1"""


class Bits(Cluster):
    def test_tasks_on_the_cpu(self):
        for tasks in (2, 4):
            reported = self.srun(
                ["-N1", f"--ntasks-per-node={tasks}"],
                STEPS,
                out=f"{self.out}{tasks}",
                expects=[f"{tasks} ranks: processes"],
            )
            self.assert_bits(f"{self.out}{tasks}", reported)
            with open(f"{self.out}{tasks}/train.log") as f:
                self.assertIn("the ranks authenticate with MUNGE\n", f.read())

    def test_the_job_script_of_others(self):
        """Every task sees all devices of the node, and takes the one of its place."""
        code, reported = self.batch(
            SEEDS,
            "srun bash -c 'echo sees=$CUDA_VISIBLE_DEVICES'",
            f"srun {LEVIN} {' '.join(TRAIN)} {STEPS} accelerator=sim out={self.out}",
        )
        self.assertEqual(code, 0, reported)
        self.assertEqual(reported.count("sees=0,1,2,3\n"), 4, reported)
        self.assertIn("4 ranks: processes", reported)
        self.assert_bits(self.out, reported)

    def test_the_job_scripts_of_rcgan(self):
        """Its file, its arguments, four tasks for four devices; then the finder, with one."""
        path = f"{self.out}.yml"
        with open(path, "w", encoding="ascii") as f:
            f.write(RCGAN.replace("DIR", os.path.dirname(self.out)))
        code, reported = self.batch(
            SEEDS,
            f"srun {LEVIN} train gan --config {path} --exp-name {os.path.basename(self.out)} "
            "--num-gpus 4 accelerator=sim wgrad_threads=1",
        )
        self.assertEqual(code, 0, reported)
        self.assertIn("4 ranks: processes", reported)
        self.assertIn("effective batch 16 = ", reported)  # 4 devices x 2 x 2 batches
        one = ["devices=1", "batch_size=16", "accumulate_grad_batches=1", "micro_batches=8"]
        one.append("eval_batch_size=2")  # val_drop_last leaves out by these
        code, alone = command(
            [LEVIN, "train", "gan", f"config={path}", *one, "wgrad_threads=1", "quiet=true"]
            + ["accelerator=cpu", f"out={self.out}1"]
        )
        self.assertEqual(code, 0, alone)
        self.assert_bits(self.out, reported, f"{self.out}1")
        code, reported = self.batch(
            ["--nodes=1", "--gres=gpu:1", "--ntasks-per-node=1"],
            f"srun {LEVIN} tune batch-size gan --config {path} --num-gpus 1 accelerator=sim",
        )
        self.assertEqual(code, 0, reported)
        self.assertRegex(reported, r"(?m)^Maximum Batch Size: [1-9]")

    def test_one_device_shown_to_each_task(self):
        reported = self.srun(
            ["-N1", "--ntasks=4", "--gpus-per-task=1"], STEPS, "accelerator=sim", env=SIM
        )
        self.assert_bits(self.out, reported)

    def test_a_smaller_step(self):
        """Two of the four devices that the job has, by a list and by the number of tasks."""
        for name, arguments, expects in (
            ("n", [], "W207: devices 2,3 stay idle"),
            ("list", ["devices=[3,1]"], "W201: devices is a list"),
        ):
            reported = self.srun(
                ["-N1", "--gres=gpu:4", "--ntasks-per-node=2"],
                STEPS,
                "accelerator=sim",
                *arguments,
                out=self.out + name,
                env=SIM,
                expects=[expects],
            )
            self.assert_bits(self.out + name, reported)

    def test_levin_launch_starts_the_step(self):
        code, reported = self.batch(
            SEEDS,
            f"{LEVIN} launch -- {LEVIN} {' '.join(TRAIN)} {STEPS} accelerator=sim out={self.out}",
        )
        self.assertEqual(code, 0, reported)
        self.assertIn("4 ranks: processes", reported)
        self.assert_bits(self.out, reported)

    def test_one_task_without_srun(self):
        """A job of one task has one process, which starts the ranks as it does everywhere."""
        code, reported = self.batch(
            ["--nodes=1", "--gres=gpu:4"],
            f"{LEVIN} {' '.join(TRAIN)} {STEPS} accelerator=sim out={self.out}",
        )
        self.assertEqual(code, 0, reported)
        self.assertIn("4 ranks: processes", reported)
        self.assert_bits(self.out, reported)

    def test_two_jobs_on_one_node(self):
        """Each finds a port of its own."""
        jobs = []
        for i in range(2):
            arguments = [
                "srun",
                "-N1",
                "-w",
                self.node,
                "--ntasks-per-node=2",
                LEVIN,
                *TRAIN,
                STEPS,
                f"out={self.out}{i}",
            ]
            jobs.append(
                subprocess.Popen(
                    arguments,
                    cwd=self.dir,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        for i, job in enumerate(jobs):
            reported, _ = job.communicate(timeout=WAIT_S)
            self.assertEqual(job.returncode, 0, reported)
            self.assert_bits(f"{self.out}{i}", reported)

    def test_the_job_script_of_the_manual(self):
        """As it stands there, except for two steps."""
        with open(f"{SOURCE}/docs/launch.md") as f:
            lines = re.search(r"^    #!/bin/bash.*\n(?:    .*\n|\n(?=    ))+", f.read(), re.M)[
                0
            ].splitlines()
        text = "\n".join(line[4:] for line in lines) + " max_steps=2\n"
        folder = self.out
        for i in range(8):
            write_png(Path(f"{folder}/photos/blue/{i}.png"), 40, (10, 20 + 5 * i, 200))
            write_png(Path(f"{folder}/photos/red/{i}.png"), 40, (200, 20 + 5 * i, 10))
        with open(f"{folder}/job.sh", "w") as f:
            f.write(
                text.replace(
                    "\n#SBATCH --output=",
                    f"\n#SBATCH --chdir={folder}\n#SBATCH --output={folder}/",
                    1,
                )
            )
        code, reported = self.submitted(f"{folder}/job.sh", f"{folder}/levin.log")
        self.assertEqual(code, 0, text + reported)
        self.assertIn("4 ranks: processes", reported)

    def test_the_job_scripts_of_pretraining(self):
        """Both of docs/pretrain.md, in a step of their own and from Python, with fewer cores."""
        more = (
            "image_size=16 batch_size=8 max_steps=2 micro_batches=4 group=4 wgrad_threads=1"
            " method_args.hidden_dim=32 method_args.output_dim=16"
        ).split()
        with open(f"{SOURCE}/docs/pretrain.md", encoding="utf-8") as f:
            text = f.read()
        [job] = re.findall(r"^```sh\n(#!/bin/bash.*?)^```", text, re.M | re.S)
        [python] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        folder = self.out
        for i in range(16):
            write_png(Path(f"{folder}/photos/{i}.png"), 24, (10 * i, 20 + 5 * i, 200 - 9 * i))
        levin = [LEVIN, "pretrain", f"data={folder}/photos", "model=cnn", *more]
        code, alone = command([*levin, "accelerator=cpu", f"out={folder}/one", "num_workers=1"])
        self.assertEqual(code, 0, alone)
        keys = dict(pair.split("=") for pair in more)
        end = '        model="torchvision/resnet50",\n'
        self.assertIn(end, python)
        with open(f"{folder}/my_train_script.py", "w") as f:
            f.write(python.replace(end, f'        model="cnn", accelerator="sim", **{keys},\n'))
        head, line = job.split("\nsrun ")
        self.assertIn("--cpus-per-task=12\n", head)
        head = head.replace("--cpus-per-task=12", "--cpus-per-task=4")
        head += f"\n#SBATCH --chdir={folder}\n#SBATCH --output={folder}/log\n"
        head += f"export PATH={os.path.dirname(LEVIN)}:$PATH"
        line = line.rstrip().replace("torchvision/resnet50", "cnn")
        for step in (
            f"{line} accelerator=sim {' '.join(more)}",
            f"{sys.executable} my_train_script.py",
        ):
            with open(f"{folder}/job.sh", "w") as f:
                f.write(f"{head}\nrm -rf out\nsrun {step}\n")
            code, reported = self.submitted(f"{folder}/job.sh", f"{folder}/log")
            self.assertEqual(code, 0, reported)
            self.assertIn("2 ranks: processes", reported)
            self.assertIn("SLURM_CPUS_PER_TASK=4", reported)
            self.assert_bits(f"{folder}/out/my_experiment", reported, f"{folder}/one")


class Mistakes(Cluster):
    def test_srun_forgotten(self):
        """The line that it shows is the one to use."""
        with open(f"{self.out}.yaml", "w") as f:
            f.write(
                "".join(
                    f"{argument.replace('=', ': ')}\n"
                    for argument in [*TRAIN[2:], STEPS, "accelerator=sim", f"out={self.out}"]
                )
            )
        path = f"cd {self.dir}; PATH={os.path.dirname(LEVIN)}:$PATH"
        line = f"levin train classify config={os.path.basename(self.out)}.yaml"
        code, reported = self.batch(
            SEEDS,
            path,
            "start=$(date +%s%N)",
            line,
            "code=$?",
            "echo took=$((($(date +%s%N) - start) / 1000000))",
            "exit $code",
        )
        self.assertEqual(code, 64, reported)
        self.assertTrue(
            reported.startswith(
                "levin: error E101: srun was not used: only one process is running, 4 "
                "were allocated\n"
            ),
            reported,
        )
        self.assertLess(int(re.search(r"^took=(\d+)$", reported, re.M)[1]), 2000)
        self.assertFalse(os.path.exists(self.out))
        fix = re.search(r"^  fix: (srun .*)$", reported, re.M)[1]
        self.assertEqual(fix, f"srun {line}")
        code, reported = self.batch(SEEDS, path, fix)
        self.assertEqual(code, 0, reported)
        self.assert_bits(self.out, reported)

    def test_ntasks_wrong(self):
        gpus, sim = ["-N1", "--gres=gpu:4"], ["accelerator=sim", "devices=4"]
        self.srun(
            [*gpus, "--ntasks=2"],
            *sim,
            code=64,
            env=SIM,
            expects=[
                "error E103: 2 tasks on this node, but 4 devices",
                "fix: #SBATCH --ntasks-per-node=4",
            ],
        )
        self.srun(
            [*gpus, "--ntasks=1"],
            "accelerator=sim",
            code=64,
            env=SIM,
            expects=["error E103: 1 task on this node, but 4 devices"],
        )
        self.srun(
            ["-N1", "--ntasks=2"],
            "devices=3",
            code=64,
            expects=["error E103: 2 tasks on this node, but 3 devices"],
        )
        self.assertFalse(os.path.exists(self.out))

    def test_ntasks_wrong_in_a_job_script(self):
        for tasks in (1, 2):
            code, reported = self.batch(
                [*SEEDS, f"--ntasks={tasks}"],
                f"srun {LEVIN} {' '.join(TRAIN)} accelerator=sim devices=4 out={self.out}",
            )
            self.assertEqual(code, 64, reported)
            for piece in (
                f"error E104: --ntasks={tasks} won over --ntasks-per-node=4",
                "devices asks for 4 (command line)",
                "fix: remove --ntasks (-n)",
            ):
                self.assertEqual(reported.count(piece), 1, reported)

    def test_too_few_devices(self):
        self.srun(
            ["-N1", "--gres=gpu:2", "--ntasks=4"],
            "accelerator=sim",
            code=69,
            env=SIM,
            expects=[
                f"error E106: 4 tasks on node {self.node}, but only 2 simulated devices",
                "found: CUDA_VISIBLE_DEVICES=0,1",
                "fix: #SBATCH --gpus-per-node=4",
            ],
        )
        reported = self.srun(
            ["-N1", "--gres=gpu:1", "--ntasks=2"], "accelerator=sim", code=69, env=SIM
        )
        self.assertIn("E105: two ranks use one device\n  found: ranks 0 and 1 on ", reported)

    def test_several_nodes(self):
        self.srun(
            ["-N2", "--ntasks-per-node=2"],
            "num_nodes=3",
            code=64,
            expects=["error E119: 3 nodes are asked for", "found: SLURM_STEP_NUM_NODES=2"],
        )
        self.assertFalse(os.path.exists(self.out))

    def test_variables_of_another_script(self):
        """WORLD_SIZE, MASTER_ADDR and MASTER_PORT as job scripts for other programs export them."""
        with socket.socket() as s:
            port = bind_somewhere(s)
            given = {"WORLD_SIZE": "2", "MASTER_ADDR": self.node, "MASTER_PORT": str(port)}
            s.listen()
            # 69 of rank 0, and what the end of the step made of the other: srun reports the highest
            self.srun(
                ["-N1", "--kill-on-bad-exit=1", "--ntasks-per-node=2"],
                STEPS,
                code=143,
                env={**given, "MASTER_ADDR": "127.0.0.1"},
                expects=["levin: error E110: ", "task 0: Exited with exit code 69"],
            )
        reported = self.srun(
            ["-N1", "--kill-on-bad-exit=1", "-w", self.node, "--ntasks-per-node=2"],
            STEPS,
            env=given,
        )
        self.assert_bits(self.out, reported)
        self.srun(
            ["-N1", "--ntasks-per-node=2"],
            code=64,
            env={"MASTER_ADDR": "192.0.2.1"},
            expects=["error E111: the master address 192.0.2.1 is not one of this host"],
        )
        self.srun(
            ["-N1", "--ntasks-per-node=2"],
            code=64,
            env={"WORLD_SIZE": "8"},
            expects=["error E108: ", "found: WORLD_SIZE=8"],
        )


class Ends(Cluster):
    def ended(self, p, code):
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, code, reported)
        self.assertEqual(self.ranks(), {})
        self.assertEqual(
            [name for _, _, names in os.walk(self.out) for name in names if ".tmp" in name], []
        )
        return reported

    def go_on(self, reported, signal_name):
        """From where it stopped, with fewer tasks: the bits of a run that was never stopped."""
        step = int(re.search(rf"^stopped: {signal_name} after step (\d+) ", reported, re.M)[1])
        code, printed = command(
            [
                "srun",
                "-N1",
                "--ntasks=2",
                LEVIN,
                *TRAIN[:3],
                f"out={self.out}",
                "resume=true",
                f"max_steps={step + 2}",
            ]
        )
        self.assertEqual(code, 0, printed)
        code, one = command(
            [
                LEVIN,
                *TRAIN,
                "max_epochs=-1",
                f"max_steps={step + 2}",
                "devices=1",
                f"out={self.out}-one",
            ]
        )
        self.assertEqual(code, 0, one)
        self.assert_bits(self.out, printed, one=f"{self.out}-one")

    def test_scancel(self):
        p = self.start(["-N1", "--ntasks=4"])
        self.assertEqual(sorted(self.ranks()), [0, 1, 2, 3])
        self.assertEqual(command(["scancel", f"--name={self._testMethodName}"])[0], 0)
        reported = self.ended(p, 143)
        self.assertEqual(reported.count("stopped: SIGTERM after step "), 1, reported)
        self.go_on(reported, "SIGTERM")

    def test_the_signal_before_the_time_limit(self):
        p = self.start(["-N1", "--ntasks=4"])
        self.assertEqual(
            command(["scancel", "--signal=USR1", f"--name={self._testMethodName}"])[0], 0
        )
        reported = self.ended(p, 85)
        self.assertEqual(reported.count("stopped: SIGUSR1 after step "), 1, reported)
        self.go_on(reported, "SIGUSR1")

    def test_a_signal_to_one_rank_alone(self):
        p = self.start(["-N1", "--ntasks=4"])
        os.kill(self.ranks()[3], signal.SIGUSR1)
        self.ended(p, 85)

    def test_a_rank_is_killed(self):
        p = self.start(["-N1", "--ntasks=4"])
        os.kill(self.ranks()[2], signal.SIGKILL)
        end = time.monotonic() + 2
        while self.ranks():
            self.assertLess(time.monotonic(), end, "ranks are left")
            time.sleep(0.02)
        reported = self.ended(p, 137)
        self.assertEqual(reported.count("failed first"), 1, reported)
        self.assertRegex(reported, r"error: rank 2 \(\S+, pid \d+\) failed first( at step \d+)?: ")


class Requeued(Cluster):
    """A job on both nodes that is sent SIGUSR1 once, and is done at its second start."""

    def requeued(self, run, *directives):
        script, log, steps = f"{self.out}.sh", f"{self.out}.log", "max_steps=600"
        train = f"{LEVIN} {' '.join(TRAIN)} {steps} out={self.out} checkpoint.every_n_steps=20"
        head = ["--nodes=2", "--ntasks-per-node=2", "--requeue", "--open-mode=append", *directives]
        with open(script, "w") as f:
            f.write("\n".join(["#!/bin/bash", *(f"#SBATCH {d}" for d in head)]))
            f.write(f"\n#SBATCH --output={log}\necho start $SLURM_RESTART_COUNT\n{run} {train}\n")
        code, job = command(["sbatch", "--parsable", script])
        self.assertEqual(code, 0, job)
        job = job.strip()
        self.addCleanup(command, ["scancel", job])
        end = time.monotonic() + WAIT_S
        while not os.path.exists(f"{self.out}/checkpoints/last.safetensors"):
            self.assertLess(time.monotonic(), end, job)
            time.sleep(0.02)
        self.assertEqual(command(["scancel", "--signal=USR1", job])[0], 0)
        while "JobState=COMPLETED" not in command(["scontrol", "show", "job", job])[1]:
            self.assertLess(time.monotonic(), end, Path(log).read_text())
            time.sleep(0.2)
        reported = Path(log).read_text()
        self.assertIn("\nstart 1\n", reported)
        self.assertIn("resuming from", reported)
        log = Path(f"{self.out}/train.log").read_text()
        self.assertEqual(log.count(f"scontrol requeue {job}\n"), 1, log)
        code, one = command([LEVIN, *TRAIN, steps, "devices=1", f"out={self.out}-one"])
        self.assertEqual(code, 0, one)
        self.assertEqual(self.hash(self.out), self.hash(f"{self.out}-one"), reported)

    def test_srun(self):
        self.requeued("srun --kill-on-bad-exit=1")


if __name__ == "__main__":
    main()
