"""Runs over nodes with networks of their own, which lose power or their link, hang, or have a slow
network or another time of day: all ranks end in time and host and cause are named, or the run goes
on, with the bits of an undisturbed one.

usage: test_node_failures.py LEVIN [test names]
"""

import os
import random
import re
import signal
import subprocess
import threading
import time
import unittest

from case import LEVIN, main, OK, WAIT_S, write
from node_network import address, address_6, missing, Network, PORT
from rank_case import RankCase, SHAPES

SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
PATIENCE_S = 10 if SLOW else 3  # peer_timeout_s; its default in the slow run
GONE_S = float(os.environ.get("LEVIN_TEST_NODES_GONE_S", "15"))
RUN = [*SHAPES, "model=mlp", "group=6", "eval_batch_size=30"]
LONG = [*RUN, "max_epochs=100000", *([] if SLOW else [f"peer_timeout_s={PATIENCE_S}"])]
SHORT = [*RUN, "max_steps=20", "checkpoint.every_n_steps=2"]
DDP2 = ["strategy=ddp2", "devices=2"]
KILLS = 50 if SLOW else 2
SILENT = rf"nothing was heard from it for {PATIENCE_S}\.0 s"
CLOCK = r"""
/* A time of day that is AHEAD_S seconds ahead: a stand-in for the clock of another machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static time_t ahead(void) { return atoi(getenv("AHEAD_S")); }
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(id, t);
    t->tv_sec += id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? ahead() : 0;
    return result;
}
time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL) *out = t.tv_sec;
    return t.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return 0;
}
"""
PEER = 76


