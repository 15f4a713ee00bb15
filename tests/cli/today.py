"""Long modules of tests by turns (tests/support/turns.py)."""

import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "support"))

from turns import of_today, turn_line


class OfToday(unittest.TestLoader):
    """For unittest.main: of the tests of a module those of this turn; with names of tests as
    arguments these."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def loadTestsFromModule(self, module, *args, **kwargs):
        def flat(suite):
            for test in suite:
                yield from flat(test) if isinstance(test, unittest.TestSuite) else (test,)

        tests = list(flat(super().loadTestsFromModule(module, *args, **kwargs)))
        if self.parts > 1:
            print(f"{len(tests)} tests, {turn_line(self.parts)}", flush=True)
        return self.suiteClass(of_today(tests, self.parts))
