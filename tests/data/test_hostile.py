"""Hostile inputs: a bounded record or an error about public facts, never a quoted cell."""

import math

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from dpfit.data.dataset import Blocks, InMemory, records_of
from dpfit.data.files import read_table, records, scan_parquet
from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table
from dpfit.losses import Distance, Logistic, Softmax, Squared
from dpfit.noise import Grid

SECRET = "4111-1111-1111-1111"
EXTREMES = [math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, 0.0, 1.7e308]
GUARDS = {"row_norm": 1.0, "clip": 0.5, "label_lower": -1.0, "label_upper": 1.0}
GRID = Grid(-20)
LOSSES = [Logistic(), Squared(), Logistic().enveloped(0.3), Softmax(2), Distance()]


def ways(X, y):
    yield "array", InMemory(X, y)
    yield "float32", InMemory(np.asarray(X, dtype=np.float32), y)
    yield "CSR", InMemory(csr_array(X), y)
    yield (
        "blocks",
        Blocks(
            len(y), X.shape[1], lambda: ((X[i : i + 2], y[i : i + 2]) for i in range(0, len(y), 2))
        ),
    )
    if X.shape[1]:  # a table without columns has no rows
        yield "frame", records_of({str(j): X[:, j] for j in range(X.shape[1])}, y)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_any_numbers_give_bounded_sums(loss):
    X = np.array([[a, b] for a in EXTREMES for b in EXTREMES])
    y = np.array([EXTREMES[i % len(EXTREMES)] for i in range(len(X))])
    theta = np.ones(2 * loss.outputs)
    for way, data in ways(X, y):
        steps = data.clipped_sum(loss, theta, grid=GRID, **GUARDS)
        assert np.linalg.norm(GRID.values(steps)) <= 0.5 * len(X) * (1 + 1e-5), way
        value, gradient = data.gradient(loss, theta, **GUARDS)
        assert math.isfinite(value), way
        assert np.isfinite(gradient).all(), way
        if not isinstance(loss, Distance):
            # A curvature is at most one, and so is the squared norm of a row.
            hessian = data.hessian(loss, theta, **GUARDS)
            assert np.linalg.norm(hessian, 2) <= len(X) * (1 + 1e-12), way
            assert np.linalg.eigvalsh(hessian).min() >= -1e-12 * len(X), way
            np.testing.assert_allclose(
                data.hessian_vector(loss, theta, theta, **GUARDS), hessian @ theta, atol=1e-10
            )


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (4, 0), (0, 0), (1, 1)])
def test_small_shapes(loss, shape):
    X, y, theta = np.ones(shape), np.ones(shape[0]), np.zeros(shape[1] * loss.outputs)
    for way, data in ways(X, y):
        assert data.gradient(loss, theta, **GUARDS)[1].shape == theta.shape, way
        assert data.clipped_sum(loss, theta, grid=GRID, **GUARDS).shape == theta.shape
        assert data.gram(**GUARDS)[0].shape == (shape[1], shape[1])
        if not isinstance(loss, Distance):
            assert data.hessian(loss, theta, **GUARDS).shape == (len(theta), len(theta))
            assert data.hessian_vector(loss, theta, theta, **GUARDS).shape == theta.shape


def test_entries_without_a_column_are_not_written_anywhere():
    X = csr_array((np.ones(4, dtype=np.float32), [0, 10**9, 1, -7], [0, 2, 3, 4]), shape=(3, 2))
    data = InMemory(X, np.ones(3))
    assert np.array_equal([np.isfinite(record).all() for record in data], [False, True, False])
    one = InMemory([[0.0, 1.0]], [1.0]).clipped_sum(Squared(), np.zeros(2), grid=GRID, **GUARDS)
    assert np.array_equal(data.clipped_sum(Squared(), np.zeros(2), grid=GRID, **GUARDS), one)
    assert len(list(InMemory(csr_array((np.ones(1), [5], [0, 1]), shape=(1, 0)), [1.0]))) == 1


