"""Ranks of several nodes on one machine: processes in UTS namespaces with host names of their own,
by which nodes are known. They find each other over the loopback.

usage: node_processes.py NODES COMMAND...
  NODES  of each rank the number of its node: 0,0,1. Prints what the ranks have written.
"""

import os
import socket
import subprocess
import sys

WAIT_S = 120
ENTER = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'


def missing():
    """Why there can be no such nodes; "" when there can."""
    tried = subprocess.run(
        ["unshare", "--uts", "sh", "-c", ENTER, "node0", "true"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "no right to make UTS namespaces"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_on_nodes(nodes, command, env=None, host="node{}", **how):
    """nodes: of each rank the number of its node. Returns the processes, by rank."""
    port, started = free_port(), []
    for rank, node in enumerate(nodes):
        own = {
            "RANK": rank,
            "WORLD_SIZE": len(nodes),
            "LOCAL_RANK": nodes[:rank].count(node),
            "LOCAL_WORLD_SIZE": nodes.count(node),
            "GROUP_RANK": node,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "LEVIN_TOKEN": "the nodes of a test",
        }
        started.append(
            subprocess.Popen(
                ["unshare", "--uts", "sh", "-c", ENTER, host.format(node), *command],
                env={**os.environ, **{k: str(v) for k, v in own.items()}, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **how,
            )
        )
    return started


def end_all(started):
    """Exit codes and what was written, by rank."""
    ended = []
    for p in started:
        try:
            written, _ = p.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            for other in started:
                other.kill()
            written, _ = p.communicate()
            written += "\n(it did not end)"
        ended.append((p.returncode, written))
    return ended


def run_on_nodes(nodes, command):
    """The exit code of the first rank that failed; what all have written goes to standard error."""
    ended = end_all(start_on_nodes(nodes, command))
    for rank, (code, written) in enumerate(ended):
        print(f"rank {rank}, exit code {code}: {written}", file=sys.stderr)
    return next((code for code, _ in ended if code != 0), 0)


if __name__ == "__main__":
    sys.exit(run_on_nodes([int(n) for n in sys.argv[1].split(",")], sys.argv[2:]))
