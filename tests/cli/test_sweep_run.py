"""levin sweep run, worker and trial: which trials run, what is made of their ends, and what a kill,
a signal and a second start leave.

usage: test_sweep_run.py LEVIN [test names]
"""

import json
import os
import re
import signal
import subprocess
import time

from case import Case, FAILURE, LEVIN, main, OK, read, SIGTERM, USAGE, WAIT_S, write

TRAINING = [
    "data=builtin:shapes",
    "max_epochs=2",
    "limit_train_batches=6",
    "limit_val_batches=1",
    "batch_size=8",
    "micro_batches=1",
    "wgrad_threads=1",
    "image_size=16",
    "accelerator=cpu",
    "enable_progress_bar=false",
]


class Sweep(Case):
    def setUp(self):
        super().setUp()
        self.sweep = f"{self.dir}/sweep"
        self.ran = f"{self.dir}/ran"

    def plan(self, script, *options, n=9):
        """Trials x = 0 to n-1 of a shell script, which has {x} and {trial_dir}."""
        done = self.levin(
            "sweep",
            "plan",
            f"out={self.sweep}",
            f"--list=x={','.join(map(str, range(n)))}",
            *options,
            "--",
            "sh",
            "-c",
            f"echo {{x}} >>{self.ran}; {script}",
        )
        self.assertEqual(done.returncode, OK, done.stderr)

    def levin(self, *arguments, **more):
        return subprocess.run(
            [LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S, **more
        )

    def start(self, *arguments, **more):
        process = subprocess.Popen(
            [LEVIN, "sweep", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def run_sweep(self, *options, **more):
        return self.levin("sweep", "run", self.sweep, *options, **more)

    def result(self, trial):
        path = f"{self.sweep}/trials/{trial:06}/result"
        return json.loads(read(path)) if os.path.exists(path) else None

    def states(self, n=9):
        found = [self.result(i) for i in range(n)]
        return [r and r["state"] for r in found]

    def log(self, trial):
        return read(f"{self.sweep}/trials/{trial:06}/log.txt").decode()

    def trials_that_ran(self):
        return sorted(map(int, read(self.ran).split())) if os.path.exists(self.ran) else []

    def wait_for(self, condition):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


class Programs(Sweep):
    def test_one_of_nine_fails(self):
        """T108"""
        self.plan(
            "test {x} != 4 || { echo first; echo 'error: boom'; echo last; exit 3; }; "
            """echo '{"step":7,"epoch":2,"val/loss":0.{x}}' >{trial_dir}/metrics.jsonl; """
            """echo '{"step":9,"epoch":3,"val/loss":0.9}' >>{trial_dir}/metrics.jsonl"""
        )
        done = self.run_sweep("--parallel", "2")
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertEqual(self.states(), ["done"] * 4 + ["failed"] + ["done"] * 4)
        self.assertIn("8 done, 1 failed", done.stderr)
        failed = self.result(4)
        self.assertEqual((failed["exit_code"], failed["error"]), (3, "error: boom"))
        good = self.result(3)
        self.assertEqual(
            [good[k] for k in ("value", "last", "step", "epoch", "epochs")], [0.3, 0.9, 7, 2, 3]
        )
        again = self.run_sweep()
        self.assertEqual(again.returncode, OK)
        self.assertIn("nothing was left to run", again.stderr)
        self.assertEqual(self.trials_that_ran(), list(range(9)))

    def test_value_that_is_not_a_number(self):
        self.plan(
            """echo '{"step":1,"epoch":1,"val/loss":null,"nonfinite":true}' """
            ">{trial_dir}/metrics.jsonl",
            n=1,
        )
        self.assertEqual(self.run_sweep().returncode, OK)
        self.assertEqual(self.states(1), ["diverged"])
        self.assertEqual(self.result(0)["value"], "nan")

    def test_other_name_and_larger_is_better(self):
        self.plan(
            """for v in 0.1 0.7 0.4; do echo "{\\"step\\":1,\\"epoch\\":1,\\"val/score\\":$v}"; """
            "done >{trial_dir}/metrics.jsonl",
            "--metric=val_score",
            "--mode=max",
            n=1,
        )
        self.assertEqual(self.run_sweep().returncode, OK)
        self.assertEqual([self.result(0)[k] for k in ("value", "last")], [0.7, 0.4])

    def test_retries(self):
        self.plan("test -e {trial_dir}/../second || { touch {trial_dir}/../second; exit 5; }", n=2)
        done = self.run_sweep("--retries=1")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.states(2), ["done"] * 2)
        self.assertEqual([self.result(i)["attempt"] for i in range(2)], [2, 2])
        self.assertEqual(self.trials_that_ran(), [0, 0, 1, 1])
        self.assertEqual(len(re.findall(r"^== attempt \d on ", self.log(0), re.M)), 2)

    def test_retries_end(self):
        self.plan("exit 5", n=1)
        self.assertEqual(self.run_sweep("--retries=2").returncode, FAILURE)
        self.assertEqual(self.trials_that_ran(), [0, 0, 0])
        self.assertEqual(self.result(0)["attempt"], 3)

    def test_fail_fast(self):
        self.plan("test {x} != 1 || exit 5")
        done = self.run_sweep("--fail-fast")
        self.assertEqual(done.returncode, FAILURE)
        self.assertEqual(self.trials_that_ran(), [0, 1])

    def test_no_such_program(self):
        done = self.levin(
            "sweep", "plan", f"out={self.sweep}", "--list=x=1", "--", "./no-such-program", "{x}"
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        done = self.run_sweep("--retries=3")
        self.assertEqual(done.returncode, FAILURE)
        self.assertEqual(self.result(0)["exit_code"], 127)
        self.assertEqual(self.result(0)["attempt"], 1)
        self.assertIn("cannot start ./no-such-program: No such file", self.result(0)["error"])

    def test_sets_of_gpus(self):
        self.plan("echo set=$CUDA_VISIBLE_DEVICES; sleep 0.2", n=6)
        self.assertEqual(self.run_sweep("--gpu-sets", "0;1,3").returncode, OK)
        sets = [re.search(r"^set=(.*)$", self.log(i), re.M).group(1) for i in range(6)]
        self.assertEqual(set(sets), {"0", "1,3"})
        self.assertEqual(sets[:2], ["0", "1,3"])

    def test_workers_of_a_step(self):
        """Each has the set of its number on the node, and its trials are not ranks of the step."""
        self.plan("echo set=$CUDA_VISIBLE_DEVICES env=$LEVIN_ENV", n=1)
        step = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}
        done = self.levin(
            "sweep", "worker", self.sweep, "--gpu-sets=0,1;2,3", env={**os.environ, **step}
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("set=2,3 env=single", self.log(0))

    def test_bad_arguments(self):
        self.plan("true", n=2)
        for arguments, text in (
            (["run"], "which sweep? give its folder"),
            (["run", self.sweep, "--parallel=0"], "parallel"),
            (["run", self.sweep, "--gpu-sets=0;;1"], "a set is empty"),
            (["run", self.sweep, "--gpu-sets=0;1", "--parallel=3"], "only 2 sets of GPUs"),
            (["trial", self.sweep], "which one?"),
            (["trial", self.sweep, "2"], "0 to 1"),
            (["trial", self.sweep, "1", "--"], "{command}"),
        ):
            with self.subTest(arguments=arguments):
                done = self.levin("sweep", *arguments)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(text, done.stderr)
        done = self.levin("sweep", "run", f"{self.dir}/none")
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertIn("none/sweep.json", done.stderr)
        self.assertEqual(self.trials_that_ran(), [])

    def test_one_trial(self):
        self.plan("echo front=$FRONT")
        done = self.levin("sweep", "trial", self.sweep, "7", "--", "env", "FRONT=1", "{command}")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.trials_that_ran(), [7])
        self.assertIn("front=1", self.log(7))

    def test_folder_that_can_be_moved(self):
        self.plan("pwd", n=2)
        os.rename(self.sweep, f"{self.dir}/moved")
        self.sweep = f"{self.dir}/moved"
        self.assertEqual(self.run_sweep(cwd=self.dir).returncode, OK)
        self.assertEqual(self.states(2), ["done"] * 2)


class Together(Sweep):
    def test_four_workers(self):
        """T111"""
        self.plan("sleep 0.05")
        workers = [self.start("worker", self.sweep) for _ in range(4)]
        for worker in workers:
            self.assertEqual(worker.wait(WAIT_S), OK)
        self.assertEqual(self.states(), ["done"] * 9)
        self.assertEqual(self.trials_that_ran(), list(range(9)))

    def test_trial_that_runs_elsewhere(self):
        self.plan("sleep 100", n=1)
        self.start("run", self.sweep)
        self.wait_for(lambda: self.trials_that_ran() == [0])
        done = self.levin("sweep", "trial", self.sweep, "0")
        self.assertEqual(done.returncode, OK)
        self.assertIn("trial 0 runs on", done.stderr)

    def descendants_are_gone(self, mark):
        found = subprocess.run(["pgrep", "-f", mark], stdout=subprocess.PIPE).stdout.split()
        return not [p for p in found if int(p) != os.getpid()]

    def test_killed_worker(self):
        """T109: its programs end with it, what they started too, and another worker goes on."""
        mark = f"LEVIN-{os.getpid()}-{id(self)}"
        self.plan(
            f"if test {{x}} = 3 && ! test -e {self.dir}/once; then touch {self.dir}/once; "
            f"sh -c 'while :; do sleep 0.1; done; : {mark}'; fi"
        )
        worker = self.start("run", self.sweep)
        self.wait_for(lambda: os.path.exists(f"{self.dir}/once"))
        self.assertFalse(self.descendants_are_gone(mark))
        worker.kill()
        worker.wait()
        self.wait_for(lambda: self.descendants_are_gone(mark))
        done = self.run_sweep()
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("is dead and taken over", done.stderr)
        self.assertEqual(self.states(), ["done"] * 9)
        self.assertEqual(self.result(3)["attempt"], 2)
        self.assertEqual(self.trials_that_ran(), sorted([*range(9), 3]))

    def test_signal(self):
        self.plan("trap 'echo stopped; exit 9' TERM; while :; do sleep 0.02; done", n=3)
        worker = self.start("run", self.sweep, "--parallel=2")
        self.wait_for(lambda: self.trials_that_ran() == [0, 1])
        worker.terminate()
        self.assertEqual(worker.wait(WAIT_S), SIGTERM)
        self.assertIn("2 interrupted", worker.stderr.read())
        self.assertEqual(self.states(3), [None] * 3)
        self.assertIn("stopped", self.log(0))
        left = json.loads(read(f"{self.sweep}/trials/000000/left.1"))
        self.assertEqual(left["why"], "interrupted")

    def test_second_signal_kills(self):
        self.plan("trap '' TERM; while :; do sleep 0.02; done", n=1)
        worker = self.start("run", self.sweep)
        self.wait_for(lambda: self.trials_that_ran() == [0])
        worker.terminate()
        time.sleep(0.3)
        self.assertIsNone(worker.poll())
        worker.terminate()
        self.assertEqual(worker.wait(WAIT_S), SIGTERM)

    def test_stop_file(self):
        self.plan("sleep 100", "--dead-after=2", n=2)
        worker = self.start("run", self.sweep)
        self.wait_for(lambda: self.trials_that_ran() == [0])
        write(f"{self.sweep}/stop", b"")
        self.assertEqual(worker.wait(WAIT_S), OK)
        self.assertEqual(self.run_sweep().returncode, OK)
        self.assertEqual(self.trials_that_ran(), [0])

    def test_stop_file_of_a_trial(self):
        self.plan("test {x} != 0 || sleep 100", "--dead-after=2", n=2)
        worker = self.start("run", self.sweep)
        self.wait_for(lambda: self.trials_that_ran() == [0])
        write(f"{self.sweep}/trials/000000/stop", b"")
        self.assertEqual(worker.wait(WAIT_S), OK)
        self.assertEqual(self.states(2), [None, "done"])


class Trainings(Sweep):
    """Trials that are trainings: values, checkpoints, and one hash whatever came between."""

    def hash_of(self, folder):
        path = f"{folder}/exported_models/exported_last.safetensors"
        data = read(path)
        size = int.from_bytes(data[:8], "little")
        return hash(data[8 + size :])  # the weights; the head has names of files and times

    def test_kill_and_go_on(self):
        """T109: each trial is, to the bit, the training that runs alone."""
        plan = self.levin(
            "sweep",
            "plan",
            f"out={self.sweep}",
            "--list=optim.lr=0.1,0.001",
            "--",
            "levin",
            "train",
            "classify",
            *TRAINING,
            "checkpoint.every_n_steps=1",
            "max_epochs=4",
        )
        self.assertEqual(plan.returncode, OK, plan.stderr)
        last = f"{self.sweep}/trials/000000/run/checkpoints/last.safetensors"
        worker = self.start("run", self.sweep)
        self.wait_for(lambda: os.path.exists(last) or worker.poll() is not None)
        worker.kill()
        worker.wait()
        done = self.run_sweep()
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.states(2), ["done"] * 2)
        self.assertEqual(self.result(0)["attempt"], 2)
        self.assertIn("resume=true", self.log(0))
        for trial, lr in enumerate(("0.1", "0.001")):
            out = f"{self.dir}/alone-{lr}"
            alone = self.levin(
                "train",
                "classify",
                *TRAINING,
                "checkpoint.every_n_steps=1",
                "max_epochs=4",
                f"optim.lr={lr}",
                f"out={out}",
            )
            self.assertEqual(alone.returncode, OK, alone.stderr)
            run = f"{self.sweep}/trials/{trial:06}/run"
            self.assertEqual(self.hash_of(run), self.hash_of(out))
            values = [
                json.loads(line)["val/loss"]
                for line in read(f"{out}/metrics.jsonl").splitlines()
                if b"val/loss" in line
            ]
            self.assertEqual(self.result(trial)["value"], min(values))
            self.assertEqual(self.result(trial)["last"], values[-1])
        self.assertEqual(self.result(0)["checkpoint"], "run/checkpoints/best.safetensors")

    def test_loss_that_is_not_a_number(self):
        done = self.levin(
            "sweep",
            "train",
            "classify",
            *TRAINING,
            "optim=sgd",
            "optim.lr=[1e30,0.001]",
            f"out={self.sweep}",
        )
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.states(2), ["diverged", "done"])
        self.assertIn("loss", self.result(0)["error"])


