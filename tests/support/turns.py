"""Long lists of like cases by turns: a part of them each day, all with LEVIN_TEST_SLOW=1."""

import os
import time


def of_today(items, parts):
    """Every parts-th of them, from another one each day."""
    items = list(items)
    if os.environ.get("LEVIN_TEST_SLOW", "0") not in ("", "0"):
        return items
    return items[int(time.time() // 86400) % parts :: parts]
