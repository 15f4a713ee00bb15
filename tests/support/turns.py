"""Long lists of like cases by turns: a part of them each day, all with LEVIN_TEST_SLOW=1, and those
of turn N, from 1 on, with LEVIN_TEST_TURN=N."""

import os
import time


def turn_of(parts):
    """None: all of them."""
    if os.environ.get("LEVIN_TEST_SLOW", "0") not in ("", "0"):
        return None
    chosen = os.environ.get("LEVIN_TEST_TURN")
    return (int(chosen) - 1 if chosen else int(time.time() // 86400)) % parts + 1


def turn_line(parts):
    """For a test to print: a failure of one day is to be seen again on another one."""
    turn = turn_of(parts)
    if turn is None:
        return f"all {parts} turns"
    return f"turn {turn} of {parts}, LEVIN_TEST_TURN={turn} repeats it"


def of_today(items, parts):
    """Every parts-th of them, from another one each day."""
    turn = turn_of(parts)
    return list(items) if turn is None else list(items)[turn - 1 :: parts]
