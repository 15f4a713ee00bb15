"""levin slurm check: scripts that others wrote, each rule planted and found with its line.

usage: test_slurm_check.py LEVIN [test names]
"""

import os
import subprocess

import slurm_stub
from case import FAILURE, LEVIN, OK, USAGE, Case, main, write

GOOD = """#!/bin/bash -l
#SBATCH --job-name=good
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH -c 8   # cores
#SBATCH -t 0-02:00:00
#SBATCH --output=%x-%j.out

source .venv/bin/activate
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun python train.py
"""
# Lightning's page of distributed training, by its directives and its last line.
LIGHTNING = """#!/bin/bash -l
#SBATCH --nodes=12
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=8
#SBATCH --mem=0
#SBATCH --time=0-02:00:00

export MASTER_PORT=$((12000 + RANDOM % 20000))
python main.py
"""
# llm.c's script of two nodes, by its directives and what it starts.
LLM_C = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --time=1:00:00
srun -l -u bash -c "
    export CUDA_VISIBLE_DEVICES=\\$SLURM_LOCALID
    ./train_gpt2cu
"
"""


class Check(Case):
    def check(self, text, code):
        write(f"{self.dir}/job.sh", text.encode())
        done = subprocess.run(
            [LEVIN, "slurm", "check", "--no-ask-cluster", "job.sh"],
            cwd=self.dir,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_good(self):
        self.assertEqual(
            self.check(GOOD, OK), "job.sh: 7 options of sbatch, 0 errors, 0 warnings\n"
        )

    def test_planted(self):
        """(what is exchanged, by what, what is found)"""
        for old, new, found in (
            ("--job-name=good", "--jobname=good", "error V01: sbatch has no option --jobname; did "
             "you mean --job-name?  (job.sh:2)"),
            ("-c 8", "-c 8 -Z 3", "error V01: `-Z` is not an option of sbatch  (job.sh:5)"),
            ("-c 8", "-c 8 -n 16", "error V03: ntasks=16 beside ntasks-per-node=2 and nodes=2"),
            ("-c 8", "-c 8 -n 3", "fewer ranks than devices would start"),
            ("-c 8", "-c 8 -n4", "warning V03: ntasks=4 repeats"),
            ("-c 8", "-c 8 -G 4", "error V04: GPUs are asked for twice, by gres=gpu:2 (job.sh:4)"),
            ("-c 8", "--mem-bind=local", "warning V05: no cpus-per-task"),
            ("0-02:00:00", "2 hours", "`hours` is not an option"),
            ("0-02:00:00", "2hours", "error V06: time `2hours`"),
            ("-t 0-02:00:00", "-t 2 --signal=USR1@90", "warning V06: time 2 is 120 s"),
            ("-c 8", "-c 8 --signal=FOO@1", "error V07: signal `FOO@1`"),
            ("%x-%j.out", "logs/%j.out", "warning V08: the folder of output logs/%j.out"),
            ("-c 8", "-c 8 --mem=64GB", "error V09: mem `64GB`"),
            ("-c 8", "-c 8 --mem=0 --mem-per-cpu 2G", "error V09: memory is asked for twice"),
            ("-c 8", "-c 8 -a 3-1", "error V10: array `3-1`"),
            ("-c 8", "-c 8 --mail-type=NEVER", "error V11: mail-type `NEVER`"),
            ("srun ", "", "error V12: 4 tasks are asked for and none is started"),
            ("export SRUN", "export SHOWN", "warning V13: cpus-per-task=8 (job.sh:5) is not"),
            ("srun", "export MASTER_PORT=29400\nsrun", "warning V14: MASTER_PORT is fixed"),
            ("srun", "srun --label --port=$((RANDOM % 9))", "warning V14: RANDOM in a command"),
            ("srun", "CUDA_VISIBLE_DEVICES=0,1 srun", "warning V15: CUDA_VISIBLE_DEVICES is set"),
            ("-c 8", "-c 8 --requeue", "warning V16: requeue without signal"),
            ("srun", "#SBATCH --mem=0\nsrun", "error V17: Slurm ignores this #SBATCH line: it "
             "stands behind the first command, at job.sh:9  (job.sh:11)"),
            ("-c 8", "-c 8\n#SBATCH -c 4", "warning V18: cpus-per-task=8 (job.sh:5) is overridden "
             "by cpus-per-task=4 (job.sh:6)"),
            ("=good", "=a/b", "error V19: job-name `a/b`"),
            ("#!/bin/bash -l\n", "\n", "error V20: the first line is not #!"),
            ("-l\n", "-l\r\n", "error V20: lines end with a carriage return"),
            ("#SBATCH -t 0-02:00:00\n", "", "warning W213: no time limit"),
            ("gpu:2", "gpu:4", "warning V02: ntasks-per-node=2 beside 4 GPUs"),
            ("-c 8", "-c 8 -n 9 -N 1-4", "error V03: ntasks=9 beside"),
            ("-c 8", "-c 8 --signal=B:USR1@300", "warning V07: signal B:USR1@300 goes to "
             "the script"),
            ("-c 8", "-c 8 --export=NONE", "warning V13: export=NONE (job.sh:5): srun follows it"),
            ("srun python", "srun torchrun", "warning V12: each of 2 tasks of a node starts tasks"),
            ("train.py\n", "train.py &\n", "warning V12: srun runs in the background"),
            ("%x-%j.out", "$HOME/%j.out", "warning V08: output $HOME/%j.out: Slurm replaces"),
            ("%x-%j.out", "x.out -a 1-3", "warning V08: output x.out is one file for all"),
            ("srun", 'export MASTER_PORT="29400"\nsrun', "warning V14: MASTER_PORT is fixed"),
            ("srun", "export MASTER_PORT=${PORT:-2940}\nsrun", "warning V14: MASTER_PORT is fixed"),
            ("#SBATCH -c 8", "# SBATCH --qos=x\n#SBATCH -c 8", "warning V17: Slurm ignores this "
             "line, which does not begin with `#SBATCH `: `# SBATCH --qos=x`; an option that is "
             "switched off is ##SBATCH  (job.sh:5)"),
            ("#SBATCH -c 8", "#SBTACH --qos=x\n#SBATCH -c 8", "warning V17: Slurm ignores this"),
            ("#SBATCH -c 8", "#sbatch --qos=x\n#SBATCH -c 8", "warning V17: Slurm ignores this"),
            ("#SBATCH -c 8", " #SBATCH --qos=x\n#SBATCH -c 8", "warning V17: Slurm ignores this"),
            ("srun", "export NCCL_IB_DISABEL=1\nsrun", "warning W214: NCCL_IB_DISABEL is not a "
             "known variable of NCCL: did you mean NCCL_IB_DISABLE?  (job.sh:11)"),
        ):
            error = "error " in found or "is not an option" in found or "fewer" in found
            text = self.check(GOOD.replace(old, new, 1), FAILURE if error else OK)
            self.assertIn(found, text)
            self.assertEqual(text.count("levin: error") > 0, error)

    def test_no_more(self):
        """What is right in other ways of writing gets no finding."""
        for old, new in (
            ("-c 8 ", "--cpus-per-task 8"),
            ("srun python", "mpirun python"),
            ("srun python", "srun \\\n  -c 8 python"),
            ("=good", '="two words"'),
            ("--gres=gpu:2", "--gres=gpu:2,lustre:1 --exclusive"),
            ("srun", "# srun with RANDOM and CUDA_VISIBLE_DEVICES=1\nsrun"),
            ("srun", "echo $CUDA_VISIBLE_DEVICES\nsrun"),
            ("#SBATCH -c", "##SBATCH --nonsense\n#SBATCH -c"),
            ("#SBATCH -c", "# sbatch --mem=4G job.sh\n# patch -p1\n#SBATCH -c"),
            ("#SBATCH -c", "# the batch of options\n# - one\n#SBATCH -c"),
            ("-c 8", "-c 8 --gres-flags=enforce-binding --wait-all-nodes=1 --batch=a --segment=2"),
            ("-c 8", "-c 8 --extra=a --stepmgr --oom-kill-step"),
            ("srun", "trap 'kill $!' USR1\nexport NCCL_DEBUG=INFO\nsrun"),
            ("-c 8", "-c 8 --export=ALL"),
            ("srun", "export SLURM_EXPORT_ENV=ALL\nsrun"),
            ("train.py\n", "train.py 2>&1 &\nwait\n"),
            ("srun", "cat >x.sh <<'EOF'\n#!/bin/sh\n#SBATCH --nonsense\nEOF\nsrun"),
        ):
            self.assertIn("0 errors, 0 warnings", self.check(GOOD.replace(old, new, 1), OK), new)

    def test_parts(self):
        """A range of nodes has room for more; of a job of several parts the first is checked."""
        text = self.check(GOOD.replace("-c 8", "-c 8 -n 8 -N 2-4", 1), OK)
        self.assertNotIn("V03", text)
        text = self.check(GOOD.replace("%j.out", "%j.out\n#SBATCH hetjob\n#SBATCH -n 1 -c 1"), OK)
        self.assertIn("levin: note hetjob: the rules look at the options of the first part alone",
                      text)
        self.assertIn("0 errors, 0 warnings", text)

    def test_known_scripts(self):
        """T99"""
        text = self.check(LIGHTNING, FAILURE)
        self.assertIn("error V12: 96 tasks", text)
        self.assertIn("warning V05: no cpus-per-task", text)
        self.assertIn("1 error, 1 warning\n", text)
        text = self.check(LLM_C, OK)
        self.assertIn("warning V15", text)
        self.assertIn("warning V03: ntasks=16 repeats nodes=2 times ntasks-per-node=8", text)

    def test_own_scripts(self):
        """Those that levin slurm script writes have no errors."""
        for arguments in (
            ["--devices=4", "--time=2h", "-c", "8", "--log-dir=.", "--", "python", "x.py"],
            ["train", "classify", "data=builtin:shapes", "out=r", "devices=2", "time=60"],
        ):
            done = subprocess.run(
                [LEVIN, "slurm", "script", *arguments], cwd=self.dir, capture_output=True,
                text=True, check=True,
            )
            self.assertIn(" 0 errors", self.check(done.stdout, OK))

    def test_no_file(self):
        for arguments, code in ((["check"], USAGE), (["check", "--x", "a.sh"], USAGE),
                                (["check", "none.sh"], FAILURE)):
            done = subprocess.run(
                [LEVIN, "slurm", *arguments], cwd=self.dir, capture_output=True, text=True,
                check=False,
            )
            self.assertEqual(done.returncode, code, done.stderr)


slurm_stub.without_slurm()

if __name__ == "__main__":
    main()
