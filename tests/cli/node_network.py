"""Nodes with host names and networks of their own, on one machine: UTS and network namespaces whose
one interface, `wire0`, is a TUN device of this process. A thread carries the packets, so that they
can be late or lost on the way (what `tc netem` does, whose module not every kernel has), and a link
can go down."""

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time

CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 0x1, 0x1000
MTU, PORT = 9000, 29500


def address(node):
    return f"10.88.0.{node + 1}"


def address_6(node):
    return f"fd88::{node + 1}"


def missing():
    """Why there can be no such nodes; "" when there can."""
    try:
        Network(1).close()
    except (OSError, subprocess.CalledProcessError) as e:
        return f"no right to make nodes with networks: {e}"
    return ""


class Node:
    def __init__(self, number, name):
        self.number, self.address, self.tun = number, address(number), -1
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c"]
            + ['echo "$0" > /proc/sys/kernel/hostname && echo && exec sleep 3600', name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        if self.holder.stdout.readline() == b"":
            self.close()
            raise OSError("namespaces are refused")
        try:
            self.make_interface()
        except BaseException:
            self.close()
            raise

    def make_interface(self):
        failed = []
        thread = threading.Thread(target=self.open_tun, args=(failed,))
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", "wire0", "mtu", str(MTU))
        self.ip("address", "add", f"{self.address}/24", "dev", "wire0")
        self.ip("link", "set", "wire0", "up")
        self.ip("address", "add", f"{address_6(self.number)}/64", "dev", "wire0", "nodad")

    def open_tun(self, failed):
        """In a thread of its own, which alone enters the namespace."""
        try:
            with open(f"/proc/{self.holder.pid}/ns/net", "rb") as f:
                if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            self.tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            request = struct.pack("16sH22x", b"wire0", IFF_TUN | IFF_NO_PI)
            fcntl.ioctl(self.tun, TUNSETIFF, request)
        except OSError as e:
            failed.append(e)

    def command(self, *words):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"] + [
            f"--uts=/proc/{self.holder.pid}/ns/uts",
            *words,
        ]

    def ip(self, *words):
        subprocess.run(self.command("ip", *words), check=True, capture_output=True)

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        if self.tun >= 0:
            os.close(self.tun)


class Network:
    """`with Network(2) as network:` network.node[k]; delay_s and loss (0 to 1) are of the packets
    that node `worse_at` sends; `cut`: nodes that no packet leaves or reaches, though their link is
    up, and sets {a, b} of two that do not reach each other; only_port: no others are let through
    (0: all are), `kept_out` counts the packets to them."""

    def __init__(self, nodes):
        self.delay_s, self.loss, self.worse_at, self.cut = 0.0, 0.0, 0, set()
        self.only_port, self.kept_out = 0, 0
        self.ends, self.thread, self.node = False, None, []
        self.random = random.Random(1)
        try:
            for k in range(nodes):
                self.node.append(Node(k, f"node{k}"))
        except BaseException:
            self.close()
            raise
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.ends = True
        if self.thread is not None:
            self.thread.join()
        for node in self.node:
            node.close()

    def carry(self):
        late, n = [], 0
        with selectors.DefaultSelector() as selector:
            for k, node in enumerate(self.node):
                selector.register(node.tun, selectors.EVENT_READ, k)
            while not self.ends:
                wait_s = max(0.0, late[0][0] - time.monotonic()) if late else 0.1
                for key, _ in selector.select(min(wait_s, 0.1)):
                    for packet in self.packets_of(key.data):
                        n += 1
                        delay_s = self.delay_s if key.data == self.worse_at else 0
                        heapq.heappush(late, (time.monotonic() + delay_s, n, key.data, packet))
                while late and late[0][0] <= time.monotonic():
                    self.deliver(*heapq.heappop(late)[2:])

    def packets_of(self, k):
        """Those that are not lost; none for ever where the link is down (EIO)."""
        for _ in range(64):
            try:
                packet = os.read(self.node[k].tun, MTU + 64)
            except BlockingIOError:
                return
            except OSError:
                time.sleep(0.001)
                return
            if k != self.worse_at or self.random.random() >= self.loss:
                yield packet

    def deliver(self, sender, packet):
        six = packet[0] >> 4 == 6
        to = packet[39 if six else 19] - 1
        ports = struct.unpack("!HH", packet[40:44] if six else packet[20:24])
        if six and packet[24:39] != b"\xfd\x88" + bytes(13):
            return  # of the system to all, when it likes
        if self.only_port != 0 and self.only_port not in ports:
            self.kept_out += 1
            return
        if 0 <= to < len(self.node) and (six or packet[16:19] == b"\x0a\x58\x00"):
            if not self.cut & {sender, to, frozenset((sender, to))}:
                try:
                    os.write(self.node[to].tun, packet)
                except OSError:
                    pass  # its link is down

    def start(self, nodes, command, env=None, **how):
        """Ranks with the variables of torchrun; nodes: of each rank the number of its node; env: of
        a node's ranks in addition."""
        started = []
        for rank, k in enumerate(nodes):
            own = {
                "RANK": rank,
                "WORLD_SIZE": len(nodes),
                "LOCAL_RANK": nodes[:rank].count(k),
                "LOCAL_WORLD_SIZE": nodes.count(k),
                "GROUP_RANK": k,
                "MASTER_ADDR": address(0),
                "MASTER_PORT": PORT,
                "LEVIN_TOKEN": "the nodes of a test",
            }
            started.append(self.start_on(k, command, {**own, **(env or {}).get(k, {})}, **how))
        return started

    def start_on(self, k, command, env, **how):
        return subprocess.Popen(
            self.node[k].command(*command),
            env={**os.environ, **{key: str(value) for key, value in env.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **how,
        )
