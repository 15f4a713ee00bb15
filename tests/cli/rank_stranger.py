"""A client of the store, written from what anybody can know: frames and proofs
(src/control/message.h, auth.h), and nothing of levin's own."""

import os
import socket
import struct

MAGIC, PROTOCOL = b"levinctl", 4
HELLO, GREET, WELCOME, REFUSE, GET, REPLY, FAIL, DENY = 1, 2, 3, 4, 7, 11, 13, 18
NO_KEY = b"levin run key 1\0"


def siphash(key, data):
    """SipHash-2-4 with 128 bits."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rounds(n):
        for _ in range(n):
            for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[c] = (v[c] + v[d]) & mask
                v[b] = ((v[b] << left | v[b] >> (64 - left)) & mask) ^ v[a]
                v[d] = ((v[d] << right | v[d] >> (64 - right)) & mask) ^ v[c]
                v[a] = (v[a] << 32 | v[a] >> 32) & mask

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (m,) in struct.iter_unpack("<Q", padded):
        v[3] ^= m
        rounds(2)
        v[0] ^= m
    out = b""
    for at, flip in ((2, 0xEE), (1, 0xDD)):
        v[at] ^= flip
        rounds(4)
        out += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return out


def text(s):
    return struct.pack("<I", len(s)) + s


def frame(kind, body):
    return struct.pack("<IHH", len(body), kind, 0) + body


def run_key(job_key, run_id, secret=b"", random=NO_KEY):
    return siphash(random, text(job_key) + text(run_id) + text(secret))


class Client:
    """One connection. kind: the type of the frame that came last, None when the store hung up."""

    def __init__(self, port):
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.nonce = os.urandom(16)
        self.kind, hello = self.receive()
        assert self.kind == HELLO and hello[:8] == MAGIC, (self.kind, hello)
        self.store_nonce, self.how = hello[8:24], struct.unpack("<I", hello[24:])[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exactly(self, n):
        data = b""
        while len(data) < n:
            try:
                piece = self.socket.recv(n - len(data))
            except ConnectionError:
                piece = b""
            if not piece:
                return None
            data += piece
        return data

    def receive(self):
        head = self.exactly(8)
        if head is None:
            return None, b""
        n, kind, _ = struct.unpack("<IHH", head)
        return kind, self.exactly(n)

    def greet(self, key, rank=1, world=2, host=b"n08", port=None, credential=b""):
        """Gives the type of the answer and its body."""
        greeting = struct.pack("<IIIIQQ", PROTOCOL, world, rank, port or self.port, 7, 4711)
        proof = siphash(key, b"rank" + self.store_nonce + self.nonce + greeting)
        self.send(
            frame(
                GREET,
                MAGIC
                + struct.pack("<IIIQQ", PROTOCOL, world, rank, 7, 4711)
                + text(host)
                + text(b"0.1.0")
                + self.nonce
                + proof
                + text(credential),
            )
        )
        return self.receive()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except ConnectionError:
            pass
