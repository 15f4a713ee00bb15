"""What of metrics.jsonl is reproducible: everything except times, rates and memory."""

import json

NOT_REPRODUCIBILITY = ("time_s", "throughput/", "memory/")


def reproducibility_lines(run, only=None):
    """[(step, {name: value})] in the order of the file; only: lines with this name, or with one
    below it ("val/"). Values as they were written, digit by digit."""
    lines = []
    with open(f"{run}/metrics.jsonl") as f:
        texts = f.readlines()
    for text in texts:
        row = json.loads(text, parse_float=str, parse_int=str)
        step = int(row.pop("step"))
        row = {
            name: value for name, value in row.items() if not name.startswith(NOT_REPRODUCIBILITY)
        }
        if only is None or any(
            name == only or (only.endswith("/") and name.startswith(only)) for name in row
        ):
            lines.append((step, row))
    return lines


def first_difference(a, b):
    """For messages: where two lists of lines part; "" when they are equal."""
    for x, y in zip(a, b):
        if x != y:
            return f"{x} and {y}"
    return "" if len(a) == len(b) else f"{len(a)} and {len(b)} lines"