def test_constant_columns_and_duplicated_records():
    X, y = np.full((50, 3), 7.0), np.ones(50)
    one = InMemory(X[:1], y[:1]).clipped_sum(Squared(), np.zeros(3), grid=GRID, **GUARDS)
    assert np.array_equal(
        InMemory(X, y).clipped_sum(Squared(), np.zeros(3), grid=GRID, **GUARDS), 50 * one
    )


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint64, bool, np.float16, np.float32, ">f8", np.longdouble]
)
def test_types_of_numbers(dtype):
    X = np.array([[1, 0], [0, 1], [1, 1]])
    expected = InMemory(X.astype(float), np.ones(3)).gradient(Squared(), [1.0, 2.0])
    found = InMemory(X.astype(dtype), np.ones(3, dtype=dtype)).gradient(Squared(), [1.0, 2.0])
    assert found[0] == expected[0]
    assert np.array_equal(found[1], expected[1])


def test_numbers_beyond_doubles_are_infinite_without_a_word():
    X, y = (
        np.array([["1e4000", "1"], ["1", "1"]], dtype=np.longdouble),
        np.array([1, "1e4000"], dtype=np.longdouble),
    )
    for rows in (X, csr_array(X)):
        assert not InMemory(rows, y).clipped_sum(Squared(), np.ones(2), grid=GRID, **GUARDS).any()
    assert [np.isfinite(record).tolist() for record in InMemory(X, y)] == [
        [False, True, True],
        [True, True, False],
    ]


def test_records_are_not_printed():
    data = InMemory(
        np.full((2, 1), 4111.0), [4111.0, 4111.0], [SECRET, SECRET], InMemory([[4111.0]], [4111.0])
    )
    assert (
        repr(data)
        == "InMemory(2 records of width 1, with users, public=InMemory(1 records of width 1))"
    )
    assert "4111" not in repr(next(data.chunks()))


def test_views_and_read_only_arrays():
    wide = np.random.default_rng(0).normal(size=(40, 12))
    for X in (wide[::2, ::3], wide[::-1, 3:7], np.broadcast_to(wide[0, :4], (20, 4)), wide.T[:4].T):
        frozen = X.view()
        frozen.flags.writeable = False
        y = np.arange(2.0 * len(X))[::2]
        steps = InMemory(frozen, y).clipped_sum(Squared(), np.ones(4), grid=GRID, **GUARDS)
        assert np.array_equal(
            steps,
            InMemory(X.copy(), y.copy()).clipped_sum(Squared(), np.ones(4), grid=GRID, **GUARDS),
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: InMemory(np.array([[SECRET]]), [1.0]),
        lambda: InMemory([SECRET, [2.0, 3.0]], [1.0, 1.0]),
        lambda: InMemory([[1.0], [2.0, SECRET]], [1.0, 1.0]),
        lambda: InMemory(np.array([[{"card": SECRET}]]), [1.0]),
        lambda: InMemory([[1.0]], np.array([SECRET])),
        lambda: InMemory(coo_array(np.eye(2)), [1.0, 2.0]),
        lambda: InMemory(csr_array(np.eye(2, dtype=complex)), [1.0, 2.0]),
        lambda: InMemory(np.ma.masked_array([[1.0]], [[True]]), [1.0]),
        lambda: InMemory([[1.0]], np.ma.masked_array([1.0], [True])),
        lambda: Blocks(1, 1, lambda: [(np.ma.masked_array([[1.0]], [[True]]), [1.0])]).gram(),
        lambda: InMemory([[1.0]], [1.0], [SECRET, SECRET]),
        lambda: InMemory([[1.0]], [1.0], public=SECRET),
        lambda: records_of(SECRET, [1.0]),
        lambda: records_of({"a": [SECRET]}, [1.0, 2.0]),
        lambda: records_of({"a": [1.0], "b": [SECRET, SECRET]}, "a"),
    ],
)
def test_wrong_containers_are_public_facts(make):
    with pytest.raises(ValueError, match=r"must|rows and|one length|table") as error:
        make()
    assert "4111" not in str(error.value)
    assert str(len(SECRET)) not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_cells_of_tables_are_mapped():
    data = records_of({"a": [1.0, SECRET, None, 10**400], "y": [SECRET, 1.0, 1.0, 1.0]}, "y")
    assert np.isnan(data.matrix[1:, 0]).all()
    assert data.gradient(Squared(), [1.0], **GUARDS)[0] >= 0.0


