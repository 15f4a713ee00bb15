"""docs/config.md must be what tools/config-docs prints.

usage: test_config_docs.py SOURCE_DIR LEVIN
"""

import difflib
import subprocess
import sys
from pathlib import Path

source, levin = Path(sys.argv[1]), sys.argv[2]
reported = subprocess.run(
    [source / "tools" / "config-docs", levin], check=True, capture_output=True, text=True
).stdout
written = (source / "docs" / "config.md").read_text()
if "val_split" not in reported or reported.count("## levin help ") != 8:
    sys.exit("levin help printed no keys")
if reported != written:
    sys.stdout.writelines(
        difflib.unified_diff(
            written.splitlines(True), reported.splitlines(True), "docs/config.md", "levin help"
        )
    )
    sys.exit(
        "docs/config.md is not what `levin help` prints: tools/config-docs build/levin "
        ">docs/config.md"
    )
