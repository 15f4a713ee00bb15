"""The beginning of runs of several ranks: their directories, signals before the first step, what a
run that did not begin leaves behind, cores, and what reaches a terminal.

usage: test_rank_starts.py LEVIN [test names]
"""

import fcntl
import os
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import time

from case import Case, FAILURE, LEVIN, main, OK, read, REQUEUE, SIGINT, USAGE, WAIT_S, write
from rank_case import TRAIN_SHAPES
from rank_processes import drop_identity, rank_pid
from screen import open_terminal

RESOURCE = 69
drop_identity()


class Unnamed(Case):
    """Runs without out=."""

    def begin(self, n, *arguments):
        """That many at one moment: each waits for the end of a pipe before it becomes levin."""
        gate, opens = os.pipe()
        runs = [
            subprocess.Popen(
                ["sh", "-c", 'read go; exec "$0" "$@"', LEVIN, *arguments],
                stdin=gate,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                cwd=self.dir,
            )
            for _ in range(n)
        ]
        os.close(gate)
        for p in runs:
            self.addCleanup(self.end, p)
        os.close(opens)
        return [(p.communicate(timeout=WAIT_S)[1], p.returncode) for p in runs]

    def test_each_has_its_number(self):
        for devices, first in ((1, 1), (2, 5)):
            for reported, code in self.begin(4, *TRAIN_SHAPES, f"devices={devices}"):
                self.assertEqual(code, OK, reported)
            self.assertEqual(
                sorted(os.listdir(f"{self.dir}/out")),
                [f"classify-{i}" for i in range(1, first + 4)],
            )
        for name in os.listdir(f"{self.dir}/out"):
            self.assertEqual(
                read(f"{self.dir}/out/{name}/train.log").count(b"done after 2 steps"), 1, name
            )

    def test_refused_ones_leave_nothing(self):
        """Nor do they take anything from each other."""
        os.mkdir(f"{self.dir}/out")
        os.mkdir(f"{self.dir}/empty")
        for devices in (1, 2):
            for reported, code in self.begin(
                3, "train", "classify", "data=empty", f"devices={devices}"
            ):
                self.assertEqual(code, USAGE, reported)
            self.assertEqual(os.listdir(f"{self.dir}/out"), [])

    def test_where_nothing_can_be_made(self):
        write(f"{self.dir}/out", b"a file")
        for devices in (1, 2):
            done = subprocess.run(
                [LEVIN, *TRAIN_SHAPES, "accelerator=cpu", f"devices={devices}"],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                cwd=self.dir,
            )
            self.assertEqual(done.returncode, FAILURE, done.stderr)
            self.assertEqual(
                done.stderr,
                "error: cannot make the directory out/classify-1: Not a directory; "
                "give another out\n",
            )

    def test_stopped_while_nothing_is_there(self):
        """Between the name and the ranks the process becomes their launcher."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for _ in range(2):
                p = subprocess.Popen(
                    [
                        LEVIN,
                        *TRAIN_SHAPES,
                        "accelerator=cpu",
                        "devices=2",
                        "max_steps=-1",
                        "max_epochs=-1",
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=self.dir,
                )
                self.addCleanup(self.end, p)
                self.wait_for(lambda: os.path.exists(f"{self.dir}/out/classify-1"), p)
                p.send_signal(number)
                _, reported = p.communicate(timeout=WAIT_S)
                self.assertEqual(p.returncode, 128 + number, reported)
                self.assertEqual(os.listdir(self.dir), [], reported)

    def test_ranks_that_cannot_be_started(self):
        for files in (10, 14, 18, 24):
            done = subprocess.run(
                [LEVIN, *TRAIN_SHAPES, "accelerator=cpu", "devices=2"],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                cwd=self.dir,
                preexec_fn=lambda most=files: resource.setrlimit(
                    resource.RLIMIT_NOFILE, (most, most)
                ),
            )
            self.assertEqual(done.returncode, FAILURE, done.stderr)
            self.assertEqual(os.listdir(self.dir), [], done.stderr)

    def test_srun_starts_the_ranks(self):
        """They choose the directory themselves."""
        batch = {
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "2",
            "SLURM_TASKS_PER_NODE": "2",
            "SLURM_JOB_NODELIST": "n08",
            "SLURM_JOB_NUM_NODES": "1",
        }
        arguments = [LEVIN, *TRAIN_SHAPES, "accelerator=cpu", "devices=2"]
        env = dict(os.environ, **batch, PATH=self.dir)
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=WAIT_S, cwd=self.dir, env=env
        )
        self.assertNotEqual(done.returncode, OK)
        self.assertIn(
            "srun, which starts the tasks of this allocation, is not in PATH", done.stderr
        )
        self.assertEqual(os.listdir(self.dir), [])
        write(
            f"{self.dir}/srun",
            b'#!/bin/sh\necho "$@" *; while read a b; do [ $a != SigBlk: ] || echo $a '
            b"$b; done < /proc/self/status\n",
        )
        os.chmod(f"{self.dir}/srun", 0o755)
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=WAIT_S, cwd=self.dir, env=env
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertRegex(done.stdout, r"\A--nodes=1 .* devices=2 srun\nSigBlk: [0-9a-f]+\n\Z")
        blocked = int(done.stdout.split()[-1], 16)
        self.assertFalse(
            [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if blocked >> (n - 1) & 1],
            done.stdout,
        )


class Taken(Case):
    """A run directory belongs to one run."""

    begin = Unnamed.begin

    def test_begun_at_one_moment(self):
        """One trains, and the others touch nothing of it."""
        runs = self.begin(4, *TRAIN_SHAPES, "accelerator=cpu", "devices=2", "out=same")
        self.assertEqual(sorted(code for _, code in runs), [OK, USAGE, USAGE, USAGE], runs)
        for reported, code in runs:
            if code == USAGE:
                self.assertRegex(
                    reported,
                    r"\Aerror: (another process is training in out=same: |out=same "
                    r"exists)[^\n]*\n\Z",
                )
            else:
                self.assertEqual(
                    read(f"{self.dir}/same/logs/attempt_0/rank_0/stderr.log").decode(), reported
                )
        self.assertFalse(os.path.exists(f"{self.dir}/same/errors"))
        self.assertEqual(read(f"{self.dir}/same/train.log").count(b"done after 2 steps"), 1)

    def test_of_a_run_that_is_alive(self):
        for devices in (1, 2):
            self.out = f"{self.dir}/run{devices}"
            arguments = [
                *TRAIN_SHAPES,
                "accelerator=cpu",
                f"devices={devices}",
                "max_steps=-1",
                "max_epochs=-1",
                f"out={self.out}",
            ]
            p = subprocess.Popen(
                [LEVIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self.addCleanup(self.end, p)
            self.wait_for(lambda: os.path.exists(f"{self.out}/config.yaml"), p)
            for more in ([], ["resume=true"], ["overwrite=true"], ["devices=1"]):
                done = subprocess.run(
                    [LEVIN, *arguments, *more], capture_output=True, text=True, timeout=WAIT_S
                )
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertTrue(
                    done.stderr.startswith(
                        f"error: another process is training in out={self.out}: wait "
                        "for its end, or give another out\n"
                    ),
                    done.stderr,
                )
            p.send_signal(signal.SIGINT)
            self.assertEqual((p.communicate(timeout=WAIT_S), p.returncode)[1], SIGINT)
            done = subprocess.run(
                [LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S
            )
            self.assertIn("exists: resume=true continues that run", done.stderr)


class Stopped(Case):
    def test_before_the_first_step(self):
        """The ranks wait for a configuration that is never written, and have nothing but empty
        logs."""
        pipe = f"{self.dir}/config.yaml"
        os.mkfifo(pipe)
        p = subprocess.Popen(
            [LEVIN, *TRAIN_SHAPES, f"out={self.out}", "devices=2", f"config={pipe}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, p)
        with open(pipe, "w", encoding="utf-8") as f:  # of the process that becomes the launcher
            f.write("seed: 3\n")

        def waits(rank):
            pid = rank_pid(self.out, rank)
            try:
                return pid is not None and any(
                    os.readlink(f"/proc/{pid}/fd/{fd}") == pipe
                    for fd in os.listdir(f"/proc/{pid}/fd")
                )
            except OSError:
                return False

        self.wait_for(
            lambda: rank_pid(self.out, 0) is not None and rank_pid(self.out, 1) is not None, p
        )  # else the launcher-to-be read from us again
        fd = None
        while fd is None:  # until there is a reader
            try:
                fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                self.assertIsNone(p.poll())
                time.sleep(0.01)
        self.wait_for(lambda: waits(0) and waits(1), p)
        self.assertTrue(os.path.isdir(f"{self.out}/logs"))
        p.send_signal(signal.SIGINT)
        _, reported = p.communicate(timeout=WAIT_S)
        os.close(fd)
        self.assertEqual(p.returncode, SIGINT, reported)
        self.assertIn("stopped: Ctrl-C before the first step: nothing was written\n", reported)
        self.assertEqual(os.listdir(self.dir), ["config.yaml"])


class Early(Case):
    """SIGUSR1 and SIGUSR2, which ask for a checkpoint, in the first moments of a process."""

    def begin(self, *arguments, before=(), **how):
        p = subprocess.Popen(
            [*before, LEVIN, *TRAIN_SHAPES, f"out={self.out}", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.dir,
            **how,
        )
        self.addCleanup(self.end, p)
        return p

    def test_one_that_waits(self):
        """The process gets it when it can take it, and so do the ranks that it becomes the launcher
        of."""

        def block():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            os.kill(os.getpid(), signal.SIGUSR1)

        for devices in (1, 2):
            self.out = f"{self.dir}/run{devices}"
            p = self.begin(f"devices={devices}", "max_epochs=-1", "max_steps=-1", preexec_fn=block)
            _, reported = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, REQUEUE, reported)
            self.assertTrue(os.path.exists(f"{self.out}/checkpoints/last.safetensors"), reported)

    def test_many_of_them(self):
        """From the moment when the first process can take them, through the beginning of the ranks,
        to the end."""

        def takes(p, signal_number):
            with open(f"/proc/{p.pid}/status", encoding="utf-8") as f:
                masks = dict(
                    line.split(":", 1) for line in f if line.startswith(("SigBlk", "SigCgt"))
                )
            return any(int(mask, 16) >> (signal_number - 1) & 1 for mask in masks.values())

        for name, before, arguments in (
            ("one", (), ["devices=1"]),
            ("two", (), ["devices=2"]),
            ("launched", [LEVIN, "launch", "-n", "2", "--"], []),
        ):
            self.out = f"{self.dir}/{name}"
            p = self.begin(
                *arguments, "quiet=true", "log_every_n_steps=1", "max_steps=5", before=before
            )
            self.wait_for(lambda: takes(p, signal.SIGUSR2), p)
            while p.poll() is None:
                p.send_signal(signal.SIGUSR2)
                time.sleep(0.001)
            _, reported = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, OK, reported)
            self.assertEqual(self.steps(), 5)

    def test_other_programs(self):
        """They get the mask that their launcher got."""

        def blocked(*before):
            return subprocess.run(
                [*before, "grep", "SigBlk", "/proc/self/status"],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                cwd=self.dir,
            ).stdout

        self.assertEqual(blocked(LEVIN, "launch", "-n", "2", "--no-prefix", "--"), 2 * blocked())


class Shared(Case):
    def test_the_list_reports_whose_is_which(self):
        """As threads, as processes, and where some of the devices are visible only."""
        for i, (visible, listed, strategy, want) in enumerate(
            (
                (None, "[0,0,1]", "dp", "0,0,1"),
                (None, "[0,0,1]", "ddp", "0,0,1"),
                (None, "[1,0,1]", "ddp", "1,0,1"),
                ("3,1", "[1,1,0]", "ddp", "1,1,3"),
            )
        ):
            self.out = f"{self.dir}/run{i}"
            env = {
                "LEVIN_SIM_DEVICES": "4" if visible else "2",
                **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}),
            }
            self.levin(
                [
                    *TRAIN_SHAPES,
                    f"out={self.out}",
                    "accelerator=sim",
                    f"devices={listed}",
                    "allow_shared_device=true",
                    f"strategy={strategy}",
                ],
                OK,
                env=env,
            )
            reported = read(f"{self.out}/train.log").decode()
            self.assertIn(
                f"(strategy={strategy}), devices sim:{want.replace(',', ',sim:')}\n", reported
            )


class Overwritten(Case):
    def leave(self):
        """What a run of more ranks, started again and again, would have left."""
        write(f"{self.out}/errors/attempt_1_rank_5.json", b"{}")
        write(f"{self.out}/errors/notes.txt", b"mine")
        write(f"{self.out}/logs/attempt_1/rank_5/stderr.log", b"old")

    def test_logs_and_errors(self):
        arguments = [*TRAIN_SHAPES, f"out={self.out}", "overwrite=true"]
        self.levin([*arguments, "devices=3"], OK)
        for devices, ranks in ((2, ["rank_0", "rank_1"]), (1, None)):
            self.leave()
            self.levin([*arguments, f"devices={devices}"], OK)
            self.assertEqual(os.listdir(f"{self.out}/errors"), ["notes.txt"])
            if ranks is None:
                self.assertFalse(os.path.exists(f"{self.out}/logs"))
            else:
                self.assertEqual(os.listdir(f"{self.out}/logs"), ["attempt_0"])
                self.assertEqual(sorted(os.listdir(f"{self.out}/logs/attempt_0")), ranks)


class Cores(Case):
    def on(self, n, *arguments):
        """The line where the command may use n cores; a line of standard output, or of standard
        error."""
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) < n:
            self.skipTest(f"{n} cores are needed, and this process may use {len(mine)}")
        done = subprocess.run(
            [LEVIN, *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
            preexec_fn=lambda: os.sched_setaffinity(0, mine[:n]),
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        return (done.stdout + done.stderr).splitlines()

    def test_more_ranks_than_cores(self):
        line = "3 ranks share 1 core and take turns: more than 1 makes nothing faster"
        for strategy in ("ddp", "dp"):
            self.assertEqual(
                self.on(
                    1,
                    *TRAIN_SHAPES,
                    "devices=3",
                    f"strategy={strategy}",
                    f"out={self.dir}/{strategy}",
                ).count(line),
                1,
            )
            self.assertIn(b"[INFO] " + line.encode(), read(f"{self.dir}/{strategy}/train.log"))
            self.assertEqual(
                self.on(1, "plan", *TRAIN_SHAPES, "devices=3", f"strategy={strategy}").count(line),
                1,
            )
        self.assertIn(
            "3 ranks share 2 cores and take turns: more than 2 make nothing faster",
            self.on(2, "plan", *TRAIN_SHAPES, "devices=3"),
        )
        self.assertFalse(
            [
                line
                for line in self.on(2, "plan", *TRAIN_SHAPES, "devices=2")
                if "take turns" in line
            ]
        )

    def test_the_transport_and_why(self):
        """Once in a run and in its plan, and not for one rank."""
        scores = "for 4 MiB in host memory)"
        for arguments, line in (
            (
                ["devices=2"],
                f"transport shm: 2 ranks share memory (auto: score 80, net 20, {scores}",
            ),
            (
                ["devices=2", "strategy=dp"],
                f"transport shm: 2 ranks share memory (auto: score 80, {scores}",
            ),
            (
                ["devices=2", "transport=net"],
                "transport net: 2 ranks exchange messages (requested)",
            ),
            (["devices=1"], None),
        ):
            for command in (TRAIN_SHAPES, ["plan", *TRAIN_SHAPES]):
                lines = self.on(2, *command, *arguments)
                self.assertEqual(
                    [found for found in lines if found.startswith("transport ")],
                    [line] if line else [],
                )

    def test_the_cores_of_all(self):
        self.assertIn("device cpu: 2 cores", self.on(2, *TRAIN_SHAPES, "devices=2"))


class Terminal(Case):
    def test_progress(self):
        """Rank 0 shows its line in place, as one process does; the log has what stands there in the
        end."""
        master, slave = open_terminal()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 100, 0, 0))
        arguments = [
            LEVIN,
            *TRAIN_SHAPES,
            "max_steps=20",
            "log_every_n_steps=1",
            "devices=2",
            f"out={self.out}",
        ]
        env = {**os.environ, "TERM": "xterm"}
        with subprocess.Popen(
            arguments, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
        ) as p:
            os.close(slave)
            seen, start = b"", time.monotonic()
            while True:
                self.assertLess(time.monotonic() - start, WAIT_S, seen)
                try:
                    seen += os.read(master, 4096) if select.select([master], [], [], 1)[0] else b""
                except OSError:  # no process has the terminal any more
                    break
            self.assertEqual(p.wait(WAIT_S), OK, seen)
        os.close(master)
        self.assertGreater(len(re.findall(rb"\r\x1b\[Jepoch ", seen)), 1, seen)
        log = read(f"{self.out}/logs/attempt_0/rank_0/stdout.log")
        self.assertIn(b"epoch 2 done at step 20: ", log)
        self.assertNotIn(b"\r", log)
        self.assertNotIn(b"\x1b", log)


if __name__ == "__main__":
    main()
