"""levin sweep plan and levin sweep train: which trials there are, what is refused, what is written.

usage: test_sweep_plan.py LEVIN [test names]
"""

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from case import LEVIN, OK, USAGE, Case, main, write

NINE = ["--list", "learning_rate=1e-3,1e-2,1e-1", "--list", "layers=16,32,64"]
NINE_ROWS = [(r, n) for r in ("0.001", "0.01", "0.1") for n in ("16", "32", "64")]
TRAINING = ["classify", "data=builtin:shapes", "data.count=64", "batch_size=16", "max_epochs=1"]


def as_set(trials):
    return {tuple(sorted(t.items())) for t in trials}


class Sweep(Case):
    def sweep(self, *arguments, code=OK):
        done = subprocess.run(
            [LEVIN, "sweep", *arguments], capture_output=True, text=True, timeout=60, cwd=self.dir
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def trials(self, *arguments, command=("prog",)):
        """The parameters of each, by a dry run."""
        printed, _ = self.sweep(
            "plan", "name=dry", "json=true", "dry_run=true", *arguments, "--", *command
        )
        self.assertFalse(os.path.exists(self.path("dry")))
        return [t["parameters"] for t in json.loads(printed)["trials"]]

    def column(self, name, *arguments):
        return [t.get(name) for t in self.trials(*arguments)]

    def commands(self, *arguments):
        printed, _ = self.sweep("plan", "name=dry", "json=true", "dry_run=true", *arguments)
        return [t["command"] for t in json.loads(printed)["trials"]]

    def refused(self, expects, *arguments):
        _, reported = self.sweep(*arguments, code=USAGE)
        self.assertIn(expects, reported)
        return reported

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def folder(self, name):
        """All files of a plan with their bytes."""
        found = {}
        for folder, _, files in os.walk(self.path(name)):
            for f in files:
                with open(os.path.join(folder, f), "rb") as opened:
                    found[os.path.relpath(os.path.join(folder, f), self.path(name))] = opened.read()
        return found


class Plan(Sweep):
    def test_nine(self):
        """T104: the rows of test-tube's page, in their order."""
        printed, _ = self.sweep("plan", "--name", "nine", *NINE, "--trials", "9", "--", "prog")
        rows = [tuple(line.split()) for line in printed.splitlines()[2:]]
        self.assertEqual(rows, [(str(i), *row) for i, row in enumerate(NINE_ROWS)])
        for i, (rate, layers) in enumerate(NINE_ROWS):
            with open(self.path("nine", "trials", f"{i:06}", "trial.json"), "rb") as f:
                trial = json.load(f)
            want = {"trial": i, "parameters": {"learning_rate": rate, "layers": layers}}
            self.assertEqual(trial, want)
        with open(self.path("nine", "sweep.json"), "rb") as f:
            plan = json.load(f)
        self.assertEqual((plan["trials"], plan["parameters"]), (9, ["learning_rate", "layers"]))
        self.assertEqual(len(self.trials(*NINE, "--trials", "4")), 4)
        self.assertEqual(len(self.trials(*NINE, "--trials", "0")), 9)
        printed, notes = self.sweep("plan", "out=more", *NINE, "nb_trials=20", "--", "prog")
        self.assertIn("9 trials", printed)
        self.assertIn("note: trials=20, and the space has 9", notes)

    def test_command(self):
        """Names in braces, what they leave alone, and the styles of what is appended."""
        words = ["p", "{a}", "{{a}}", "${a}", "{print}", "x{b}y"]
        words += ["{trial}", "{seed}", "{trial_dir}"]
        run = self.path("dry", "trials", "000000", "run")
        space = ["--list", "a=1", "--list", "b='x y'", "--list", "c=2", "--seed", "7"]
        common = ["p", "1", "{a}", "${a}", "{print}", "xx yy", "0", "7", os.path.realpath(run)]
        for style, last in (("keys", ["c=2"]), ("dashes", ["--c", "2"]), ("equals", ["--c=2"])):
            found = self.commands(*space, f"style={style}", "--", *words)
            found[0][8] = os.path.realpath(found[0][8])
            self.assertEqual(found, [common + last])
        space = ["--list", "o=sgd,adam", "--when", "o==sgd: m=0.9"]
        self.assertEqual(
            self.commands(*space, "--", "p", "--m={m}", "echo {m}"),
            [["p", "--m=0.9", "echo 0.9", "o=sgd"], ["p", "echo ", "o=adam"]],
        )

    def test_there_already(self):
        self.sweep("plan", "name=a", *NINE, "--", "prog")
        before = self.folder("a")
        self.refused(
            "sweep.json is there: this sweep is planned already", "plan", "name=a", *NINE, "--", "p"
        )
        self.assertEqual(self.folder("a"), before)

    def test_extend(self):
        """Trials keep their numbers; what is fixed is refused with its name."""
        self.sweep("plan", "name=a", "--list", "x=1,2", "--", "prog")
        before = self.folder("a")
        self.sweep("plan", "name=a", "extend=true", "--list", "x=3,2,1,4")
        after = self.folder("a")
        for i, x in enumerate("1234"):
            found = json.loads(after[f"trials/{i:06}/trial.json"])
            self.assertEqual(found, {"trial": i, "parameters": {"x": x}})
        kept = [f for f in before if f != "sweep.json"]
        self.assertEqual({f: after[f] for f in kept}, {f: before[f] for f in kept})
        for given, expects in (
            (["seed=3"], "seed is fixed when a sweep is planned"),
            (["strategy=random", "trials=9"], "strategy is fixed"),
            (["mode=max"], "mode is fixed"),
            (["--list", "y=1"], "y stands where x is"),
            (["--list", "x=1", "--", "other"], "the command is fixed"),
        ):
            self.refused(expects, "plan", "name=a", "--extend", *given)
        self.assertEqual(self.folder("a"), after)
        draw = ["strategy=random", "--sample", "x=uniform(0,1)"]
        self.sweep("plan", "name=b", *draw, "trials=5", "--", "prog")
        self.sweep("plan", "name=b", "--extend", "trials=12")
        self.sweep("plan", "name=c", *draw, "trials=12", "--", "prog")
        trials = {f: b for f, b in self.folder("b").items() if f != "sweep.json"}
        self.assertEqual(trials, {f: b for f, b in self.folder("c").items() if f != "sweep.json"})

    def test_killed(self):
        """Killed while it writes, there is no plan; planned again it is the same."""
        values = ",".join(str(i) for i in range(20))
        command = ["sweep", "plan", "--list", f"a={values}", "--list", f"b={values}"]
        self.sweep(*command[1:], "name=whole", "--", "prog")
        whole = self.folder("whole")
        whole.pop("sweep.json")
        killed = 0
        for k in range(4):
            p = subprocess.Popen([LEVIN, *command, "name=part", "--", "prog"], cwd=self.dir,
                                 stdout=subprocess.DEVNULL)  # fmt: skip
            for _ in range(2000):
                if os.path.exists(self.path("part", "trials", f"{10 + 90 * k:06}")):
                    break
                time.sleep(0.001)
            p.send_signal(signal.SIGKILL)
            p.wait()
            killed += not os.path.exists(self.path("part", "sweep.json"))
            if os.path.exists(self.path("part", "sweep.json")):
                os.remove(self.path("part", "sweep.json"))
        self.assertGreater(killed, 0)
        self.sweep(*command[1:], "name=part", "--", "prog")
        part = self.folder("part")
        plan = json.loads(part.pop("sweep.json"))
        self.assertEqual((part, plan["trials"]), (whole, 400))
        # another plan over what was left of one
        os.remove(self.path("part", "sweep.json"))
        self.sweep("plan", "name=part", "--list", "a=1,2", "--", "prog")
        self.assertEqual(len([f for f in self.folder("part") if f.endswith("trial.json")]), 2)

    def test_refused(self):
        for expects, arguments in (
            ("where to? name=NAME, or out=DIR", ["--list", "a=1", "--", "p"]),
            ("what is a trial to run?", ["name=a", "--list", "a=1"]),
            ("no parameter has choices", ["name=a", "--", "p"]),
            ("unknown key `trails`; did you mean `trials`?", ["name=a", "trails=3"]),
            ("strategy rnd: expected grid, random", ["strategy=rnd"]),
            ("strategy=random draws trials=N", ["name=a", "strategy=random", *NINE, "--", "p"]),
            ("it is the name of a folder", ["name=a/b", *NINE, "--", "p"]),
            ("use list=NAME=v1,v2", ["opt_list=1"]),
            ("use range=NAME=LOW:HIGH:N", ["opt_range=1"]),
            ("levin sweep submit has sbatch=", ["add_slurm_cmd=1"]),
            ("levin sweep submit DIR are that", ["optimize_parallel_cluster_gpu=1"]),
        ):
            self.refused(expects, "plan", *arguments)
        self.refused("there is no levin sweep pln", "pln")

    def test_damaged(self):
        self.sweep("plan", "name=a", "--list", "x=1,2", "--", "prog")
        good = self.folder("a")["sweep.json"]
        plan = json.loads(good)
        for key, bad in (("format", "2"), ("trials", -1), ("command", []), ("mode", "x"),
                         ("parameters", [1]), ("space", [["a"]]), ("style", "x")):  # fmt: skip
            write(self.path("a", "sweep.json"), json.dumps({**plan, key: bad}).encode())
            _, reported = self.sweep("plan", "name=a", "--extend", "--list", "x=3", code=1)
            self.assertIn("a/sweep.json: ", reported)
        write(self.path("a", "sweep.json"), good)
        write(self.path("a", "trials", "000001", "trial.json"), b"")
        _, reported = self.sweep("plan", "name=a", "--extend", "--list", "x=3", code=1)
        self.assertIn("trials/000001/trial.json: it is empty, as after a power cut", reported)


class Space(Sweep):
    def test_random(self):
        """T105."""
        space = [*NINE, "strategy=random_search", "trials=6"]
        one = self.trials(*space, "seed=1")
        self.assertEqual(one, self.trials(*space, "seed=1"))
        self.assertNotEqual(one, self.trials(*space, "seed=2"))
        self.assertEqual(len({json.dumps(t) for t in one}), 6)
        self.assertEqual(self.trials(*space, "seed=1", "trials=4"), one[:4])
        equal = ["--list", "x=1,1,2,1", "strategy=random", "trials=9"]
        self.assertEqual(sorted(self.column("x", *equal)), ["1", "2"])
        every = self.trials(*NINE, "strategy=random", "trials=50")
        self.assertEqual(len({json.dumps(t) for t in every}), 9)

    def test_one_more_parameter(self):
        """Changes none of the others."""
        x = ["--sample", "x=uniform(0,1)", "strategy=random", "trials=20"]
        self.assertEqual(self.column("x", *x), self.column("x", "--sample", "a=int(1,9)", *x))

    def test_ranges(self):
        """T106, T107."""
        x = [int(v) for v in self.column("x", "--range", "x=100:800:8:int")]
        self.assertEqual((len(set(x)), min(x) >= 100, max(x) < 800), (8, True, True))
        self.refused("fewer than the 701 asked for", "plan", "name=a", "--range",
                     "x=100:800:701:int", "--", "p")  # fmt: skip
        self.assertEqual(len(set(self.column("x", "--range", "x=100:800:700"))), 700)
        lr = [float(v) for v in self.column("lr", "--range", "lr=1e-5:1e-1:1000:log10")]
        self.assertTrue(all(1e-5 <= v < 1e-1 for v in lr))
        for decade in range(-5, -1):
            n = sum(decade <= math.log10(v) < decade + 1 for v in lr)
            self.assertTrue(190 <= n <= 310, f"decade {decade}: {n}")

    def test_conditions_and_zips(self):
        when = ["--list", "opt=sgd,adam,rms", "--when", "opt==sgd|rms: m=0.8,0.9", "--when",
                "opt!=sgd: b=0.95"]  # fmt: skip
        found = [(t["opt"], t.get("m"), t.get("b")) for t in self.trials(*when)]
        self.assertEqual(
            found,
            [("sgd", "0.8", None), ("sgd", "0.9", None), ("adam", None, "0.95"),
             ("rms", "0.8", "0.95"), ("rms", "0.9", "0.95")],
        )  # fmt: skip
        both = ["--list", "o=s,a", "--when", "o==s: lr=1,2", "--when", "o==a: lr=3,4"]
        self.assertEqual(self.column("lr", *both), ["1", "2", "3", "4"])
        drawn = self.trials(*when, "strategy=random", "trials=5")
        self.assertEqual(as_set(drawn), as_set(self.trials(*when)))
        zipped = ["--list", "a=1,2", "--list", "b=x,y,z", "--list", "c=7,8", "--zip", "c,a"]
        found = [(t["a"], t["b"], t["c"]) for t in self.trials(*zipped)]
        self.assertEqual(found, [(a, b, c) for a, c in (("1", "7"), ("2", "8")) for b in "xyz"])
        listed = ["--list", "a=1,1,2", "--list", "b=x,x,y", "strategy=list"]
        self.assertEqual(self.column("b", *listed), ["x", "x", "y"])

    def test_samples_in_a_grid(self):
        found = self.trials("--list", "a=1,2,3", "--sample", "x=loguniform(1e-3,1)")
        self.assertEqual([t["a"] for t in found], ["1", "2", "3"])
        self.assertEqual(len({t["x"] for t in found}), 3)
        self.assertEqual(sorted(self.column("x", "--sample", "x=int(1,3)", "strategy=random",
                                            "trials=9")), ["1", "2", "3"])  # fmt: skip

    def test_file(self):
        write(
            self.path("s.yaml"),
            b"""
data: builtin:shapes
sweep:
  name: dry
  list: {lr: [1e-3, 0.10], text: ['a,b', "it's"], on: [true, null], pair: [[0, 1], [2]]}
  fixed: {n: 5}
  when: ["lr==0.1: m=0.9"]
  zip: [[text, on]]
  strategy: grid
  command: [prog, "--rate={lr}"]
""",
        )
        found = self.sweep("plan", "config=s.yaml", "json=true", "dry_run=true")[0]
        trials = json.loads(found)["trials"]
        self.assertEqual(len(trials), 8)
        want = {"lr": "0.1", "text": "it's", "on": "null", "pair": "[2]", "n": "5", "m": "0.9"}
        self.assertEqual(trials[-1]["parameters"], want)
        self.assertEqual(trials[0]["command"][:2], ["prog", "--rate=0.001"])
        found = self.sweep("plan", "config=s.yaml", "json=true", "dry_run=true", "--list", "lr=5",
                           "--", "other")[0]  # fmt: skip
        self.assertEqual(json.loads(found)["trials"][0]["command"][0], "other")
        self.assertEqual({t["parameters"]["lr"] for t in json.loads(found)["trials"]}, {"5"})
        write(self.path("t.yaml"), b"sweep: {list: {a: [1]}, zip: {a: 1}}\n")
        self.refused("zip: a list is expected", "plan", "config=t.yaml", "name=a", "--", "p")


class Train(Sweep):
    def test_choices(self):
        """Which keys take lists is in the table of options."""
        printed, _ = self.sweep(
            "train", *TRAINING, "optim.lr=[0.1,1e-2]", "devices=[0,1]", "optim.name=adamw",
            "optim.betas=[[0.9,0.95],[0.9,0.999]]", "logger=[csv]", "seed=[1,2]", "out=s",
            "sweep.trials=3", "dry_run=true", "plan=false",
        )  # fmt: skip
        self.assertIn("optim.lr: 2 choices\n", printed)
        self.assertIn("optim.betas: 2 choices, each a list", printed)
        self.assertIn("devices: one list, [0,1], the value of all trials", printed)
        self.assertIn("logger: one list, [csv], the value of all trials", printed)
        self.assertIn("sweep s: 3 trials", printed)
        line = next(x for x in printed.splitlines() if x.lstrip().startswith("2: "))
        words = shlex.split(line.split(": ", 1)[1])
        self.assertEqual(words[:4], ["levin", "train", "classify", "data=builtin:shapes"])
        self.assertEqual(words[-4:-1], ["optim.lr=0.1", "optim.betas=[0.9,0.999]", "seed=1"])
        self.assertEqual(os.path.realpath(words[-1][4:]),
                         os.path.realpath(self.path("s/trials/000002/run")))  # fmt: skip
        self.assertFalse(os.path.exists(self.path("s")))

    def test_mistakes(self):
        """All at once, each with the trials that have it, and nothing is written."""
        reported = self.refused(
            "optim.lr `abc`: expected a number", "train", *TRAINING,
            "optim.lr=[0.1,abc]", "max_steps=[2,-7]", "out=s",
        )  # fmt: skip
        self.assertIn("error: trial 2 (optim.lr=abc max_steps=2): optim.lr `abc`", reported)
        self.assertIn("error: trial 1 (optim.lr=0.1 max_steps=-7): max_steps `-7`", reported)
        self.assertIn("error: trial 3 (optim.lr=abc max_steps=-7):", reported)
        for expects, keys in (
            ("unknown key `optim.lrr`; did you mean `optim.lr`?", ["optim.lrr=[1,2]"]),
            ("sweep.strategy=random is the sweep's", ["optim.lr=[1,2]", "strategy=random"]),
            ("the training would stop: batch_size 16 cannot be cut", ["devices=17", "seed=[1,2]"]),
            ("levin sweep train with lists", ["hyperparam_optimizer=1"]),
            ("a bracket or a quote does not end", ["optim.lr=[1,[2]"]),
        ):
            self.refused(expects, "train", *TRAINING, *keys, "out=s")
        reported = self.refused("; list z=1,: ", "plan", "name=s", "--list", "x=[1,[2]", "--list",
                                "y=1,2", "--list", "z=1,", "--", "prog")  # fmt: skip
        self.assertIn("list x=[1,[2]: `[1,[2]`: a bracket", reported)
        self.assertNotIn("y=1,2", reported)
        self.refused("extend: typo/sweep.json is not there", "plan", "out=typo", "--extend",
                     "--list", "x=1,2", "--", "prog")  # fmt: skip
        self.refused("each trial's run has a folder of its own", "plan", "name=s", "--list",
                     "seed=1", "--", "levin", "train", *TRAINING, "out=x")  # fmt: skip
        self.refused("optim.lr `x`", "plan", "name=s", "--list", "optim.lr=x", "--", "levin",
                     "train", *TRAINING)  # fmt: skip
        self.assertFalse(os.path.exists(self.path("s")))

    def test_section(self):
        """Of the training's own file, which the training passes over."""
        text = b"sweep: {name: f, strategy: random, trials: 2, list: {seed: [1, 2, 3]}}\n"
        write(self.path("run.yaml"), b"data: builtin:shapes\nmax_epochs: 0\n" + text)
        printed, _ = self.sweep("train", "classify", "config=run.yaml", "dry_run=true")
        self.assertIn("sweep f: 2 trials of strategy random", printed)
        self.assertIn("levin train classify config=run.yaml seed=", printed)

    def test_runs(self):
        """Planned and run; the metric of each trial is its result."""
        self.sweep("train", *TRAINING, "optim.lr=[0.1,0.01]", "accelerator=cpu", "out=s")
        for i in range(2):
            with open(self.path("s", "trials", f"{i:06}", "result"), "rb") as f:
                self.assertEqual(json.load(f)["state"], "done")
            run = self.path("s", "trials", f"{i:06}", "run")
            self.assertTrue(os.path.exists(os.path.join(run, "config.yaml")))


ASKED = """
import json, sys
known = {}
for line in sys.stdin:
    event = json.loads(line)
    if "sweep" in event:
        assert event["space"] == [["sample", "x=uniform(0,1)"]], event
    elif "trial" in event:
        known[event["trial"]] = event
    elif any(t["state"] == "running" for t in known.values()):
        print('{"wait": true}', flush=True)
    elif event["ask"] == LAST:
        print('{"stop": true}', flush=True)
    else:
        best = min([t["value"] for t in known.values()], default=1)
        x = {"x": best / 2, "n": event["ask"], "text": "a b", "not": None}
        print(json.dumps({"parameters": x}), flush=True)
"""
ASKED_TRIAL = """
import json, os, sys
folder, x = sys.argv[1], float(sys.argv[2])
os.makedirs(folder, exist_ok=True)
with open(folder + "/metrics.jsonl", "w") as f:
    f.write(json.dumps({"epoch": 1, "step": 1, "val/loss": x}) + "\\n")
"""


class Asked(Sweep):
    """A stand-in for an optimiser: halves the best value that it knows."""

    def plan(self, last, *more):
        write(self.path("ask.py"), ASKED.replace("LAST", str(last)).encode())
        write(self.path("trial.py"), ASKED_TRIAL.encode())
        self.sweep("plan", "name=a", f"strategy=exec:{sys.executable} ask.py", "--sample",
                   "x=uniform(0,1)", *more, "--", sys.executable, "trial.py", "{trial_dir}",
                   "{x}")  # fmt: skip

    def parameters(self):
        n = len(os.listdir(self.path("a", "trials")))
        return [json.loads(self.folder("a")[f"trials/{i:06}/trial.json"])["parameters"]
                for i in range(n)]  # fmt: skip

    def test_stops(self):
        self.plan(4)
        self.sweep("run", "a", "parallel=2")
        want = [{"x": str(0.5 ** (i + 1)), "n": str(i), "text": "a b"} for i in range(4)]
        self.assertEqual(self.parameters(), want)
        self.sweep("run", "a")
        self.assertEqual(len(self.parameters()), 4)

    def test_goes_on(self):
        """What was made is sent again to a program that starts again; trials=N ends it, too."""
        self.plan(2, "trials=3")
        self.sweep("run", "a")
        self.assertEqual(len(self.parameters()), 2)
        write(self.path("ask.py"), ASKED.replace("LAST", "99").encode())
        self.sweep("run", "a")
        self.assertEqual([t["x"] for t in self.parameters()], ["0.5", "0.25", "0.125"])

    def test_bad_programs(self):
        for text, expects in (
            ("print('hello')", "answered `hello`"),
            ("print('{\"parameters\": {\"x\": {}}}')", "a parameter's value is"),
            ("pass", "has ended without an answer"),
            ("import os; os._exit(3)", "its program has ended"),
        ):
            shutil.rmtree(self.path("a"), ignore_errors=True)
            self.plan(1)
            write(self.path("ask.py"), f"import sys; sys.stdin.readline()\n{text}\n".encode())
            _, reported = self.sweep("run", "a", code=1)
            self.assertIn(expects, reported)


if __name__ == "__main__":
    main()
