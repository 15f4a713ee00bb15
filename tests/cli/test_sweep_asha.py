"""strategy=asha, and levin sweep report in the programs of trials.

usage: test_sweep_asha.py LEVIN [test names]
"""

import glob
import json
import os
import re
import subprocess

from case import Case, LEVIN, main, OK, read, USAGE, WAIT_S

# Nine epochs, unless report prints stop: the loss is x at each.
PROGRAM = (
    "for e in 1 2 3 4 5 6 7 8 9; do "
    f"answer=$('{LEVIN}' sweep report epoch=$e val/loss={{x}}) || exit 3; "
    'echo "$e $answer"; if [ "$answer" = stop ]; then exit 0; fi; done'
)


TRAINING = [
    "data=builtin:shapes",
    "max_epochs=200",
    "limit_train_batches=1",
    "limit_val_batches=1",
    "batch_size=8",
    "micro_batches=1",
    "wgrad_threads=1",
    "image_size=16",
    "accelerator=cpu",
    "enable_progress_bar=false",
]


class Asha(Case):
    def setUp(self):
        super().setUp()
        self.sweep = f"{self.dir}/sweep"

    def levin(self, *arguments, **more):
        return subprocess.run(
            [LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S, **more
        )

    def plan(self, xs, *options, program=PROGRAM, code=OK):
        given = ["strategy=asha", "asha.stop=true", "asha.max=9", *options]
        command = ["--", "sh", "-c", program]
        done = self.levin("sweep", "plan", f"out={self.sweep}", f"--list=x={xs}", *given, *command)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def train(self, rates, *options, code=OK):
        done = self.levin(
            *["sweep", "train", "classify", *TRAINING, f"optim.lr={rates}", f"out={self.sweep}"],
            *["sweep.strategy=asha", "asha.stop=true", "parallel=1", *options],
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def run_sweep(self, command="run", *options):
        done = self.levin("sweep", command, self.sweep, "parallel=1", *options)
        self.assertEqual(done.returncode, OK, done.stderr)

    def show(self):
        done = self.levin("sweep", "show", self.sweep, "sort=index", "format=json")
        shown = json.loads(done.stdout)
        return shown["trials"] if isinstance(shown, dict) else shown

    def epochs(self):
        """How many each trial has reported."""
        lines = (
            read(path) for path in sorted(glob.glob(f"{self.sweep}/trials/*/run/metrics.jsonl"))
        )
        return [len(text.splitlines()) for text in lines]

    def decisions(self, rung):
        paths = glob.glob(f"{self.sweep}/rungs/{rung:06}/record.*")
        records = [json.loads(read(path)) for path in paths]
        records.sort(key=lambda r: r["saw"])
        return [(r["trial"], r["value"], r["place"], r["kept"], r["stop"]) for r in records]

    def test_nine_trials(self):
        """The best is third: it and the two before it pass the first rung, which none had filled
        before; then all worse ones stop there, and the second rung keeps the best alone."""
        self.plan("5,4,1,6,7,8,9,4.5,4.2")
        self.run_sweep()
        states = [trial["state"] for trial in self.show()]
        self.assertEqual(states, ["done"] * 3 + ["pruned"] * 4 + ["pruned", "pruned"])
        self.assertEqual(self.epochs(), [9, 9, 9, 1, 1, 1, 1, 3, 3])
        kept = [1, 2, 1, 2, 2, 2, 3, 3, 3]
        self.assertEqual([d[3] for d in self.decisions(1)], kept)
        self.assertEqual([d[4] for d in self.decisions(1)], [False] * 3 + [True] * 4 + [False] * 2)
        self.assertEqual([d[0] for d in self.decisions(3)], [0, 1, 2, 7, 8])
        status = json.loads(self.levin("sweep", "status", self.sweep, "--json").stdout)
        self.assertEqual((status["done"], status["pruned"]), (3, 6))
        best = self.levin("sweep", "best", self.sweep).stdout
        self.assertIn("trial 2 x=1 val/loss=1", best)
        rows = self.levin("sweep", "export", self.sweep).stdout
        self.assertEqual(len(re.findall("pruned", rows)), 6)
        self.assertIn("pruned", self.levin("sweep", "show", self.sweep, "3").stdout)
        page = self.levin("report", self.sweep)
        self.assertEqual(page.returncode, OK, page.stderr)

    def test_more_is_better_and_what_is_not_a_number(self):
        self.plan(
            "1,nan,2,3,inf",
            "mode=max",
            "metric=score",
            program=PROGRAM.replace("val/loss", "score"),
        )
        self.run_sweep()
        self.assertEqual(
            [trial["state"] for trial in self.show()],
            ["done", "pruned", "done", "done", "pruned"],
        )
        self.assertEqual(self.epochs()[1], 1)
        self.assertIn("trial 3 x=3 score=3", self.levin("sweep", "best", self.sweep).stdout)

    def test_pruned_goes_on_by_hand(self):
        self.plan("1,2,3,4")
        self.run_sweep()
        self.assertEqual([t["state"] for t in self.show()], ["done", "done", "pruned", "pruned"])
        self.run_sweep("resume", "pruned=[3]")
        self.assertEqual([t["state"] for t in self.show()][2:], ["pruned", "pruned"])
        log = read(f"{self.sweep}/trials/000003/log.txt")
        log = log.decode() if isinstance(log, bytes) else log
        self.assertIn("\n1 continue\n2 continue\n3 stop\n", log.split("attempt 2")[1])

    def test_extended(self):
        self.plan("1,2,3,4", "trials=2")
        self.run_sweep()
        done = self.levin("sweep", "plan", f"out={self.sweep}", "--extend", "trials=4")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.run_sweep()
        self.assertEqual(len(self.decisions(1)), 4)
        eta = self.levin("sweep", "plan", f"out={self.sweep}", "--extend", "asha.eta=4")
        self.assertEqual(eta.returncode, USAGE)
        self.assertIn("asha.eta is fixed", eta.stderr)

    def test_trainings(self):
        """Of two with rates that change nothing the second is not among the best half: it is
        stopped with a checkpoint, long before its last epoch."""
        self.train("[1e-30,2e-30]", "asha.eta=2", "asha.min=2")
        first, second = self.show()
        self.assertEqual((first["state"], second["state"]), ("done", "pruned"))
        self.assertEqual(first["epochs"], 200)
        self.assertLess(second["epochs"], 200)
        self.assertTrue(glob.glob(f"{self.sweep}/trials/000001/run/checkpoints/*.safetensors"))
        (_, one, _, _, goes), (_, two, place, kept, stops) = self.decisions(2)
        self.assertEqual((one, place, kept, goes, stops), (two, 2, 1, False, True))
        self.assertEqual(len(self.decisions(128)), 1)

    def test_refused(self):
        for sentence, options in (
            ("needs asha.stop=true", ["asha.stop=false"]),
            ("below asha.max=9", ["asha.min=9"]),
            ("belongs to strategy=asha", ["strategy=grid"]),
        ):
            self.assertIn(sentence, self.plan("1,2", *options, code=USAGE).stderr)
        done = self.levin(
            "sweep",
            "plan",
            f"out={self.sweep}",
            "--list=x=1,2",
            "strategy=asha",
            "asha.stop=true",
            "--",
            "true",
        )
        self.assertIn("asha.max=N", done.stderr)
        done = self.train("[0.1,0.2]", "asha.max=9", code=USAGE)
        self.assertIn("give max_epochs=N", done.stderr)
        self.assertFalse(os.path.exists(self.sweep))

    def test_report_refused(self):
        names = {k: v for k, v in os.environ.items() if not k.startswith("LEVIN_SWEEP_")}
        done = self.levin("sweep", "report", "epoch=1", "val/loss=1", env=names)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("LEVIN_SWEEP_TRIAL", done.stderr)
        self.plan("1")
        trial = {"LEVIN_SWEEP_TRIAL": f"{self.sweep}/trials/000000", "LEVIN_SWEEP_ATTEMPT": "1"}
        for sentence, arguments in (
            ("epoch is missing", ["val/loss=1"]),
            ("val/loss is missing", ["epoch=1"]),
            ("expected epoch=N", ["epoch=-1", "val/loss=1"]),
            ("expected epoch=N", ["epoch=1", "val/acc=1"]),
            ("expected epoch=N", ["epoch=1", "val/loss=high"]),
        ):
            done = self.levin("sweep", "report", *arguments, env={**names, **trial})
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    main()
