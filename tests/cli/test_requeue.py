"""A stop by SIGUSR1 in a Slurm job: `scontrol requeue` by rank 0, after the checkpoint, and the
next start of the job. A script stands in for scontrol; test_slurm_cluster.py has the real one.

usage: test_requeue.py LEVIN [test names]
LEVIN_TEST_SLOW=1: 100 stops at random moments instead of 4. LEVIN_TEST_SEED=N: other moments.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time

from case import Case, LEVIN, main, OK, read, REQUEUE, SIGTERM, USAGE, WAIT_S, write

JOB = {"SLURM_JOB_ID": "77"}
STOPS = 100 if os.environ.get("LEVIN_TEST_SLOW") else 4
SEED = int(os.environ.get("LEVIN_TEST_SEED", "1"))
STEPS = 60


class Requeue(Case):
    def setUp(self):
        super().setUp()
        self.calls = f"{self.dir}/calls"
        self.scontrol("exit 0")

    def scontrol(self, end):
        """Notes its arguments, and the checkpoint that is there."""
        path = f"{self.dir}/bin/scontrol"
        last = f"{self.out}/checkpoints/last.safetensors"
        write(
            path,
            f"#!/bin/sh\n{LEVIN} ckpt verify {last} >/dev/null && "
            f'echo "$*" >>{self.calls}\n{end}\n'.encode(),
        )
        os.chmod(path, 0o755)

    def called(self):
        return read(self.calls).decode().splitlines() if os.path.exists(self.calls) else []

    def start(self, *arguments, job=None, path=None):
        return subprocess.Popen(
            [
                LEVIN,
                *self.arguments(self.photos, self.out, "val_split=0", "max_epochs=100000"),
                "max_steps=-1",
                "micro_batches=2",
                "wgrad_threads=1",
                "checkpoint.every_n_steps=1",
                *arguments,
            ],
            env={
                **os.environ,
                "PATH": path or f"{self.dir}/bin:{os.environ['PATH']}",
                **(JOB if job is None else job),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stopped(self, *arguments, number=signal.SIGUSR1, code=REQUEUE, **options):
        shutil.rmtree(self.out, ignore_errors=True)
        p = self.start(*arguments, **options)
        last = f"{self.out}/checkpoints/last.safetensors"
        self.wait_for(lambda: os.path.exists(last), p)
        p.send_signal(number)
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, code, reported)
        return reported

    def hash_of(self, run):
        return subprocess.run(
            [LEVIN, "ckpt", "hash", f"{run}/checkpoints/last.safetensors"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def test_rank_0_requeues_and_the_next_start_resumes(self):
        for devices in (1, 2):
            reported = self.stopped(f"devices={devices}")
            self.assertEqual(self.called(), ["requeue 77"] * devices, reported)
            self.assertIn("job 77 is requeued", reported)
        step = int(re.search(r"SIGUSR1 after step (\d+)", reported)[1])
        p = self.start(f"max_steps={step + 2}", job={**JOB, "SLURM_RESTART_COUNT": "1"})
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)
        self.assertIn("resuming from", reported)
        again, self.out = self.out, f"{self.out}-one"
        p = self.start(f"max_steps={step + 2}", job={})
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)
        self.assertEqual(self.hash_of(again), self.hash_of(self.out))

    def one_job(self, moments, left):
        """Stopped at random moments and started again until it ends or `left` stops are done."""
        shutil.rmtree(self.out, ignore_errors=True)
        stops = 0
        while stops < left:
            job = {**JOB, "SLURM_RESTART_COUNT": str(stops)}
            p = self.start(f"max_steps={STEPS}", "devices=2", job=job)
            time.sleep(moments.uniform(0.0, 0.5))
            p.send_signal(signal.SIGUSR1)
            reported, _ = p.communicate(timeout=WAIT_S)
            if p.returncode == OK:
                return stops
            if p.returncode != -signal.SIGUSR1:  # it had not begun
                self.assertEqual(p.returncode, REQUEUE, reported)
            if os.path.exists(f"{self.out}/checkpoints"):
                self.levin(["ckpt", "verify", self.out], OK)
            stops += 1
        p = self.start(f"max_steps={STEPS}", job={**JOB, "SLURM_RESTART_COUNT": str(stops)})
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)
        return stops

    def test_random_moments(self):
        p = self.start(f"max_steps={STEPS}", job={})
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)
        expected = self.hash_of(self.out)
        moments = random.Random(SEED)
        stops = 0
        while stops < STOPS:
            stops += self.one_job(moments, STOPS - stops)
            self.assertEqual(self.hash_of(self.out), expected, f"LEVIN_TEST_SEED={SEED}")
        self.assertGreater(len(self.called()), 0)
        print(f"{stops} stops, {len(self.called())} of them after a checkpoint")

    def test_names_of_jobs(self):
        array = {**JOB, "SLURM_ARRAY_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "3"}
        self.stopped(job=array)
        self.stopped(job={**JOB, "SLURM_JOB_ID_HET_GROUP_0": "76"})
        self.assertEqual(self.called(), ["requeue 8_3", "requeue 76"])

    def finish(self, *arguments, code, job=None):
        """What `levin slurm finish` ends with, as the last words of the job's script."""
        done = subprocess.run(
            [LEVIN, "slurm", "finish", *arguments],
            env={**os.environ, **(JOB if job is None else job)},
            cwd=self.dir,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_a_job_that_is_queued_again_has_not_failed(self):
        self.stopped()
        self.assertIn("queued again", self.finish("85", self.out, code=OK))
        self.finish("0", self.out, code=OK)
        for number in ("1", "69", "86", "137"):
            self.assertIn(
                f"job 77 ends with exit code {number}: ",
                self.finish(number, self.out, code=int(number)),
            )
        for other in ({"SLURM_JOB_ID": "78"}, {**JOB, "SLURM_RESTART_COUNT": "1"}, {}):
            self.finish("85", self.out, code=REQUEUE, job=other)
        os.makedirs(f"{self.dir}/out")
        self.finish("85", code=REQUEUE)
        shutil.copytree(self.out, f"{self.dir}/out/classify-1")
        self.finish("85", code=OK)  # of a run without a name
        for wrong in ([], ["x"], ["256"], ["1", "a", "b"], [""]):
            self.assertIn('finish "$rc"', self.finish(*wrong, code=USAGE))

    def test_a_refused_requeue_is_none(self):
        self.scontrol("exit 1")
        self.stopped()
        self.finish("85", self.out, code=REQUEUE)
        self.scontrol("exit 0")
        self.stopped("auto_requeue=false")
        self.finish("85", self.out, code=REQUEUE)

    def test_scontrol_fails_or_is_missing(self):
        self.scontrol("echo Job is not requeueable; exit 1")
        reported = self.stopped()
        self.assertEqual(self.called(), ["requeue 77"] * 3)
        self.assertEqual(reported.count("the job is not requeued"), 1, reported)
        self.assertIn("scontrol requeue 77: Job is not requeueable (exit code 1)", reported)
        os.remove(f"{self.dir}/bin/scontrol")
        reported = self.stopped(path=f"{self.dir}/bin")
        self.assertIn("scontrol requeue 77: No such file or directory", reported)

    def test_no_requeue(self):
        self.stopped("auto_requeue=false")
        self.stopped(number=signal.SIGTERM, code=SIGTERM)
        self.stopped(job={})
        self.assertEqual(self.called(), [])

    def test_not_more_often_than(self):
        job = {**JOB, "SLURM_RESTART_COUNT": "2"}
        for devices in (1, 2):
            reported = self.stopped("max_requeues=2", f"devices={devices}", job=job, code=86)
            self.assertIn("it was 2 times, as often as max_requeues= allows; start a job", reported)
        self.assertEqual(self.called(), [])
        self.stopped("max_requeues=3", job=job)
        self.assertEqual(self.called(), ["requeue 77"])

    def test_a_limit_that_grows(self):
        """It is asked for again when the run would stop for it."""
        path = f"{self.dir}/bin/squeue"
        asked = f"{self.dir}/asked"
        script = f"#!/bin/sh\necho >>{asked}\n[ $(wc -l <{asked}) = 2 ] && echo 0:13 || echo 0:02\n"
        write(path, script.encode())
        os.chmod(path, 0o755)
        p = self.start("devices=2")
        self.wait_for(lambda: len(read(asked) if os.path.exists(asked) else b"") == 2, p)
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, REQUEUE, reported)
        self.assertEqual(len(read(asked)), 3)
        self.assertIn("stopped: the job's time limit after step ", reported)

    def test_time_limit_without_a_signal(self):
        """squeue prints the time that is left; half of it where that is less than two minutes."""
        path = f"{self.dir}/bin/squeue"
        write(path, b'#!/bin/sh\n[ "$*" = "-h -j 77 -o %L" ] && echo 0:02\n')
        os.chmod(path, 0o755)
        for devices in (1, 2):
            shutil.rmtree(self.out, ignore_errors=True)
            p = self.start(f"devices={devices}")
            reported, _ = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, REQUEUE, reported)
            self.assertIn("stopped: the job's time limit after step ", reported)
        self.assertEqual(self.called(), ["requeue 77"] * 2)
        shutil.rmtree(self.out)
        p = self.start("stop_before_limit=false", "max_time=2s")
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, OK, reported)

    def test_time_limit_within_a_validation(self):
        """One of minutes, on ranks of which the first alone asks for the time."""
        path = f"{self.dir}/bin/squeue"
        write(path, b"#!/bin/sh\necho 0:03\n")
        os.chmod(path, 0o755)
        long = ["data=builtin:shapes", "data.count=1000000", "val_split=0.99999"]
        long += ["eval_batch_size=1", "num_sanity_val_steps=0", "model=mlp", "image_size=8"]
        for devices in (1, 2):
            shutil.rmtree(self.out, ignore_errors=True)
            p = self.start(f"devices={devices}", *long)
            reported, _ = p.communicate(timeout=WAIT_S)
            self.assertEqual(p.returncode, REQUEUE, reported)
            self.assertRegex(reported, r"stopped: the job's time limit after step \d+ \(epoch 1\)")
        self.assertEqual(self.called(), ["requeue 77"] * 2)

    def test_another_job_resumes_nothing_by_itself(self):
        self.stopped()
        p = self.start(job={"SLURM_JOB_ID": "78", "SLURM_RESTART_COUNT": "1"})
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, USAGE, reported)
        self.assertIn("exists: resume=true continues that run", reported)


if __name__ == "__main__":
    main(turns=2)
