"""levin slurm submit, with a stand-in of sbatch: what it is started with, what is recorded, and
what a refusal leaves.

usage: test_slurm_submit.py LEVIN [test names]
"""

import os
import subprocess

import slurm_stub
from case import LEVIN, OK, USAGE, Case, main, write

RESOURCE = 69
# Writes its arguments and variables, and whether the folder of the logs is there.
SBATCH = """#!/bin/bash
printf '%s\\n' "$@" >called
env >variables
for script; do :; done
grep -q 'output=logs/' "$script" && [ -d logs ] && echo there >>called
"""


class Submit(Case):
    def sbatch(self, rest):
        write(f"{self.dir}/bin/sbatch", (SBATCH + rest).encode())
        os.chmod(f"{self.dir}/bin/sbatch", 0o755)

    def submit(self, *arguments, code=OK, **variables):
        done = subprocess.run(
            [LEVIN, "slurm", "submit", "--log-dir=logs", "--devices=2", "-c8", "-t60", *arguments],
            cwd=self.dir,
            env={"PATH": f"{self.dir}/bin:{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def lines(self, name):
        with open(f"{self.dir}/{name}", encoding="utf-8") as f:
            return f.read().splitlines()

    def test_submitted(self):
        """T101: the number is printed and recorded, the folder was there before sbatch ran."""
        self.sbatch("echo '123;c1'\n")
        self.assertEqual(self.submit("-J", "mine", "--", "./prog", "a b").stdout, "job 123\n")
        parsable, script, there = self.lines("called")
        self.assertEqual((parsable, there), ("--parsable", "there"))
        self.assertRegex(script, r"^logs/scripts/mine-[-0-9T]+Z\.sh$")
        self.assertEqual(os.stat(f"{self.dir}/{script}").st_mode & 0o777, 0o755)
        self.assertIn("srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=8 ./prog 'a b'",
                      self.lines(script))
        self.sbatch("echo 'Submitted batch job 124'\n")
        self.assertEqual(self.submit("-J", "mine", "--", "x").stdout, "job 124\n")
        head, first, second = [line.split("\t") for line in self.lines("logs/jobs.tsv")]
        self.assertEqual(head, ["job", "name", "script", "time"])
        self.assertEqual(first[:3], ["123;c1", "mine", script])
        self.assertEqual(second[:2], ["124", "mine"])
        self.assertNotEqual(first[2], second[2])
        self.assertRegex(second[3], r"^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$")

    def test_words_in_front(self):
        """A site's own sbatch prints more than the number: the job is in, and is recorded."""
        self.sbatch("printf 'checking quotas\\n\\n3 nodes are free\\n12'; sleep 0.1; echo 5\n")
        self.assertEqual(self.submit("-J", "mine", "--", "x").stdout, "job 125\n")
        self.sbatch("printf 'checking\\r\\nSubmitted batch job 126 on cluster c1'\n")
        self.assertEqual(self.submit("-J", "mine", "--", "x").stdout, "job 126\n")
        self.assertEqual([line.split("\t")[0] for line in self.lines("logs/jobs.tsv")],
                         ["job", "125", "126"])
        self.sbatch("echo '3 nodes are free'\n")
        self.assertIn("printed no number",
                      self.submit("-J", "mine", "--", "x", code=RESOURCE).stderr)

    def test_environment(self):
        """Not that of a step in which it runs; SBATCH_* are shown."""
        self.sbatch("echo 5\n")
        done = self.submit("--", "x", SLURM_CPU_BIND="mask_cpu:0x1", SLURM_JOB_ID="3", PMI_RANK="1",
                           SRUN_CPUS_PER_TASK="2", SLURM_CONF="/etc/s.conf", SBATCH_ACCOUNT="me",
                           OWN="1")
        names = {line.split("=")[0] for line in self.lines("variables")}
        self.assertLessEqual({"SLURM_CONF", "SBATCH_ACCOUNT", "OWN"}, names)
        self.assertFalse(names & {"SLURM_CPU_BIND", "SLURM_JOB_ID", "PMI_RANK",
                                  "SRUN_CPUS_PER_TASK"})
        self.assertIn("note: SBATCH_ACCOUNT=me", done.stderr)

    def test_refused(self):
        """T102"""
        self.sbatch("echo 'sbatch: error: no such partition' >&2\nexit 1\n")
        done = self.submit("--", "x", code=RESOURCE)
        self.assertIn("no such partition", done.stderr)
        self.assertIn("sbatch refused the job (exit code 1); the script is logs/scripts/levin-",
                      done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/logs/jobs.tsv"))
        self.sbatch("echo hello\n")
        done = self.submit("--", "x", code=RESOURCE)
        self.assertIn("hello\nerror: sbatch printed no number of a job", done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/logs/jobs.tsv"))

    def test_no_sbatch(self):
        done = self.submit("--", "x", code=RESOURCE, PATH="/nowhere")
        self.assertIn("sbatch not found", done.stderr)

    def test_dry_run(self):
        """T103: no call, no files."""
        self.sbatch("echo 1\n")
        text = self.submit("--dry-run", "--", "x", "--wait").stdout
        self.assertTrue(text.startswith("#!/bin/bash -l\n# generated by levin slurm script "))
        self.assertRegex(text, r"\nsbatch --parsable logs/scripts/levin-.*\.sh\n$")
        self.assertIn(" x --wait\nrc=$?", text)
        self.assertEqual(os.listdir(self.dir), ["bin"])
        self.assertIn("V06", self.submit("-tbad", "--", "x", code=USAGE).stderr)
        self.assertIn("out has no effect", self.submit("out=a", "--", "x", code=USAGE).stderr)
        self.assertEqual(os.listdir(self.dir), ["bin"])

    def test_wait(self):
        """The job's exit code; its number is known before it ends."""
        self.sbatch("echo 9\nfor i in $(seq 200); do\n    grep -qs ^9 logs/jobs.tsv && exit 3\n"
                    "    sleep 0.05\ndone\nexit 4\n")
        done = self.submit("--wait", "--", "x", code=3)
        self.assertEqual(done.stdout, "job 9\n")
        self.assertEqual(self.lines("called")[:2], ["--parsable", "--wait"])
        self.assertEqual(self.lines("logs/jobs.tsv")[1].split("\t")[0], "9")
        self.sbatch("exit 0\n")
        self.submit("--test-only", "--", "x")
        self.assertEqual(self.lines("called")[:2], ["--parsable", "--test-only"])
        self.assertEqual(len(self.lines("logs/jobs.tsv")), 2)
        self.assertEqual(len(os.listdir(f"{self.dir}/logs/scripts")), 1)

    def test_names(self):
        """A leading ~/ is the home directory; a command with blanks is quoted; a script is refused.
        """
        self.sbatch("echo 7\n")
        self.submit("--log-dir=~/jobs", "--", "x", HOME=f"{self.dir}/home")
        self.assertEqual(sorted(os.listdir(self.dir)), ["bin", "called", "home", "variables"])
        self.assertTrue(os.path.exists(f"{self.dir}/home/jobs/jobs.tsv"))
        text = self.submit("-J", "my job", "--dry-run", "--", "x").stdout
        self.assertRegex(text, r"\nsbatch --parsable 'logs/scripts/my job-.*\.sh'\n$")
        error = self.submit("called", code=USAGE).stderr
        self.assertIn("error: levin slurm submit: `called` is not an option", error)
        self.assertIn("is submitted by sbatch", error)


slurm_stub.without_slurm()

if __name__ == "__main__":
    main()