class Damaged(Sweep):
    def test_a_damaged_trial_does_not_keep_the_others(self):
        self.plan("true", n=3)
        write(f"{self.sweep}/trials/000000/trial.json", b"{]")
        done = self.run_sweep()
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertIn("trial 0: ", done.stderr)
        self.assertEqual(self.states(3), [None, "done", "done"])


class Asked(Sweep):
    def ask(self, script, *options):
        program = f"{self.dir}/program.sh"
        write(program, script)
        planned = self.levin("sweep", "plan", f"out={self.sweep}", "--list=x=0,1",
                             f"strategy=exec:sh {program}", *options,
                             "--", "sh", "-c", "echo {x}")
        self.assertEqual(planned.returncode, OK, planned.stderr)

    def test_a_program_that_waits_for_nothing(self):
        self.ask(b"""while read -r line; do
    case $line in
    *'"ask": 0'*) echo '{"parameters": {"x": 1}}' ;;
    *'"ask"'*) echo '{"wait": true}' ;;
    esac
done
""")
        done = self.run_sweep()
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertIn('answered {"wait": true} while no trial runs', done.stderr)
        self.assertEqual(self.states(1), ["done"])

    def test_a_trial_ends_while_the_program_thinks(self):
        """It answers only when it sees the result of the trial that runs."""
        result = f"{self.sweep}/trials/000000/result"
        self.ask(f"""while read -r line; do
    case $line in
    *'"ask": 0'*) echo '{{"parameters": {{"x": 1}}}}' ;;
    *'"ask"'*) for i in $(seq 200); do test -e {result} && break; sleep 0.05; done
        test -e {result} && echo seen >{self.dir}/seen
        echo '{{"stop": true}}' ;;
    esac
done
""".encode())
        done = self.run_sweep("parallel=2")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertTrue(os.path.exists(f"{self.dir}/seen"))

    def test_a_damaged_trial_is_a_failed_one(self):
        self.ask(f"""while read -r line; do
    echo "$line" >>{self.dir}/lines
    case $line in
    *'"ask": 0'* | *'"ask": 1'*) echo '{{"parameters": {{"x": 1}}}}' ;;
    *'"ask"'*) echo '{{"stop": true}}' ;;
    esac
done
""".encode(), "trials=3")
        self.run_sweep()
        write(f"{self.sweep}/trials/000000/trial.json", b"{]")
        os.remove(f"{self.dir}/lines")
        done = self.run_sweep()
        with open(f"{self.dir}/lines", encoding="utf-8") as f:
            trials = [row for row in map(json.loads, f) if "trial" in row]
        self.assertEqual([row["state"] for row in trials], ["failed", "done"], done.stderr)

    def test_beats_and_signals_while_the_program_thinks(self):
        """A strategy's program that hangs: the trial that runs is not taken for dead, and a signal
        is not late."""
        program = f"{self.dir}/program.sh"
        write(program, b"""while read -r line; do
    case $line in
    *'"ask": 0'*) echo '{"parameters": {"x": 1}}' ;;
    *'"ask"'*) sleep 60 ;;
    esac
done
""")
        planned = self.levin("sweep", "plan", f"out={self.sweep}", "--list=x=0,1",
                             f"strategy=exec:sh {program}", "trials=4", "dead_after=2",
                             "--", "sh", "-c", "echo {x}; exec sleep 60")
        self.assertEqual(planned.returncode, OK, planned.stderr)
        worker = self.start("run", self.sweep, "parallel=2")
        beat = f"{self.sweep}/trials/000000/beat.1"
        end = time.monotonic() + WAIT_S
        while not (os.path.exists(beat) and os.path.getsize(beat) >= 5):
            self.assertIsNone(worker.poll())
            self.assertLess(time.monotonic(), end, "no beats while the program is asked")
            time.sleep(0.05)
        begin = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=WAIT_S)
        self.assertEqual(worker.returncode, SIGTERM)
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    main()
