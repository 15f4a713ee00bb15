"""Looking at a sweep, stopping it and going on: levin sweep status, best, show, export, stop and
resume, on folders that are written by hand.

usage: test_sweep_show.py LEVIN [test names]
"""

import csv
import io
import json
import os
import signal
import subprocess
import time

from case import FAILURE, USAGE, main, read, tree
from sweep_folders import NINE, SweepCase


class Look(SweepCase):
    def fill(self):
        """One of each state: 0 pending, 1 lost by this host's table, 2 interrupted, 3 done, 4 the
        best, 5 diverged, 6 failed, 7 pruned, 8 like the best."""
        self.plan()
        self.claim(1, **self.dead())
        self.leave(2, "interrupted")
        self.end(3, value=0.5)
        self.end(4, value=0.25, last=0.123456789)
        self.end(5, "diverged", value="nan")
        self.end(6, "failed", exit_code=3, error="no | such file", value=0.1)
        self.end(7, "pruned", value=0.75)
        self.end(8, value=0.25)

    @staticmethod
    def dead():
        """An owner of this host, with a number that no process has."""
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as f:
            boot = f.read().strip()
        return {
            "host": os.uname().nodename,
            "boot": boot,
            "pid": 2**22 + 1,
            "space": os.stat("/proc/self/ns/pid").st_ino,
        }

    def rows(self, *arguments):
        lines = self.run_sweep("show", "format=tsv", *arguments)[0].splitlines()
        return [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:]]

    def test_status(self):
        self.fill()
        self.assertEqual(
            self.counts(),
            {
                "pending": 1,
                "lost": 1,
                "interrupted": 1,
                "done": 3,
                "diverged": 1,
                "failed": 1,
                "pruned": 1,
            },
        )
        out, _ = self.run_sweep("status")
        self.assertEqual(
            out.splitlines()[0],
            "nine: 9 trials: 1 pruned, 1 failed, 1 diverged, 3 done, 1 interrupted, "
            "1 lost, 1 pending",
        )
        self.assertIn(f"not running: levin sweep run {self.sweep}", out)
        self.assertIn("--retry-failed", out)

    def test_running(self):
        """A claim that its owner has not left, of a host that cannot be asked."""
        self.plan()
        self.claim(0)
        self.assertEqual(self.counts(), {"running": 1, "pending": 8})
        self.assertNotIn("not running", self.run_sweep("status")[0])
        out, _ = self.run_sweep("show", "0")
        self.assertIn("attempt 1: host elsewhere, process 77\n", out)

    def test_order(self):
        """The best first, ties by number, those without a value of a trial that ended well last."""
        self.fill()
        self.assertEqual(
            [r["trial"] for r in self.rows()], ["4", "8", "3", "7", "0", "1", "2", "5", "6"]
        )
        self.assertEqual([r["trial"] for r in self.rows("--top", "2")], ["4", "8"])
        self.assertEqual(self.rows()[0]["last"], "0.123456789")  # as it is, for programs
        self.assertEqual([r["trial"] for r in self.rows("sort=index")], list("012345678"))
        self.run_sweep("show", "top=0", code=USAGE, expects=["top"])
        best = "trial 4 learning_rate=0.01 layers=32 val/loss=0.25\n"
        self.assertEqual(self.run_sweep("show")[0].splitlines(True)[-1], "best: " + best)
        self.assertEqual(self.run_sweep("best")[0], best)

    def test_maximum(self):
        self.plan(mode="max", metric="val/accuracy")
        self.end(2, value=0.5)
        self.end(7, value=0.75)
        self.end(8, value="inf")
        self.assertEqual([r["trial"] for r in self.rows("top=3")], ["7", "2", "0"])
        self.assertIn("val/accuracy=0.75", self.run_sweep("best")[0])

    def test_table(self):
        self.fill()
        lines = self.run_sweep("show", "sort=index")[0].splitlines()
        self.assertEqual(
            lines[0].split(),
            [
                "trial",
                "state",
                "learning_rate",
                "layers",
                "val/loss",
                "step",
                "last",
                "epochs",
                "time",
                "checkpoint",
            ],
        )
        self.assertEqual(lines[1], "0      pending      0.001          16")
        self.assertEqual(
            lines[5].split(),
            [
                "4",
                "done",
                "0.01",
                "32",
                "0.25",
                "40",
                "0.123457",
                "4",
                "0:01:02",
                self.trial(4, "run/checkpoints/best.safetensors"),
            ],
        )
        self.assertEqual(lines[5].index("0.25"), lines[0].index("val/loss"))
        self.assertEqual(lines[6].split()[:6], ["5", "diverged", "0.01", "64", "nan", "40"])

    def test_markdown(self):
        self.plan([{"a|b": "1|2"}])
        lines = self.run_sweep("show", "--format", "md")[0].splitlines()
        self.assertEqual(
            lines[0],
            "| trial | state | a\\|b | val/loss | step | last | epochs | " "time | checkpoint |",
        )
        self.assertEqual(lines[1], "| --- " * 9 + "|")
        self.assertTrue(lines[2].startswith("| 0 | pending | 1\\|2 |  |"), lines[2])

    def test_json(self):
        self.fill()
        found = json.loads(self.run_sweep("show", "format=json")[0])
        self.assertEqual((found["best"], found["metric"], found["mode"]), (4, "val/loss", "min"))
        first = found["trials"][0]
        self.assertEqual(first["parameters"], {"learning_rate": 0.01, "layers": 32})
        self.assertEqual((first["value"], first["step"], first["seconds"]), (0.25, 40, 61.5))
        states = {t["trial"]: t for t in found["trials"]}
        self.assertIsNone(states[5]["value"])
        self.assertEqual((states[6]["exit_code"], states[6]["error"]), (3, "no | such file"))
        self.assertIsNone(states[0]["exit_code"])
        one = json.loads(self.run_sweep("show", "4", "format=json")[0])
        self.assertEqual(one, first)

    def test_export(self):
        """All that is known; commas and quotes are read back."""
        self.plan([{"text": 'a,"b"\nc'}, {"other": "2"}])
        self.end(1, value=1e-5)
        rows = list(csv.DictReader(io.StringIO(self.run_sweep("export")[0], newline="")))
        self.assertEqual(rows[0]["text"], 'a,"b"\nc')
        self.assertEqual((rows[0]["other"], rows[1]["text"], rows[1]["other"]), ("", "", "2"))
        self.assertEqual(
            (float(rows[1]["val/loss"]), rows[1]["seconds"], rows[1]["attempts"]),
            (1e-5, "61.5", "1"),
        )
        self.assertEqual(
            list(rows[0]),
            [
                "trial",
                "state",
                "text",
                "other",
                "val/loss",
                "step",
                "epoch",
                "last",
                "epochs",
                "seconds",
                "attempts",
                "exit_code",
                "error",
                "checkpoint",
            ],
        )

    def test_best(self):
        """Its parameters and its command are words that a shell reads back."""
        points = [{"a": "1"}, {"a": "it's $HOME"}]
        self.plan(points, command=("prog", "{trial}", "x y"))
        self.run_sweep("best", code=FAILURE, expects=["none of its 2 trials", "val/loss"])
        self.end(1, value=2)
        words = self.shell(self.run_sweep("best", "--print", "params")[0])
        self.assertEqual(words, ["a=it's $HOME"])
        words = self.shell(self.run_sweep("best", "print=command")[0])
        self.assertEqual(words, ["prog", "1", "x y", "a=it's $HOME"])
        self.assertEqual(
            self.run_sweep("best", "print=checkpoint")[0],
            self.trial(1, "run/checkpoints/best.safetensors") + "\n",
        )
        self.end(0, value=1, checkpoint="")
        self.run_sweep("best", "print=checkpoint", code=FAILURE, expects=["not kept a checkpoint"])

    @staticmethod
    def shell(line):
        done = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True
        )
        return done.stdout.split("\0")[:-1]

    def test_one(self):
        self.fill()
        out, _ = self.run_sweep("show", "6")
        for line in (
            "trial 6: failed",
            "  learning_rate=0.1",
            "exit code 3 after 0:01:02, 4 epochs",
            "error: no | such file",
            f"log: {self.trial(6, 'log.txt')}",
            "val/loss: best 0.1 at step 40, epoch 3, last 0.1",
        ):
            self.assertIn(line + "\n", out)
        self.assertIn("command: levin train ./mine.so config=config.yaml learning_rate=0.1", out)
        self.run_sweep("show", "9", code=USAGE, expects=["trial 9", "9 trials", "from 0 on"])
        self.run_sweep("show", "99999999999999999999", code=USAGE, expects=["9 trials"])

    def test_mistakes(self):
        self.plan()
        self.levin(["sweep", "show"], USAGE, ["folder of a sweep is missing"])
        self.levin(["sweep", "status", f"{self.dir}/none"], None, ["sweep.json"])
        self.run_sweep("best", "print=all", code=USAGE, expects=["print"])
        self.run_sweep("status", "3", code=USAGE, expects=["does not take 3"])
        self.run_sweep("export", "--json", code=USAGE, expects=["does not take --json"])
        self.end(0)
        with open(self.trial(0, "result"), "w", encoding="utf-8") as f:
            f.write("{")
        self.run_sweep("show", code=FAILURE, expects=[self.trial(0, "result")])

    def test_nothing_is_written(self):
        self.fill()
        before = tree(self.sweep)
        for word in ("status", "show", "best", "export"):
            self.run_sweep(word)
        self.assertEqual(tree(self.sweep), before)


