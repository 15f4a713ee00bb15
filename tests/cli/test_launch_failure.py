"""levin launch: which rank is named when one fails, and that nothing is left behind.

usage: test_launch_failure.py LEVIN [test names]
"""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

from launch_case import alive, Case, CLEAN, free_port, GONE_S, main, WAIT_S

# rank 1 ends once the launcher has noticed the end of rank 0
REQUEUED = (
    "[ $RANK = 0 ] && { echo $$ > pid; exit 85; }; until [ -s pid ]; do sleep 0.01; done; "
    "while [ -e /proc/$(cat pid) ]; do sleep 0.01; done; exit 0"
)


class Failure(Case):
    def test_the_first_is_named_and_all_end(self):
        sh = (
            "echo $$ > pid.$RANK; [ $RANK = 2 ] || exec sleep 600; "
            "while ! [ -s pid.0 -a -s pid.1 -a -s pid.3 ]; do sleep 0.01; done; echo "
            "reason >&2; sleep 0.3; touch failed; exit 3"
        )
        _, err = self.launch("-n", "4", "--run-dir", "d", sh=sh, code=3)
        self.ended_within(GONE_S, "failed")
        self.assertRegex(
            err,
            r"levin launch: rank 2 \(pid \d+, node \S+\) failed first: exit code 3 after \d+\.\d s",
        )
        self.assertIn("  | reason\n", err)
        self.assertRegex(
            err, r"(?m)^ +0  \S+ +SIGTERM \(stopped\) .*d/logs/attempt_0/rank_0/stderr.log$"
        )
        self.gone(self.pids(4))

    def test_who_ignores_sigterm_is_killed(self):
        sh = (
            "trap '' TERM; [ $RANK = 1 ] || { echo $$ > pid.$RANK; while :; do sleep 0.2; done; }; "
            "until [ -s pid.0 ] && [ -s pid.2 ]; do sleep 0.01; done; touch failed; exit 7"
        )
        self.launch("-n", "3", "--grace", "0.5", sh=sh, code=7)
        self.ended_within(0.5 + GONE_S, "failed")
        self.gone(self.pids(2))

    def test_who_is_stopped_ends_too(self):
        sh = (
            "[ $RANK = 0 ] || { echo $$ > pid.1; kill -STOP $$; }; until [ -s pid.1 ]; "
            "do sleep 0.01; done; "
            "until grep -q '^State:.T' /proc/$(cat pid.1)/status; do sleep 0.01; done; "
            "touch failed; exit 5"
        )
        self.launch("-n", "2", sh=sh, code=5)
        self.ended_within(GONE_S, "failed")

    def test_signals_are_named(self):
        for name, code in (("SEGV", 139), ("KILL", 137), ("ABRT", 134)):
            _, err = self.launch(
                "-n", "2", sh=f"ulimit -c 0; [ $RANK = 1 ] && kill -{name} $$; sleep 600", code=code
            )
            self.assertRegex(err, rf"rank 1 .* failed first: killed by SIG{name}")
        self.assertIn("out of memory", self.launch(sh="kill -KILL $$", code=137)[1])

    def test_the_record_decides(self):
        """Rank 0 dies first, of a lost peer; rank 2, the cause, later and with a record."""
        record = {
            "rank": 2,
            "host": "h",
            "pid": 1,
            "time_ns": 1700000000000000000,
            "kind": "nan",
            "code": 1,
            "message": "the loss is nan",
            "where": "loop.c:5",
            "stack": ["step 12"],
        }
        program = f"""
import json, os, sys, time, signal
rank = int(os.environ["RANK"])
if rank == 0:
    while not os.path.exists("ready"):
        time.sleep(0.01)
    lost = dict({record!r}, kind="peer", message="rank 2 is gone")
    open(os.environ["LEVIN_ERROR_FILE"], "w").write(json.dumps(lost))
    sys.exit(76)
if rank == 2:
    asked = []
    signal.signal(signal.SIGTERM, lambda *a: asked.append(1))
    open("ready", "w")
    while not asked:
        time.sleep(0.01)
    open(os.environ["LEVIN_ERROR_FILE"], "w").write(json.dumps({record!r}))
    sys.exit(1)
time.sleep(600)
"""
        _, err = self.launch("-n", "3", program=[sys.executable, "-c", program], code=1)
        self.assertIn("rank 2 (", err.splitlines()[0])
        for piece in ("nan: the loss is nan", "at loop.c:5", "in step 12"):
            self.assertIn(piece, err)

    def test_last_lines_that_the_record_has_not(self):
        """What the record holds is not printed again, and the lines beside it are not lost."""
        record = '{"message": "boom happened", "kind": "error", "stack": ["data=x"]}'
        sh = (
            "echo 'error: boom happened' >&2; echo '  in data=x' >&2; $MORE; "
            f"echo '{record}' > $LEVIN_ERROR_FILE; exit 1"
        )
        for more, want in (
            (
                "echo important detail: see core >&2",
                "  last lines of its standard error:\n  | important detail: see core\n",
            ),
            ("true", ""),
        ):
            _, err = self.launch(
                "-n",
                "2",
                "--redirect",
                sh=f"[ $RANK = 0 ] && exec sleep 600; {sh.replace('$MORE', more)}",
                code=1,
            )
            self.assertIn(f"  error: boom happened\n  in data=x\n{want}   rank  host", err)

    def test_records_of_an_earlier_run_do_not_count(self):
        record = '{"message": "old", "kind": "error"}'
        sh = f"[ $RANK = 1 ] || exec sleep 600; echo '{record}' > $LEVIN_ERROR_FILE; exit 1"
        self.assertIn("error: old", self.launch("-n", "2", "--run-dir", "d", sh=sh, code=1)[1])
        _, err = self.launch(
            "-n", "2", "--run-dir", "d", sh="[ $RANK = 1 ] && exit 1; sleep 600", code=1
        )
        self.assertNotIn("old", err)

    def test_a_lost_peer_is_blamed_only_alone(self):
        _, err = self.launch(
            "-n",
            "2",
            sh="if [ $RANK = 0 ]; then echo $$ > pid; while [ ! -e ready ]; do sleep 0.01; done; "
            "exit 76; fi; trap '' TERM; touch ready; until [ -s pid ]; do sleep 0.01; done; "
            "while [ -e /proc/$(cat pid) ]; do sleep 0.01; done; exit 9",
            code=9,
        )
        self.assertIn("rank 1 (", err.splitlines()[0])
        _, err = self.launch("-n", "2", sh="[ $RANK = 0 ] && exit 76; sleep 600", code=76)
        self.assertRegex(
            err.splitlines()[0], r"no rank failed by itself; rank 0 \(.* another one was gone"
        )

    def test_deaths_noticed_together(self):
        """Rank 1 is killed, rank 0 ends because of it; the launcher sees both at once, and rank 0
        first."""
        for code in (1, 76):
            with self.subTest(code=code):
                sh = (
                    "echo $$ > pid.$RANK; while [ ! -e go.$RANK ]; do sleep 0.01; done; "
                    f"[ $RANK = 1 ] && kill -KILL $$; exit {code}"
                )
                p = self.start("-n", "2", sh=sh)
                self.pids(2)
                p.send_signal(signal.SIGSTOP)
                for rank in (1, 0):
                    pid = int(self.read(f"pid.{rank}"))
                    with open(f"{self.dir}/go.{rank}", "w", encoding="utf-8"):
                        pass
                    self.wait_for(lambda pid=pid: not alive(pid))
                p.send_signal(signal.SIGCONT)
                err = p.communicate(timeout=WAIT_S)[1]
                self.assertEqual(p.returncode, 137, err)
                self.assertRegex(err.splitlines()[0], "rank 1 .* failed first: killed by SIGKILL")
                for name in ("go.0", "go.1", "pid.0", "pid.1"):
                    os.unlink(f"{self.dir}/{name}")

    def test_requeue_is_no_failure(self):
        _, err = self.launch("-n", "2", sh=REQUEUED, code=85)
        self.assertEqual(err, "")

    def test_a_dry_run_removes_nothing(self):
        os.makedirs(f"{self.dir}/d/e")
        self.launch(
            "--dry-run",
            "--keep-logs",
            "started",
            "--run-dir",
            "d/e",
            "--output",
            "same.txt",
            "-n",
            "2",
            program=["true"],
            code=64,
        )
        self.assertTrue(os.path.isdir(f"{self.dir}/d/e"))

    def test_daemons_end(self):
        """In a session of their own, of a failed rank and of a good one."""
        sh = (
            'setsid sh -c "echo \\$\\$ > pid.$RANK; exec sleep 600" & '
            "until [ -s pid.0 ] && [ -s pid.1 ]; do sleep 0.01; done; "
        )
        self.launch("-n", "2", sh=sh + "exit $RANK", code=1)
        self.gone(self.pids(2))
        for r in range(2):
            os.unlink(f"{self.dir}/pid.{r}")
        self.launch("-n", "2", sh=sh + "exit 0")
        self.gone(self.pids(2))
        for r in range(2):
            os.unlink(f"{self.dir}/pid.{r}")
        self.launch(
            "-n", "2", "--grace", "0.3", sh="trap '' TERM; " + sh + "exit 0"
        )  # the daemon ignores SIGTERM
        self.gone(self.pids(2))

    def test_no_zombies(self):
        p = self.start(
            sh='i=0; while [ $i -lt 20 ]; do (sh -c "exit 0" &) ; i=$((i+1)); done; touch '
            "done; sleep 60"
        )
        self.wait_for(lambda: os.path.exists(f"{self.dir}/done"))

        def zombies():
            children = subprocess.run(
                ["ps", "-o", "stat=", "--ppid", str(p.pid)],
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            return children.count("Z")

        if shutil.which("ps"):
            self.wait_for(lambda: zombies() == 0, 10)
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)

    def test_timeout(self):
        start = time.monotonic()
        _, err = self.launch("-n", "2", "--timeout", "0.4", sh="sleep 600", code=124)
        took = time.monotonic() - start
        self.assertLess(took, (0.4 + GONE_S) * self.neighbours.slowdown())
        self.assertIn("--timeout", err)

    def test_a_reader_that_stands_still_delays_no_end(self):
        """More than a pipe takes, and no reader: a failure, a timeout and a signal end the launcher
        all the same."""
        for options, end, code in (
            ((), "exit 3", 3),
            (("--timeout", "0.5"), "sleep 600", 124),
            ((), "touch ready; sleep 600", 143),
        ):
            with self.subTest(code=code):
                p = self.start(*options, sh=f"seq 1 60000; {end}")
                if code == 143:
                    self.wait_for(lambda: os.path.exists(f"{self.dir}/ready"))
                    p.terminate()
                self.assertEqual(p.wait(WAIT_S), code)

    def test_straggler(self):
        _, err = self.launch(
            "-n", "2", "--straggler-timeout", "0.2", sh="[ $RANK = 1 ] || sleep 600", code=1
        )
        self.assertIn("rank 1 ended early", err)

    def test_kill_of_the_launcher(self):
        """Ranks, and what they started, end with it."""
        p = self.start("-n", "2", sh="sleep 600 & echo $! $$ > pid.$RANK; wait")
        pids = self.pids(4)
        p.kill()
        p.wait()
        self.gone(pids, GONE_S)

    def test_a_port_that_needs_a_privilege(self):
        """Reported before anything is started."""
        self.assertIn(
            "warning W205: port 1023 ", self.launch("--dry-run", "--master-port=1023", sh="true")[1]
        )
        self.assertIn(
            "error W205: port 1023 ",
            self.launch("--strict", "--master-port=1023", sh="echo ran", code=64)[1],
        )
        self.assertEqual(os.listdir(self.dir), [])

    def test_busy_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            _, err = self.launch("--master-port", str(s.getsockname()[1]), sh="true", code=69)
            self.assertIn("E110", err)
            self.assertIn(f"pid {os.getpid()}", err)

    def test_a_port_of_another_launcher(self):
        """Its program has not opened it yet, and still no other launcher gets it; afterwards it is
        free."""
        port = str(free_port())
        p = self.start("--master-port", port, sh="touch ready; sleep 600")
        self.wait_for(lambda: os.path.exists(f"{self.dir}/ready"))
        _, err = self.launch("--master-port", port, sh="true", code=69)
        self.assertIn("E110", err)
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)
        self.launch("--master-port", port, sh="true")

    def test_many_files(self):
        """More ranks than open files are allowed for at first; the ranks get the limit of the
        launcher."""

        def few():
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )

        done = subprocess.run(
            self.command("-n", "16", "--no-prefix", program=["sh", "-c", "ulimit -n"]),
            cwd=self.dir,
            env=CLEAN,
            preexec_fn=few,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "40\n" * 16), done.stderr)


main()
