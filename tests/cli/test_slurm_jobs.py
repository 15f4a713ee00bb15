"""levin slurm status, logs, why, cancel, requeue, signal, nodes and shell, with stand-ins of
Slurm's commands: what these are asked, how often, and what is made of their answers.

usage: test_slurm_jobs.py LEVIN [test names]
"""

import json
import os
import pwd
import signal
import subprocess
import time

from case import LEVIN, FAILURE, OK, USAGE, Case, main, write

RESOURCE = 69
ME = pwd.getpwuid(os.getuid()).pw_name
# Writes down how it was called, and prints the file of its name.
STUB = """#!/bin/bash
name=${0##*/}
echo "$name $*" >>"$DIR/calls"
env >"$DIR/$name.env"
[ -f "$DIR/$name.out" ] && cat "$DIR/$name.out"
exit "$(cat "$DIR/$name.code" 2>/dev/null || echo 0)"
"""
TOOLS = ("squeue", "scontrol", "scancel", "sinfo", "sacct", "srun", "salloc")
SHOW = """JobId={id} JobName={name}
   UserId=me(0) GroupId=me(0) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode={code}
   Command={script}
   WorkDir={dir}
   StdErr={log}
   StdIn=/dev/null
   StdOut={log}
   Power=

"""


def job(number, state="RUNNING", name="train", raw=None, user=ME, reason="None", nodes="n1"):
    raw = str(number).split("_", maxsplit=1)[0] if raw is None else raw
    return (
        "\037".join(
            [
                str(number),
                str(raw),
                state,
                "1:02",
                "10:00",
                "1",
                user,
                reason,
                nodes,
                "/nowhere",
                "",
                name,
            ]
        )
        + "\n"
    )


def node(
    name,
    partition="main*",
    state="idle",
    cpus="0/8/0/8",
    used=0,
    gres="gpu:A100:4",
    gres_used="gpu:A100:0(IDX:N/A)",
    limit="infinite",
):
    return (
        "".join(
            f"{v:<20}\037"
            for v in [name, partition, state, cpus, used, 4096, gres, gres_used, limit]
        )
        + "\n"
    )


