"""A first private release, from public facts to a number with its promise."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from dpfit.core import Answer
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean
from dpfit.privacy import Budget


def run_demo(console: Console) -> None:
    """Plan from public facts, show the promise, then touch the data once."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    radius = table.data[:, list(table.feature_names).index("mean radius")]
    # The range is what a physician would write down without looking at these patients.
    problem = Answer(n=len(radius), workload=BoundedMean(lower=5.0, upper=30.0))
    plan = gaussian_mean.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    console.print("[bold]The question[/bold]: mean tumour radius of 569 patients, each between 5 and 30 mm.\n")
    console.print("[bold]The plan[/bold], made before the data are read:")
    console.print(escape(plan.explain()))
    release = plan.run(radius)
    noise = plan.risk.expected if plan.risk is not None else 0.0
    console.print(f"\n[bold]The release[/bold]: {release.value[0]:.2f} mm (noise of about {noise:.2f} mm)")
    console.print(f"The table is public, so here we may compare: the exact mean is {radius.mean():.2f} mm.")
