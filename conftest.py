"""Noise that a test leaves unseeded is the same in every run: a failure can be run again."""

import hashlib
import os
from collections.abc import Iterator

import pytest

import dpfit.noise.source as source

DRAWS = pytest.StashKey["Draws"]()


class Draws:
    """Keys of unseeded sources: a function of the test's name and of how many it opened before."""

    def __init__(self, rng_seed: str) -> None:
        self.rng_seed, self.process, self.fresh = rng_seed, os.getpid(), source._key
        self.start("")

    def start(self, name: str) -> None:
        self.name, self.opened = name, 0

    def key(self, seed: int | None, path: tuple[int, ...]) -> int:
        # A forked child keeps the system's randomness, which its tests are about.
        if seed is not None or os.getpid() != self.process:
            return self.fresh(seed, path)
        self.opened += 1
        named = f"{self.rng_seed}/{self.name}/{self.opened}"
        return int.from_bytes(hashlib.sha256(named.encode()).digest(), "little")


def pytest_addoption(parser: pytest.Parser) -> None:
    asked = "draw other noise in tests that give no RNG seed"
    parser.addoption("--noise-seed", default="0", help=asked)


def pytest_configure(config: pytest.Config) -> None:
    draws = config.stash[DRAWS] = Draws(config.getoption("--noise-seed"))
    source._key = draws.key


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[DRAWS].start(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Shared fixtures draw the same noise, whichever test asks for them first."""
    draws = request.config.stash[DRAWS]
    before = draws.name, draws.opened
    if fixturedef.scope != "function":
        draws.start(f"{fixturedef.baseid}::{fixturedef.argname}")
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            draws.name, draws.opened = before