class Jobs(Case):
    def setUp(self):
        super().setUp()
        for name in TOOLS:
            write(f"{self.dir}/bin/{name}", STUB.encode())
            os.chmod(f"{self.dir}/bin/{name}", 0o755)
        self.answer("sacct", "Slurm accounting storage is disabled\n", code=1)

    def answer(self, tool, text, code=0):
        write(f"{self.dir}/{tool}.out", text.encode())
        write(f"{self.dir}/{tool}.code", str(code).encode())

    def show(self, number, state="RUNNING", code="0:0", log="job.log", restarts=0, script="(null)"):
        self.answer(
            "scontrol",
            SHOW.format(
                id=number,
                name="train",
                state=state,
                code=code,
                dir=self.dir,
                log=f"{self.dir}/{log}",
                restarts=restarts,
                script=script,
            ),
        )

    def environment(self, **variables):
        return {
            "PATH": f"{self.dir}/bin:{os.environ['PATH']}",
            "DIR": self.dir,
            "HOME": self.dir,
            **variables,
        }

    def levin(self, *arguments, code=OK, **variables):
        done = subprocess.run(
            [LEVIN, "slurm", *arguments],
            cwd=self.dir,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertFalse(done.returncode != OK and not done.stderr, "a code without a reason")
        return done

    def calls(self, tool=None):
        try:
            with open(f"{self.dir}/calls", encoding="utf-8") as f:
                lines = f.read().splitlines()
        except FileNotFoundError:
            return []
        os.remove(f"{self.dir}/calls")
        return [line for line in lines if tool is None or line.split()[0] == tool]

    def sent(self, *rows, folder="levin-jobs"):
        lines = ["job\tname\tscript\ttime", *("\t".join(map(str, row)) for row in rows)]
        write(f"{self.dir}/{folder}/jobs.tsv", ("\n".join(lines) + "\n").encode())


class Status(Jobs):
    def test_table(self):
        self.answer(
            "squeue",
            job("9_[3-8%2]", "PENDING", reason="JobArrayTaskLimit", nodes="")
            + job(7)
            + job(8, "TIMEOUT", "a|b"),
        )
        lines = self.levin("status").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["JOB", "7", "9_[3-8%2]", "8"])
        self.assertIn("running", lines[1])
        self.assertTrue(lines[2].endswith("JobArrayTaskLimit"), lines[2])
        self.assertIn("out of time", lines[3])
        self.assertIn("a|b", lines[3])
        self.assertNotIn("USER", lines[0])
        (call,) = self.calls()
        self.assertIn(f"--user={os.getuid()}", call)

    def test_one_squeue_for_all(self):
        """Numbers, elements, names; sacct is asked once for what squeue does not know."""
        self.sent((5, "old", "levin-jobs/scripts/a.sh", "t"))
        self.answer(
            "squeue",
            job(7) + job("9_4", raw=12) + job(10, user="root" if ME != "root" else "other"),
        )
        out = self.levin("status", "7", "9", "10", "old", "12").stdout
        self.assertEqual(
            [line.split()[0] for line in out.splitlines()[1:]], ["7", "9_4", "10", "5"]
        )
        self.assertIn("USER", out.splitlines()[0])
        self.assertIn("forgotten by Slurm", out.splitlines()[-1])
        calls = self.calls()
        self.assertEqual([c.split()[0] for c in calls], ["squeue", "sacct"])
        self.assertIn("--jobs=5 ", calls[1] + " ")

    def test_history(self):
        self.answer("squeue", "slurm_load_jobs error: Invalid job id specified\n", code=1)
        self.answer("sacct", job(7, "CANCELLED by 1000").replace("\037\037", "\0370:15\037"))
        self.assertIn("cancelled", self.levin("status", "7").stdout)

    def test_json(self):
        self.answer("squeue", job(7, name='q"\\x'))
        (one,) = json.loads(self.levin("status", "--json").stdout)
        self.assertEqual(
            (one["job"], one["name"], one["state"], one["state_text"]),
            ("7", 'q"\\x', "RUNNING", "running"),
        )
        self.answer("squeue", "")
        self.assertEqual(json.loads(self.levin("status", "--json").stdout), [])
        self.assertEqual(self.levin("status").stdout, "no jobs\n")

    def test_unknown(self):
        self.answer("squeue", job(7))
        error = self.levin("status", "7", "8", "nosuch", code=FAILURE).stderr
        self.assertIn("job 8: Slurm does not know it", error)
        self.assertIn("`nosuch` is not a number or a name", error)

    def test_without_slurm(self):
        for name in TOOLS:
            os.remove(f"{self.dir}/bin/{name}")
        for words, tool in (
            (["status"], "squeue"),
            (["logs", "1"], "squeue"),
            (["why", "1"], "squeue"),
            (["cancel", "1"], "squeue"),
            (["requeue", "1"], "squeue"),
            (["signal", "1", "USR1"], "squeue"),
            (["nodes"], "sinfo"),
            (["shell", "1"], "squeue"),
            (["shell", "-t", "10"], "srun"),
        ):
            error = self.levin(*words, code=RESOURCE, PATH="/nowhere").stderr
            self.assertIn(f"error: {tool} not found: is this a machine of the cluster?\n", error)

    def test_squeue_fails(self):
        self.answer("squeue", "slurm_load_jobs error: Unable to contact slurm controller\n", code=1)
        error = self.levin("status", "3", code=RESOURCE).stderr
        self.assertIn("squeue refuses (exit code 1): slurm_load_jobs error: Unable to", error)

    def test_environment(self):
        self.answer("squeue", job(7))
        self.levin("status", SQUEUE_PARTITION="other", SLURM_CONF="/c")
        with open(f"{self.dir}/squeue.env", encoding="utf-8") as f:
            text = f.read()
        self.assertNotIn("SQUEUE_PARTITION", text)
        self.assertIn("SLURM_CONF=/c", text)


