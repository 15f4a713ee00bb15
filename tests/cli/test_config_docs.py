"""docs/config.md must be what tools/config-docs prints, and docs/tour.md name the file of each
heading of train.classify.

usage: test_config_docs.py SOURCE_DIR LEVIN
"""

import difflib
import re
import subprocess
import sys
from pathlib import Path

source, levin = Path(sys.argv[1]), sys.argv[2]
reported = subprocess.run(
    [source / "tools" / "config-docs", levin], check=True, capture_output=True, text=True
).stdout
written = (source / "docs" / "config.md").read_text()
if "val_split" not in reported or reported.count("## levin help ") < 8:
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

tour = (source / "docs" / "tour.md").read_text()
keys = reported[reported.index("## levin help train.classify") :].split("```")[1][len("text") :]
headings = re.findall(r"^([a-z][a-z ]*)$", keys, re.M)
if len(headings) < 9:
    sys.exit(f"headings of train.classify: {headings}")
for heading in headings:
    row = re.search(rf"^\| {heading} \| `(.*?)`", tour, re.M)
    if row is None or f'TABLE("{heading}"' not in (source / row[1]).read_text():
        sys.exit(f"docs/tour.md does not name the file that has the table of keys {heading!r}")
