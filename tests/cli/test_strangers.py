"""Strangers at the port where the ranks meet: connections of people who do not belong to the run. The training goes on with the same bits, nobody
joins without the key, nothing that a stranger sends is shown raw, and the key of the run is nowhere but in the environment of its ranks.

usage: test_strangers.py LEVIN [test names]
"""
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from bad_support import Case, LEVIN, OK, WAIT_S, main
from rank_processes import children, drop_identity, of_process, rank_pid

drop_identity()
TRAIN = ["train", "classify", "data=builtin:shapes", "data.count=96", "image_size=16", "batch_size=16", "shards=2", "wgrad_threads=1", "seed=3",
         "val_split=0.25", "devices=2", "accelerator=cpu", "checkpoint.every_n_steps=3"]
MAGIC = b"levinctl"


def text(s):
    return struct.pack("<I", len(s)) + s


def frame(kind, body):
    return struct.pack("<IHH", len(body), kind, 0) + body


def greet(world=2, rank=1, host=b"n08", proof=bytes(16), protocol=2):
    return frame(2, MAGIC + struct.pack("<IIIQQ", protocol, world, rank, 7, 4711) + text(host) + text(b"0.1.0") + bytes(16) + proof)


def store_port(pid):
    """Where the ranks of this launcher meet; None: not known yet."""
    for line in of_process(pid, "environ"):
        if line.startswith(b"LEVIN_MASTER_PORT="):
            return int(line.split(b"=")[1])
    return None


class Crowd:
    """Connections to a port, made in a thread until the end of the `with`; each that is closed comes again."""

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
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no ports in TIME_WAIT
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
    """Says nothing."""


def slow(s):
    """A byte at a time of something that begins as a greeting does."""
    s.send(greet()[:7])


def rubbish(s):
    s.send(b"\x1b]0;owned\x07\x1b[31mGET / HTTP/1.0\r\n\r\n" * 100)


def greeter(s):
    """Says who it is without a proof."""
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

    def begin(self, out, *words, files=1024, env=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        p = subprocess.Popen([LEVIN, *TRAIN, *words, f"out={out}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=self.dir,
                             preexec_fn=limit, env={**os.environ, **(env or {})})
        self.addCleanup(self.kill, p)
        return p

    def kill(self, p):
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
        p.communicate()

    def port_of(self, p, out):
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and p.poll() is None:
            pid = rank_pid(out, 0)
            port = store_port(pid) if pid else None
            if port:
                return port
            time.sleep(0.002)
        raise AssertionError(f"no rank 0: {p.communicate()}")

    def hash(self, out):
        return self.levin(["ckpt", "hash", out], OK)[0]

    def test_the_run_goes_on(self):
        """With all kinds of them at once, from before the ranks have met, at 1,024 descriptors: the bits of a run that nobody disturbs."""
        steps = "max_epochs=20"
        p = self.begin(f"{self.dir}/quiet", steps)
        self.assertEqual((p.communicate(timeout=WAIT_S), p.returncode)[1], OK)
        p = self.begin(f"{self.dir}/loud", steps)
        port = self.port_of(p, f"{self.dir}/loud")
        with Crowd(port, 1100, silent) as idle, Crowd(port, 8, slow), Crowd(port, 8, rubbish), Crowd(port, 8, greeter), Crowd(port, 2, visitor) as visits:
            out, err = p.communicate(timeout=WAIT_S)
        told = (out + err).decode()
        self.assertEqual(p.returncode, OK, told)
        self.assertEqual(self.hash(f"{self.dir}/loud"), self.hash(f"{self.dir}/quiet"))
        self.assertGreater(idle.made, 1100)
        self.assertGreater(visits.made, 100)
        lines = told + self.log(f"{self.dir}/loud")
        self.assertLessEqual(lines.count("refused "), 4, told)
        self.assertRegex(lines, r"refused \d+ connections? that did not prove to belong to this run; the last from ")
        for character in set(lines):
            self.assertTrue(character.isprintable() or character == "\n", repr(character))

    def log(self, out):
        with open(f"{out}/train.log", "rb") as f:
            return f.read().decode()


main()
