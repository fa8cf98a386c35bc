"""Running Python text in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_python(text: str, *arguments: str | Path, timeout: float = 120, **environ: str | None) -> str:
    """What it prints. An environment variable of None is unset. A failing, or hanging, process fails the test."""
    values = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    environment = {name: value for name, value in values.items() if value is not None}
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=ROOT)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