class Acts(Jobs):
    def test_cancel(self):
        self.sent((7, "train", "s", "t"))
        self.answer("squeue", job(7) + job("9_[1-3]", "PENDING"))
        self.assertEqual(self.levin("cancel", "last", "9_2").stdout, "cancelled: 7,9_2\n")
        self.assertEqual([c.split()[0] for c in self.calls()], ["squeue", "scancel"])
        self.levin("cancel", "7")
        self.assertEqual(self.calls("scancel"), ["scancel 7"])

    def test_run_directory(self):
        write(f"{self.dir}/out/job/job_id", b"1 9_2")
        self.answer("squeue", job("9_2", raw=11))
        self.levin("cancel", "out/job")
        self.assertEqual(self.calls("scancel"), ["scancel 9_2"])
        os.makedirs(f"{self.dir}/empty")
        error = self.levin("cancel", "empty", code=FAILURE).stderr
        self.assertIn("no job of Slurm has trained in this directory", error)
        self.assertEqual(self.calls("scancel"), [])

    def test_others_are_left_alone(self):
        self.answer("squeue", job(7, user="another"))
        for words in (["cancel", "7"], ["requeue", "7"], ["signal", "7", "USR1"]):
            error = self.levin(*words, code=RESOURCE).stderr
            self.assertIn("job 7 is a job of another, and is left alone: --user=another", error)
        self.assertEqual(self.calls("scancel") + self.calls("scontrol"), [])
        self.levin("cancel", "7", "--user=another")
        self.assertEqual(self.calls("scancel"), ["scancel 7"])

    def test_several_of_a_name(self):
        self.answer("squeue", job(7) + job(8) + job(6, "FAILED"))
        error = self.levin("cancel", "train", code=USAGE).stderr
        self.assertIn("2 jobs of the name `train` wait or run: give numbers", error)
        self.assertEqual(self.calls("scancel"), [])
        self.levin("cancel", "train", "--all")
        self.assertEqual(self.calls("scancel"), ["scancel 7 8"])

    def test_the_one_that_runs(self):
        """Not a newer one of the name that has ended; a directory may have the name of a job."""
        os.makedirs(f"{self.dir}/train")
        self.answer("squeue", job(9, "FAILED") + job("8_1", raw=11) + job("8_[2-3]", "PENDING"))
        self.levin("cancel", "train")
        self.assertEqual(self.calls("scancel"), ["scancel 8"])

    def test_ended(self):
        """scancel of such a job is silent, and does nothing."""
        self.answer("squeue", job(7, "COMPLETED"))
        error = self.levin("cancel", "7", code=RESOURCE).stderr
        self.assertIn("job 7 is not cancelled: its state is `finished`", error)
        self.assertEqual(self.levin("requeue", "7").stdout, "requeued: 7\n")
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"])

    def test_refused(self):
        self.answer("squeue", job(7) + job(8))
        self.answer("scontrol", "Job has already finished for job 7\nagain\n", code=1)
        error = self.levin("requeue", "7", "8", code=RESOURCE).stderr
        self.assertIn(
            "scontrol refuses (exit code 1): Job has already finished for job 7; again\n", error
        )
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7,8"])
        self.answer("scancel", "scancel: error: Kill job error on job id 7: Access denied\n")
        self.assertIn("Access denied", self.levin("cancel", "7", code=RESOURCE).stderr)

    def test_signal(self):
        self.answer("squeue", job(7) + job(8, "PENDING"))
        self.assertEqual(self.levin("signal", "7", "SIGUSR1").stdout, "sent USR1: 7\n")
        self.levin("signal", "7", "10", "--batch", SCANCEL_INTERACTIVE="1")
        self.assertEqual(
            self.calls("scancel"), ["scancel --signal=USR1 7", "scancel --signal=10 --batch 7"]
        )
        with open(f"{self.dir}/scancel.env", encoding="utf-8") as f:
            self.assertNotIn("SCANCEL_", f.read())
        self.assertIn(
            "a signal is for one that runs", self.levin("signal", "8", "USR1", code=RESOURCE).stderr
        )
        for words in (["7"], [], ["7", "FOO"], ["7", "USR1@90"], ["7", "B:USR1"]):
            self.levin("signal", *words, code=USAGE)
        self.assertEqual(self.calls("scancel"), [])

    def test_many(self):
        """A line of a command has a limit."""
        self.answer("squeue", "".join(job(i) for i in range(1, 121)))
        self.levin("cancel", *map(str, range(1, 121)))
        calls = self.calls()
        self.assertEqual([c.split()[0] for c in calls], ["squeue"] + 3 * ["scancel"])
        self.assertEqual(
            [w for c in calls[1:] for w in c.split()[1:]], [str(i) for i in range(1, 121)]
        )

    def test_usage(self):
        for words in (
            ["cancel"],
            ["cancel", "--nosuch"],
            ["requeue", "--batch", "1"],
            ["status", "--nosuch"],
            ["nodes", "gpu"],
            ["why"],
            ["why", "1", "2"],
            ["logs"],
            ["logs", "1", "-n", "x"],
            ["logs", "1", "--rank=-1"],
            ["logs", "-n"],
            ["shell", "1", "2"],
        ):
            self.levin(*words, code=USAGE)
        self.assertEqual(self.calls(), [])


