"""A small model of a terminal: what stands on the screen after the bytes that a program has written
to it, also when its window changes its width. The terminal itself, where the machine has them."""

import os
import re
import unittest

CONTROL = re.compile(rb"\x1b\[([0-9;?]*)([A-Za-z])")


def open_terminal():
    """Both ends of a pseudo terminal, that of the reader first; a test without one skips. What
    programs do there depends on TERM, too, which the test sets for them."""
    try:
        return os.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"needs a pseudo terminal (/dev/pts): {error}") from error


class Screen:
    """rows: lists of characters, without end above and below. reflow: a narrower window wraps lines
    (VTE, kitty, tmux); else it cuts them (xterm)."""

    def __init__(self, width, reflow=True):
        self.width, self.reflow = width, reflow
        self.rows, self.joined = [[]], [False]  # joined: the row goes on the one before it
        self.y = self.x = 0
        self.coloured = False
        self.rest = b""

    def lines(self):
        """Logical lines, without blank ones at the end."""
        out = []
        for row, joined in zip(self.rows, self.joined):
            text = "".join(row)
            out[-1:] = [out[-1] + text] if joined and out else [*out[-1:], text]
        out = [line.rstrip() for line in out]
        while out and out[-1] == "":
            out.pop()
        return out

    def resize(self, width):
        if not self.reflow:
            self.rows = [row[:width] for row in self.rows]
            self.width, self.x = width, min(self.x, width - 1)
            return
        whole, at = [], (0, 0)
        for i, (row, joined) in enumerate(zip(self.rows, self.joined)):
            if not joined or not whole:
                whole.append([])
            if i == self.y:
                at = (len(whole) - 1, len(whole[-1]) + self.x)
            whole[-1] += row
        self.rows, self.joined = [], []
        for i, line in enumerate(whole):
            pieces = [line[k : k + width] for k in range(0, len(line), width)] or [[]]
            if i == at[0]:
                k = min(at[1] // width, len(pieces) - 1)
                self.y, self.x = len(self.rows) + k, at[1] - k * width
            self.rows += pieces
            self.joined += [False] + [True] * (len(pieces) - 1)
        self.width = width

    def newline(self, joined=False):
        self.y += 1
        if self.y == len(self.rows):
            self.rows.append([])
            self.joined.append(joined)

    def erase(self, below):
        del self.rows[self.y][self.x :]
        if below:
            del self.rows[self.y + 1 :], self.joined[self.y + 1 :]

    def put(self, c):
        if self.x >= self.width:
            self.newline(joined=True)
            self.x = 0
        row = self.rows[self.y]
        row += [" "] * (self.x - len(row))
        row[self.x : self.x + 1] = [c]
        self.x += 1

    def feed(self, data):
        data, self.rest = self.rest + data, b""
        i = 0
        while i < len(data):
            c = data[i : i + 1]
            if c == b"\x1b":
                found = CONTROL.match(data, i)
                if found is None:
                    assert len(data) - i < 8, data[i:]
                    self.rest = data[i:]
                    return
                kind = found[2]
                assert kind in b"KJm" and (kind == b"m" or found[1] == b""), found[0]
                self.coloured = self.coloured or kind == b"m"
                if kind in b"KJ":
                    self.erase(kind == b"J")
                i = found.end()
                continue
            if c == b"\r":
                self.x = 0
            elif c == b"\n":
                self.newline()
            else:
                self.put(c.decode("latin-1"))
            i += 1
