"""Kinds of Specs: the generated index, and what reading a file may import."""

import hashlib
import json
import runpy
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dpfit.privacy import spec
from dpfit.privacy.event import Event, Gaussian
from dpfit.privacy.spec import Spec, from_json, reads

TOOL = Path(__file__).parents[2] / "tools" / "generate_index.py"


def test_the_generated_indexes_are_what_the_modules_define():
    tool = runpy.run_path(str(TOOL))
    for path, text in tool["INDEXES"].items():
        assert path.read_text(encoding="utf-8") == text(), (
            f"{path.name} is out of date; run {tool['COMMAND']}"
        )


def test_a_fingerprint_is_the_hash_of_canonical_json():
    event = Gaussian(2.0)
    canonical = json.dumps(event.to_json(), sort_keys=True, separators=(",", ":"))
    assert event.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()
    assert event.fingerprint != Gaussian(2.1).fingerprint
    assert from_json(json.loads(canonical), Event).fingerprint == event.fingerprint


def test_reading_imports_one_module_and_import_dpfit_imports_none():
    code = (
        "import sys, dpfit\n"
        "assert not [name for name in sys.modules if name.startswith('dpfit.')]\n"
        "from dpfit.privacy.spec import Spec, from_json\n"
        "assert 'dpfit.geometry' not in sys.modules\n"
        "print(from_json({'kind': 'domain_l2_ball', 'd': 2, 'norm_bound': 1.0}, Spec))\n"
        "assert 'dpfit.solvers' not in sys.modules and 'dpfit.core' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "L2Ball" in done.stdout


@pytest.mark.parametrize(
    "kind", ["os", "os.system", "subprocess:run", "dpfit.cli.app", "dpfit.privacy.kinds", "", 3]
)
def test_a_file_cannot_name_a_module(kind, monkeypatch):
    def refuse(name, *_):
        raise AssertionError(f"imported {name}")

    monkeypatch.setattr(spec, "import_module", refuse)
    with pytest.raises(ValueError, match="kind must name a known Spec"):
        from_json({"kind": kind}, Spec)


def test_packages_register_kinds_by_an_entry_point(monkeypatch):
    def load(point):
        @dataclass(frozen=True)
        class Plugged(Spec):
            kind = "test_plugged"
            size: int

        return Plugged

    monkeypatch.setattr(EntryPoint, "load", load)
    point = EntryPoint("test_plugged", "somewhere:Plugged", "dpfit.kinds")
    asked = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **by: asked.append(by) or [point])
    assert from_json({"kind": "test_plugged", "size": 3}, Spec).size == 3
    assert asked == [{"group": "dpfit.kinds", "name": "test_plugged"}]


def test_nobody_else_takes_a_kind_of_dpfit_though_it_was_not_imported():
    with pytest.raises(
        TypeError, match=r"kind 'gaussian' belongs to dpfit\.privacy\.event\.Gaussian"
    ):

        @dataclass(frozen=True)
        class Mine(Spec):
            kind = "gaussian"

    assert from_json({"kind": "gaussian", "noise_multiplier": 1.0}, Event) == Gaussian(1.0)


def test_a_reader_makes_todays_spec_from_a_kind_of_the_past():
    @reads("test_doubled_gaussian")
    def read(value):
        return Gaussian(2 * value["half"])

    assert from_json({"kind": "test_doubled_gaussian", "half": 1.0}, Event) == Gaussian(2.0)
    with pytest.raises(ValueError, match="known Mine"):
        from_json({"kind": "test_doubled_gaussian", "half": 1.0}, type("Mine", (Spec,), {}))
