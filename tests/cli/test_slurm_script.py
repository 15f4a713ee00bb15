"""levin slurm script: what each option emits and what a bad value gets, the scripts of the
documents, quoting, profiles, and random sets of options.

usage: test_slurm_script.py LEVIN [test names]

Rows of the table (test_every_option) are those that `levin help slurm` lists: one without a row
fails.
"""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import slurm_stub
from case import LEVIN, OK, USAGE, Case, main, write

SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
USUAL = ["--devices=2", "--time=60"]
SMALL = ["classify", "data=builtin:shapes"]
SHAPES = "classify data=builtin:shapes batch_size=768"

# key: arguments, a line that they emit (None: what is tested elsewhere), arguments that are wrong,
# what is reported of them.
ROWS = {
    "job_name": ("-J x", "#SBATCH --job-name=x", "--job-name a/b", "V19: job_name `a/b`"),
    "partition": ("-p a,b", "#SBATCH --partition=a,b", "--partition=", "V01"),
    "account": ("-A me", "#SBATCH --account=me", "account=a\nb", "V01"),
    "qos": ("--qos high", "#SBATCH --qos=high", "qos=a\nb", "V01"),
    "reservation": ("--reservation r", "#SBATCH --reservation=r", "reservation=a\nb", "V01"),
    "wckey": ("--wckey w", "#SBATCH --wckey=w", "wckey=a\nb", "V01"),
    "comment": ("comment=a b", '#SBATCH --comment="a b"', "comment=a\nb", "V01"),
    "licenses": ("-L f:2", "#SBATCH --licenses=f:2", "licenses=a\nb", "V01"),
    "nodes": ("-N 3", "#SBATCH --nodes=3", "--nodes 0", "V01: nodes `0`"),
    "devices": ("devices=4", "#SBATCH --gpus-per-node=4", "devices=[0,1]", "V01: devices"),
    "gpu_syntax": ("--gpu-syntax gres", "#SBATCH --gres=gpu:2", "--gpu-syntax x", "V01"),
    "gpu_type": ("--gpu-type A100", "#SBATCH --gpus-per-node=A100:2", "gpu_type=a\nb", "V01"),
    "gpus": ("-G 1g.20gb:4 ~devices", "#SBATCH --gpus=1g.20gb:4", "--gpus a100", "V04: gpus"),
    "strategy": ("--strategy ddp2", "#SBATCH --ntasks-per-node=1", "strategy=a\nb", "V01"),
    "accelerator": ("accelerator=cpu", "#SBATCH --ntasks-per-node=2", "accelerator=a\nb", "V01"),
    "mode": ("mode=launcher", "srun .* levin launch -n 2 -- prog", "mode=x", "V01"),
    "independent_tasks": ("--independent-tasks 4", "#SBATCH --ntasks=4", "-n 4", "V03: `-n`"),
    "ntasks_per_node": (
        "--ntasks-per-node 2",
        "#SBATCH --ntasks-per-node=2",
        "--ntasks-per-node 3",
        "V02: ntasks_per_node 3, but 2",
    ),
    "cpus_per_task": ("-c 12", "#SBATCH --cpus-per-task=12", "-c x", "V01: cpus_per_task `x`"),
    "workers": ("--workers 7", "#SBATCH --cpus-per-task=8", "--workers x", "V01: workers"),
    "mem": ("--mem 0", "#SBATCH --mem=0", "--mem 64GB", "V09: mem `64GB`"),
    "mem_per_gpu": ("--mem-per-gpu 8G", "#SBATCH --mem-per-gpu=8G", "mem_per_gpu=x", "V09"),
    "mem_per_cpu": ("--mem-per-cpu 2G", "#SBATCH --mem-per-cpu=2G", "mem_per_cpu=x", "V09"),
    "time": ("-t 1-1", "#SBATCH --time=1-01:00:00", "-t bad", "V06: time `bad`"),
    "time_min": ("--time-min 30m", "#SBATCH --time-min=0-00:30:00", "--time-min 1x", "V06"),
    "array": ("-a 0-8%3", "#SBATCH --array=0-8%3", "--array 3-1", "V10: array `3-1`"),
    "signal": ("--signal INT@30", "#SBATCH --signal=INT@30", "--signal FOO@1", "V07"),
    "requeue": ("--requeue --signal USR1", "#SBATCH --requeue", "requeue=2", "V01"),
    "auto_requeue": ("--auto-requeue", "#SBATCH --signal=USR1@90", "auto_requeue=2", "V01"),
    "max_requeues": ("max_requeues=0", None, "max_requeues=3", "V16: max_requeues"),
    "output": ("-o a_%j.out", "#SBATCH --output=a_%j.out", "output=a\nb", "V01"),
    "error": ("-e a_%j.err", "#SBATCH --error=a_%j.err", "error=a\nb", "V01"),
    "log_dir": ("--log-dir l", "#SBATCH --output=l/%x-%j.out", "log_dir=a\nb", "V01"),
    "mail_user": ("--mail-user a@b", "#SBATCH --mail-user=a@b", "mail_user=a\nb", "V01"),
    "mail_type": ("mail_type=END,FAIL", "#SBATCH --mail-type=END,FAIL", "mail_type=X", "V11"),
    "constraint": ("-C inet", "#SBATCH --constraint=inet", "constraint=a\nb", "V01"),
    "nodelist": ("-w n[1-2]", "#SBATCH --nodelist=n[1-2]", "nodelist=a\nb", "V01"),
    "exclude": ("-x n3", "#SBATCH --exclude=n3", "exclude=a\nb", "V01"),
    "exclusive": ("--exclusive", "#SBATCH --exclusive", "exclusive=a\nb", "V01"),
    "contiguous": ("--contiguous", "#SBATCH --contiguous", "contiguous=2", "V01"),
    "switches": ("--switches 1@1:00", "#SBATCH --switches=1@1:00", "switches=a\nb", "V01"),
    "dependency": ("-d after:1", "#SBATCH --dependency=after:1", "dependency=a\nb", "V01"),
    "begin": ("-b now+1hour", "#SBATCH --begin=now+1hour", "begin=a\nb", "V01"),
    "deadline": ("--deadline 12:00", "#SBATCH --deadline=12:00", "deadline=a\nb", "V01"),
    "nice": ("--nice=100", "#SBATCH --nice=100", "nice=a\nb", "V01"),
    "kill_on_invalid_dep": (
        "kill_on_invalid_dep=yes",
        "#SBATCH --kill-on-invalid-dep=yes",
        "kill_on_invalid_dep=x",
        "V01",
    ),
    "distribution": ("-m block", "#SBATCH --distribution=block", "distribution=a\nb", "V01"),
    "hint": ("--hint nomultithread", "#SBATCH --hint=nomultithread", "hint=a\nb", "V01"),
    "chdir": ("-D /w", "#SBATCH --chdir=/w", "chdir=a\nb", "V01"),
    "env_propagate": ("env_propagate=NONE", "#SBATCH --export=NONE", "env_propagate=a\nb", "V01"),
    "sbatch": ("--sbatch time=45", "#SBATCH --time=45", "--sbatch =5", "V01: sbatch"),
    "cpu_bind": ("cpu_bind=cores", "srun .* --cpu-bind=cores prog", "cpu_bind=?x", "V01"),
    "gpu_bind": ("gpu_bind=closest", "srun .* --gpu-bind=closest prog", "gpu_bind=?x", "V01"),
    "srun_arg": ("--srun-arg --label", "srun .* --label prog", "srun_arg=?x", "V01"),
    "no_srun": ("--no-srun", "prog", "no_srun=2", "V01"),
    "module_purge": ("--module-purge", "module purge", "module_purge=2", "V01"),
    "module": ("--module cuda/12", "module load cuda/12", "module=a\nb", "V01"),
    "conda_base": (
        "conda_base=/c conda=e",
        "source /c/etc/profile.d/conda.sh || exit",
        "conda_base=/c",
        "V01: conda_base has no effect without conda",
    ),
    "conda": ("--conda e", "conda activate e || exit", "conda=a\nb", "V01"),
    "venv": ("--venv .venv", "source .venv/bin/activate || exit", "venv=a\nb", "V01"),
    "setup": ("--setup hostname", "hostname", "--setup=", "V01"),
    "teardown": ("--teardown date", "date", "--teardown=", "V01"),
    "export": ("--export A=1", "export A=1", "--export 1A=2", "V01: export"),
    "nccl_debug": ("--nccl-debug INFO", "export NCCL_DEBUG=INFO", "nccl_debug=all", "V01"),
    "ifname": ("ifname=^docker0,lo", "export NCCL_SOCKET_IFNAME=^docker0,lo", "ifname=", "V01"),
    "nccl": ("--nccl IB_DISABLE=1", "export NCCL_IB_DISABLE=1", "--nccl IB", "V01: nccl"),
    "debug": ("--debug", "export CUDA_LAUNCH_BLOCKING=1", "debug=2", "V01"),
    "master_port": ("master_port=29400", "export MASTER_PORT=29400", "master_port=0", "V01"),
    "shell_trace": ("--shell-trace", "set -x", "shell_trace=2", "V01"),
    "container": (
        "container=i.sif",
        "srun .* apptainer exec --nv i.sif prog",
        "container=?",
        "V01",
    ),
    "container_cmd": (
        "container=i container_cmd=c",
        "srun .* c i prog",
        "container_cmd=c",
        "V01: container_cmd has no effect without container",
    ),
    "shebang": ("shebang=#!/bin/bash", "#!/bin/bash", "shebang=bash", "V20"),
    "raw": ("--raw --export A=$B", 'export A="$B"', "raw=2", "V01"),
    "profile": ("profile=p", "#SBATCH --partition=of_profile", "profile=q", "V01: profile `q`"),
    "config": ("config=c.yaml", "#SBATCH --qos=of_file", "config=not.yaml", "not.yaml"),
    "out": ("out=job.sh", None, "out=old.sh", "the file is there"),
    "force": ("--force --ntasks-per-node 5", "#SBATCH --ntasks-per-node=5", "force=2", "V01"),
    "plan": ("plan=false", None, "plan=2", "V01"),
    "ask_cluster": ("--no-ask-cluster", None, "ask_cluster=2", "V01"),
    "show_origin": ("--show-origin", "devices=2  (command line)", "show_origin=2", "V01"),
}