@pytest.mark.parametrize(
    "cell",
    [
        10**5000,
        np.longdouble("1e4000"),
        np.array([1.0]),
        np.array([1.0, 2.0]),
        [1, 2],
        1 + 2j,
        np.complex128(1j),
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_cells_of_any_kind_are_read_in_silence(cell):
    table = Table({"a": [1.0, cell, "A"]})
    assert table.texts("a")[::2] == ["1", "A"]
    assert len(table.texts("a")) == 3
    assert not -1e300 < table.numbers("a")[1] < 1e300


def test_numbers_beyond_the_range_are_read_in_silence():
    numbers = Table({"a": np.array(["1e4000", "-1e4000", "2"], dtype=np.longdouble)}).numbers("a")
    assert numbers.tolist() == [math.inf, -math.inf, 2.0]
    masked = Table({"a": np.ma.array([1.0, 99.0], mask=[False, True])})
    assert np.array_equal(masked.numbers("a"), [1.0, math.nan], equal_nan=True)
    assert masked.texts("a") == ["1", None]


def test_texts_that_are_none_are_empty_cells(tmp_path):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet

    offsets, content = np.array([0, 1, 7, 8, 8], dtype=np.int32), b"Asecre\xffB"
    texts = pa.StringArray.from_buffers(3, pa.py_buffer(offsets.tobytes()), pa.py_buffer(content))
    broken = pa.table({"ward": texts})
    path = tmp_path / "x.parquet"
    parquet.write_table(broken, path)
    frame = pd.DataFrame({"ward": pd.arrays.ArrowExtensionArray(broken["ward"])})
    schema = Schema((Category("ward", ("A", "B")),), intercept=False)
    expected = [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    for data in (
        records(broken, schema),
        records(frame, schema),
        records(read_table(path), schema, users="ward"),
    ):
        assert data.matrix.tolist() == expected
        assert np.isnan(Table(broken).numbers("ward")).all()
    assert scan_parquet(path, schema, users="ward").users.tolist() == ["A", None, "B"]


def test_columns_that_hold_no_cells_are_public_facts():
    import polars as pl
    import pyarrow as pa

    structs, lists = [{"q": SECRET}, {"q": SECRET}], [[SECRET], [SECRET]]
    for make in (pl.DataFrame, pa.table):
        for cells, kind in ((structs, "structs"), (lists, "lists")):
            with pytest.raises(
                ValueError, match=f"column 'a' holds {kind}; it should hold numbers or texts"
            ):
                records_of(make({"a": cells}), [0, 1])
    with pytest.raises(ValueError, match="column 'a' must have one axis, got 2"):
        records_of({"a": np.ones((2, 3))}, [0, 1])
    wide = pl.DataFrame({"a": pl.Series([2**70, None], dtype=pl.Int128)})
    assert Table(wide).texts("a") == [str(2**70), None]
    assert Table(wide).numbers("a")[0] == 2.0**70


SCHEMA = Schema((Number("age", 0, 100), Category("ward", ("A", "B"))), target=Number("stay", 0, 30))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"\r\n\n",
        f"age,ward,stay\r{SECRET},A,1,1,1\r".encode(),
        b'age,"war\n1',
    ],
)
def test_csv_files_that_are_none(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"x\.csv is not a readable table|no column|CR alone"
    ) as error:
        records(read_table(path), SCHEMA)
    assert "4111" not in str(error.value)
    assert error.value.__cause__ is None


def test_cells_of_csv_files_are_mapped(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"age,ward,stay\n{SECRET},{SECRET},{SECRET}\n1e999,A,-inf\nnan,,\n")
    data = records(read_table(path), SCHEMA)
    assert data.n == 3
    assert np.linalg.norm(data.matrix, axis=1).max() <= SCHEMA.bound
    assert np.array_equal(data.labels, [np.nan, 0.0, np.nan], equal_nan=True)


def test_parquet_files_that_change_under_the_reader(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = tmp_path / "x.parquet"
    plain = {"age": [1.0] * 5000, "ward": [SECRET] * 5000, "stay": [1.0] * 5000}
    parquet.write_table(pa.table(plain), path, row_group_size=500)
    blocks = scan_parquet(path, SCHEMA, rows_per_block=100)
    assert blocks.gradient(Squared(), np.zeros(5))[0] > 0
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"x\.parquet is not a readable table") as error:
        blocks.gradient(Squared(), np.zeros(5))
    assert "4111" not in str(error.value)
    path.unlink()
    with pytest.raises(ValueError, match="not a readable table"):
        blocks.gradient(Squared(), np.zeros(5))
