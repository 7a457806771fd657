"""A pass over blocks of a table needs the memory of a few blocks, not of the table."""

import json
import subprocess
import sys
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfit.data import dataset
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.view import View
from dpfit.losses import Squared
from dpfit.noise import Grid, Source

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
        pa.table(columns | {"y": np.zeros(ROWS)}),
        path,
        compression="none",
        use_dictionary=False,
        row_group_size=ROWS,
    )
    del columns
    size = path.stat().st_size
    assert size > 8 * ROWS * COLUMNS
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, check=True
    )
    n, value, before, after = json.loads(run.stdout)
    assert n == ROWS
    assert value > 0
    assert after - before < size / 3


MAPPED = """
import json, resource, sys
import numpy as np
from dpfit.models import LogisticRegression
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
some = np.random.default_rng(1).uniform(-1, 1, size=(500, 20)).astype(np.float32)
LogisticRegression(1.0, bounds=(-1, 1)).fit(some, some[:, 0] > 0)
rows = np.load(sys.argv[1], mmap_mode="r")
labels = rows[:, 0] > 0
before = peak()
model = LogisticRegression(1.0, bounds=(-1, 1)).fit(rows, labels)
sys.stdout.write(json.dumps([float(model.coef_[0, 0]), before, peak()]))
"""


@pytest.mark.slow
def test_a_fit_to_memory_mapped_rows_copies_none_of_them_all(tmp_path):
    """Two copies in float64 and two temporary arrays made it seven times the size of the file."""
    path = tmp_path / "rows.npy"
    rng = np.random.default_rng(2)
    np.save(path, rng.uniform(-1, 1, size=(1_500_000, 20)).astype(np.float32))
    run = subprocess.run([sys.executable, "-c", MAPPED, str(path)], capture_output=True, check=True)
    coef, before, after = json.loads(run.stdout)
    assert coef > 1
    # Pages of the file count once they are read, so a copy in float64 alone would be three.
    assert after - before < 2 * path.stat().st_size


class Doubled:
    """A row map that counts the records that it maps."""

    def __init__(self):
        self.seen = 0

    def __call__(self, chunk):
        self.seen += len(chunk)
        return chunk.with_records(2.0 * chunk.rows, chunk.labels + 1)

    def width(self, width):
        return width


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """Memory-mapped rows, mapped at once and as they are read."""
    rng = np.random.default_rng(3)
    np.save(tmp_path / "rows.npy", rng.normal(size=(1000, 3)).astype(np.float32))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    users = [f"user {i % 7}" for i in range(1000)]
    data = InMemory(rows[:], rng.normal(size=1000), users, InMemory(np.ones((2, 3)), np.ones(2)))
    eager = data.map(Doubled())
    monkeypatch.setattr(dataset, "_LARGE", 3000)
    monkeypatch.setattr(dataset, "_PIECE", 30)
    lazy = data.map(Doubled())
    assert (type(eager), type(lazy)) == (InMemory, dataset.MappedAsRead)
    return eager, lazy


@pytest.mark.parametrize("index", [None, [], [999, 5, 5, 0], range(0, 1000, 3)])
def test_rows_that_are_mapped_as_they_are_read_are_those_that_are_mapped_at_once(mapped, index):
    eager, lazy = mapped
    index = None if index is None else np.array(index, dtype=np.int64)
    for data in mapped:
        assert (data.n, data.width, data.has_users, data.public.n) == (1000, 3, True, 2)
    assert np.array_equal(eager.users, lazy.users)
    assert np.array_equal([*eager], [*lazy])
    grid = Grid(-20)
    sums = [
        each.clipped_sum(Squared(), np.ones(3), grid=grid, index=index, clip=1.0) for each in mapped
    ]
    assert np.array_equal(*sums)
    np.testing.assert_allclose(*(each.gram(index=index)[0] for each in mapped), rtol=1e-12)
    if index is not None:
        for take in ("take", "rows"):
            parts = [getattr(each, take)(index) for each in mapped]
            assert np.array_equal(*(part.labels for part in parts))
            assert np.array_equal(*(part.users for part in parts))
        assert np.array_equal(*(each.rows(index).matrix for each in mapped))
        assert np.array_equal(*(each.take(index).rows for each in mapped))


def test_a_sample_is_mapped_after_it_is_taken(mapped):
    lazy = mapped[1]
    before = lazy.rowwise.seen
    view = View(lazy, "replace", "record", Source())
    assert view.take([7, 3]).rows.shape == view.rows(np.array([1, 2])).matrix.shape == (2, 3)
    assert lazy.rowwise.seen - before == 4
    first, second = view.parts((0.5, 0.5))
    assert first.n + second.n == len([*first]) + len([*second]) == 1000


def test_records_of_blocks_are_copied_block_by_block():
    """The chunks of a large file were held until the last one was read."""
    held = []

    def read():
        for _ in range(20):
            assert sum(one() is not None for one in held) <= 2
            rows = np.ones((10, 2))
            held.append(weakref.ref(rows))
            yield rows, np.ones(10)
            del rows

    data = Blocks(200, 2, read)
    assert data.rows(np.arange(0, 200, 7)).n == 29
