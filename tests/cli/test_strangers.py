"""Connections to the ranks' store by processes that do not belong to the run. The training goes on
with the same bits, no process joins without the key, nothing that a stranger sends is shown raw,
and the key of the run is nowhere but in the environment of its ranks.

usage: test_strangers.py LEVIN [test names]
"""

import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from case import Case, LEVIN, OK, SIGINT, SIGTERM, USAGE, WAIT_S, main, read
from rank_processes import drop_identity, of_process, rank_pid
from rank_stranger import (
    Client,
    DENY,
    FAIL,
    GET,
    GREET,
    MAGIC,
    PROTOCOL,
    REFUSE,
    frame,
    run_key,
    text,
)

drop_identity()
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=96",
    "image_size=16",
    "batch_size=16",
    "micro_batches=2",
    "wgrad_threads=1",
    "seed=3",
    "val_split=0.25",
    "devices=2",
    "accelerator=cpu",
    "checkpoint.every_n_steps=3",
]


def greet(host=b"n08"):
    return frame(
        GREET,
        MAGIC
        + struct.pack("<IIIQQ", PROTOCOL, 2, 1, 7, 4711)
        + text(host)
        + text(b"0.1.0")
        + bytes(32)
        + text(b""),
    )


# A cause as lvni_control_put_cause writes it: kind, rank, step, pid, time, named, host, place,
# message.
LOST = frame(
    FAIL, struct.pack("<IIQQQI", 1, 0, 0, 0, 0, 0) + text(b"n08") + text(b"") + text(b"all is lost")
)


def variables(pid):
    return dict(line.decode().split("=", 1) for line in of_process(pid, "environ") if b"=" in line)


class Crowd:
    """Connections to a port, made in a thread during the `with`; one that is closed comes again."""

    def __init__(self, port, n, behave):
        self.port, self.n, self.behave, self.open, self.made = port, n, behave, {}, 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join(WAIT_S)
        for s in self.open.values():
            s.close()

    def run(self):
        poll = select.epoll()
        while not self.ending.is_set():
            while len(self.open) < self.n and not self.ending.is_set():
                s = socket.socket()
                s.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )  # no ports in TIME_WAIT
                try:
                    s.settimeout(1)
                    s.connect(("127.0.0.1", self.port))
                    s.setblocking(False)
                    self.made += 1
                    self.open[s.fileno()] = s
                    poll.register(s, select.EPOLLRDHUP)
                    if self.behave(s) is False:
                        self.end(poll, s)
                except OSError:
                    self.open.pop(s.fileno(), None)
                    s.close()
                    time.sleep(0.001)
                    break
            for fd, _ in poll.poll(0.005):
                self.end(poll, self.open[fd])
            for s in self.open.values() if self.behave == slow else ():
                try:
                    s.send(b"\0")
                except OSError:
                    pass

    def end(self, poll, s):
        poll.unregister(s)
        del self.open[s.fileno()]
        s.close()


def silent(_):
    """Sends nothing."""


def slow(s):
    """A byte at a time of something that begins as a greeting does."""
    s.send(greet()[:7])


def garbage(s):
    s.send(b"\x1b]0;owned\x07\x1b[31mGET / HTTP/1.0\r\n\r\n" * 100)


def greeter(s):
    """Greets without a proof."""
    s.send(greet(host=b"\x1b[31mred\x07\n"))


def visitor(_):
    """Goes at once."""
    return False