class Logs(Jobs):
    def test_the_file_of_slurm(self):
        self.answer("squeue", job(7))
        self.show(7)
        write(f"{self.dir}/job.log", b"one\ntwo\nthree\n")
        self.assertEqual(self.levin("logs", "7").stdout, "one\ntwo\nthree\n")
        self.assertEqual(self.levin("logs", "7", "-n", "2").stdout, "two\nthree\n")
        self.assertEqual(self.levin("logs", "7", "-n1").stdout, "three\n")
        self.assertEqual(self.levin("logs", "7", "--lines=0").stdout, "")
        big = "".join(f"line {i}\n" for i in range(30000))
        write(f"{self.dir}/job.log", big.encode())
        self.assertEqual(
            self.levin("logs", "7", "-n", "20000").stdout,
            "".join(f"line {i}\n" for i in range(10000, 30000)),
        )
        write(f"{self.dir}/job.log", b"one\ntwo")
        self.assertEqual(self.levin("logs", "7", "-n", "1").stdout, "two")
        os.remove(f"{self.dir}/job.log")
        self.assertIn("has written nothing yet", self.levin("logs", "7", code=FAILURE).stderr)

    def test_forgotten(self):
        """jobs.tsv and the script answer."""
        script = (
            "#!/bin/bash\n#SBATCH --job-name=train\n"
            '#SBATCH --output="levin-jobs/%x-%j.out"\n\nsrun levin train x out=run\n'
        )
        write(f"{self.dir}/levin-jobs/scripts/a.sh", script.encode())
        write(f"{self.dir}/levin-jobs/train-7.out", b"hello\n")
        self.sent(("7;c1", "train", "levin-jobs/scripts/a.sh", "t"))
        self.answer("squeue", "slurm_load_jobs error: Invalid job id specified\n", code=1)
        for word in ("7", "last", "train"):
            self.assertEqual(self.levin("logs", word).stdout, "hello\n")
        out = self.levin("logs", "-f", "7")
        self.assertEqual(out.stdout, "hello\n")
        self.assertIn("job 7 has ended", out.stderr)
        os.makedirs(f"{self.dir}/elsewhere")
        done = subprocess.run(
            [LEVIN, "slurm", "logs", "last", "--log-dir=../levin-jobs"],
            cwd=f"{self.dir}/elsewhere",
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.stdout, "hello\n", done.stderr)

    def test_array(self):
        script = "#!/bin/bash\n#SBATCH --array=0-2\n#SBATCH --output=levin-jobs/%x-%A_%a.out\n"
        write(f"{self.dir}/levin-jobs/scripts/a.sh", script.encode())
        for i in range(3):
            write(f"{self.dir}/levin-jobs/t-7_{i}.out", f"element {i}\n".encode())
        self.sent((7, "t", "levin-jobs/scripts/a.sh", "t"))
        self.answer("squeue", "")
        self.assertEqual(self.levin("logs", "7_1").stdout, "element 1\n")
        out = self.levin("logs", "7").stdout
        self.assertEqual(out.count("==> "), 3)
        self.assertIn("==> levin-jobs/t-7_2.out <==\nelement 2\n", out)

    def test_rank(self):
        write(f"{self.dir}/run/job_id", b"0 7")
        for attempt in (0, 2):
            for name in ("stdout", "stderr"):
                write(
                    f"{self.dir}/run/logs/attempt_{attempt}/rank_1/{name}.log",
                    f"{name} {attempt}\n".encode(),
                )
        self.answer("squeue", "")
        out = self.levin("logs", "run", "--rank=1").stdout
        self.assertIn("stdout 2\n", out)
        self.assertIn("stderr 2\n", out)
        error = self.levin("logs", "run", "--rank", "3", code=FAILURE).stderr
        self.assertIn("rank 3 of job run has no log of its own in run", error)
        write(f"{self.dir}/run/train.log", b"of the run\n")
        self.assertEqual(self.levin("logs", "run").stdout, "of the run\n")

    def follow(self, *arguments):
        p = subprocess.Popen(
            [LEVIN, "slurm", "logs", "-f", *arguments],
            cwd=self.dir,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(lambda: p.poll() is None and p.kill())
        os.set_blocking(p.stdout.fileno(), False)
        return p

    def wait_for(self, p, text):
        got, end = b"", time.monotonic() + 20
        while text not in got:
            self.assertLess(time.monotonic(), end, got)
            got += p.stdout.read() or b""
            time.sleep(0.02)
        return got

    def test_follow(self):
        """A file that comes later, grows, is cut and is replaced; and the end of the job."""
        self.answer("squeue", job(7, "PENDING"))
        self.show(7, "PENDING")
        p = self.follow("7")
        time.sleep(0.3)
        self.assertIsNone(p.poll())
        log = f"{self.dir}/job.log"
        write(log, b"first, which is the longest\n")
        self.wait_for(p, b"first, which is the longest\n")
        with open(log, "ab", buffering=0) as f:
            f.write(b"half")
            self.wait_for(p, b"half")
            f.write(b" a line\n")
        self.wait_for(p, b" a line\n")
        with open(log, "wb", buffering=0) as f:
            f.write(b"cut\n")
        self.wait_for(p, b"cut\n")
        write(f"{self.dir}/new.log", b"replaced\n")
        with open(log, "ab", buffering=0) as f:
            f.write(b"rest\n")
            os.replace(f"{self.dir}/new.log", log)
        self.wait_for(p, b"rest\nreplaced\n")
        self.answer("squeue", job(7, "FAILED"))
        self.assertEqual(p.wait(timeout=20), 0)
        error = p.stderr.read().decode()
        self.assertIn("has written nothing yet", error)
        self.assertIn("was cut", error)
        self.assertIn("levin: job 7 has ended: failed; levin slurm why 7\n", error)
        self.assertLessEqual(len(self.calls("squeue")), 4)
        p.stdout.close()
        p.stderr.close()

    def test_follow_is_interrupted(self):
        self.answer("squeue", job(7))
        self.show(7)
        write(f"{self.dir}/job.log", b"x\n")
        p = self.follow("7")
        self.wait_for(p, b"x\n")
        p.send_signal(signal.SIGINT)
        self.assertIn(p.wait(timeout=10), (-signal.SIGINT, 130))
        p.stdout.close()
        p.stderr.close()


class Why(Jobs):
    def test_record(self):
        """The first failure that is not about a lost peer, and not the lines of the others."""
        self.answer("squeue", job(7, "FAILED"))
        script = f"#!/bin/bash\nsrun levin train classify --out='{self.dir}/my run'\n"
        write(f"{self.dir}/a.sh", script.encode())
        self.show(7, "FAILED", "1:0", script=f"{self.dir}/a.sh")
        write(f"{self.dir}/job.log", b"begin\nerror: NCCL, of a survivor\n")
        write(f"{self.dir}/my run/job_id", b"0 7")
        for rank, kind, at in ((0, "peer", 100), (2, "nan", 300), (3, "error", 400)):
            record = {
                "rank": rank,
                "host": "n1",
                "pid": 5,
                "time_ns": at,
                "kind": kind,
                "code": 1,
                "message": f"of rank {rank}",
                "where": "",
                "stack": [],
            }
            write(
                f"{self.dir}/my run/errors/attempt_0_rank_{rank}.json", json.dumps(record).encode()
            )
        out = self.levin("why", "7").stdout
        self.assertIn(
            "job 7 (train): failed, after 1:02 of 10:00 on n1, exit code 1: "
            "rank 2 (n1): of rank 2\n",
            out,
        )
        self.assertIn("    | error: NCCL, of a survivor\n", out)
        self.assertIn("  next: repair that", out)
        self.assertEqual([c.split()[0] for c in self.calls()], ["squeue", "scontrol"])
        one = json.loads(self.levin("why", "7", "--json").stdout)
        self.assertEqual(
            (one["cause"], one["exit_code"], one["run_dir"]),
            ("rank 2 (n1): of rank 2", 1, f"{self.dir}/my run"),
        )
        self.answer("squeue", job(7, "RUNNING"))  # again: what is recorded is of its last start
        self.show(7, restarts=1, script=f"{self.dir}/a.sh")
        write(f"{self.dir}/job.log", b"levin: job 7 restart 1 nodes n1\nepoch 3\n")
        self.assertIn("on n1: epoch 3\n", self.levin("why", "7").stdout)
        self.answer("squeue", job(7, "FAILED"))
        self.show(7, "FAILED", "1:0", script=f"{self.dir}/a.sh")
        write(f"{self.dir}/job.log", b"begin\nerror: NCCL, of a survivor\n")
        write(f"{self.dir}/my run/job_id", b"0 8")  # a later job went on there
        self.assertIn("exit code 1: error: NCCL", self.levin("why", "7").stdout)

    def test_progress_and_the_code_of_the_cause(self):
        self.answer("squeue", job(7, "FAILED"))
        self.show(7, "FAILED", "76:0")
        write(
            f"{self.dir}/job.log",
            b"\r\x1b[Jstep 1\r\x1b[Jstep 2\r\r\x1b[Jepoch 1 done\nerror: data x: not there\n"
            b"srun: error: n1: task 0: Exited with exit code 64\n"
            b"srun: error: n1: task 1: Exited with exit code 76\n",
        )
        out = self.levin("why", "7").stdout
        self.assertIn("    | epoch 1 done\n", out)
        self.assertIn("exit code 76: error: data x: not there\n", out)
        self.assertIn("next: correct that, and submit it again", out)

    def test_train_log(self):
        write(f"{self.dir}/run/job_id", b"0 7")
        write(
            f"{self.dir}/run/train.log",
            b"[t][INFO] go\n[t][ERROR] the loss is nan\n" b"[t][ERROR]   in step 3\n",
        )
        self.answer("squeue", "")
        out = self.levin("why", "run").stdout
        self.assertIn("job 7 has ended, and Slurm has forgotten how: the loss is nan\n", out)
        self.answer("squeue", job(7, "NODE_FAIL"))
        self.assertIn("next: levin slurm requeue 7 starts it again", self.levin("why", "7").stdout)

    def test_log(self):
        """Of the last start of the job alone."""
        self.answer("squeue", job(7, "FAILED"))
        self.show(7, "FAILED", "64:0")
        write(
            f"{self.dir}/job.log",
            b"levin: job 7 restart 0 nodes n1\nerror: of the first\n"
            b"levin: job 7 restart 1 nodes n1\nerror: data x: not there\nafter\n",
        )
        out = self.levin("why", "7").stdout
        self.assertIn(", exit code 64: error: data x: not there\n", out)
        self.assertIn("next: correct that, and submit it again", out)

    def test_states(self):
        for state, code, piece in (
            ("TIMEOUT", "0:15", "out of time, after 1:02 of 10:00 on n1, killed by SIGTERM (15)"),
            ("OUT_OF_MEMORY", "0:125", "next: ask for more memory"),
            ("COMPLETED", "0:0", "job 7 (train): finished, after 1:02 of 10:00 on n1\n"),
            ("RUNNING", "0:0", "running, after 1:02 of 10:00 on n1: last line\n"),
            ("FAILED", "85:0", "submit it again with resume=true"),
            ("LATER_STATE", "0:0", "job 7 (train): later state, after"),
        ):
            self.answer("squeue", job(7, state))
            self.show(7, state, code)
            write(f"{self.dir}/job.log", b"one\nlast line\n")
            self.assertIn(piece, self.levin("why", "7").stdout)
        self.answer("squeue", job(7, "PENDING", reason="PartitionTimeLimit", nodes=""))
        self.show(7, "PENDING", restarts=2)
        out = self.levin("why", "7").stdout
        self.assertIn(
            "job 7 (train) is waiting for its start number 3: its time limit is above "
            "that of the partition (PartitionTimeLimit)\n",
            out,
        )
        self.assertIn("next: levin slurm nodes", out)
        self.assertIn("does not know it", self.levin("why", "8", code=FAILURE).stderr)

    def test_array(self):
        self.answer(
            "squeue", job("7_0", "COMPLETED") + job("7_1", "FAILED") + job("7_[2-5]", "PENDING")
        )
        self.show("7_1", "FAILED", "3:0")
        out = self.levin("why", "7").stdout
        self.assertIn(
            "job 7 has 3 parts: 1 failed, 0 running, 1 waiting, 1 finished; the first "
            "that failed:\njob 7_1 (train): failed",
            out,
        )
        self.assertEqual(self.calls("scontrol"), ["scontrol show job 7_1"])


class Nodes(Jobs):
    def test_table(self):
        self.answer(
            "sinfo",
            node("n01", cpus="2/6/0/8", state="mixed", used=1024, gres_used="gpu:A100:3(IDX:0-1,3)")
            + node("n02")
            + node("n03")
            + node("n04", state="idle*")
            + node("n03", partition="long", limit="7-00:00:00", gres="(null)", gres_used="(null)"),
        )
        lines = self.levin("nodes").stdout.splitlines()
        rows = [[cell for cell in line.split("  ") if cell] for line in lines[1:]]
        rows = [[cell.strip() for cell in row] for row in rows]
        self.assertEqual(
            rows,
            [
                [
                    "main*",
                    "partly used",
                    "1",
                    "6 of 8",
                    "3.00 GiB of 4.00 GiB",
                    "1 of 4 A100",
                    "none",
                    "n01",
                ],
                [
                    "main*",
                    "free",
                    "2",
                    "16 of 16",
                    "8.00 GiB of 8.00 GiB",
                    "8 of 8 A100",
                    "none",
                    "n[02-03]",
                ],
                [
                    "main*",
                    "not answering",
                    "1",
                    "0 of 8",
                    "0 KiB of 4.00 GiB",
                    "0 of 4 A100",
                    "none",
                    "n04",
                ],
                ["long", "free", "1", "8 of 8", "4.00 GiB of 4.00 GiB", "-", "7-00:00:00", "n03"],
            ],
        )
        self.assertEqual(len(self.levin("nodes", "-N").stdout.splitlines()), 6)
        self.assertEqual(len(self.levin("nodes", "-p", "long").stdout.splitlines()), 2)
        self.assertIn("partition nosuch", self.levin("nodes", "-p", "nosuch", code=FAILURE).stderr)
        first = json.loads(self.levin("nodes", "--json").stdout)[0]
        self.assertEqual(
            (first["partition"], first["default"], first["cpus_free"], first["gpus"]),
            ("main", True, 6, [{"type": "A100", "total": 4, "free": 1}]),
        )
        self.assertEqual(len(self.calls("sinfo")), 5)


class Shell(Jobs):
    def test_in_a_job(self):
        self.answer("squeue", job("9_4", raw=12))
        self.levin("shell", "9_4", SHELL="/bin/zsh", SLURM_JOB_ID="3", SLURM_CPU_BIND="x")
        self.assertEqual(
            self.calls("srun"),
            ["srun --jobid=12 --overlap --nodes=1 --ntasks=1 " "--pty /bin/zsh -l"],
        )
        with open(f"{self.dir}/srun.env", encoding="utf-8") as f:
            self.assertNotIn("SLURM_CPU_BIND", f.read())
        node = ["--node", "n2", "--dry-run"]
        out = self.levin("shell", "9_4", *node, "--", "nvidia-smi", "-l").stdout
        self.assertEqual(
            out,
            "srun --jobid=12 --overlap --nodes=1 --ntasks=1 --pty --nodelist=n2 " "nvidia-smi -l\n",
        )
        self.assertEqual(self.calls("srun"), [])
        self.answer("squeue", job(9, "PENDING"))
        self.assertIn(
            "job 9 does not run: its state is `waiting`",
            self.levin("shell", "9", code=RESOURCE).stderr,
        )
        self.answer("squeue", job("9_1") + job("9_2"))
        self.assertIn("2 elements of job 9 run", self.levin("shell", "9", code=RESOURCE).stderr)

    def test_own_job(self):
        out = self.levin(
            "shell", "--dry-run", "-p", "gpu", "--devices=2", "-t", "1h", "-c8", SHELL="/bin/bash"
        ).stdout
        self.assertEqual(
            out,
            "srun --job-name=interactive --ntasks=1 --pty --partition=gpu "
            "--nodes=1 --gpus-per-node=2 --cpus-per-task=8 --time=0-01:00:00 "
            "/bin/bash -l\n",
        )
        out = self.levin("shell", "--dry-run", "-N2", "-t", "1h").stdout
        self.assertEqual(out, "salloc --job-name=interactive --nodes=2 --time=0-01:00:00\n")
        self.levin("shell", "--dry-run", "-t", "bad", code=USAGE)


if __name__ == "__main__":
    main()
