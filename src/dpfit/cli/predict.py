"""``dpfit predict``: what a private model says about a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpfit.cli import options
from dpfit.cli.outputs import csv_text, new_files
from dpfit.cli.screen import print_json


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model file that dpfit fit --out wrote.")
    ],
    table: options.TableFile,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="New CSV file for the predictions; by default, they are printed."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the target of each row of a table, in order; a CSV also has probabilities.

    The promise of the model protects the records it was fitted to. A prediction reveals facts about
    its own row: keep predictions as private as that row.
    """
    from dpfit.cli.stored import restore
    from dpfit.cli.task import quiet
    from dpfit.data.files import read_table
    from dpfit.data.table import Table

    with new_files(out) as write:
        fitted, schema = restore(model)
        matrix = schema.matrix(Table(read_table(table)))
        with quiet():
            predictions = fitted.predict(matrix).tolist() if len(matrix) else []
            known = hasattr(fitted, "predict_proba") and len(matrix)
            chances = fitted.predict_proba(matrix).T.tolist() if known else []
        name = schema.target.name if schema.target is not None else "prediction"
        classes = fitted.classes_.tolist() if chances else []
        header = [name, *(f"probability of {category}" for category in classes)]
        text = csv_text(header, zip(predictions, *chances, strict=True))
        if out is not None:
            write(out, text)
    if as_json:
        print_json(
            {
                "schema": "dpfit.predict/1",
                "target": name,
                "predictions": predictions,
                "probabilities": dict(zip(classes, chances, strict=True)),
            }
        )
    else:
        typer.echo(text if out is None else f"wrote {out}\n", nl=False)
