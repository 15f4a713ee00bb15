"""levin launch: signals, how long ranks have to end, restarts.

usage: test_launch_signals.py LEVIN [test names]
"""

import os
import signal
import subprocess
import sys
import time

from launch_case import Case, CLEAN, main, WAIT_S


def state_of(pid):
    """T: stopped. A signal is sent before its process has stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rpartition(")")[2].split()[0]


class Signals(Case):
    def test_sigint(self):
        p = self.start(
            "-n",
            "2",
            sh='trap "touch int.$RANK; exit 130" INT; echo $$ > pid.$RANK; while :; do '
            "sleep 0.02; done",
        )
        pids = self.pids(2)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(WAIT_S), 130)
        self.assertTrue(all(os.path.exists(f"{self.dir}/int.{r}") for r in range(2)))
        self.gone(pids)

    def test_sigint_twice(self):
        p = self.start(
            "-n",
            "2",
            sh='trap "touch int.$RANK" INT; echo $$ > pid.$RANK; while :; do sleep 0.02; done',
        )
        pids = self.pids(2)
        p.send_signal(signal.SIGINT)
        self.wait_for(lambda: all(os.path.exists(f"{self.dir}/int.{r}") for r in range(2)))
        time.sleep(0.1)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(WAIT_S), 130)
        self.gone(pids)

    def test_sigterm(self):
        for number, name, code in (
            (signal.SIGTERM, "TERM", 143),
            (signal.SIGHUP, "HUP", 129),
            (signal.SIGQUIT, "QUIT", 131),
        ):
            for end, expected in ((f"exit {code}", code), ("exit 0", 0), ("exit 85", 85)):
                with self.subTest(signal=name, end=end):
                    p = self.start(
                        "-n",
                        "2",
                        sh=f'trap "{end}" {name}; echo $$ > pid.$RANK; while :; do sleep '
                        "0.02; done",
                    )
                    self.pids(2)
                    p.send_signal(number)
                    self.assertEqual(p.wait(WAIT_S), expected)
                    for r in range(2):
                        os.unlink(f"{self.dir}/pid.{r}")

    def test_only_stopped_ranks_are_continued(self):
        """A SIGCONT discards the stop with which a debugger is about to attach."""
        p = self.start(
            "-n",
            "2",
            sh='trap "touch cont.$RANK" CONT; trap "touch term.$RANK; end=1" TERM; '
            'echo $$ > pid.$RANK; while [ -z "$end" ]; do sleep 0.02; done; exit 143',
        )
        self.pids(2)
        with open(f"{self.dir}/pid.1", encoding="utf-8") as f:
            pid = int(f.read())
        os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + WAIT_S
        while state_of(pid) != "T" and time.monotonic() < end:
            time.sleep(0.01)
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(WAIT_S), 143)
        found = [os.path.exists(f"{self.dir}/{n}.{r}") for n in ("cont", "term") for r in range(2)]
        self.assertEqual(found, [False, True, True, True])

    def test_sigusr1_arrives_once(self):
        program = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(1))
open("pid." + os.environ["RANK"], "w").write(str(os.getpid()))
while not os.path.exists("stop"):
    time.sleep(0.01)
    if got:
        open("got." + os.environ["RANK"], "w")
print(len(got))
"""
        arguments = self.command("-n", "2", "--no-prefix", program=[sys.executable, "-c", program])
        with subprocess.Popen(
            arguments, cwd=self.dir, env=CLEAN, stdout=subprocess.PIPE, text=True
        ) as p:
            self.pids(2)
            p.send_signal(signal.SIGUSR1)
            self.wait_for(lambda: all(os.path.exists(f"{self.dir}/got.{r}") for r in range(2)))
            time.sleep(0.3)  # for a second one, which must not come
            self.assertIsNone(p.poll())
            with open(f"{self.dir}/stop", "w", encoding="utf-8"):
                pass
            self.assertEqual(p.communicate(timeout=WAIT_S)[0], "1\n1\n")


class Patience(Case):
    def test_ranks_that_save_are_waited_for(self):
        """The launcher gets a signal: its ranks have more time than those whose neighbour has
        failed."""
        sh = (
            "trap 'sleep 2.5; echo saved; exit 0' TERM; echo $$ > pid.$RANK; "
            "while :; do sleep 0.05; done"
        )
        for patience, saved in (("30", 2), ("0.1", 0)):
            p = self.start(
                "-n",
                "2",
                "--no-prefix",
                "--show=all",
                "--grace=2",
                f"--stop-grace={patience}",
                sh=sh,
            )
            pids = self.pids(2)
            p.send_signal(signal.SIGTERM)
            out, err = p.communicate(timeout=WAIT_S)
            self.assertEqual(out.count("saved"), saved, err)
            self.assertEqual("killed" in err, saved == 0, err)
            self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])
            for rank in (0, 1):
                os.remove(f"{self.dir}/pid.{rank}")

    def test_nohup(self):
        p = subprocess.Popen(
            self.command(
                "-n", "2", program=["sh", "-c", "echo $$ > pid.$RANK; sleep 0.5; echo done"]
            ),
            cwd=self.dir,
            env=CLEAN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        self.pids(2)
        p.send_signal(signal.SIGHUP)
        out, err = p.communicate(timeout=WAIT_S)
        self.assertEqual((p.returncode, out.count("done")), (0, 2), err)


class Restarts(Case):
    def test_restarts(self):
        sh = (
            "echo $LEVIN_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT "
            "$LEVIN_MASTER_PORT $MASTER_PORT; "
            "[ $RANK = 1 ] && [ $LEVIN_RESTART_COUNT -lt 2 ] && exit 1; sleep 0.2"
        )
        out, err = self.launch(
            "-n",
            "2",
            "--max-restarts",
            "2",
            "--crash-loop",
            "0",
            "--show",
            "1",
            "--no-prefix",
            "--run-dir",
            "d",
            sh=sh,
        )
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual([row[:2] for row in rows], [["0", "0"], ["1", "1"], ["2", "2"]])
        self.assertEqual(len({row[2] for row in rows}), 3)
        self.assertIn("restart 2 of 2", err)
        self.assertEqual(
            sorted(os.listdir(f"{self.dir}/d/logs")), ["attempt_0", "attempt_1", "attempt_2"]
        )
        self.launch("-n", "2", "--max-restarts", "1", "--crash-loop", "0", sh="exit 4", code=4)

    def test_a_crash_loop_ends(self):
        _, err = self.launch("--max-restarts", "9", sh="echo x >> runs; exit 4", code=4)
        self.assertIn("crash loop", err)
        self.assertEqual(self.read("runs"), "x\nx\n")

    def test_no_restart_makes_sense(self):
        for code in (64, 85):
            self.launch(
                "--max-restarts",
                "3",
                "--crash-loop",
                "0",
                sh=f"echo x >> runs.{code}; exit {code}",
                code=code,
            )
            self.assertEqual(self.read(f"runs.{code}"), "x\n")
        self.launch(
            "--max-restarts", "3", "--crash-loop", "0", sh="echo x >> asked; exit 143", code=143
        )
        self.assertEqual(self.read("asked"), "x\n")
        p = self.start(
            "--max-restarts",
            "3",
            "--crash-loop",
            "0",
            sh="echo x >> runs; echo $$ > pid.0; sleep 600",
        )
        self.pids(1)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(WAIT_S), 130)
        self.assertEqual(self.read("runs"), "x\n")


main()
