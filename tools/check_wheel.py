"""Check a wheel on its own: on each Python that it allows, in an empty environment.

    python tools/check_wheel.py dist/dpfit-*.whl [PYTHON ...]

Without PYTHON, every interpreter ``python3.N`` of the search path, and of pyenv, is taken that the
wheel allows. In each environment, outside of the repository, the demo and README's Python run.
"""

from __future__ import annotations

import doctest
import email
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def least_minor(wheel: Path) -> int:
    """The N of the oldest Python 3.N that the metadata of a wheel allow."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    found = re.fullmatch(r">=3\.(\d+)", metadata["Requires-Python"])
    if found is None:
        raise ValueError(f"requires-python must be >=3.N, got {metadata['Requires-Python']}")
    return int(found[1])


def interpreters(least: int) -> list[str]:
    """One interpreter for each Python 3.N from ``least`` on that this machine has."""
    roots = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    roots += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    found: dict[str, str] = {}
    for path in (path for root in roots for path in sorted(root.glob("python3.*"))):
        if not re.fullmatch(r"python3\.\d+", path.name) or path.name in found:
            continue
        # A shim of pyenv exists for versions that are not switched on.
        works = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if works.returncode == 0 and int(path.name.partition(".")[2]) >= least:
            found[path.name] = str(path)
    return list(found.values())


def check(wheel: Path, python: str) -> None:
    """Install the wheel into an empty environment and run the demo and README's Python there."""
    code = "\n".join(
        each.source for each in doctest.DocTestParser().get_examples(README.read_text())
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", "env"], cwd=folder, check=True)
        bin_folder = Path(folder) / "env" / "bin"
        settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for command in (
            ["python", "-m", "pip", "install", "--quiet", str(wheel.resolve())],
            ["python", "-m", "pip", "check"],
            ["dpfit", "demo", "--folder", "hospital"],
            ["python", "-c", code],
        ):
            program = str(bin_folder / command[0])
            subprocess.run([program, *command[1:]], cwd=folder, env=settings, check=True)
        if not (Path(folder) / "hospital" / "report.html").exists():
            raise FileNotFoundError("the demo wrote no report")


def main() -> int:
    wheel, pythons = Path(sys.argv[1]), sys.argv[2:]
    for python in pythons or interpreters(least_minor(wheel)):
        check(wheel, python)
        print(f"{wheel.name} works alone on {python}", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
