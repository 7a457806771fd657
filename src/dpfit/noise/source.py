"""Where random bits come from: one cryptographically secure stream per source."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from randomgen import ChaCha

Size = int | tuple[int, ...]
Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def lineage() -> tuple[int, int]:
    """Name the running process; a fork changes the name even if a process number is used again."""
    return os.getpid(), _forks


class Source:
    """A stream of independent uniform bits, and the draws that are made from it.

    The stream is ChaCha20. Its 256-bit key comes from the operating system, so that releases are
    unpredictable; a fork gives the child a fresh key, and pickling never carries the stream along.
    A caller's RNG seed makes the stream reproducible for tests, and marks it as not private.

    Sources are thread-safe. Copies are the same object: two owners of one stream must not draw
    equal noise.

    The continuous draws (`uniform`, `gaussian`, `laplace`, `exponential`, `gumbel`, `gamma`,
    `uniform_ball`, `uniform_sphere`) are ordinary floating-point numbers. They are for randomness
    that stays inside a step, such as a sampler's proposals or the winner of a noisy argmax. Never
    add them to data and release the sum: its low-order bits tell the data apart [1]_. That is what
    `dpfit.noise.additive` is for.

    Parameters
    ----------
    random_state
        ``None`` for a key from the operating system, or a non-negative RNG seed (tests only).

    Attributes
    ----------
    private
        Whether the key is secret, that is, whether no RNG seed was given.

    References
    ----------
    .. [1] I. Mironov, On significance of the least significant bits for differential privacy, CCS
    2012.

    Examples
    --------
    >>> Source().private
    True
    >>> source = Source(random_state=7)
    >>> source.private
    False
    >>> int(source.words(3)[0]) == int(Source(random_state=7).words(1)[0])
    True
    """

    def __init__(self, random_state: int | None = None) -> None:
        self._seed = None if random_state is None else whole("random_state", random_state, 0)
        self._path: tuple[int, ...] = ()
        self._children = 0
        self._used = False
        self._open()

    @property
    def private(self) -> bool:
        return self._seed is None

    def _open(self) -> np.random.Generator:
        bits = ChaCha(key=_key(self._seed, self._path), rounds=20)
        generator = np.random.Generator(bits)
        # One assignment, so that no thread sees a new process name next to an old stream.
        self._stream = (lineage(), generator)
        return generator

    @property
    def _generator(self) -> np.random.Generator:
        self._used = True
        opened_in, generator = self._stream
        if self.private and opened_in != lineage():
            # A forked child must not repeat its parent's noise: differences would reveal the data.
            return self._open()
        return generator

    def words(self, size: Size) -> Words:
        """Draw 64-bit words whose bits are independent and uniform.

        Every exact sampler of this package is a function of these words alone.

        Examples
        --------
        >>> Source().words((2, 3)).shape
        (2, 3)
        """
        words: Words = np.asarray(self._generator.bit_generator.random_raw(size), dtype=np.uint64)
        return words

    def integers(self, bound: int, size: Size) -> Steps:
        """Draw integers that are exactly uniform on ``0, ..., bound - 1``.

        Words are cut to the bits that the bound needs and rejected when they reach it, so no
        remainder favours the small numbers.

        Examples
        --------
        >>> bool(np.all(Source().integers(6, 100) < 6))
        True
        """
        bound = whole("bound", bound, 1, 2**63)
        mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
        drawn = self.words(size) & mask
        flat = drawn.reshape(-1)
        pending = np.flatnonzero(flat >= np.uint64(bound))
        while pending.size:
            flat[pending] = self.words(pending.size) & mask
            pending = pending[flat[pending] >= np.uint64(bound)]
        return flat.reshape(drawn.shape).astype(np.int64)

    def permutation(self, n: int) -> Steps:
        """Draw an exactly uniform permutation of ``0, ..., n - 1`` by exact integers.

        Examples
        --------
        >>> sorted(Source().permutation(4).tolist())
        [0, 1, 2, 3]
        """
        return self._generator.permutation(whole("n", n, 0)).astype(np.int64, copy=False)

    def bernoulli(self, probability: float, size: Size) -> Flags:
        """Draw flags that are true with exactly the given probability.

        A float is a rational number with finitely many binary digits. Each draw compares uniform
        digits with these, 64 at a time, until they differ, so amplification by sampling is not owed
        to a rounded rate.

        Examples
        --------
        >>> Source().bernoulli(1.0, 3).tolist()
        [True, True, True]
        """
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {probability!r}")
        flags: Flags = np.zeros(size, dtype=np.bool_)
        if probability == 1:
            return ~flags
        flat = flags.reshape(-1)
        pending = np.arange(flat.size)
        remaining = float(probability)
        while pending.size and remaining > 0:
            # Scaling by a power of two and removing the integer part are exact in floating point.
            scaled = remaining * 2.0**64
            digits = int(scaled)
            remaining = scaled - digits
            words = self.words(pending.size)
            flat[pending] = words < np.uint64(digits)
            pending = pending[words == np.uint64(digits)]
        return flags

    def uniform(self, size: Size) -> Floats:
        """Draw uniform numbers of [0, 1); never to be added to data and released.

        Examples
        --------
        >>> Source().uniform(3).shape
        (3,)
        """
        return np.asarray(self._generator.random(size), dtype=np.float64)

    def gaussian(self, size: Size) -> Floats:
        """Draw standard normal numbers; never to be added to data and released.

        Examples
        --------
        >>> Source().gaussian(3).shape
        (3,)
        """
        return np.asarray(self._generator.standard_normal(size), dtype=np.float64)

    def exponential(self, size: Size) -> Floats:
        """Draw numbers with density exp(-x); never to be added to data and released.

        Both tails are resolved to probability 2**-64: a uniform number of (0, 1/2) has full
        relative precision, and one more bit says on which side of 1/2 it is read.

        Examples
        --------
        >>> bool(np.all(Source().exponential(100) > 0))
        True
        """
        words = self.words(size)
        tail = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        return np.asarray(np.where(words & np.uint64(1), -np.log1p(-tail), -np.log(tail)))

    def laplace(self, size: Size) -> Floats:
        """Draw numbers with density exp(-abs(x))/2; never to be added to data and released.

        Examples
        --------
        >>> Source().laplace(3).shape
        (3,)
        """
        return np.where(self.words(size) & np.uint64(1), 1.0, -1.0) * self.exponential(size)

    def gumbel(self, size: Size) -> Floats:
        """Draw standard Gumbel numbers (``-log`` of exponentials); never noise of a release.

        The largest draw decides an argmax, so the upper tail matters: it is exact up to probability
        2**-64, where 53-bit uniform numbers would stop at 2**-53.

        Examples
        --------
        >>> bool(np.all(np.isfinite(Source().gumbel(100))))
        True
        """
        return np.asarray(-np.log(self.exponential(size)))

    def gamma(self, shape: float, size: Size) -> Floats:
        """Draw from density prop. to x**(shape - 1) exp(-x); never noise of a release.

        Examples
        --------
        >>> Source().gamma(2.5, 3).shape
        (3,)
        """
        if not 0 < shape < np.inf:
            raise ValueError(f"shape must be positive and finite, got {shape!r}")
        return np.asarray(self._generator.standard_gamma(shape, size), dtype=np.float64)

    def uniform_sphere(self, dimension: int, size: Size = ()) -> Floats:
        """Draw uniform unit vectors (normal vectors scaled to length one), along the last axis.

        Examples
        --------
        >>> np.linalg.norm(Source().uniform_sphere(5, 2), axis=-1).round(12)
        array([1., 1.])
        """
        normal = self.gaussian((*_shape(size), whole("dimension", dimension, 1)))
        return np.asarray(normal / np.linalg.norm(normal, axis=-1, keepdims=True))

    def uniform_ball(self, dimension: int, radius: float = 1.0, size: Size = ()) -> Floats:
        """Draw uniform points of the Euclidean ball around zero, along the last axis.

        Examples
        --------
        >>> bool(np.all(np.linalg.norm(Source().uniform_ball(3, 2.0, 10), axis=-1) <= 2))
        True
        """
        if not 0 < radius < np.inf:
            raise ValueError(f"radius must be positive and finite, got {radius!r}")
        direction = self.uniform_sphere(dimension, size)
        distance = radius * self.uniform((*_shape(size), 1)) ** (1 / dimension)
        return np.asarray(distance * direction)

    def spawn(self, n: int) -> list[Source]:
        """Make sources with independent keys, one for each worker.

        Children of a seeded source are seeded too: their keys are hashes of the RNG seed and their
        index. They can be pickled until they are first used.

        Examples
        --------
        >>> [child.private for child in Source().spawn(2)]
        [True, True]
        """
        n = whole("n", n, 0)
        if self._seed is None:
            return [Source() for _ in range(n)]
        first = self._children
        self._children += n
        return [_seeded_child(self._seed, (*self._path, first + i)) for i in range(n)]

    def __copy__(self) -> Source:
        return self

    def __deepcopy__(self, memo: object) -> Source:
        return self

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[object, ...]]:
        if self._seed is None:
            return Source, ()
        if self._path and not self._used:
            return _seeded_child, (self._seed, self._path)
        return self._refuse_pickling()

    def _refuse_pickling(self) -> NoReturn:
        raise TypeError(
            "a seeded Source cannot be pickled: two processes would draw the same noise; "
            "send each worker its own child from spawn(n)"
        )

    def __repr__(self) -> str:
        if self._seed is None:
            return "Source()"
        return (
            f"Source(random_state={self._seed}{''.join(f', child {i}' for i in self._path)}; "
            "not private)"
        )


def whole(name: str, value: object, lowest: int, highest: int | None = None) -> int:
    """Return an integer parameter, or say what is wrong with it.

    Examples
    --------
    >>> whole("n", 3, 1)
    3
    """
    allowed = f"an integer of at least {lowest}" + (
        "" if highest is None else f" and at most {highest}"
    )
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be {allowed}, got {value!r}")
    if value < lowest or (highest is not None and value > highest):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def _key(seed: int | None, path: tuple[int, ...]) -> int:
    if seed is None:
        return int.from_bytes(os.urandom(32), "little")
    named = "dpfit.noise.Source/" + "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(named.encode()).digest(), "little")


def _seeded_child(seed: int, path: tuple[int, ...]) -> Source:
    child = Source(seed)
    child._path = path
    child._open()
    return child


def _shape(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)
