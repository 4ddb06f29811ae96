"""The example of the library's README runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[3] / "src" / "holdfast" / "core" / "raft" / "README.md"


def test_the_example_runs_and_imports_nothing_but_the_library() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    listed = "import sys\nprint(*sorted(name for name in sys.modules if name.startswith('holdfast.core.')), sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", f"{example}\n{listed}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    strange = [name for name in run.stdout.split() if not name.startswith("holdfast.core.raft")]
    assert strange == ["holdfast.core.model", "holdfast.core.model.lifecycle"]