class Strangers(Case):
    def setUp(self):
        super().setUp()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            self.skipTest(f"1,100 connections need more open files than {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def begin(self, out, *arguments, files=1024, env=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        p = subprocess.Popen(
            [LEVIN, *TRAIN, *arguments, f"out={out}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=self.dir,
            preexec_fn=limit,
            env={**os.environ, **(env or {})},
        )
        self.addCleanup(self.kill, p)
        return p

    def kill(self, p):
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
        p.communicate()

    def rank_0(self, p, out):
        """Its environment, as soon as there is one."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and p.poll() is None:
            pid = rank_pid(out, 0)
            found = variables(pid) if pid else {}
            if "LEVIN_MASTER_PORT" in found:
                return found
            time.sleep(0.002)
        raise AssertionError(f"no rank 0: {p.communicate()}")

    def hash(self, out):
        return self.levin(["ckpt", "hash", out], OK)[0]

    def test_the_run_goes_on(self):
        """With all kinds of them at once, before the rendezvous and later, at 1,024 descriptors."""
        self.out = f"{self.dir}/loud"
        p = self.begin(self.out, "max_epochs=-1", "quiet=true")
        port = int(self.rank_0(p, self.out)["LEVIN_MASTER_PORT"])
        with Crowd(port, 1100, silent) as idle, Crowd(port, 8, slow), Crowd(
            port, 8, garbage
        ), Crowd(port, 8, greeter), Crowd(port, 2, visitor) as visits:
            self.wait_for(lambda: idle.made > 1100 and visits.made > 100, p)
            here = self.steps()
            self.wait_for(lambda: self.steps() >= here + 20, p)  # with checkpoints among them
            p.send_signal(signal.SIGTERM)
            out, err = p.communicate(timeout=WAIT_S)
        reported = (out + err).decode()
        self.assertEqual(p.returncode, SIGTERM, reported)
        steps = f"max_steps={self.steps() + 4}"
        for name, arguments in (("loud", ["resume=true"]), ("quiet", ["max_epochs=-1"])):
            p = self.begin(f"{self.dir}/{name}", steps, *arguments)
            self.assertEqual((p.communicate(timeout=WAIT_S), p.returncode)[1], OK)
        self.assertEqual(self.hash(self.out), self.hash(f"{self.dir}/quiet"))
        lines = reported + self.log(f"{self.dir}/loud")
        self.assertLessEqual(lines.count("refused "), 4, reported)
        self.assertRegex(
            lines,
            r"refused \d+ connections? that did not prove to belong to this run; the last from ",
        )
        self.nothing_raw(lines)

    def nothing_raw(self, lines):
        for character in set(lines):
            self.assertTrue(character.isprintable() or character == "\n", repr(character))

    def log(self, out):
        with open(f"{out}/train.log", "rb") as f:
            return f.read().decode()

    def identity(self, env):
        """Job key and run id of a process with this environment: any process can find them."""
        record = subprocess.run(
            [LEVIN, "slurm", "env", "--json"],
            env=env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        ).stdout
        found = json.loads(record)
        return found["job_key"].encode(), (found.get("run_id") or "").encode()

    def test_no_process_joins_without_the_key(self):
        """With all that is known of the run but its key: no rank, no value read, nothing ended."""
        out = self.out
        p = self.begin(out, "max_epochs=-1")
        env = self.rank_0(p, out)
        port, (job_key, run_id) = int(env["LEVIN_MASTER_PORT"]), self.identity(env)
        random = bytes.fromhex(env["LEVIN_RUN_KEY"])
        self.wait_for(lambda: self.steps() >= 3, p)
        guesses = [
            run_key(job_key, run_id),
            run_key(job_key, run_id, run_id),
            run_key(job_key, run_id, random=bytes(16)),
            bytes(16),
        ]
        for key in guesses:
            for rank in (0, 1):
                with Client(port) as stranger:
                    self.assertEqual(stranger.greet(key, rank)[0], DENY)
                    stranger.send(
                        frame(
                            GET, struct.pack("<I", 1) + text(b"segment-0") + struct.pack("<I", 1000)
                        )
                    )
                    stranger.send(LOST)
                    self.assertIsNone(stranger.receive()[0])
        with Client(port) as stranger:  # the first frame is a greeting, or it was the last
            stranger.send(LOST)
            self.assertIsNone(stranger.receive()[0])
        with Client(port) as relayed:  # as another program at another port would pass it on
            self.assertEqual(
                relayed.greet(run_key(job_key, run_id, random=random), port=port - 1)[0], DENY
            )
        with Client(port) as known:  # the key is what makes the difference
            kind, body = known.greet(run_key(job_key, run_id, random=random), host=b"\x1b[31mred\n")
            self.assertEqual(kind, REFUSE)
            self.assertIn(b"E115: rank 1 is there twice", body)
        before = self.steps()
        self.wait_for(lambda: self.steps() > before, p)
        p.send_signal(signal.SIGINT)
        lines = b"".join(p.communicate(timeout=WAIT_S)).decode()
        self.assertEqual(p.returncode, SIGINT, lines)
        self.assertIn("\\x1b[31mred\\x0a (pid 4711)", lines)
        self.nothing_raw(lines.replace("^C", "") + self.log(out))

    def test_the_key_is_nowhere(self):
        """Except in the environment of ranks: not in arguments, files or output; and always new."""
        keys = set()
        for i in range(2):
            out, tmp = f"{self.dir}/run{i}", f"{self.dir}/tmp{i}"
            os.mkdir(tmp)
            p = self.begin(out, "max_epochs=3", "devices=2", env={"TMPDIR": tmp})
            key = self.rank_0(p, out)["LEVIN_RUN_KEY"]
            seen = b""
            while p.poll() is None and len(seen) < 1 << 26:
                seen += b"".join(
                    b" ".join(of_process(pid, "cmdline"))
                    for pid in os.listdir("/proc")
                    if pid.isdigit()
                )
                time.sleep(0.05)
            printed = b"".join(p.communicate(timeout=WAIT_S))
            self.assertEqual(p.returncode, OK, printed)
            self.assertIn(out.encode(), seen)
            for top in (out, tmp):
                for folder, _, names in os.walk(top):
                    printed += b"".join(read(f"{folder}/{name}") for name in names)
            for form in (key.encode(), bytes.fromhex(key)):
                self.assertNotIn(form, seen)
                self.assertNotIn(form, printed)
            self.assertRegex(key, "^[0-9a-f]{32}$")
            keys.add(key)
        self.assertEqual(len(keys), 2)
        shown, _ = self.levin(["launch", "-n", "2", "--dry-run", "--", "true"], OK)
        self.assertNotIn("LEVIN_RUN_KEY", shown)

    def test_nothing_raw_where_any_process_may_join(self):
        """Without a launcher and LEVIN_TOKEN: a warning, and what comes is shown escaped."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {
            **os.environ,
            "RANK": "0",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        p = subprocess.Popen(
            [
                LEVIN,
                *[argument for argument in TRAIN if not argument.startswith("devices=")],
                f"out={self.dir}/run",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=self.dir,
            env=env,
        )
        self.addCleanup(self.kill, p)
        job_key, run_id = self.identity(env)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and p.poll() is None:
            try:
                with Client(port) as anybody:
                    self.assertEqual(
                        anybody.greet(
                            run_key(job_key, run_id), world=3, host=b"\x1b[31mred\x07\nlevin: error"
                        )[0],
                        REFUSE,
                    )
                    break
            except ConnectionError:
                time.sleep(0.02)
        lines = b"".join(p.communicate(timeout=WAIT_S)).decode()
        self.assertEqual(p.returncode, USAGE, lines)
        self.assertEqual(
            lines.count(f"any process that reaches port {port} of this host can join this run: "),
            1,
            lines,
        )
        self.assertIn("E102: ", lines)
        self.assertIn("\\x1b[31mred\\x07\\x0alevin: error, pid 4711: rank 1 of world 3", lines)
        self.nothing_raw(lines)


main()
