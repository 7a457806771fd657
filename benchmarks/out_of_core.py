"""Memory and time of a gradient pass over a Parquet set that is larger than the memory it may use.

Run with ``python benchmarks/out_of_core.py [--quick] [--json]``. Writes a set of 4 GB (0.4 GB with
--quick) to a temporary folder, which is deleted afterwards; a child process streams it and reports
its peak resident memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from bars import at_most, finish
from dpfit.data.files import scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.losses import Logistic

COLUMNS = 50
ROWS_PER_FILE = 250_000
SCHEMA = Schema(
    tuple(Number(f"x{j}", -4, 4) for j in range(COLUMNS)),
    target=Number("y", -1, 1),
    scale="symmetric",
    row_norm=1.0,
)


def write(folder: Path, gigabytes: float) -> int:
    """Write incompressible columns, about 100 MB a file; return how many bytes there are."""
    rng, written = np.random.default_rng(0), 0
    while written < gigabytes * 1e9:
        columns = {f"x{j}": rng.standard_normal(ROWS_PER_FILE) for j in range(COLUMNS)}
        path = folder / f"{written:012}.parquet"
        parquet.write_table(
            pa.table(columns | {"y": rng.choice([-1.0, 1.0], ROWS_PER_FILE)}),
            path,
            compression="none",
            use_dictionary=False,
        )
        written += path.stat().st_size
    return written


def stream(folder: str) -> dict[str, Any]:
    """One gradient pass: its time, and the process's memory before and at most."""
    data = scan_parquet(folder, SCHEMA)
    theta = np.zeros(data.width)
    data.gradient(Logistic(), theta, index=np.arange(10), binary=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    value, gradient = data.gradient(Logistic(), theta, binary=True)
    return {
        "seconds": time.perf_counter() - start,
        "rows": data.n,
        "loss is n log 2": bool(abs(value / data.n - np.log(2)) < 1e-12),
        "gradient norm": float(np.linalg.norm(gradient)),
        "peak GB after warming up": before * 1024 / 1e9,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        written = write(Path(folder), 0.4 if quick else 4.0)
        command = [sys.executable, __file__, "--stream", folder]
        figures = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    peak = figures["peak GB"]
    bar = at_most(f"peak GB for {written / 1e9:.1f} GB of Parquet", peak, 1.0)
    return {"bars": [bar], "quick": quick, "GB/s": written / 1e9 / figures["seconds"], **figures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="finish in less than 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--stream", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stream:
        print(json.dumps(stream(arguments.stream)))
        return 0
    result = measure(arguments.quick)
    if not arguments.json:
        for name, figure in result.items():
            if name != "bars":
                print(f"{name:<40}{figure:>12.4g}")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