class Go(SweepCase):
    def test_stop(self):
        """A file; again is the same. Trials of their own have one each."""
        self.plan()
        self.assertIn("stopped; 0 running trials end", self.run_sweep("stop")[0])
        self.run_sweep("stop")
        self.assertTrue(os.path.exists(f"{self.sweep}/stop"))
        self.assertIn("stopped: levin sweep resume", self.run_sweep("status")[0])
        self.run_sweep("stop", "3", "5")
        self.assertTrue(os.path.exists(self.trial(5, "stop")))
        self.run_sweep("stop", "9", code=USAGE, expects=["9 trials"])

    def test_worker_of_this_host(self):
        """It gets SIGTERM, once for all of its trials."""
        self.plan()
        seen = f"{self.dir}/seen"
        p = subprocess.Popen(
            [
                "bash",
                "-c",
                f"trap 'echo x >>{seen}' TERM; echo ready; " "while :; do sleep 0.05; done",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        p.stdout.readline()
        with open(f"/proc/{p.pid}/stat", encoding="utf-8") as f:
            started = int(f.read().rpartition(")")[2].split()[19])
        owner = {**Look.dead(), "pid": p.pid, "started": started}
        self.claim(0, **owner)
        self.claim(1, **owner)
        self.claim(2, **{**owner, "started": started + 1})  # another process of that number
        self.assertIn("2 running trials end", self.run_sweep("stop")[0])
        self.wait_for(lambda: os.path.exists(seen), p)
        time.sleep(0.1)
        self.assertEqual(read(seen), b"x\n")
        p.send_signal(signal.SIGKILL)

    def test_again(self):
        """Failed trials run once more, also one whose owner was killed before it linked the
        result; the results stay under another name. A second time there is nothing to do."""
        self.plan(command=("sh", "-c", "echo x >>{trial_dir}.ran"))
        self.end(0, "failed", exit_code=1)
        self.end(1, "failed", exit_code=1, linked=False)
        self.end(2, "pruned", value=1)
        for i in range(3, 9):
            self.end(i, value=1)
        self.run_sweep("stop")
        self.run_sweep("stop", "4")
        for _ in range(2):
            self.run_sweep("resume", "--retry-failed")
            self.assertEqual(self.counts(), {"pruned": 1, "done": 8})
            self.assertEqual(
                [i for i in range(9) if os.path.exists(self.trial(i, "run.ran"))], [0, 1]
            )
            for i in (0, 1):
                self.assertEqual(read(self.trial(i, "run.ran")), b"x\n")
                self.assertIn(b'"failed"', read(self.trial(i, "failed.1")))
            self.assertFalse(os.path.exists(f"{self.sweep}/stop"))
            self.assertFalse(os.path.exists(self.trial(4, "stop")))
        self.run_sweep("resume", "pruned=[2]")
        self.assertEqual(self.counts(), {"done": 9})
        self.assertEqual(read(self.trial(2, "run.ran")), b"x\n")
        self.run_sweep("resume", "pruned=3", code=USAGE, expects=["trial 3 is done"])
        self.run_sweep("resume", "pruned=9", code=USAGE, expects=["9 trials"])

    def test_failed_stay(self):
        """Without retry_failed; what was interrupted or lost goes on."""
        self.plan(command=("sh", "-c", "echo x >>{trial_dir}.ran"))
        for i in range(5):
            self.end(i, "failed", exit_code=1)
        self.leave(5, "interrupted")
        self.claim(6, **Look.dead())
        self.run_sweep("resume")
        self.assertEqual(self.counts(), {"failed": 5, "done": 4})
        self.assertTrue(os.path.exists(self.trial(6, "claim.2")))


if __name__ == "__main__":
    main()
