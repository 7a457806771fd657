"""Whatever holds the records, solvers get the same sums."""

import numpy as np
import pytest

from dpfit.data.files import read_table, records, scan_parquet
from dpfit.data.records import Arrays, Blocks
from dpfit.data.schema import Category, Number, Schema
from dpfit.losses import Logistic, Softmax
from dpfit.noise import Grid

GUARDS = {"row_norm": 1.0, "binary": True, "clip": 0.4}
GRID = Grid(-20)


def sample(n=301, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), np.sign(rng.normal(size=n)), rng.normal(size=d)


def in_blocks(X, y, size):
    return Blocks(len(y), X.shape[1], lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, len(y), size)))


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_blocks_give_the_sums_of_the_whole(size):
    X, y, theta = sample()
    whole, cut = Arrays(X, y), in_blocks(X, y, size)
    value, gradient = whole.gradient(Logistic(), theta, **GUARDS)
    value_cut, gradient_cut = cut.gradient(Logistic(), theta, **GUARDS)
    assert value_cut == pytest.approx(value, rel=1e-10)
    assert gradient_cut == pytest.approx(gradient, rel=1e-10, abs=1e-12)
    exact = whole.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS)
    assert np.array_equal(cut.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS), exact)
    assert cut.hessian(Logistic(), theta) == pytest.approx(whole.hessian(Logistic(), theta), rel=1e-10)
    assert cut.hessian_vector(Logistic(), theta, theta) == pytest.approx(whole.hessian(Logistic(), theta) @ theta)


@pytest.mark.parametrize("size", [10, 1000])
def test_a_minibatch_is_the_sum_of_its_rows(size):
    X, y, theta = sample()
    index = np.array([300, 0, 17, 18, 150], dtype=np.int64)
    picked = Arrays(X[index], y[index]).clipped_sum(Logistic(), theta, grid=GRID, **GUARDS)
    data = in_blocks(X, y, size)
    assert np.array_equal(data.clipped_sum(Logistic(), theta, grid=GRID, index=index, **GUARDS), picked)
    assert np.array_equal(data.rows(index).matrix, X[np.sort(index)])
    assert data.rows(np.zeros(0, dtype=np.int64)).n == 0
    with pytest.raises(ValueError, match="outside"):
        data.gradient(Logistic(), theta, index=np.array([301]))


def test_memory_mapped_files_are_arrays(tmp_path):
    X, y, theta = sample()
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = Arrays.memory_mapped(tmp_path / "x.npy", tmp_path / "y.npy")
    assert isinstance(mapped.matrix, np.memmap)
    assert mapped.gradient(Logistic(), theta)[0] == Arrays(X, y).gradient(Logistic(), theta)[0]
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:50])
    with pytest.raises(ValueError, match="not a readable pair"):
        Arrays.memory_mapped(tmp_path / "cut.npy", tmp_path / "y.npy")
    with pytest.raises(ValueError, match="cannot open"):
        Arrays.memory_mapped(tmp_path / "none.npy", tmp_path / "y.npy")


SCHEMA = Schema((Number("age", 0, 100, nullable=True), Category("ward", ("A", "B"))), target=Number("stay", 0, 30))


def table(rows=500):
    rng = np.random.default_rng(1)
    return {
        "name": [f"patient {i}" for i in range(rows)],
        "age": [None if i % 50 == 0 else float(a) for i, a in enumerate(rng.uniform(0, 120, rows))],
        "ward": rng.choice(["A", "B", "Z"], rows).tolist(),
        "stay": rng.uniform(0, 40, rows).tolist(),
    }


def test_a_parquet_file_in_blocks_is_the_table(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    plain = table()
    path = tmp_path / "patients.parquet"
    parquet.write_table(pa.table(plain), path, row_group_size=64)
    whole, blocks = records(plain, SCHEMA), scan_parquet(path, SCHEMA, rows_per_block=100)
    assert (blocks.n, blocks.width) == (500, whole.width)
    assert np.array_equal(np.concatenate([piece.rows for piece in blocks.pieces()]), whole.matrix)
    assert np.array_equal(np.concatenate([piece.labels for piece in blocks.pieces()]), whole.labels)
    assert np.array_equal(records(read_table(path), SCHEMA).matrix, whole.matrix)
    with pytest.raises(ValueError, match="no column 'height'"):
        scan_parquet(path, Schema((Number("height", 0, 3),)))


def test_a_csv_file_is_the_table(tmp_path):
    import csv

    plain = table(50)
    path = tmp_path / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(plain)
        writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*plain.values(), strict=True))
    assert np.array_equal(records(read_table(path), SCHEMA).matrix, records(plain, SCHEMA).matrix)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_said_without_its_content(tmp_path, share):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = tmp_path / "patients.parquet"
    parquet.write_table(pa.table(table()), path, row_group_size=64)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    for attempt in (lambda: read_table(path), lambda: scan_parquet(path, SCHEMA)):
        with pytest.raises(ValueError, match=r"patients\.parquet is not a readable table") as error:
            attempt()
        assert "patient 1" not in str(error.value)
        assert error.value.__cause__ is None


def test_a_damaged_block_is_said_without_its_content(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = tmp_path / "patients.parquet"
    parquet.write_table(pa.table(table()), path, row_group_size=64)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="not a readable table"):
        list(scan_parquet(path, SCHEMA).pieces())


def test_a_csv_with_broken_rows_is_said_without_its_content(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("age,ward,stay\n1,A,2\nsecret,too,many,cells\n")
    with pytest.raises(ValueError, match=r"x\.csv is not a readable table") as error:
        read_table(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("matrix", "labels", "message"),
    [
        ([["a"]], [1.0], "must hold numbers"),
        ([1.0], [1.0], "must have 2 axes"),
        ([[1.0]], [1.0, 2.0], "1 rows and 2 labels"),
        ([[1.0]], [[1.0]], "must have 1 axes"),
        (np.zeros((2, 1), dtype=complex), [0, 1], "must hold numbers"),
    ],
)
def test_wrong_arrays_are_public_facts(matrix, labels, message):
    with pytest.raises(ValueError, match=message):
        Arrays(matrix, labels)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_hidden_copies_and_any_layout(order, dtype):
    X, y, theta = sample()
    X = np.asarray(X, dtype=dtype, order=order)
    X.flags.writeable = False
    data = Arrays(X, y)
    assert data.matrix is X
    assert data.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS) == pytest.approx(
        Arrays(X.astype(np.float64), y).clipped_sum(Logistic(), theta, grid=GRID, **GUARDS), abs=301
    )


def test_empty_data_and_no_features():
    assert Arrays(np.zeros((0, 3)), np.zeros(0)).gradient(Logistic(), np.zeros(3))[0] == 0.0
    assert Arrays(np.zeros((5, 0)), np.ones(5)).gradient(Logistic(), np.zeros(0))[0] == pytest.approx(5 * np.log(2))


def test_losses_without_a_pass_are_refused():
    data = Arrays(np.zeros((2, 3)), np.zeros(2))
    for loss in (Logistic().enveloped(0.5), Softmax(3)):
        with pytest.raises(ValueError, match="no pass over the data"):
            data.gradient(loss, np.zeros(3))