class Scene:
    """One run on a network of its own, in a thread: started, hurt at its first step, and what is
    left of it. hurt(scene) returns the ranks whose process it stopped or killed. before: it is hurt
    before the ranks start."""

    def __init__(self, name, nodes, hurt, expects, arguments=(), connects=True, before=False):
        self.name, self.nodes, self.hurt, self.expects = name, nodes, hurt, expects
        self.arguments, self.connects, self.before = arguments, connects, before
        self.network = self.started = None
        self.ended, self.took, self.problem = [], 0.0, ""

    def run(self, out):
        try:
            with Network(max(self.nodes) + 1) as self.network:
                self.network.only_port = 0 if self.connects else PORT
                command = [LEVIN, "train", "classify", *LONG, *self.arguments, f"out={out}"]
                if self.before:
                    self.hurt(self)
                self.started = self.network.start(self.nodes, command)
                try:
                    self.act(f"{out}/metrics.jsonl")
                finally:
                    self.end()
        except Exception as e:  # pylint: disable=broad-exception-caught
            self.problem = repr(e)

    def has_begun(self, metrics):
        if not self.connects:
            return self.network.kept_out > 0
        return os.path.exists(metrics) and os.path.getsize(metrics) > 200

    def act(self, metrics):
        until = time.monotonic() + 60
        while not self.before and not self.has_begun(metrics):
            if time.monotonic() > until or any(p.poll() is not None for p in self.started):
                self.problem = "it did not begin"
                return
            time.sleep(0.01)
        since = time.monotonic()
        hurt = [] if self.before else self.hurt(self)
        for rank, p in enumerate(self.started):
            if rank not in hurt:
                p.wait(timeout=4 * GONE_S)
        self.took = time.monotonic() - since

    def end(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            self.ended.append((p.stdout.read(), p.wait()))
            p.stdout.close()

    def signal_all(self, number, ranks):
        for rank in ranks:
            os.kill(self.started[rank].pid, number)
        return ranks

    def link_down(self, node):
        self.network.node[node].ip("link", "set", "wire0", "down")

    def ranks_of(self, node):
        return [rank for rank, k in enumerate(self.nodes) if k == node]


def no_power(node):
    def hurt(scene):
        scene.network.cut.add(node)  # neither FIN nor RST leaves it
        return scene.signal_all(signal.SIGKILL, scene.ranks_of(node))

    return hurt


def dies(node):
    return lambda scene: scene.signal_all(signal.SIGKILL, scene.ranks_of(node))


def link_down(node):
    def hurt(scene):
        scene.link_down(node)
        return []

    return hurt


def cut_off(node):
    def hurt(scene):
        scene.network.cut.add(node)
        return []

    return hurt


def cut_between(*nodes):
    """Both still reach the store, at node 0."""

    def hurt(scene):
        scene.network.cut.add(frozenset(nodes))
        return []

    return hurt


def no_way(node, to):
    """The system refuses at once, as it does where a firewall rejects; the store is elsewhere."""

    def hurt(scene):
        scene.network.node[node].ip("route", "add", "unreachable", address(to))
        return []

    return hurt


def hangs(*ranks):
    return lambda scene: scene.signal_all(signal.SIGSTOP, list(ranks))


def lost(node, ranks="[0-9]"):
    return rf"^error: rank {ranks} \(node{node}(, pid \d+)?\) failed first.*: .*"


FROM_0, OF_0 = lost(1, "[23]") + SILENT, lost(0, "0") + SILENT
TWO_CUT_APART = r"^error: the connection to rank [12] \(process \d+ of another host\) ended"
CANNOT = r"rank 2 cannot connect to rank 1 at 10\.88\.0\.2:\d+: "
# expects: what the ranks of each node report, together; None: not looked at. A text: what all do.
SCENES = [
    Scene("no power at node 1", [0, 0, 1, 1], no_power(1), [FROM_0, None]),
    Scene("no power at node 0", [0, 0, 1, 1], no_power(0), [None, OF_0]),
    Scene("link of node 1", [0, 0, 1, 1], link_down(1), [FROM_0, OF_0]),
    Scene("link of node 0", [0, 0, 1, 1], link_down(0), [FROM_0, OF_0]),
    Scene("partition of three", [0, 1, 1, 2], cut_off(1), [lost(1, "[12]") + SILENT, OF_0, None]),
    Scene("node 0 hangs", [0, 0, 1, 1], hangs(0, 1), [None, OF_0]),
    Scene("two cut apart", [0, 1, 2], cut_between(1, 2), TWO_CUT_APART),
    Scene("no way", [0, 1, 2], no_way(2, 1), f"{CANNOT}No route to host; let", before=True),
    Scene("silence", [0, 1, 2], cut_between(1, 2), f"{CANNOT}Connection timed out", before=True),
    Scene("no power, connecting", [0, 1], no_power(0), [None, None], connects=False),
    Scene("partition, threads", [0, 1], cut_off(0), [lost(1, "1") + SILENT, OF_0], DDP2),
]
MORE_SCENES = [
    Scene("node 1 dies", [0, 0, 1, 1], dies(1), [lost(1, "[23]") + "connection", None]),
    Scene("node 0 dies", [0, 0, 1, 1], dies(0), [None, lost(0, "0") + "connection"]),
    Scene("a rank hangs", [0, 0, 1, 1], hangs(3), [lost(1, "3") + SILENT, None]),
    Scene("rank 0 hangs", [0, 0, 1, 1], hangs(0), [OF_0, None]),
    Scene("node 1 hangs", [0, 0, 1, 1], hangs(2, 3), [FROM_0, None]),
    Scene("no power, threads", [0, 1], no_power(0), [None, OF_0], DDP2),
    Scene("no power, net", [0, 0, 1], no_power(0), [None, OF_0], ["transport=net"]),
]


@unittest.skipIf(missing(), missing())
class NodeFailures(RankCase):
    def check_scene(self, scene):
        what = f"{scene.name}: {scene.problem} {scene.ended}"
        self.assertEqual(scene.problem, "", what)
        self.assertLess(scene.took, GONE_S, what)
        hurt = {rank for rank, (_, code) in enumerate(scene.ended) if code == -signal.SIGKILL}
        for rank, (_, code) in enumerate(scene.ended):
            if rank not in hurt:
                self.assertEqual(code, PEER, what)
        if isinstance(scene.expects, str):
            reports = [("".join(text for text, _ in scene.ended), scene.expects)]
        else:
            of_node = [
                "".join(scene.ended[rank][0] for rank in scene.ranks_of(node))
                for node in range(len(scene.expects))
            ]
            reports = zip(of_node, scene.expects)
        for written, expects in reports:
            if expects is not None:
                self.assertEqual(written.count("error: "), 1, what)
                self.assertRegex(written, re.compile(expects, re.MULTILINE), what)

    def play(self, scenes):
        for i in range(0, len(scenes), 8):
            threads = [
                threading.Thread(target=scene.run, args=(f"{self.dir}/{i}-{k}",))
                for k, scene in enumerate(scenes[i : i + 8])
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for scene in scenes:
            with self.subTest(scene.name):
                self.check_scene(scene)

    def test_all_end_and_name_host_and_cause(self):
        self.play(SCENES + (MORE_SCENES if SLOW else []))

    @unittest.skipUnless(SLOW, "with LEVIN_TEST_SLOW=1")
    def test_a_launcher_on_each_node(self):
        """Each reports the ranks of its node, and of which other one they heard nothing."""
        train = [LEVIN, "train", "classify", *LONG, f"out={self.out}"]
        with Network(2) as network:
            started = []
            for node in (0, 1):
                where = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2"]
                where += [f"--master-addr={address(0)}", f"--master-port={PORT}"]
                launch = [LEVIN, "launch", *where, f"--run-dir={self.dir}/logs", "--", *train]
                started.append(network.start_on(node, launch, {"LEVIN_TOKEN": "a test"}))
                self.addCleanup(started[-1].stdout.close)
                self.addCleanup(started[-1].kill)
            self.wait_for(lambda: self.steps() >= 3, started[0])
            network.cut.add(1)
            since = time.monotonic()
            for node, expects in (
                (0, FROM_0.replace("^", "")),
                (1, OF_0.replace("^error", "peer")),
            ):
                written = started[node].communicate(timeout=WAIT_S)[0]
                self.assertEqual(started[node].returncode, PEER, written)
                self.assertRegex(written, expects)
            self.assertLess(time.monotonic() - since, GONE_S)

    # ---- runs that go on ----

    def undisturbed(self, arguments):
        out = f"{self.dir}/undisturbed"
        self.levin(["train", "classify", *arguments, f"out={out}"], OK)
        return self.hashes(out)

    def train_on(self, network, nodes, arguments, env=None):
        command = [LEVIN, "train", "classify", *arguments, f"out={self.out}"]
        started = network.start(nodes, command, env)
        for p in started:
            self.addCleanup(p.stdout.close)
            self.addCleanup(p.kill)
        return started

    def assert_same(self, started, first):
        for p in started:
            written = p.communicate(timeout=WAIT_S)[0]
            self.assertEqual(p.returncode, OK, written)
        self.assertEqual(self.hashes(self.out), first)

    def test_a_slow_network_that_loses_packets(self):
        arguments = [*RUN, f"max_steps={20 if SLOW else 2}"]
        first = self.undisturbed(arguments)
        with Network(2) as network:
            network.delay_s, network.loss, network.worse_at = 0.2 if SLOW else 0.02, 0.05, 1
            self.assert_same(self.train_on(network, [0, 0, 1, 1], arguments), first)

    def test_addresses_of_ipv6(self):
        """A network that has no others."""
        first = self.undisturbed(SHORT)
        with Network(3) as network:
            for node in network.node:
                node.ip("-4", "address", "flush", "dev", "wire0")
            store = {k: {"MASTER_ADDR": address_6(0)} for k in range(3)}
            self.assert_same(self.train_on(network, [0, 0, 1, 2], SHORT, store), first)

    def clock(self, ahead_s):
        library = f"{self.dir}/clock.so"
        if not os.path.exists(library):
            write(f"{self.dir}/clock.c", CLOCK.encode())
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-o", library, f"{self.dir}/clock.c"], check=True
            )
        env = {
            "LD_PRELOAD": library,
            "AHEAD_S": str(ahead_s),
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        }
        before = int(time.time())
        date = int(subprocess.check_output(["date", "+%s"], env={**os.environ, **env})) - ahead_s
        self.assertTrue(before <= date <= time.time(), (before, date))
        return env

    def test_clocks_that_differ(self):
        """No rank decides by the time of day of another."""
        first = self.undisturbed(SHORT)
        with Network(2) as network:
            for ahead_s in (3, -3):
                self.out = f"{self.dir}/ahead{ahead_s}"
                clocks = {1: self.clock(ahead_s)}
                self.assert_same(self.train_on(network, [0, 0, 1], SHORT, clocks), first)
                self.out = f"{self.dir}/lost{ahead_s}"
                started = self.train_on(network, [0, 0, 1], LONG, clocks)
                self.wait_for(lambda: self.steps() >= 3, started[0])
                os.kill(started[1].pid, signal.SIGKILL)
                written = "".join(p.communicate(timeout=GONE_S)[0] for p in started)
                self.assertEqual(written.count("error: "), 1, written)
                self.assertRegex(written, re.compile(lost(0, "1"), re.MULTILINE))

    def written(self):
        try:
            return os.stat(f"{self.out}/metrics.jsonl").st_mtime_ns
        except FileNotFoundError:
            return 0

    def test_killed_and_resumed(self):
        """At random moments; a node, or one of its ranks."""
        arguments = [*RUN, f"max_steps={30 + 25 * KILLS}", "checkpoint.every_n_steps=2"]
        first, last = self.undisturbed(arguments), f"{self.out}/checkpoints/last.safetensors"
        chance = random.Random(int(os.environ.get("LEVIN_TEST_SEED", "1")))
        nodes = [0, 0, 1, 1]
        with Network(2) as network:
            for kill in range(KILLS):
                resume = ["resume=true"] if os.path.exists(last) else ["overwrite=true"]
                before = self.written()
                started = self.train_on(network, nodes, [*arguments, *resume])
                if chance.random() < 0.7:
                    until = time.monotonic() + WAIT_S
                    while self.written() == before and started[0].poll() is None:
                        self.assertLess(time.monotonic(), until)
                        time.sleep(0.005)
                time.sleep(chance.random() * 0.3)
                victims = chance.choice([[0], [3], [0, 1], [2, 3]])
                for rank in victims:
                    started[rank].kill()
                since = time.monotonic()
                for rank, p in enumerate(started):
                    written = p.communicate(timeout=WAIT_S)[0]
                    codes = (-signal.SIGKILL, OK) if rank in victims else (PEER, OK)
                    self.assertIn(p.returncode, codes, f"kill {kill}: {written}")
                self.assertLess(time.monotonic() - since, GONE_S)
                if os.path.exists(last):
                    self.hashes(self.out)
            resume = ["resume=true"] if os.path.exists(last) else ["overwrite=true"]
            self.assert_same(self.train_on(network, nodes, [*arguments, *resume]), first)


if __name__ == "__main__":
    main()