class Scripts(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(f"{self.dir}/levin-jobs", exist_ok=True)
        write(f"{self.dir}/c.yaml", b"seed: 3\nslurm:\n  qos: of_file\n")
        write(f"{self.dir}/old.sh", b"mine\n")
        write(f"{self.dir}/.levin/slurm.d/p.yaml", b"partition: of_profile\nnodes: 2\n")

    def run_script(self, *arguments, code=OK):
        done = subprocess.run(
            [LEVIN, "slurm", "script", *arguments],
            cwd=self.dir,
            env={"PATH": os.environ["PATH"], "HOME": f"{self.dir}/home"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def script(self, *arguments, code=OK):
        done = self.run_script(*arguments, code=code)
        return done.stdout if code == OK else done.stderr

    def directives(self, *arguments):
        return set(re.findall(r"^#SBATCH --(.*)$", self.script(*arguments), re.M))

    def test_every_option(self):
        """What each emits, and what a bad value gets."""
        printed = subprocess.run(
            [LEVIN, "help", "slurm"], capture_output=True, text=True, check=True
        ).stdout
        keys = re.findall(r"^  ([a-z_]+)  +\S", printed[printed.index("\njob script\n") :], re.M)
        self.assertGreater(len(keys), 60)
        self.assertEqual(sorted(keys), sorted(ROWS))
        for key, (good, line, bad, reported) in ROWS.items():
            words = re.split(r" (?=-|~|conda=|container_cmd=)", good)
            words = [w for part in words for w in part.split(" ", 1 if part[0] == "-" else 0)]
            text = self.script(*USUAL, *words, "--", "prog")
            if line is not None:
                rule = line if line.startswith("srun ") else re.escape(line)
                self.assertRegex(text, rf"(?m)^{rule}$", key)
            wrong = bad.split(" ") if bad.startswith("-") else [bad]
            self.assertIn(reported, self.script(*USUAL, *wrong, "--", "prog", code=USAGE), key)

    def test_page(self):
        """docs/slurm.md has the table of the rows."""
        tool = Path(__file__).resolve().parents[2] / "tools/slurm-docs"
        done = subprocess.run([tool, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_seeds(self):
        """T93 to T96: the directives of the documents' scripts."""
        s2 = "--devices 2 --gpu-syntax gres -c 12 --mem 0".split()
        self.assertLessEqual(
            {"nodes=1", "gres=gpu:2", "ntasks-per-node=2", "cpus-per-task=12", "mem=0"},
            self.directives(*s2, "--", "levin", "train", "pretrain", "config=c.yaml"),
        )
        text = self.script(*s2, "--", "levin", "train", "pretrain", "config=c.yaml")
        self.assertIn("\nsrun ", text)
        self.assertNotIn("--ntasks=", text)
        s1 = "--nodes 12 --devices 8 --gpu-syntax gres --mem 0 --time 0-02:00:00".split()
        s1 += ["--master-port", "random", "--", "python", "main.py"]
        self.assertEqual(
            {"nodes=12", "gres=gpu:8", "ntasks-per-node=8", "mem=0", "time=0-02:00:00"}
            | {"job-name=levin", "output=levin-jobs/%x-%j.out"},
            self.directives(*s1),
        )
        self.assertIn("export MASTER_PORT=$((12000 + RANDOM % 20000))", self.script(*s1))
        for partition, kind in (("grete", "A100"), ("gpu", "RTX5000")):
            s4 = f"-p {partition} --gpu-type {kind} --devices 2 -c 1 -t 00:05:00 -o /dev/null"
            s4 += " -e /dev/null --master-port 29400 -- python x.py"
            self.assertEqual(
                {f"partition={partition}", f"gpus-per-node={kind}:2", "time=0-00:05:00"}
                | {"nodes=1", "ntasks-per-node=2", "cpus-per-task=1", "output=/dev/null"}
                | {"error=/dev/null", "job-name=levin"},
                self.directives(*s4.split()),
            )
        s0 = "-J multi_gpu_train -p GPU -w compute-gpu-0-2 --devices 4 --gpu-syntax gres -c 4"
        s0 = s0.split() + ["-o", "multi_gpu_train_%j.out", "-e", "multi_gpu_train_%j.err"]
        self.assertEqual(
            {"job-name=multi_gpu_train", "partition=GPU", "nodelist=compute-gpu-0-2", "nodes=1"}
            | {"gres=gpu:4", "ntasks-per-node=4", "cpus-per-task=4"}
            | {"output=multi_gpu_train_%j.out", "error=multi_gpu_train_%j.err"},
            self.directives(*s0, "--", "python", "train.py"),
        )
        error = self.script(*s0, "--sbatch", "ntasks=16", "--", "python", "train.py", code=USAGE)
        self.assertRegex(error, r"V03: ntasks=16 beside ntasks-per-node=4 and nodes=1, .* 4 tasks")
        search = "--nodes 2 --independent-tasks 4 -c 2 -A me -t 0-00:05:00 -- ./one"
        asked = {"nodes=2", "ntasks=4", "account=me"}
        self.assertLessEqual(asked, self.directives(*search.split()))
        self.assertIn("\nsrun --unbuffered --cpus-per-task=2 ./one", self.script(*search.split()))

    def test_training(self):
        """Keys behind a recipe: the training's, the job's, or both."""
        text = self.script(
            *f"train {SHAPES} out=run devices=8 num_nodes=12 time=02:00:00".split(),
            "slurm.comment=c",
        )
        self.assertIn("#SBATCH --nodes=12\n#SBATCH --gpus-per-node=8\n", text)
        requeue = "#SBATCH --signal=USR1@90\n#SBATCH --requeue\n#SBATCH --open-mode=append\n"
        self.assertIn(requeue, text)
        run = f"levin train {SHAPES} out=run devices=8 num_nodes=12\nrc=$?"
        self.assertIn(f"\nsrun --kill-on-bad-exit=1 --unbuffered {run}", text)
        text = self.script("train", *SMALL, "out=r", "gpus=2", "num_workers=3", "time=1d")
        self.assertIn("#SBATCH --gpus-per-node=2\n", text)
        self.assertIn("#SBATCH --cpus-per-task=4\n", text)
        self.assertIn("data=builtin:shapes out=r gpus=2 num_workers=3\n", text)
        text = self.script("train", *SMALL, "out=r", "devices=2", "num_workers=auto")
        self.assertNotIn("cpus-per-task", text)
        error = self.script("train", "classify", "out=job.sh", "devices=2", code=USAGE)
        self.assertIn("write slurm.out for the script's", error)
        text = self.script("train", *SMALL, "out=r", "devices=2", "--slurm.time=7", "slurm.qos=q")
        self.assertIn("#SBATCH --qos=q\n", text)
        self.assertIn("#SBATCH --time=0-00:07:00\n", text)
        error = self.script("train", *SMALL, "devices=2", "--slurm.time", "7", code=USAGE)
        self.assertIn("--slurm.time has no value: slurm.KEY=VALUE", error)
        error = self.script("train", "classify", "out=r", "devices=2", "bach_size=3", code=USAGE)
        self.assertIn("V01: unknown key `bach_size`; did you mean `batch_size`?", error)
        write(f"{self.dir}/j.yaml", b"max_epochs: 2\nslurm: {max_requeues: 3, auto_requeue: no}\n")
        text = self.script("train", *SMALL, "out=r", "devices=2", "config=j.yaml")
        self.assertIn("config=j.yaml auto_requeue=false max_requeues=3\n", text)
        self.assertNotIn("requeue\n", text.split("srun")[0])
        self.assertNotIn("--requeue", self.script("--devices=2", "--", "python", "x.py"))

    def test_plan(self):
        """The training itself, with the ranks of the job."""
        os.makedirs(f"{self.dir}/old/checkpoints")
        write(f"{self.dir}/old/train.log", b"\n")
        write(f"{self.dir}/t.yaml", b"devices: 4\nnum_workers: 9\nmicro_batches: 6\n"
              b"slurm: {cpus_per_task: 4}\n")
        for arguments, found in (
            ("devices=8 micro_batches=6", "8 devices cannot share 6 micro-batches"),
            ("devices=4 num_nodes=3 batch_size=8", "batch_size 8 cannot be cut into 12"),
            ("devices=8 num_nodes=12 batch_size=32", "batch_size 32 cannot be cut into 96"),
            ("devices=2 out=old", "out=old exists: resume=true continues that run"),
            ("devices=2 config=none.yaml", 'cannot open "none.yaml"'),
            ("devices=2 data=no_such", "data=no_such: No such file or directory"),
            ("devices=2 precision=half", "precision `half`"),
            ("devices=2 optim.lr=fast", "optim.lr `fast`"),
            ("devices=2 accelerator=cpu micro_batches=1", "2 devices cannot share 1 micro-batch"),
        ):
            error = self.script("train", *SMALL, *arguments.split(), code=USAGE)
            self.assertIn(found, error)
        error = self.script("train", *SMALL, "devices=8", "micro_batches=6", code=USAGE)
        self.assertIn("levin: error plan: the training would stop: 8 devices", error)
        text = self.script("train", *SMALL, "devices=8", "micro_batches=6", "plan=false")
        self.assertIn("#SBATCH --gpus-per-node=8\n", text)
        # the training's file has the job's devices; its section has what the workers contradict
        done = subprocess.run(
            [LEVIN, "slurm", "script", "train", *SMALL, "config=t.yaml", "time=1d", "out=r"],
            cwd=self.dir, capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=4\n", done.stdout)
        self.assertIn("warning V05: cpus_per_task 4 with 9 workers", done.stderr)
        text = self.script("--devices=2", "train", *SMALL, "config=t.yaml", "out=r")
        self.assertIn("#SBATCH --gpus-per-node=2\n", text)
        self.assertIn("config=t.yaml out=r devices=2\n", text)

    def test_bytes(self):
        """T98: bash reads back what was given, and the comment makes the same script again."""
        values = ["a b", "it's \"so\" $HOME `x` \\", "two\nlines", "", "é*?[a]~!#"]
        for value in values:
            text = self.script(*USUAL, "--no-srun", "--export", f"A={value}", "--", "printf", "%s",
                               value)
            for what in (text, text.replace("printf %s", "printenv A #")):
                got = subprocess.run(
                    ["bash", "-c", what], capture_output=True, text=True, check=False, timeout=20
                ).stdout
                got = got.split("limit 0-01:00:00\n", 1)[1]
                self.assertEqual(got.removesuffix("\n"), value.removesuffix("\n"))
            again = re.search(r"^# generated by .*?: levin (.*)$", text, re.M)[1]
            done = subprocess.run(
                ["bash", "-c", f"{LEVIN} {again}"], cwd=self.dir, capture_output=True, text=True,
                check=True, timeout=20,
            )
            self.assertEqual(done.stdout, text)
        line = "cd \"$HOME\"; echo 'a  b'"
        self.assertIn(f"\n{line}\n", self.script(*USUAL, "--setup", line, "--", "x"))
        raw = self.script(*USUAL, "--raw", "--", "x", "a $SLURM_ARRAY_TASK_ID \"")
        self.assertIn('x "a $SLURM_ARRAY_TASK_ID \\""\n', raw)

    def test_raw(self):
        """bash evaluates $NAME and $(...) as they are given; \\$ is a dollar."""
        write(f"{self.dir}/list.txt", b"one\ntwo words\n")
        for word, value in (
            ('$(sed -n "${ELEMENT}p" list.txt)', "two words"),
            ('$(echo "hi  there")"', 'hi  there"'),
            ("x$(echo '$ELEMENT)' \"$(echo \"(a\")\" $((1 + 2)))$ELEMENT", "x$ELEMENT) (a 32"),
            ("\\$ELEMENT is $ELEMENT \\", "$ELEMENT is 2 \\"),
        ):
            text = self.script(*USUAL, "--no-srun", "--raw", "--", "printf", "%s", word)
            done = subprocess.run(
                ["bash", "-c", text], cwd=self.dir, capture_output=True, text=True, check=True,
                env={**os.environ, "ELEMENT": "2"}, timeout=20,
            )
            self.assertEqual(done.stdout.split("limit 0-01:00:00\n", 1)[1], value)

    def test_paths(self):
        """`~/` is the home directory, in options and in profiles; a variable is raw's."""
        home = f"{self.dir}/home"
        write(f"{self.dir}/.levin/slurm.d/h.yaml", b"venv: ~/v\noutput: ?~/x.out\n")
        text = self.script(*USUAL, "--profile=h", "--log-dir=~/l", "-e", "~/%j", "-D~/w", "--",
                           "x")
        for line in (f"source {home}/v/bin/activate || exit", f"##SBATCH --output={home}/x.out",
                     f"#SBATCH --output={home}/l/%x-%j.out", f"#SBATCH --error={home}/%j",
                     f"#SBATCH --chdir={home}/w"):
            self.assertIn(f"\n{line}\n", text)
        text = self.script(*USUAL, "--venv=$HOME/v", "--raw", "--", "x")
        self.assertIn('\nsource "$HOME/v/bin/activate" || exit\n', text)
        text = self.script(*USUAL, "--no-srun", "--venv=gone", "--", "echo", "ran")
        done = subprocess.run(["bash", "-c", text], cwd=self.dir, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        write(f"{self.dir}/.levin/slurm.d/n.yaml", b"slurm:\n  partition: p\n")
        error = self.script(*USUAL, "--profile=n", "--", "x", code=USAGE)
        self.assertIn("n.yaml: the keys of a profile stand at its top", error)

    def test_exported(self):
        """What the script exports reaches the tasks, whatever the job gets."""
        for words, there in (
            (["--env-propagate=PATH,HOME"], True),
            (["--sbatch=export=NONE"], True),
            (["--env-propagate=ALL"], False),
            ([], False),
        ):
            text = self.script(*USUAL, *words, "--", "x")
            self.assertEqual("\nexport SLURM_EXPORT_ENV=ALL\n" in text, there, words)

    def test_requeue(self):
        """A signal that the program does not expect would end it."""
        text = self.script(*USUAL, "--requeue", "--", "x")
        self.assertNotIn("--signal", text)
        self.assertIn("#SBATCH --requeue\n", text)
        text = self.script(*USUAL, "--requeue", "train", *SMALL, "out=r")
        self.assertIn("#SBATCH --signal=USR1@90\n", text)

    def test_tasks(self):
        """Of a node one: the program of a script, and torchrun."""
        one = "#SBATCH --gpus-per-node=2\n#SBATCH --ntasks-per-node=1\n"
        for words in (["--no-srun", "--", "x"], ["--", "/bin/torchrun", "--nproc-per-node=2", "t"]):
            self.assertIn(one, self.script(*USUAL, *words))

    def test_keys_in_front(self):
        """Those that mean the same to both are the training's, too."""
        front = "--strategy ddp2 --accelerator cpu --num-workers 2 -N 2 --max-requeues 3".split()
        text = self.script(*USUAL, *front, "train", *SMALL, "out=r")
        self.assertIn(f"levin train {' '.join(SMALL)} out=r devices=2 num_nodes=2 strategy=ddp2 "
                      "accelerator=cpu num_workers=2 max_requeues=3\n", text)
        text = self.script(*USUAL, *front, "train", *SMALL, "out=r", "gpus=2", "strategy=ddp2")
        self.assertIn("out=r gpus=2 strategy=ddp2 num_nodes=2 accelerator=cpu ", text)
        error = self.script(*USUAL, "train", *SMALL, "out=r", "-c", "4", code=USAGE)
        self.assertIn("behind a recipe -c is the configuration; cpus_per_task=4", error)
        self.assertNotIn("V05", error)

    def test_the_end(self):
        """The exit code of a training goes through `finish`, that of another program does not."""
        end = 'exit "$rc"\n'
        text = self.script(*USUAL, "train", *SMALL, "out=a b")
        self.assertTrue(text.endswith(f"levin slurm finish \"$rc\" 'a b' && rc=0\n{end}"), text)
        write(f"{self.dir}/o.yaml", b"data: builtin:shapes\nout: of/file\n")
        text = self.script(*USUAL, "train", "classify", "config=o.yaml")
        self.assertTrue(text.endswith(f'levin slurm finish "$rc" of/file && rc=0\n{end}'), text)
        text = self.script(*USUAL, "--raw", "--", "/p/levin", "train", *SMALL, "out=$A")
        self.assertTrue(text.endswith(f'/p/levin slurm finish "$rc" "$A" && rc=0\n{end}'), text)
        text = self.script(*USUAL, "train", *SMALL)
        self.assertTrue(text.endswith(f'levin slurm finish "$rc" && rc=0\n{end}'), text)
        self.assertNotIn("finish", self.script(*USUAL, "--", "prog", "out=a"))
        # a stand-in of levin: what the script ends with
        write(f"{self.dir}/bin/srun", b"#!/bin/sh\nexit $SRUN_ENDS\n")
        write(f"{self.dir}/bin/levin", b"#!/bin/sh\n[ $3 = 85 ] || exit $3\n")
        os.chmod(f"{self.dir}/bin/srun", 0o755)
        write(f"{self.dir}/end.sh", text.encode())
        for mode, ends, code in ((0o755, 85, 0), (0o755, 3, 3), (0o755, 0, 0), (0o644, 85, 85)):
            os.chmod(f"{self.dir}/bin/levin", mode)
            done = subprocess.run(
                ["bash", "end.sh"], cwd=self.dir, capture_output=True, text=True, check=False,
                env={"PATH": f"{self.dir}/bin:/usr/bin:/bin", "SRUN_ENDS": str(ends)},
            )
            self.assertEqual(done.returncode, code, done.stderr)

    def test_arrays(self):
        """Elements train in a run directory each, and are planned without what they alone know."""
        element = "$SLURM_ARRAY_TASK_ID"
        done = self.run_script(*USUAL, "-a0-3", "--raw", "train", *SMALL, f"out=r/{element}",
                               f"seed={element}", code=OK)
        self.assertIn(f'"out=r/{element}" "seed={element}" devices=2\n', done.stdout)
        self.assertIn(f"note plan: seed={element} is known in the job alone: planned without it",
                      done.stderr)
        self.script(*USUAL, "-a0-3", "--raw", "train", "classify", f"data=d{element}")
        error = self.script(*USUAL, "-a0-3", "--raw", "train", *SMALL, f"out=r/{element}",
                            f"seed={element}", "micro_batches=1", code=USAGE)
        self.assertIn("2 devices cannot share 1 micro-batch", error)
        for words in (["train", *SMALL, "out=r"], ["--raw", "train", *SMALL, "out=r", "seed=$A"],
                      ["--", "levin", "train", *SMALL, "out=r"]):
            error = self.script(*USUAL, "-a0-3", *words, code=USAGE)
            self.assertIn("V22: all elements of array 0-3 would train in one run directory: --raw "
                          "'out=r_$SLURM_ARRAY_TASK_ID'", error)
        self.script(*USUAL, "-a0-3%1", "train", *SMALL, "out=r", "resume=true", "plan=false")
        self.script(*USUAL, "-a0-3", "train", *SMALL)
        error = self.script("--independent-tasks=4", "train", *SMALL, "out=r", code=USAGE)
        self.assertIn("V22: independent_tasks of a training", error)

    def test_plan_there(self):
        """The training is planned where it begins."""
        os.makedirs(f"{self.dir}/there")
        write(f"{self.dir}/here/a.txt", b"x")
        words = ["train", "classify", "out=r", "plan=true"]
        error = self.script(*USUAL, "-Dthere", *words, "data=here", code=USAGE)
        self.assertIn("data=here: No such file or directory", error)
        write(f"{self.dir}/there/old/train.log", b"\n")
        os.makedirs(f"{self.dir}/there/old/checkpoints")
        error = self.script(*USUAL, "-Dthere", "train", *SMALL, "out=old", code=USAGE)
        self.assertIn("out=old exists", error)
        done = self.run_script(*USUAL, "-Dnowhere", "train", *SMALL, "out=r", code=OK)
        self.assertIn("warning V08: chdir `nowhere`: there is no nowhere here", done.stderr)

    def test_comments(self):
        text = self.script(*USUAL, "--module", "?NCCL/2.4", "--ifname", "?^docker0,lo", "-A", "?me",
                           "--export", "?A=b c", "--", "x")
        for line in ("# module load NCCL/2.4", "# export NCCL_SOCKET_IFNAME=^docker0,lo",
                     "##SBATCH --account=me", "# export A='b c'"):
            self.assertIn(f"\n{line}\n", text)

    def test_signals(self):
        """T100: in the foreground, or passed on by the script."""
        text = self.script(*USUAL, "--signal", "USR1@90", "--", "x")
        self.assertNotIn("trap", text)
        text = self.script(*USUAL, "--signal", "B:USR1@90", "--", "x")
        # a stand-in of srun that ends with 85 when the signal comes
        write(f"{self.dir}/bin/srun", b"#!/bin/bash\ntrap 'exit 85' USR1\ntouch begun\n"
              b"for i in $(seq 100); do sleep 0.05; done\n")
        os.chmod(f"{self.dir}/bin/srun", 0o755)
        write(f"{self.dir}/job.sh", text.encode())
        job = subprocess.Popen(
            ["bash", "job.sh"], cwd=self.dir, stdout=subprocess.DEVNULL,
            env={"PATH": f"{self.dir}/bin:{os.environ['PATH']}"},
        )
        with job:
            self.wait_for(lambda: os.path.exists(f"{self.dir}/begun"))
            job.send_signal(10)
            self.assertEqual(job.wait(20), 85)

    def wait_for(self, true):
        for _ in range(400):
            if true():
                return
            subprocess.run(["sleep", "0.02"], check=True)
        self.fail("it did not begin")

    def test_rules(self):
        for arguments, rule in (
            ("--gres gpu:2", "V01: unknown key `gres`: GPUs are devices=D"),
            ("--gpus-per-node=2", "V01: unknown key `gpus_per_node`: GPUs are devices=D"),
            ("--gpu-type A100:2", "V04: gpu_type `A100:2`"),
            ("--time-min 2h", "V06: time-min 0-02:00:00 is longer than time 0-01:00:00"),
            ("--signal B:KILL@9", "V07: signal B:KILL: no script can"),
            ("--jobname x", "V01: unknown key `jobname`; did you mean `job_name`?"),
            ("--gpus 4", "V04: GPUs are asked for twice"),
            ("--mem 0 --mem-per-gpu 4G", "V09: memory is asked for twice"),
            ("--signal USR1@70000", "V07"),
            ("--signal B:USR1@9 --no-srun", "V07"),
            ("--shebang bash", "V20"),
            ("--profile ?x", "V01"),
        ):
            error = self.script(*USUAL, *arguments.split(), "--", "x", code=USAGE)
            self.assertIn(f"levin: error {rule}", error)
        error = self.script("--time", "60", "--", "x", code=USAGE)
        self.assertIn("V02: how many ranks", error)
        for words in ("--gres gpu:2", "--ntasks 4", "--devices 0,1"):
            error = self.script(*words.split(), "--time", "60", "--", "x", code=USAGE)
            self.assertEqual(error.count("levin: error"), 1, error)

    def test_warnings(self):
        for arguments, rule in (
            ("--workers 8 -c 8", "V05: cpus_per_task 8 with 8 workers"),
            ("-t 3 --signal USR1@90", "V06: time 0-00:03:00"),
            ("-o logs/x.out", "V08: the folder of output"),
            ("-o new/%j/x.out", "V08: output new/%j/x.out: Slurm makes no folders"),
            ("-o $HOME/%j.out", "V08: output $HOME/%j.out: Slurm replaces neither"),
            ("-a 0-3 -o x.out", "V08: output x.out is one file for all elements"),
            ("--venv gone", "V08: venv `gone`: there is no gone/bin/activate here"),
            ("--conda e --conda-base c", "V08: conda_base `c`: there is no c/etc"),
            ("--no-srun -N 2", "V12: no_srun: the program runs once"),
            ("--auto-requeue", "V16: auto_requeue of another program"),
            ("--requeue", "V16: requeue without signal"),
            ("--sbatch foo=1", "V01: sbatch `foo` is not a known option"),
            ("--mode launcher", "V21: PATH has no levin"),
            ("-N 2 -o /tmp/x.out", "V08: output /tmp/x.out: /tmp is another"),
            ("--array 0-1001", "V10: array 0-1001 has 1002"),
            ("--mail-type END", "V11"),
            ("--mail-user me", "V11"),
            ("--master-port 29400", "V14"),
            ("--export CUDA_VISIBLE_DEVICES=0", "V15"),
            ("--requeue --signal ?USR1", "V16: requeue without signal"),
            ("--nccl IB_DISABEL=1", "W214: NCCL_IB_DISABEL"),
            ("~time", "W213"),
        ):
            done = subprocess.run(
                [LEVIN, "slurm", "script", *USUAL, *arguments.split(), "--", "x"],
                cwd=self.dir, capture_output=True, text=True, check=True,
            )
            self.assertIn(f"levin: warning {rule}", done.stderr)
        for words, rule in ((["--", "srun", "x"], "V12: srun in each task of srun"),
                            (["--raw", "--", "x", "$SLURM_PROCID"], "V14: raw: `$SLURM_PROCID`")):
            self.assertIn(f"levin: warning {rule}", self.run_script(*USUAL, *words).stderr)
        done = self.run_script(
            *USUAL, "-c2", "--sbatch", "gres-flags=x", "--no-ask-cluster", "--", "x"
        )
        self.assertEqual(done.stderr, "")

    def test_profiles(self):
        """The command line wins over the file, the project's profile and the user's."""
        write(f"{self.dir}/home/.config/levin/slurm.d/p.yaml",
              b"partition: of_user\nnodes: 3\naccount: of_user\nmodule: [a, 'b c']\n")
        write(f"{self.dir}/home/.config/levin/slurm.d/u.yaml", b"nodes: 3\n")
        write(f"{self.dir}/f.yaml", b"slurm:\n  profile: p\n  qos: of_file\n  nodes: 4\n")
        lines = self.script("config=f.yaml", "nodes=5", "devices=1", "--show-origin", "--", "x")
        for line in ("partition=of_profile  (", "account=of_user  (", "nodes=5  (command line)",
                     "qos=of_file  (f.yaml:3)", "module=b c  ("):
            self.assertIn(line, lines)
        self.assertRegex(lines, r"partition=of_profile  \(/.*/\.levin/slurm\.d/p\.yaml:1\)")
        done = subprocess.run(
            [LEVIN, "slurm", "profiles"], cwd=self.dir, capture_output=True, text=True, check=True,
            env={"HOME": f"{self.dir}/home"},
        )
        bare = subprocess.run(
            [LEVIN, "slurm", "profiles"], cwd="/", capture_output=True, text=True, check=True,
            env={"HOME": "/nowhere"},
        )
        self.assertIn("no profiles: no NAME.yaml in .levin/slurm.d here or above, nor in "
                      "/nowhere/.config/levin/slurm.d\n", bare.stdout)
        names = [line.split("  ")[0] for line in done.stdout.splitlines()]
        self.assertEqual(names, ["p", "p", "u"])

    def test_file(self):
        self.script(*USUAL, "--out", "job.sh", "--", "x")
        self.assertEqual(os.stat(f"{self.dir}/job.sh").st_mode & 0o777, 0o755)
        self.assertIn("job.sh: the file is there", self.script(*USUAL, "out=job.sh", "--", "x",
                                                               code=USAGE))
        self.script(*USUAL, "out=job.sh", "--force", "--", "y")
        with open(f"{self.dir}/job.sh", encoding="utf-8") as f:
            self.assertIn(" y\n", f.read())

    def test_section_of_a_training(self):
        """A training passes the section over, and `levin slurm` all but it."""
        done = subprocess.run(
            [LEVIN, "plan", "train", "classify", "data=builtin:shapes", "config=c.yaml"],
            cwd=self.dir, capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        write(f"{self.dir}/bad.yaml", b"seed: 1\nslurm:\n  nods: 2\n")
        error = self.script(*USUAL, "config=bad.yaml", "--", "x", code=USAGE)
        self.assertIn("V01: unknown key `nods`; did you mean `nodes`?  (bad.yaml:3)", error)

    def random_set(self, r):
        """Options that are right, and a program of odd words."""
        rows = [good for key, (good, *_) in ROWS.items()
                if key not in {"out", "show_origin", "gpus", "force", "shebang", "no_srun", "mem",
                               "mem_per_gpu", "ntasks_per_node", "independent_tasks"}]
        words = []
        for good in r.sample(rows, r.randint(0, 12)):
            for part in re.split(r" (?=-|~|conda=|container_cmd=)", good):
                words += part.split(" ", 1) if part[0] == "-" else [part]
        odd = ["a b", "it's", '"', "$X", "\\", "`x`", "two\nlines", "#", "(", ";", "&", "é", "<>|"]
        return [*USUAL, *words, "--no-ask-cluster", "--", "prog", *r.sample(odd, r.randint(0, 5))]

    def test_random_sets(self):
        """bash can read them all; so does shellcheck, where it is there."""
        r = random.Random(38)
        n = 500 if SLOW else 100
        for i in range(n):
            write(f"{self.dir}/r{i}.sh", self.script(*self.random_set(r)).encode())
        done = subprocess.run(
            ["bash", "-c", 'for f in r*.sh; do bash -n "$f" || echo "$f"; done'],
            cwd=self.dir, capture_output=True, text=True, check=False, timeout=120,
        )
        self.assertEqual(done.stdout + done.stderr, "")
        if SLOW and shutil.which("shellcheck"):
            done = subprocess.run(
                ["bash", "-c", "shellcheck -S warning r*.sh"],
                cwd=self.dir, capture_output=True, text=True, check=False, timeout=300,
            )
            self.assertEqual(done.returncode, 0, done.stdout)


slurm_stub.without_slurm()

if __name__ == "__main__":
    main()
