"""Networks and clipped sums of their gradients, side by side with the code before and with peers.

    python benchmarks/nonconvex.py                     all figures, ten RNG seeds
    python benchmarks/nonconvex.py --quick             fewer, under 45 seconds
    python benchmarks/nonconvex.py --json              machine-readable, with the bars
    python benchmarks/nonconvex.py --opacus PYTHON --jax-privacy PYTHON
    python benchmarks/nonconvex.py --only wine         one section: sums, friedman, wine

Sums: the sum of clipped gradients of a network of 30-64-64-2 units over 4,096 rows (RNG seed 0),
as any JAX function and as dense layers, against `JaxLoss` of the commit ``--before``, taken out of
this repository and run by the same interpreter. Peers run where they are installed, or by
interpreters of environments that have them. They take one noisy step on all rows.

Friedman: `sklearn.datasets.make_friedman1`, 10 columns, noise 1, ranges (0, 1) and (0, 30). Wine:
white wines of ``--wine`` (by default ../shared/data or DPFIT_DATA), 80/20 splits, 16 units. Its
stated ranges are those that typical white wines fill (`RANGES`); others are clipped. Budgets are
(epsilon, 1e-6) for one replaced record. The value is R squared on records that were not fitted.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import at_least, finish

Floats = NDArray[np.float64]
Found = tuple[list[dict[str, Any]], list[dict[str, Any]]]

BEFORE = "2919f29"
ROOT = Path(__file__).resolve().parents[1]
SIZES, ROWS = (30, 64, 64, 2), 4096
FASTER = {"jax, float32": 10.0, "dense layers": 100.0}
DELTA = 1e-6
FRIEDMAN = {(30_000, 1.0): 0.90, (5000, 4.0): 0.85}
WINE = {1.0: None, 4.0: 0.27, 8.0: 0.30}
RANGES = (
    (4, 10), (0, 0.8), (0, 0.8), (0, 20), (0, 0.1), (0, 90), (0, 250), (0.985, 1.005), (2.8, 3.6),
    (0.2, 0.8), (8, 14),
)  # fmt: skip


def best(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest call, after one that is not timed."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


# Clipped sums of gradients.


def records() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((ROWS, SIZES[0])), rng.integers(0, 2, ROWS).astype(np.float64)


def weights(dtype: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [
        {
            "w": (rng.standard_normal((a, b)) / np.sqrt(a)).astype(dtype),
            "b": np.zeros(b, dtype=dtype),
        }
        for a, b in itertools.pairwise(SIZES)
    ]


def jax_network(params: Any, example: Any) -> Any:
    import jax
    import jax.numpy as jnp

    value, label = example
    for layer in params[:-1]:
        value = jnp.tanh(value @ layer["w"] + layer["b"])
    logits = value @ params[-1]["w"] + params[-1]["b"]
    return jax.nn.logsumexp(logits) - logits[label.astype(int)]


def before(repeats: int) -> float:
    """Seconds of a sum by a `JaxLoss` of a flat vector, as all versions have it."""
    from jax.flatten_util import ravel_pytree

    from dpfit.kernels.passes import clipped_sum
    from dpfit.losses import JaxLoss
    from dpfit.noise import Grid

    flat, unravel = ravel_pytree(weights("float32"))
    theta, (rows, labels) = np.asarray(flat, dtype=np.float64), records()
    loss = JaxLoss(
        function=lambda point, example: jax_network(unravel(point.astype("float32")), example),
        lipschitz_bound=1.0,
    )
    return best(lambda: clipped_sum(rows, labels, theta, loss, clip=1.0, grid=Grid(-20)), repeats)


def ours(repeats: int) -> dict[str, float]:
    """Seconds of a sum: JAX functions of either type, and dense layers."""
    from dpfit.kernels.passes import clipped_sum
    from dpfit.losses import DenseLayers, JaxLoss
    from dpfit.noise import Grid

    rows, labels = records()
    losses: dict[str, Any] = {
        f"jax, {dtype}": JaxLoss(function=jax_network, template=weights(dtype))
        for dtype in ("float32", "float64")
    }
    losses["dense layers"] = DenseLayers(SIZES[1:-1], "softmax", SIZES[-1])
    theta = np.concatenate([part.ravel() for w in weights("float64") for part in (w["w"], w["b"])])
    return {
        name: best(
            lambda loss=loss: clipped_sum(rows, labels, theta, loss, clip=1.0, grid=Grid(-20)),
            5 * repeats,
        )
        for name, loss in losses.items()
    }


def opacus(repeats: int) -> float:
    """Seconds of a step of Opacus on all rows."""
    import torch
    from opacus import PrivacyEngine

    rows, labels = records()
    data = torch.utils.data.TensorDataset(
        torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    )
    layers: list[Any] = []
    for a, b in itertools.pairwise(SIZES):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers[:-1])
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        data_loader=torch.utils.data.DataLoader(data, batch_size=ROWS),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    loss, (x, y) = torch.nn.CrossEntropyLoss(), next(iter(loader))

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return best(step, repeats)


def jax_privacy(repeats: int) -> float:
    """Seconds of a clipped sum of jax-privacy with its noise, compiled."""
    import jax
    from jax_privacy import clipping, noise_addition

    rows, labels = (each.astype(np.float32) for each in records())
    params = weights("float32")

    def mean(given: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda row, label: jax_network(given, (row, label)))(x, y).mean()

    gradient = clipping.clipped_grad(mean, l2_clip_norm=1.0, batch_argnums=(1, 2))
    noise = noise_addition.gaussian_privatizer(stddev=1.0, prng_key=jax.random.key(0))
    state = noise.init(params)

    @jax.jit
    def step(given: Any, held: Any) -> Any:
        found = gradient(given, rows, labels)
        return noise.update(sum_of_clipped_grads=found, noise_state=held)

    return best(lambda: jax.block_until_ready(step(params, state)), repeats)


PEERS = {"before": before, "opacus": opacus, "jax_privacy": jax_privacy}


def elsewhere(name: str, python: str, repeats: int, source: Path | None = None) -> float:
    """Seconds of another process: a peer's interpreter, or another version of dpfit."""
    command = [python, __file__, "--as", name, "--repeats", str(repeats)]
    places = {} if source is None else {"PYTHONPATH": str(source / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **places}
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.strip().splitlines()[-1])


