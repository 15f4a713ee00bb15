"""How the tasks of a Slurm job prove who they are: MUNGE, else a key in a file that their user
alone can read, as the store's host chooses.

Tasks of a step made up by its variables; daemons of MUNGE with keys and sockets of the test's own.
Left out where munged (package munge) or its library (libmunge2) is missing, and for others than
root.

usage: test_munge.py LEVIN [test names]
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

from case import Case, LEVIN, OTHER_USER, OK, SIGTERM, WAIT_S, main
from rank_processes import drop_identity, thread_names
from rank_stranger import DENY, WELCOME, Client, run_key

drop_identity()
SKIP, RESOURCE, RENDEZVOUS, MUNGE = 77, 69, 75, 3
MUNGED = shutil.which("munged", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
TRAIN = [
    LEVIN,
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=48",
    "image_size=16",
    "batch_size=16",
    "micro_batches=2",
    "wgrad_threads=1",
    "max_steps=2",
    "seed=3",
    "val_split=0.25",
    "accelerator=cpu",
]


def missing():
    if MUNGED is None:
        return "no munged (package munge)"
    try:
        ctypes.CDLL("libmunge.so.2")
    except OSError:
        return "no libmunge.so.2 (package libmunge2)"
    return "" if os.getuid() == 0 else "only root can start one"


class Daemon:
    """One munged. Started again with the same folder it has the same key."""

    def __init__(self, folder, name, key):
        self.socket, self.files = f"{folder}/{name}.socket", f"{folder}/{name}"
        with open(f"{self.files}.key", "wb") as f:
            f.write(key)
        os.chmod(f"{self.files}.key", 0o400)
        self.conf = f"{self.files}.conf"
        with open(self.conf, "w") as f:
            f.write(f"ClusterName=test\n# AuthInfo=socket=/nowhere\nInclude {name}.more\n")
        with open(f"{self.files}.more", "w") as f:
            f.write(f"authinfo = ttl=60,socket={self.socket} # as here\nAuthType=auth/munge\n")
        self.start()

    def start(self):
        arguments = [
            MUNGED,
            "--foreground",
            "--force",
            f"--key-file={self.files}.key",
            f"--socket={self.socket}",
            f"--pid-file={self.files}.pid",
            f"--log-file={self.files}.log",
            f"--seed-file={self.files}.seed",
            "--num-threads=2",
        ]
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + WAIT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"munged does not start: {open(f'{self.files}.log').read()}")
            time.sleep(0.01)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.socket) == 0

    def stop(self):
        self.process.kill()
        self.process.wait()
        if os.path.exists(self.socket):
            os.unlink(self.socket)

    def credential(self, payload, *arguments):
        """What munged makes for this user, or for another."""
        munge = ctypes.CDLL("libmunge.so.2")
        munge.munge_ctx_create.restype = ctypes.c_void_p
        ctx = ctypes.c_void_p(munge.munge_ctx_create())
        made = ctypes.c_char_p()
        assert (
            munge.munge_ctx_set(ctx, 8, self.socket.encode()) == 0
            and munge.munge_ctx_set(ctx, 0, 4) == 0
        )
        assert munge.munge_encode(ctypes.byref(made), ctx, payload, len(payload)) == 0
        return made.value


class Munge(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = os.path.realpath(
            subprocess.run(
                ["mktemp", "-d", "/tmp/lvmXXXXXX"], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        os.chmod(cls.place, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        cls.one, cls.same, cls.other = (
            Daemon(cls.place, name, key * 64)
            for name, key in (
                ("one", b"key of the cluster."),
                ("same", b"key of the cluster."),
                ("other", b"key of another one."),
            )
        )
        for daemon in (cls.one, cls.same, cls.other):
            cls.addClassCleanup(daemon.stop)
        cls.none = f"{cls.place}/none.conf"
        with open(cls.none, "w") as f:
            f.write(f"AuthInfo=socket={cls.place}/none.socket\n")

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def task(self, rank, conf, *arguments, before=(), timeout=None, env=None):
        step = {
            "JOB_ID": 4711,
            "STEP_ID": 0,
            "PROCID": rank,
            "LOCALID": rank,
            "NODEID": 0,
            "STEP_NUM_TASKS": 2,
            "STEP_NUM_NODES": 1,
            "NTASKS": 2,
            "STEP_TASKS_PER_NODE": "2",
            "STEP_NODELIST": "localhost",
            "JOB_NODELIST": "localhost",
            "CONF": conf,
        }
        p = subprocess.Popen(
            [*before, *TRAIN, f"out={self.dir}/out/run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.dir,
            env={
                **os.environ,
                **{f"SLURM_{k}": str(v) for k, v in step.items()},
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
                **({"LEVIN_RDZV_TIMEOUT": str(timeout)} if timeout else {}),
                **(env or {}),
            },
        )
        self.addCleanup(lambda: (p.kill(), p.communicate()))
        return p

    def ends(self, p, code, *expects):
        reported, _ = p.communicate(timeout=WAIT_S)
        self.assertEqual(p.returncode, code, reported)
        for piece in expects:
            self.assertIn(piece, reported)
        return reported

    def files(self):
        return [
            f"{top}/{name}"
            for top, _, names in os.walk(self.dir)
            for name in names
            if name.endswith(".addr")
        ]

    def listens(self, p):
        """Until rank 0 does."""

        def there():
            try:
                with socket.create_connection(("127.0.0.1", self.port)):
                    return True
            except ConnectionError:
                return False

        self.wait_for(there, p)

    def log(self):
        with open(f"{self.dir}/out/run/train.log") as f:
            return f.read()

    def test_munge(self):
        """The same bits as one process; no key anywhere."""
        first = self.task(0, self.one.conf)
        second = self.task(1, self.same.conf)
        self.assertNotIn("warning: ", self.ends(first, OK, "2 ranks"))
        self.ends(second, OK)
        self.assertIn("the ranks authenticate with MUNGE\n", self.log())
        self.assertEqual(self.files(), [])
        self.levin([*TRAIN[1:], "group=2", f"out={self.dir}/alone"], OK)
        self.assertEqual(
            self.levin(["ckpt", "hash", f"{self.dir}/out/run"], OK)[0],
            self.levin(["ckpt", "hash", f"{self.dir}/alone"], OK)[0],
        )

    def test_no_munge_where_rank_0_is(self):
        """A key in a file, decided by rank 0 and reported in a line, also for a rank that has
        MUNGE."""
        first = self.task(0, self.none)
        self.wait_for(self.files, first)
        (name,) = self.files()
        self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), 0o600)
        second = self.task(1, self.one.conf)
        reported = self.ends(
            first,
            OK,
            "the ranks authenticate with a key in a file in ",
            "as MUNGE does not work here: MUNGE at ",
        )
        self.assertEqual(reported.count("MUNGE does not work here"), 1)
        self.ends(second, OK)
        self.assertEqual(self.files(), [])

    def test_no_munge_and_nothing_shared(self):
        """A run directory on a disk of each node: the rank reports what it needs."""
        first = self.task(0, self.none)
        self.wait_for(self.files, first)
        self.ends(
            self.task(1, self.none, f"out={self.dir}/elsewhere/run", timeout=1),
            RENDEZVOUS,
            "E114: rank 1 ",
            f"no file with the key of the run in {self.dir}/elsewhere: ",
            "or one LEVIN_TOKEN",
        )
        first.send_signal(signal.SIGTERM)
        self.ends(first, SIGTERM)

    def test_no_munge_where_another_is(self):
        first = self.task(0, self.one.conf)
        self.listens(first)
        self.ends(
            self.task(1, self.none, timeout=2),
            RESOURCE,
            "levin: error E120: rank 1 can make no credential of MUNGE",
            "none.socket",
            "fix: start munged there, or set LEVIN_TOKEN",
        )
        self.never_joined(first)

    def never_joined(self, first, *expects):
        """The other rank; rank 0 still waits for it."""
        first.send_signal(signal.SIGTERM)
        reported = self.ends(first, SIGTERM, "stopped: SIGTERM before the first step", *expects)
        self.assertLessEqual(reported.count("refused "), 2)

    def test_another_key(self):
        first = self.task(0, self.one.conf)
        self.listens(first)
        self.ends(
            self.task(1, self.other.conf, timeout=1),
            RENDEZVOUS,
            "E114: rank 1 ",
            "its MUNGE does not take the credential of this node's",
        )
        self.never_joined(first, "its credential is not valid here")

    def test_another_user(self):
        if subprocess.run([*OTHER_USER, "test", "-x", LEVIN], check=False).returncode != 0:
            self.skipTest("another user cannot run the program here")
        first = self.task(0, self.one.conf)
        self.listens(first)
        self.ends(
            self.task(1, self.one.conf, before=OTHER_USER, timeout=1),
            RENDEZVOUS,
            "E114: rank 1 ",
            "it belongs to another user",
        )
        self.never_joined(first, "its credential is another user's")

    def test_the_daemon_of_rank_0_dies(self):
        """Once it has chosen: rank 0 reports it, and no rank joins with less."""
        self.addCleanup(lambda: self.one.process.poll() is None or self.one.start())
        first = self.task(0, self.one.conf, timeout=6)
        self.wait_for(lambda: "lvn-control" in thread_names(first.pid), first)  # it is connected
        self.one.stop()
        second = self.task(1, self.same.conf, timeout=6)
        self.ends(
            first,
            RESOURCE,
            "E120: MUNGE, by which the ranks prove who they are, does not answer on ",
        )
        second.send_signal(signal.SIGKILL)

    def test_what_is_no_credential(self):
        """MUNGE answers some of it as it answers a mistake of the daemon: the run goes on."""
        first = self.task(0, self.one.conf, timeout=8)
        self.listens(first)
        for bytes_ in (b"MUNGE:", b"MUNGE:AwQ=:", b"\xff" * 640, b"\0MUNGE:", b"\0"):
            with Client(self.port) as client:
                self.assertEqual(client.greet(bytes(16), credential=bytes_)[0], DENY)
        time.sleep(3)  # MUNGE's own time is a quarter of the timeout
        second = self.task(1, self.same.conf)
        self.ends(first, OK, "its credential is not valid here")
        self.ends(second, OK)

    def test_a_daemon_that_comes_back(self):
        self.addCleanup(lambda: self.same.process.poll() is None or self.same.start())
        first = self.task(0, self.one.conf)
        self.listens(first)
        self.same.stop()
        second = self.task(1, self.same.conf)
        time.sleep(0.5)
        self.same.start()
        self.ends(first, OK)
        self.ends(second, OK)

    def test_a_credential_is_good_for_one_connection(self):
        first = self.task(0, self.one.conf)
        self.listens(first)
        record = subprocess.run(
            [LEVIN, "slurm", "env"],
            env={
                **os.environ,
                **{
                    "SLURM_JOB_ID": "4711",
                    "SLURM_STEP_ID": "0",
                    "SLURM_PROCID": "1",
                    "SLURM_LOCALID": "1",
                    "SLURM_NODEID": "0",
                    "SLURM_STEP_NUM_TASKS": "2",
                    "SLURM_STEP_NUM_NODES": "1",
                    "SLURM_STEP_NODELIST": "localhost",
                    "SLURM_STEP_TASKS_PER_NODE": "2",
                },
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        job_key = re.search(r"^job_key=(.*)$", record, re.M)[1].encode()
        random = os.urandom(16)
        key = run_key(job_key, b"", random=random)
        with Client(self.port) as a, Client(self.port) as b, Client(self.port) as c, Client(
            self.port
        ) as d:
            self.assertEqual(a.how, MUNGE)
            good = self.one.credential(a.store_nonce + a.nonce + random)
            self.assertEqual(b.greet(key, credential=good)[0], DENY)  # of another connection
            again = self.one.credential(a.store_nonce + a.nonce + random)
            self.assertEqual(
                c.greet(
                    run_key(job_key, b""),
                    credential=self.one.credential(c.store_nonce + c.nonce + random),
                )[0],
                DENY,
            )  # another proof
            self.assertNotIn(d.greet(key)[0], (WELCOME, DENY))  # none at all
            self.assertEqual(a.greet(key, credential=again)[0], WELCOME)
            with Client(self.port) as e:
                e.nonce = a.nonce
                self.assertEqual(e.greet(key, credential=again)[0], DENY)  # a replay
        first.send_signal(signal.SIGKILL)


if missing():
    print(f"skipped: {missing()}")
    sys.exit(SKIP)
main()
