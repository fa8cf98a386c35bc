"""Processes of their own for what a deployment does: no compiler on PATH, and what is imported there is seen.

The scripts are texts, so that such a process imports nothing of the kit.
"""

import os
import subprocess
import sys

from .case import UnexpectedError

#: module, artifact, inputs.npz, outputs.npz: runs once; prints which of the heavy modules were imported.
RELOAD = """
import importlib, sys
import numpy as np
module, artifact, inputs, outputs = sys.argv[1:]
importlib.import_module(module)
from tvm_ext.runtime.model import load
model = load(artifact)
with np.load(inputs) as stored:
    feeds = {spec.name: stored[f"arr_{i}"] for i, spec in enumerate(model.inputs)}
np.savez(outputs, *model.run(feeds).values())
print(*[name for name in ("tvm", "onnx", "onnxruntime") if name in sys.modules])
"""

#: artifact: loads it where no package brings a driver; prints the error.
WITHOUT_DRIVER = """
import importlib.metadata, sys
importlib.metadata.entry_points = lambda **_: ()
from tvm_ext.runtime.model import load
try:
    load(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
else:
    print("no error")
"""

#: module, back end, program.npz, mutations: damages the program in many ways; prints each before it is tried.
DAMAGED = """
import importlib, sys
import numpy as np
from tvm_ext.runtime.drivers import driver_named
module, backend, path, count = sys.argv[1:]
importlib.import_module(module)
driver = driver_named(backend, module)
with np.load(path) as stored:
    program = stored["program"]
    inputs = [stored[f"x{i}"] for i in range(int(stored["inputs"]))]
    expected = [stored[f"y{i}"] for i in range(int(stored["outputs"]))]
rng = np.random.default_rng(0)
def damage(kind):
    at = int(rng.integers(len(program)))
    changed = program.copy()
    if kind == 0:
        changed[at] ^= 1 << int(rng.integers(8))
        return f"a bit of byte {at} flipped", changed
    if kind == 1:
        return f"cut off after {at} bytes", changed[:at]
    if kind == 2:
        return "a byte more", np.append(changed, np.uint8(at & 255))
    end = at + int(rng.integers(1, 65))
    changed[at:end] = rng.integers(0, 256, len(changed[at:end]))
    return f"bytes {at} to {end} replaced", changed
for number in range(int(count)):
    what, changed = damage(number % 4)
    if changed.tobytes() == program.tobytes():
        continue
    print(f"mutation {number}, {what}", flush=True)
    outputs = [np.full(y.nbytes, 0x55, np.uint8).view(y.dtype).reshape(y.shape) for y in expected]
    try:
        driver(changed.tobytes())(inputs, outputs)
    except Exception:
        continue
    if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, expected)):
        print(f"mutation {number}, {what}: it ran, and gave other values", flush=True)
        sys.exit(3)
"""


def run_script(script: str, *arguments: object, seconds: float = 120.0, **environ: str) -> str:
    """What a script prints in a process of its own, which imports from where this one does.

    Raises:
        UnexpectedError: it fails, dies, or takes longer; with the end of what it printed.
    """
    paths = os.pathsep.join(os.path.abspath(path or os.curdir) for path in sys.path)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": paths, **environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        raise UnexpectedError(f"no end after {seconds:.0f} s, at: {_last_line(text)}") from None
    if done.returncode:
        died = f"died of signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise UnexpectedError(f"the process: {died}, at: {_last_line(done.stdout)} {_last_line(done.stderr)}".strip())
    return done.stdout.strip()


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