def sums(options: argparse.Namespace) -> Found:
    """Clipped sums of the network, between two rounds of the code before."""
    repeats = 2 if options.quick else 5
    rounds = 1 if options.quick else 3
    earlier, found = [], []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", options.before, "src"],
            capture_output=True,
            check=True,
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        for _ in range(rounds):
            earlier.append(elsewhere("before", sys.executable, repeats, Path(folder)))
            found.append(ours(repeats))
    seconds = {name: min(row[name] for row in found) for name in found[0]}
    old = min(earlier)
    figures: list[dict[str, Any]] = [{"what": f"sum, before ({options.before})", "seconds": old}]
    figures += [{"what": f"sum, {name}", "seconds": value} for name, value in seconds.items()]
    for peer, given in (("opacus", options.opacus), ("jax_privacy", options.jax_privacy)):
        if python := given or (sys.executable if find_spec(peer) else None):
            figures.append({"what": f"step, {peer}", "seconds": elsewhere(peer, python, repeats)})
    bars = [
        at_least(f"seconds before over now, {name}", old / seconds[name], target)
        for name, target in FASTER.items()
    ]
    return figures, bars


# Quality of fits.


def r_squared(predicted: Floats, truth: Floats) -> float:
    return float(1 - np.mean((predicted - truth) ** 2) / truth.var())


