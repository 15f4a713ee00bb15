"""levin launch: where the ranks' output goes, on terminals, into pipes and files.

usage: test_launch_output.py LEVIN [test names]
"""

import fcntl
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time

from launch_case import Case, CLEAN, main, WAIT_S
from screen import open_terminal


class Output(Case):
    def test_lines_do_not_mix(self):
        sh = (
            'i=0; while [ $i -lt 300 ]; do echo "out $RANK $i abcdefghijklmnopqrstuvwxyz"; '
            'echo "err $RANK $i" >&2; i=$((i+1)); done'
        )
        out, err = self.launch("-n", "3", sh=sh)
        for rank in range(3):
            mine = [line for line in out.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual(
                mine, [f"[{rank}] out {rank} {i} abcdefghijklmnopqrstuvwxyz" for i in range(300)]
            )
            self.assertEqual(
                [line for line in err.splitlines() if line.startswith(f"[{rank}] ")],
                [f"[{rank}] err {rank} {i}" for i in range(300)],
            )

    def test_log_files_and_show(self):
        out, err = self.launch(
            "-n",
            "4",
            "--output",
            "logs/r%3r.txt",
            "--show",
            "0",
            "--run-dir",
            "d",
            sh="echo $RANK; echo e >&2",
        )
        self.assertEqual((out, err), ("[0] 0\n", "[0] e\n"))
        self.assertEqual(sorted(os.listdir(f"{self.dir}/logs")), [f"r00{r}.txt" for r in range(4)])
        for r in range(4):
            self.assertEqual(sorted(self.read(f"logs/r00{r}.txt").split()), [str(r), "e"])

    def test_files_of_the_run(self):
        out, _ = self.launch("-n", "2", "--run-dir", "d", "--redirect", sh="echo $RANK; echo e >&2")
        self.assertEqual(out, "")
        for r in range(2):
            self.assertEqual(self.read(f"d/logs/attempt_0/rank_{r}/stdout.log"), f"{r}\n")
            self.assertEqual(self.read(f"d/logs/attempt_0/rank_{r}/stderr.log"), "e\n")
        self.launch("--run-id", "mine", sh="true")
        self.assertTrue(os.path.isdir(f"{self.dir}/levin-runs/mine/logs"))
        self.launch(
            "-n",
            "2",
            "--output",
            "%r-%p-%a-%w-%n-%l-%j.log",
            "--run-id",
            "x",
            sh="echo $$ > pid.$RANK",
        )
        for r in range(2):
            pid = self.read(f"pid.{r}").strip()
            self.assertTrue(
                os.path.exists(f"{self.dir}/{r}-{pid}-0-2-0-{r}-x.log"), os.listdir(self.dir)
            )

    def test_a_folder_that_others_can_write_into_is_not_taken(self):
        """Where no folder can be made the run goes to one in /tmp: only if no other user can put
        files there."""
        usual = f"/tmp/levin-runs-{os.geteuid()}"
        if not os.path.lexists(usual):
            os.mkdir(usual, 0o700)
            self.addCleanup(lambda: os.listdir(usual) or os.rmdir(usual))
        if os.path.islink(usual) or os.stat(usual).st_uid != os.geteuid():
            self.skipTest(f"{usual} is another's")
        mode = os.stat(usual).st_mode & 0o7777
        for now, taken in ((0o700, usual), (0o777, usual + "-")):
            with self.subTest(mode=oct(now)):
                os.chmod(usual, now)
                try:
                    done = subprocess.run(
                        self.command("--run-id", f"test-{os.getpid()}", program=["true"]),
                        cwd="/proc",
                        env=CLEAN,
                        capture_output=True,
                        text=True,
                        timeout=WAIT_S,
                        check=False,
                    )
                finally:
                    os.chmod(usual, mode)
                self.assertEqual(done.returncode, 0, done.stderr)
                path = re.search(r"logs and error records go to (\S+)", done.stderr).group(1)
                self.addCleanup(shutil.rmtree, path if taken == usual else os.path.dirname(path))
                self.assertTrue(path.startswith(taken + "/" if taken == usual else taken), path)
                self.assertEqual(os.lstat(os.path.dirname(path)).st_mode & 0o22, 0)

    def test_one_process_is_passed_through(self):
        done = subprocess.run(
            self.command(program=["sh", "-c", "printf 'a\\rb\\nc'; printf d >&2"]),
            cwd=self.dir,
            env=CLEAN,
            capture_output=True,
            check=True,
        )
        self.assertEqual((done.stdout, done.stderr), (b"a\rb\nc", b"d"))

    def test_a_mebibyte_without_a_newline(self):
        n = 1 << 20
        out, _ = self.launch(
            "-n",
            "2",
            "--run-dir",
            "d",
            program=[
                sys.executable,
                "-c",
                f"import os; os.environ['RANK'] == '1' and print('x' * {n}, end='')",
            ],
        )
        lines = out.splitlines(keepends=True)
        self.assertTrue(all(line.startswith("[1] x") and len(line) <= 65536 for line in lines))
        self.assertTrue(all(line.endswith("x\\\n") for line in lines[:-1]))
        self.assertEqual(sum(line.count("x") for line in lines), n)
        self.assertEqual(os.path.getsize(f"{self.dir}/d/logs/attempt_0/rank_1/stdout.log"), n)

    def test_progress_bars_and_silence(self):
        """A line that stands still is shown after a second; a '\\r' ends a line."""
        p = self.start("-n", "2", sh="[ $RANK = 0 ] && printf '10%%\\r20%%\\rmore? '; sleep 60")
        seen = b""
        end = time.monotonic() + WAIT_S
        while not seen.endswith(b"more? "):
            self.assertLess(time.monotonic(), end)
            if select.select([p.stdout], [], [], 1)[0]:
                seen += os.read(p.stdout.fileno(), 4096)
        self.assertEqual(seen, b"[0] 10%\r[0] 20%\r[0] more? ")
        p.terminate()
        self.assertEqual(p.wait(WAIT_S), 143)

    def test_a_terminal_for_rank_0(self):
        """With --pty rank 0 writes to a terminal where the launcher does, of the same size;
        unfinished lines show at once."""
        master, slave = open_terminal()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        program = (
            "import os, time; n = [fd for fd in (1, 2) if os.isatty(fd)]; "
            "print(n, n and os.get_terminal_size(1), end='', flush=True); time.sleep(60)"
        )
        arguments = self.command("-n", "2", "--pty", program=[sys.executable, "-c", program])
        env = {**CLEAN, "TERM": "xterm"}
        with subprocess.Popen(
            arguments, cwd=self.dir, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
        ) as p:
            os.close(slave)
            seen, start = b"", time.monotonic()
            while b"lines=33)" not in seen or b"[1] [] []" not in seen:
                self.assertLess(time.monotonic() - start, WAIT_S, seen)
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)
            self.assertIn(b"[0] [1, 2] os.terminal_size(columns=77, lines=33)", seen)
            p.terminate()
            self.assertEqual(p.wait(WAIT_S), 143)
        os.close(master)

    def test_a_reader_that_stands_still(self):
        """Log files go on, and nothing is lost when it reads again."""
        lines = 60000
        p = self.start("-n", "2", "--run-dir", "d", sh=f"seq 1 {lines}; touch done.$RANK; sleep 60")
        self.wait_for(lambda: all(os.path.exists(f"{self.dir}/done.{r}") for r in range(2)))
        logs = [f"{self.dir}/d/logs/attempt_0/rank_{r}/stdout.log" for r in range(2)]
        full = sum(len(str(i)) + 1 for i in range(1, lines + 1))
        self.wait_for(lambda: all(os.path.getsize(log) == full for log in logs))
        p.terminate()
        out, _ = p.communicate(timeout=WAIT_S)
        for r in range(2):
            mine = [line[4:] for line in out.splitlines() if line.startswith(f"[{r}] ")]
            self.assertEqual(mine, [str(i) for i in range(1, lines + 1)])

    def test_a_reader_that_goes_away(self):
        """As with tee, the work goes on."""
        p = self.start("-n", "2", "--run-dir", "d", sh="sleep 0.2; seq 1 1000; echo end >&2")
        p.stdout.close()
        self.assertEqual(p.wait(WAIT_S), 0)
        self.assertEqual(len(self.read("d/logs/attempt_0/rank_1/stdout.log").split()), 1000)

    def test_stdin(self):
        for option, expected in (
            ("rank0", ["[0] hi"]),
            ("all", ["[0] hi", "[1] hi", "[2] hi"]),
            ("none", []),
        ):
            self.assertEqual(
                sorted(
                    self.launch("-n", "3", "--stdin", option, program=["cat"], stdin="hi\n")[
                        0
                    ].splitlines()
                ),
                expected,
            )
        self.assertEqual(self.launch("-n", "2", program=["cat"], stdin="hi\n")[0], "")
        self.assertEqual(self.launch(program=["cat"], stdin="hi\n")[0], "hi\n")
        text = "".join(f"line {i}\n" for i in range(50000))
        out, _ = self.launch("-n", "2", "--stdin", "all", program=["cksum"], stdin=text)
        sums = {line[4:] for line in out.splitlines()}
        self.assertEqual(len(sums), 1)
        self.assertIn(str(len(text)), sums.pop())


main()
