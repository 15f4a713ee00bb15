"""levin sweep submit, with stand-ins of sbatch, squeue and scontrol: which trials go to Slurm, in
what scripts, what a refusal leaves, and that none is submitted twice.

usage: test_sweep_submit.py LEVIN [test names]
"""

import os
import re
import signal
import subprocess

from case import FAILURE, LEVIN, OK, USAGE, main, read, tree, write
from sweep_folders import NINE, SweepCase

RESOURCE = 69
# Jobs 101, 102, ...; refused when the file `full` holds their number.
SBATCH = """#!/bin/bash
n=$(($(cat count 2>/dev/null || echo 100) + 1))
if [ "$n" = "$(cat full 2>/dev/null)" ]; then
    echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2
    exit 1
fi
for script; do :; done
cp "$script" "job.$n"
echo "$n" | tee count
"""
SEED = (
    "--nodes",
    "12",
    "--devices",
    "8",
    "--gpu-syntax",
    "gres",
    "--module",
    "NCCL/2.4.7-1-cuda.10.0",
    "--ifname",
    "^docker0,lo",
    "--nccl-debug",
    "INFO",
    "--master-port",
    "auto",
)


class Submit(SweepCase):
    def setUp(self):
        super().setUp()
        self.program("sbatch", SBATCH)
        self.program("squeue", '#!/bin/sh\necho "$*" >>asked\ncat queue 2>/dev/null\n:')
        self.program(
            "scontrol",
            '#!/bin/sh\necho "scontrol $*" >>asked_of\n'
            "for last; do :; done\n"
            'if [ "$last" = partition ]; then\n'
            "    cat partitions 2>/dev/null\n"
            "    exit 0\n"
            "fi\n"
            "printf 'MaxArraySize            = %s\\n' "
            "$(cat most 2>/dev/null || echo 1001)\n",
        )
        self.program("sinfo", '#!/bin/sh\necho "sinfo $*" >>asked_of\ncat nodes 2>/dev/null\n:')

    def program(self, name, text):
        write(f"{self.dir}/bin/{name}", text.encode())
        os.chmod(f"{self.dir}/bin/{name}", 0o755)

    def put(self, name, text):
        write(f"{self.dir}/{name}", text.encode())

    def submit(self, *arguments, code=OK, folder=None, path=None):
        done = subprocess.run(
            [LEVIN, "sweep", "submit", folder or "sweep", *arguments],
            cwd=self.dir,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PATH": path or f"{self.dir}/bin:{os.environ['PATH']}"},
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def scripts(self, text):
        """Of a dry run: each script, and the call of sbatch behind it."""
        found = re.findall(r"(#!.*?\n)(sbatch --parsable [^\n]+)\n", text, re.S)
        self.assertEqual("".join(a + b + "\n" for a, b in found), text)
        for script, _ in found:
            done = subprocess.run(
                ["bash", "-n"], input=script, text=True, capture_output=True, check=False
            )
            self.assertEqual(done.stderr, "", script)
        return [script for script, _ in found]

    @staticmethod
    def line(script, begin):
        found = [line for line in script.splitlines() if line.startswith(begin)]
        return found[0] if len(found) == 1 else found

    def job(self, number):
        return read(f"{self.dir}/job.{number}").decode()

    def jobs(self):
        text = read(f"{self.sweep}/jobs.tsv").decode()
        return [line.split("\t") for line in text.split("\n")[:-1]]

    def test_nine(self):
        """test-tube's nine trials on twelve nodes: a script for each, with its values."""
        self.plan(name="name_for_squeue")
        before = tree(self.sweep)
        scripts = self.scripts(self.submit("--as", "jobs", "--dry-run", *SEED).stdout)
        self.assertEqual(len(scripts), 9)
        for i, (script, point) in enumerate(zip(scripts, NINE)):
            for piece in (
                f"#SBATCH --job-name=name_for_squeue-{i}\n",
                "#SBATCH --nodes=12\n",
                "#SBATCH --gres=gpu:8\n",
                "#SBATCH --ntasks-per-node=8\n",
                "\nmodule load NCCL/2.4.7-1-cuda.10.0\n",
                "\nexport NCCL_DEBUG=INFO\n",
                "\nexport NCCL_SOCKET_IFNAME=^docker0,lo\n",
                "#SBATCH --requeue\n",
            ):
                self.assertIn(piece, script)
            self.assertNotIn("MASTER_PORT", script)
            self.assertEqual(
                self.line(script, "levin sweep trial"),
                f"levin sweep trial {self.sweep} {i} -- srun --kill-on-bad-exit=1 --unbuffered "
                "levin train ./mine.so config=config.yaml "
                f"learning_rate={point['learning_rate']} layers={point['layers']} "
                f"out={self.trial(i, 'run')}",
            )
        self.assertEqual(tree(self.sweep), before)
        self.assertFalse(os.path.exists(f"{self.dir}/count"))

    def test_array(self):
        """T110: what is done is not in it."""
        self.plan()
        for i in (0, 3):
            self.end(i, value=1)
        (script,) = self.scripts(self.submit("--dry-run", "devices=1", "parallel=4").stdout)
        self.assertIn("#SBATCH --array=1-2,4-8%4\n", script)
        self.assertEqual(
            self.line(script, "levin sweep"),
            f'levin sweep trial {self.sweep} "$SLURM_ARRAY_TASK_ID" -- srun '
            "--kill-on-bad-exit=1 --unbuffered '{command}'",
        )
        self.assertIn(f"#SBATCH --output={self.sweep}/jobs/%x-%A_%a.out\n", script)
        done = self.submit("devices=1")
        self.assertEqual(done.stdout, "job 101: trials 1-2,4-8\n")
        self.assertIn("#SBATCH --array=1-2,4-8\n", self.job(101))
        head, one = self.jobs()
        self.assertEqual(head, ["job", "name", "script", "time", "trials", "offset"])
        self.assertEqual((one[0], one[1], one[4], one[5]), ("101", "nine", "1-2,4-8", "0"))
        self.assertTrue(os.path.isdir(f"{self.sweep}/jobs"))
        made_by = "# generated by levin sweep submit "
        self.assertIn("levin sweep submit sweep devices=1", self.line(self.job(101), made_by))

    def test_queued(self):
        """A trial whose job is there is not submitted twice; one whose job is gone is."""
        self.plan()
        self.submit("devices=1")
        self.put("queue", "101_0\n101_3\n55_1\n")
        done = self.submit("devices=1")
        self.assertIn("nine: 2 trials are in the queue already", done.stderr)
        self.assertIn("#SBATCH --array=1-2,4-8\n", self.job(102))
        self.put("queue", "".join(f"102_{i}\n" for i in range(9)) + "101_0\n101_3\n")
        done = self.submit("devices=1")
        self.assertEqual(done.stdout, "nine: none of its 9 trials has to be submitted\n")
        self.assertIn("9 trials are in the queue", done.stderr)
        self.assertIn(f"-u {os.geteuid()}", read(f"{self.dir}/asked").decode())
        self.put("queue", "")
        self.end(1, value=1)
        self.claim(2, job="102_2")  # ran, and its job is gone
        self.claim(4)  # not of a job: another host runs it
        self.leave(5, "interrupted")
        self.submit("devices=1")
        self.assertIn("#SBATCH --array=0,2-3,5-8\n", self.job(103))
        self.put("queue", "102_2\n")
        self.submit("devices=1")
        self.assertIn("#SBATCH --array=0,3,5-8\n", self.job(104))

    def test_no_queue(self):
        """Where squeue cannot be asked nothing is submitted; a dry run goes on, with a note."""
        self.plan()
        self.submit("devices=1")
        self.program("squeue", "#!/bin/sh\necho down >&2\nexit 1\n")
        done = self.submit("devices=1", code=RESOURCE)
        self.assertIn("squeue does not list", done.stderr)
        self.assertIn("down", done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/job.102"))
        done = self.submit("devices=1", "--dry-run")
        self.assertIn("note: squeue does not list", done.stderr)
        self.assertIn("#SBATCH --array=0-8\n", done.stdout)

    def test_split(self):
        """At MaxArraySize: elements are counted from an offset on."""
        self.plan([{"x": str(i)} for i in range(25)])
        self.end(10, value=1)
        self.put("most", "10")
        done = self.submit("devices=1")
        self.assertEqual(
            done.stdout, "job 101: trials 0-9\njob 102: trials 11-19\n" "job 103: trials 20-24\n"
        )
        self.assertIn("#SBATCH --array=0-9\n", self.job(101))
        self.assertIn("#SBATCH --array=1-9\n", self.job(102))
        self.assertIn('"$((SLURM_ARRAY_TASK_ID + 10))" -- srun', self.job(102))
        self.assertIn("#SBATCH --array=0-4\n", self.job(103))
        self.assertEqual([j[5] for j in self.jobs()[1:]], ["0", "10", "20"])
        self.put("queue", "102_1\n103_4\n")
        self.submit("devices=1")
        self.assertIn("#SBATCH --array=0-9\n", self.job(104))
        self.assertIn("#SBATCH --array=2-9\n", self.job(105))  # trial 11 is element 1 of job 102
        self.assertIn("#SBATCH --array=0-3\n", self.job(106))

    def test_cluster(self):
        """Compared with what the cluster has, which is asked once for all jobs."""
        self.plan()
        self.put(
            "partitions",
            "PartitionName=batch Default=YES State=UP MaxTime=01:00:00 "
            "MaxNodes=UNLIMITED MinNodes=0 AllowAccounts=ALL AllowQos=ALL\n",
        )
        self.put("nodes", "batch|4|8|64000|gpu:4|idle|(null)|n[1-4]\n")
        for how in ("array", "jobs", "tasks"):
            done = self.submit(f"as={how}", "devices=1", "time=02:00:00", code=USAGE)
            self.assertEqual(done.stderr.count("error cluster"), 1, done.stderr)
            self.assertIn("01:00:00", done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/count"))
        os.remove(f"{self.dir}/asked_of")
        done = self.submit("as=jobs", "devices=1", "time=00:30:00")
        self.assertEqual(done.stdout.count("\n"), 9)
        asked = read(f"{self.dir}/asked_of").decode()
        self.assertEqual((asked.count("scontrol"), asked.count("sinfo")), (2, 1), asked)

    def test_variables_of_tools(self):
        """A user's own filter of squeue or sinfo hides no job and no node."""
        self.plan()
        for name in ("squeue", "sinfo"):
            self.program(name, f"#!/bin/sh\nenv | grep -E '^(SQUEUE|SINFO)_' >>filters\n:")
        os.environ.update(SQUEUE_PARTITION="other", SINFO_PARTITION="other")
        try:
            self.submit("devices=1")
            self.submit("devices=1", "--dry-run")
        finally:
            del os.environ["SQUEUE_PARTITION"], os.environ["SINFO_PARTITION"]
        self.assertEqual(read(f"{self.dir}/filters"), b"")

    def test_cluster_is_left_out(self):
        """It is not asked; and a part of it that has no answer takes the rest along no further."""
        self.plan([{"x": str(i)} for i in range(25)])
        self.put("partitions", "PartitionName=batch Default=YES State=UP MaxTime=01:00:00\n")
        done = self.submit("devices=1", "time=02:00:00", "ask_cluster=false", "--dry-run")
        self.assertNotIn("cluster", done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/asked_of"))
        self.program("sinfo", "#!/bin/sh\necho sinfo: error: no answer >&2\nexit 1")
        self.put("most", "10")
        done = self.submit("devices=1", "--dry-run")
        self.assertIn(
            "note cluster: sinfo: error: no answer (exit code 1 of sinfo): partitions, "
            "limits and nodes are not checked",
            done.stderr,
        )
        self.assertEqual(len(self.scripts(done.stdout)), 3)

    def test_elements(self):
        """The words of an array's script run as its trial."""
        self.plan([{"x": str(i)} for i in range(25)])
        self.put("most", "10")
        self.submit("devices=1")
        self.program("levin", "#!/bin/sh\nprintf '%s|' \"$@\" >words\n")
        subprocess.run(
            ["bash", f"{self.dir}/job.103"],
            cwd=self.dir,
            check=True,
            capture_output=True,
            timeout=30,
            env={
                "PATH": f"{self.dir}/bin:{os.environ['PATH']}",
                "HOME": self.dir,
                "SLURM_ARRAY_TASK_ID": "3",
            },
        )
        words = read(f"{self.dir}/words").decode().split("|")
        self.assertEqual(words[:5], ["sweep", "trial", self.sweep, "23", "--"])
        self.assertEqual((words[5], words[-2]), ("srun", "{command}"))

    def test_refused(self):
        """It stops, reports what is in, and the same command submits the rest."""
        self.plan()
        self.put("full", "103")
        done = self.submit("as=jobs", "devices=1", code=RESOURCE)
        self.assertEqual(done.stdout, "job 101: trials 0\njob 102: trials 1\n")
        self.assertIn("QOSMaxSubmitJobPerUserLimit", done.stderr)
        self.assertIn(
            "2 of 9 trials are submitted, in 2 jobs; the same command submits the rest", done.stderr
        )
        self.put("queue", "101\n102\n")
        self.put("full", "")
        done = self.submit("as=jobs", "devices=1")
        self.assertEqual(
            [line.split(": ")[1] for line in done.stdout.splitlines()],
            [f"trials {i}" for i in range(2, 9)],
        )
        self.assertEqual(len(self.jobs()), 10)

    def test_cut_line(self):
        """Killed while it recorded: the job is not known, the others are."""
        self.plan()
        self.submit("as=jobs", "devices=1")
        with open(f"{self.sweep}/jobs.tsv", "rb+") as f:
            f.truncate(os.path.getsize(f.name) - 3)
        self.put("queue", "".join(f"{101 + i}\n" for i in range(9)))
        self.assertEqual(self.submit("as=jobs", "devices=1").stdout, "job 110: trials 8\n")
        self.put("queue", "".join(f"{101 + i}\n" for i in range(10)))
        self.assertIn("none of its 9 trials", self.submit("as=jobs", "devices=1").stdout)

    def test_killed_before_the_record(self):
        """Slurm has the job, jobs.tsv has not: the queue knows its script. Where it does not have
        it, the job was not submitted, or it has ended."""
        self.plan()
        kill = 'kill -9 "$PPID"\nsleep 0.2\n'
        self.program("sbatch", SBATCH.replace('echo "$n" | tee', f'{kill}echo "$n" >'))
        self.submit("devices=1", code=-signal.SIGKILL)
        script = read(f"{self.sweep}/submitting").decode().split("\t")[2]
        self.program("sbatch", SBATCH)
        self.program("squeue", '#!/bin/sh\ncase "$*" in *%o*) cat scripts;; *) cat queue;; esac\n')
        elements = [f"101_{i}" for i in range(9)]
        self.put("queue", "\n".join(elements) + "\n")
        self.put("scripts", "7 /x/other.sh\n" + "".join(f"{e} {script}\n" for e in elements))
        done = self.submit("devices=1")
        self.assertIn("job 101 is that of a submission that was interrupted", done.stderr)
        self.assertIn("9 trials are in the queue already", done.stderr)
        self.assertFalse(os.path.exists(f"{self.sweep}/submitting"))
        self.assertEqual(
            [(j[0], j[2], j[4], j[5]) for j in self.jobs()[1:]], [("101", script, "0-8", "0")]
        )
        write(f"{self.sweep}/submitting", b"?\tsweep\tlogs/gone.sh\tnow\t0-8\t0\n")
        os.remove(f"{self.sweep}/jobs.tsv")
        self.assertEqual(self.submit("devices=1").stdout, "job 102: trials 0-8\n")

    def test_tasks(self):
        """One job of workers, which have no signal and are not queued again."""
        self.plan()
        done = self.submit("--as", "tasks", "--devices", "4", "-N", "2")
        self.assertEqual(done.stdout, "job 101: trials *\n")
        script = self.job(101)
        self.assertIn("#SBATCH --ntasks=8\n", script)
        self.assertEqual(
            self.line(script, "srun"), f"srun --unbuffered levin sweep worker {self.sweep}"
        )
        self.assertNotIn("--signal", script)
        self.put("queue", "101\n")
        done = self.submit("--as", "tasks", "--devices", "4")
        self.assertIn("with the workers of job 101", done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/job.102"))
        self.put("queue", "")
        self.submit("as=tasks", "independent_tasks=3")
        self.assertIn("#SBATCH --ntasks=3\n", self.job(102))
        done = self.submit("as=tasks", code=USAGE)
        self.assertIn("how many workers?", done.stderr)

    TRAIN = (
        "levin",
        "train",
        "classify",
        "data=builtin:shapes",
        "data.count=48",
        "image_size=16",
        "model=mlp",
        "batch_size=16",
        "micro_batches=4",
        "max_steps=2",
    )

    def test_shared_keys(self):
        """Devices of the trials are the job's, and the job's are the trials'."""
        self.plan([{"optim.lr": "0.1"}, {"optim.lr": "0.2"}], command=(*self.TRAIN, "devices=2"))
        (script,) = self.scripts(self.submit("--dry-run", "accelerator=cpu").stdout)
        self.assertIn("#SBATCH --ntasks-per-node=2\n", script)
        self.assertIn(
            "srun --kill-on-bad-exit=1 --unbuffered '{command}' accelerator=cpu\n", script
        )
        self.plan([{"optim.lr": "0.1"}], command=self.TRAIN)
        (script,) = self.scripts(
            self.submit("--dry-run", "as=jobs", "devices=4", "-N2", "plan=false").stdout
        )
        self.assertIn(" devices=4 num_nodes=2\n", script)
        self.plan([{"devices": "1"}, {"devices": "2"}, {"num_workers": "3"}], command=self.TRAIN)
        self.assertIn(
            "devices differs between the trials", self.submit("--dry-run", code=USAGE).stderr
        )
        done = self.submit("--dry-run", "as=jobs", "plan=false", "ntasks_per_node=1", "force=true")
        for script, pieces in zip(
            self.scripts(done.stdout),
            [["gpus-per-node=1\n"], ["gpus-per-node=2\n"], ["cpus-per-task=4\n"]],
        ):
            for piece in pieces:
                self.assertIn(piece, script)
        self.assertNotIn("gpus-per-node", script)

    def test_planned(self):
        """With the ranks of the job: what the training would refuse is refused, and what was
        stopped stays so."""
        self.plan([{"optim.lr": "0.1"}], command=self.TRAIN)
        self.run_sweep("stop")
        done = self.submit("devices=3", "accelerator=cpu", "num_nodes=2", code=USAGE)
        self.assertIn("error plan: the training would stop: 6", done.stderr)
        self.assertFalse(os.path.exists(f"{self.sweep}/jobs.tsv"))
        self.assertTrue(os.path.exists(f"{self.sweep}/stop"))
        self.submit("devices=2", "accelerator=cpu")
        self.assertFalse(os.path.exists(f"{self.sweep}/stop"))

    def test_made_while_it_runs(self):
        """Trials that a program is asked for are those of workers, also where there is none yet."""
        self.plan([], strategy="exec:./ask", command=("prog", "{x}"))
        done = self.submit("devices=1", code=USAGE)
        self.assertIn(
            "strategy exec:./ask, whose trials are made while it runs: as=tasks", done.stderr
        )
        self.assertEqual(self.submit("devices=1", "as=tasks").stdout, "job 101: trials *\n")
        self.put("queue", "101\n")
        self.submit("devices=1", "as=tasks")
        self.assertFalse(os.path.exists(f"{self.dir}/job.102"))

    def test_other_programs(self):
        """Without a checkpoint of their own they are not queued again; words are quoted."""
        self.plan(
            [{"lr": "0.1"}],
            command=("python", "my prog.py", "--dir", "{trial_dir}"),
            style="dashes",
        )
        (script,) = self.scripts(self.submit("as=jobs", "devices=1", "--dry-run").stdout)
        self.assertIn(
            f"srun --kill-on-bad-exit=1 --unbuffered python 'my prog.py' --dir "
            f"{self.trial(0, 'run')} --lr 0.1\n",
            script,
        )
        self.assertNotIn("--signal", script)

    def test_folder(self):
        """Its name is quoted, and absolute, as the job begins in another folder."""
        os.makedirs(f"{self.dir}/it's $HOME")
        self.sweep = f"{self.dir}/it's $HOME"
        self.plan()
        (script,) = self.scripts(
            self.submit("devices=1", "--dry-run", "chdir=/tmp", folder="it's $HOME").stdout
        )
        self.assertIn(f"levin sweep trial '{self.dir}/it'\\''s $HOME' \"$SLURM_ARRAY", script)

    def test_again(self):
        """What was stopped goes on; failed ones with retry_failed, which a dry run leaves."""
        self.plan()
        self.end(0, "failed", exit_code=1)
        self.run_sweep("stop")
        self.assertIn("#SBATCH --array=1-8\n", self.submit("devices=1", "--dry-run").stdout)
        self.assertIn(
            "#SBATCH --array=0-8\n", self.submit("devices=1", "--dry-run", "--retry-failed").stdout
        )
        self.assertTrue(os.path.exists(f"{self.sweep}/stop"))
        self.assertTrue(os.path.exists(self.trial(0, "result")))
        self.submit("devices=1", "--retry-failed")
        self.assertIn("#SBATCH --array=0-8\n", self.job(101))
        self.assertFalse(os.path.exists(f"{self.sweep}/stop"))
        self.assertTrue(os.path.exists(self.trial(0, "failed.1")))

    def test_stop(self):
        """Jobs that wait are cancelled, in one call."""
        self.plan()
        self.submit("as=jobs", "devices=1")
        self.program("scancel", '#!/bin/sh\necho "$*" >>cancelled\n')
        self.put("queue", "103\n7\n105\n")
        subprocess.run(
            [LEVIN, "sweep", "stop", "sweep"],
            cwd=self.dir,
            check=True,
            capture_output=True,
            timeout=30,
            env={**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"},
        )
        self.assertEqual(read(f"{self.dir}/cancelled"), b"--state=PENDING 103 105\n")

    def test_mistakes(self):
        """Of the job's options as of levin slurm script, each once, and nothing is submitted."""
        self.plan()
        done = self.submit("as=jobs", "-tbad", "devices=1", code=USAGE)
        self.assertEqual(done.stderr.count("V06"), 1, done.stderr)
        self.assertIn("array has no effect", self.submit("array=1", "devices=1", code=USAGE).stderr)
        self.assertIn("out has no effect", self.submit("out=x", "devices=1", code=USAGE).stderr)
        self.assertIn("how many ranks", self.submit(code=USAGE).stderr)
        self.assertIn("as", self.submit("as=array2", code=USAGE).stderr)
        self.assertIn("unknown key `devces`", self.submit("devces=1", code=USAGE).stderr)
        self.assertIn("sweep.json", self.submit(folder="none", code=FAILURE).stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/count"))
        self.assertFalse(os.path.exists(f"{self.sweep}/jobs"))
        done = self.submit("devices=1", code=RESOURCE, path="/nowhere")
        self.assertIn("sbatch not found", done.stderr)


if __name__ == "__main__":
    main()
