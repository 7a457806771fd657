"""A pass over blocks of a table needs the memory of a few blocks, not of the table."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

COLUMNS, ROWS = 40, 400_000

PROGRAM = """
import json, resource, sys
import numpy as np
from dpfit.data.files import scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.losses import Squared
schema = Schema(tuple(Number(f"x{j}", -4, 4) for j in range(40)), target=Number("y", -1, 1))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
data = scan_parquet(sys.argv[1], schema, rows_per_block=8192)
theta = np.linspace(-1, 1, data.width)
data.rows(np.arange(3)).gradient(Squared(), theta)
before = peak()
value, gradient = data.gradient(Squared(), theta)
sys.stdout.write(json.dumps([data.n, value, before, peak()]))
"""


def test_memory_stays_far_below_the_size_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.uniform(-4, 4, ROWS) for j in range(COLUMNS)}
    path = tmp_path / "one.parquet"
    # One row group: even that must not be held as a whole.
    parquet.write_table(
        pa.table(columns | {"y": np.zeros(ROWS)}), path, compression="none", use_dictionary=False, row_group_size=ROWS
    )
    del columns
    size = path.stat().st_size
    assert size > 8 * ROWS * COLUMNS
    run = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, check=True)
    n, value, before, after = json.loads(run.stdout)
    assert n == ROWS
    assert value > 0
    assert after - before < size / 3