def friedman(options: argparse.Namespace) -> Found:
    """A curved function of five of ten columns, at defaults, beside linear models."""
    from sklearn.datasets import make_friedman1
    from sklearn.linear_model import LinearRegression as Plain

    from dpfit.models import LinearRegression, NetworkRegressor

    figures, bars = [], []
    for (n, epsilon), target in FRIEDMAN.items():
        seconds: list[float] = []
        scores: dict[str, list[float]] = {"r2": [], "linear": [], "linear_not_private": []}
        for seed in range(1 if options.quick else options.seeds):
            X, y = make_friedman1(n + 10_000, n_features=10, noise=1.0, random_state=seed)
            public: Any = {"bounds": (0, 1), "y_bounds": (0, 30), "random_state": seed}
            models = {
                "r2": NetworkRegressor(epsilon, DELTA, **public),
                "linear": LinearRegression(epsilon, DELTA, **public),
                "linear_not_private": Plain(),
            }
            for name, model in models.items():
                start = time.perf_counter()
                model.fit(X[:n], y[:n])
                if name == "r2":
                    seconds.append(time.perf_counter() - start)
                scores[name].append(r_squared(model.predict(X[n:]), y[n:]))
        what = f"Friedman, n = {n}, epsilon {epsilon:g}"
        means = {key: float(np.mean(values)) for key, values in scores.items()}
        figures.append({"what": what, **means, "least": min(scores["r2"]), "seconds": min(seconds)})
        bars.append(at_least(what, means["r2"], target))
    return figures, bars


def wine(options: argparse.Namespace) -> Found:
    """White wines: ten splits at each budget, beside linear models."""
    from sklearn.linear_model import LinearRegression as Plain

    from dpfit.models import LinearRegression, NetworkRegressor

    if not options.wine.exists():
        sys.exit(f"there is no table of wines at {options.wine}; pass --wine FILE, or --only")
    table = np.loadtxt(options.wine, delimiter=",")
    X, y, n = table[:, :-1], table[:, -1], int(0.8 * len(table))
    bounds = tuple(np.array(RANGES, dtype=float).T)
    figures, bars = [], []
    for epsilon, target in WINE.items():
        scores: dict[str, list[float]] = {"r2": [], "linear": [], "linear_not_private": []}
        for seed in range(2 if options.quick else options.seeds):
            order = np.random.default_rng(seed).permutation(len(X))
            train, test = order[:n], order[n:]
            public = {"bounds": bounds, "y_bounds": (0, 10), "random_state": seed}
            models = {
                "r2": NetworkRegressor(epsilon, DELTA, hidden=(16,), **public),
                "linear": LinearRegression(epsilon, DELTA, **public),
                "linear_not_private": Plain(),
            }
            for name, model in models.items():
                predicted = model.fit(X[train], y[train]).predict(X[test])
                scores[name].append(r_squared(predicted, y[test]))
        name = f"white wine, epsilon {epsilon:g}"
        means = {key: float(np.mean(values)) for key, values in scores.items()}
        figures.append({"what": name, **means})
        if target is not None:
            bars.append(at_least(name, means["r2"], target))
    return figures, bars


SECTIONS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "sums": sums,
    "friedman": friedman,
    "wine": wine,
}
"""Each section returns figures and bars."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=SECTIONS, help="one section")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT")
    data = Path(os.environ.get("DPFIT_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--wine", type=Path, default=data / "winequality-white.csv")
    parser.add_argument("--opacus", metavar="PYTHON", help="an interpreter that has Opacus")
    parser.add_argument("--jax-privacy", metavar="PYTHON", help="one that has jax-privacy")
    parser.add_argument("--as", dest="peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(PEERS[options.peer](options.repeats))
        return 0
    warnings.simplefilter("ignore")
    figures, bars = [], []
    for name, section in SECTIONS.items():
        if options.only in (None, name):
            more, checked = section(options)
            figures += more
            bars += checked
    if not options.json:
        for row in figures:
            parts = (f"{key} {value:.4g}" for key, value in row.items() if key != "what")
            print(f"{row['what']:>32}: {', '.join(parts)}")
    found = {"benchmark": "nonconvex", "quick": options.quick, "figures": figures, "bars": bars}
    return finish(found, options.json)


if __name__ == "__main__":
    sys.exit(main())
