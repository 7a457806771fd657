"""Whatever holds the records, solvers get the same sums."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.data.dataset import Blocks, InMemory, records_of
from dpfit.data.files import read_table, records, scan_parquet
from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table
from dpfit.losses import (
    GLM,
    Absolute,
    CustomLoss,
    Distance,
    Hinge,
    Huber,
    HuberDistance,
    JaxLoss,
    LinearLoss,
    Logistic,
    Pinball,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredDistance,
)
from dpfit.noise import Grid

GUARDS = {"row_norm": 1.0, "binary": True, "clip": 0.4}
GRID = Grid(-20)


def sample(n=301, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), np.sign(rng.normal(size=n)), rng.normal(size=d)


def in_blocks(X, y, size):
    return Blocks(
        len(y),
        X.shape[1],
        lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, len(y), size)),
    )


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_blocks_give_the_sums_of_the_whole(size):
    X, y, theta = sample()
    whole, cut = InMemory(X, y), in_blocks(X, y, size)
    value, gradient = whole.gradient(Logistic(), theta, **GUARDS)
    value_cut, gradient_cut = cut.gradient(Logistic(), theta, **GUARDS)
    assert value_cut == pytest.approx(value, rel=1e-10)
    assert gradient_cut == pytest.approx(gradient, rel=1e-10, abs=1e-12)
    exact = whole.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS)
    assert np.array_equal(cut.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS), exact)
    assert cut.hessian(Logistic(), theta) == pytest.approx(
        whole.hessian(Logistic(), theta), rel=1e-10
    )
    assert cut.hessian_vector(Logistic(), theta, theta) == pytest.approx(
        whole.hessian(Logistic(), theta) @ theta
    )


@pytest.mark.parametrize("size", [10, 1000])
def test_a_minibatch_is_the_sum_of_its_rows(size):
    X, y, theta = sample()
    index = np.array([300, 0, 17, 18, 150], dtype=np.int64)
    picked = InMemory(X[index], y[index]).clipped_sum(Logistic(), theta, grid=GRID, **GUARDS)
    data = in_blocks(X, y, size)
    assert np.array_equal(
        data.clipped_sum(Logistic(), theta, grid=GRID, index=index, **GUARDS), picked
    )
    assert np.array_equal(data.rows(index).matrix, X[np.sort(index)])
    assert data.rows(np.zeros(0, dtype=np.int64)).n == 0
    with pytest.raises(ValueError, match="outside"):
        data.gradient(Logistic(), theta, index=np.array([301]))
    for wrong in (
        np.arange(301) < 3,
        np.array([0.0, 1.0]),
    ):  # a mask, read as numbers, would be many copies of two rows
        with pytest.raises(ValueError, match="vector of integers"):
            data.clipped_sum(Logistic(), theta, grid=GRID, index=wrong, **GUARDS)
        with pytest.raises(ValueError, match="vector of integers"):
            data.rows(wrong)


def test_memory_mapped_files_are_arrays(tmp_path):
    X, y, theta = sample()
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = InMemory.memory_mapped(tmp_path / "x.npy", tmp_path / "y.npy")
    assert isinstance(mapped.matrix, np.memmap)
    assert mapped.gradient(Logistic(), theta)[0] == InMemory(X, y).gradient(Logistic(), theta)[0]
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:50])
    with pytest.raises(ValueError, match=r"cut\.npy is not a readable"):
        InMemory.memory_mapped(tmp_path / "cut.npy", tmp_path / "y.npy")
    with (tmp_path / "wide.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**22, 4)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(ValueError, match=r"wide\.npy is not a readable"):
        InMemory.memory_mapped(tmp_path / "wide.npy", tmp_path / "y.npy")
    np.save(tmp_path / "few.npy", y[:7])
    with pytest.raises(ValueError, match=r"^labels must have one entry for each row"):
        InMemory.memory_mapped(tmp_path / "x.npy", tmp_path / "few.npy")
    with pytest.raises(ValueError, match="cannot open"):
        InMemory.memory_mapped(tmp_path / "none.npy", tmp_path / "y.npy")


SCHEMA = Schema(
    (Number("age", 0, 100, nullable=True), Category("ward", ("A", "B"))),
    target=Number("stay", 0, 30),
)


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
    assert np.array_equal(np.concatenate([chunk.rows for chunk in blocks.chunks()]), whole.matrix)
    assert np.array_equal(np.concatenate([chunk.labels for chunk in blocks.chunks()]), whole.labels)
    assert np.array_equal(records(read_table(path), SCHEMA).matrix, whole.matrix)
    with pytest.raises(ValueError, match="no column 'height'"):
        scan_parquet(path, Schema((Number("height", 0, 3),)))


def test_a_user_is_one_user_in_any_block(tmp_path):
    """Arrow hands out whole numbers as floats, which round, in blocks with an empty cell only."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet

    ids = [2**53 + 1] * 4 + [None] + [2**53] * 3
    path = tmp_path / "visits.parquet"
    whole = pa.table({"age": np.arange(8.0), "who": pa.array(ids, pa.int64())})
    parquet.write_table(whole, path)
    schema = Schema((Number("age", 0, 100),))
    expected = [None if one is None else str(one) for one in ids]
    frame = pd.DataFrame({"age": np.arange(8.0), "who": pd.array(ids, dtype="Int64")})
    blocks = scan_parquet(path, schema, users="who", rows_per_block=3)
    assert blocks.users.tolist() == expected
    for held in (
        whole,
        frame,
        {"age": np.arange(8.0), "who": ids},
        {"age": np.arange(8.0), "who": whole["who"]},
    ):
        assert records(held, schema, users="who").users.tolist() == expected
    for given in (ids, frame["who"], whole["who"], whole["who"].combine_chunks()):
        assert InMemory(np.zeros((8, 1)), np.zeros(8), given).users.tolist() == expected


def test_blocks_say_whose_their_records_are():
    X = np.arange(6.0)[:, None]
    ids = ["ann", "bob", None, "ann", "ann", None]
    read = [(X[i : i + 2], np.zeros(2), ids[i : i + 2]) for i in (0, 2, 4)]
    assert Blocks(6, 1, lambda: iter(read)).users.tolist() == ids
    assert Blocks(6, 1, lambda: iter(part[:2] for part in read)).users is None
    assert Blocks(0, 1, lambda: iter(())).users.tolist() == []


def test_empty_entries_of_dictionaries_are_empty(tmp_path):
    import pandas as pd

    columns = (Category("ward", ("A", "B")), Number("age", 0, 8))
    schema = Schema(columns, scale="unit", intercept=False)
    frame = pd.DataFrame({"ward": ["A", None, "B", None], "age": [8, None, 2, None]}).astype(
        "category"
    )
    frame.to_parquet(tmp_path / "x.parquet")
    expected = [[1, 0, 0, 1], [0, 0, 1, 0.5], [0, 1, 0, 0.25], [0, 0, 1, 0.5]]
    assert records(frame, schema).matrix.tolist() == expected
    assert records(read_table(tmp_path / "x.parquet"), schema).matrix.tolist() == expected
    assert (
        scan_parquet(tmp_path / "x.parquet", schema).rows(np.arange(4)).matrix.tolist() == expected
    )


def test_a_schema_without_columns_has_a_row_for_each_record(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table({"age": [1.0, 2.0]}), tmp_path / "x.parquet")
    assert scan_parquet(tmp_path / "x.parquet", Schema(())).gram()[0].tolist() == [[2.0]]


def test_a_csv_file_is_the_table(tmp_path):
    import csv

    plain = table(50)
    path = tmp_path / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(plain)
        writer.writerows(
            ["" if cell is None else cell for cell in row]
            for row in zip(*plain.values(), strict=True)
        )
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
        list(scan_parquet(path, SCHEMA).chunks())


def test_a_line_of_a_csv_that_is_too_long_or_too_short_is_a_record(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("age,ward,stay\n1,A,2\nsecret,too,many,cells\n7\n")
    found = read_table(path).to_pydict()
    assert found == {
        "age": ["1", "secret", "7"],
        "ward": ["A", "too", None],
        "stay": ["2", "many", None],
    }


def test_names_of_columns_need_not_be_texts_but_differ(tmp_path):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet

    numbered = pd.DataFrame(np.arange(15.0).reshape(5, 3))
    assert np.array_equal(records_of(numbered, np.zeros(5)).matrix, numbered.to_numpy())
    assert Table(numbered).numbers(1).tolist() == [1, 4, 7, 10, 13]
    twice = pa.table([pa.array([1.0]), pa.array([2.0])], names=["age", "age"])
    parquet.write_table(twice, tmp_path / "x.parquet")
    for held in (twice, pd.DataFrame([[1, 2]], columns=["age", "age"])):
        with pytest.raises(ValueError, match="two columns of one name"):
            Table(held)
    with pytest.raises(ValueError, match="two columns of the name 'age'"):
        scan_parquet(tmp_path / "x.parquet", Schema((Number("age", 0, 1),)))


@pytest.mark.parametrize(
    ("matrix", "labels", "message"),
    [
        (np.array([["a"]]), [1.0], "must hold numbers"),
        ([1.0], [1.0], "two axes"),
        ([[1.0]], [1.0, 2.0], "^labels must have one entry for each row, neither more nor fewer$"),
        ([[1.0]], np.array([[1.0]]), "must have 1 axes"),
        (np.zeros((2, 1), dtype=complex), [0, 1], "must hold numbers"),
    ],
)
def test_wrong_arrays_are_public_facts(matrix, labels, message):
    with pytest.raises(ValueError, match=message):
        InMemory(matrix, labels)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_hidden_copies_and_any_layout(order, dtype):
    X, y, theta = sample()
    X = np.asarray(X, dtype=dtype, order=order)
    X.flags.writeable = False
    data = InMemory(X, y)
    assert data.matrix is X
    assert data.clipped_sum(Logistic(), theta, grid=GRID, **GUARDS) == pytest.approx(
        InMemory(X.astype(np.float64), y).clipped_sum(Logistic(), theta, grid=GRID, **GUARDS),
        abs=301,
    )


def test_empty_data_and_no_features():
    assert InMemory(np.zeros((0, 3)), np.zeros(0)).gradient(Logistic(), np.zeros(3))[0] == 0.0
    assert InMemory(np.zeros((5, 0)), np.ones(5)).gradient(Logistic(), np.zeros(0))[
        0
    ] == pytest.approx(5 * np.log(2))


def cubic():
    """A loss of the caller that has a closed form next to a generalized linear one."""
    return CustomLoss(
        value_function=lambda theta, rows, labels: Logistic().value(
            (rows * theta).sum(axis=1), labels
        ),
        gradient_function=lambda theta, rows, labels: (
            Logistic().slope((rows * theta).sum(axis=1), labels)[:, None] * rows
        ),
        lipschitz_bound=1.0,
    )


LOSSES = [
    Logistic(), Squared(), Huber(0.7), Hinge(), SmoothedHinge(0.5), Pinball(0.3), Absolute(),
    Logistic().enveloped(0.4), QuantileHuber(0.3, 0.8), Squared().enveloped(0.8), Distance(),
    SquaredDistance(), HuberDistance(0.8), LinearLoss(), Softmax(3), cubic(),
]  # fmt: skip


def kinds(X, y):
    """The same records in every container."""
    cuts = slice(0, 90), slice(90, None)
    sparse = [(csr_array(X[s]), y[s]) for s in cuts]
    return {
        "array": InMemory(X, y), "Fortran order": InMemory(np.asfortranarray(X), y),
        "CSR": InMemory(csr_array(X), y), "blocks": in_blocks(X, y, 37),
        "blocks of CSR": Blocks(len(y), X.shape[1], lambda: iter(sparse)),
        "frame": records_of({f"x{j}": X[:, j] for j in range(X.shape[1])}, y),
    }  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_every_loss_has_a_pass_over_every_kind_of_data(loss):
    X, y, _ = sample(211, 5)
    X[np.abs(X) < 0.4] = 0.0
    X[3, 1], X[8, 0], y[9] = np.nan, np.inf, np.nan
    theta = np.random.default_rng(1).normal(size=5 * loss.outputs)
    guards = {"row_norm": 1.5, "clip": 0.6} | (
        {"binary": True} if getattr(loss, "binary_labels", True) else {}
    )
    index = np.arange(0, 211, 3)
    expected, *others = kinds(X, y).values()
    value, gradient = expected.gradient(loss, theta, index=index, **guards)
    steps = expected.clipped_sum(loss, theta, grid=GRID, index=index, **guards)
    assert np.abs(GRID.values(steps) - gradient).max() <= len(index) * GRID.step
    unvalued = expected.gradient(loss, theta, index=index, values=False, **guards)
    assert np.isnan(unvalued[0])
    assert np.array_equal(unvalued[1], gradient)
    several = expected.gradients(loss, np.stack([theta, -theta]), index=index, **guards)
    assert (several[0][0], several[1][0]) == (pytest.approx(value), pytest.approx(gradient))
    for data in others:
        found = data.gradient(loss, theta, index=index, **guards)
        assert found[0] == pytest.approx(value, rel=1e-10)
        np.testing.assert_allclose(found[1], gradient, rtol=0, atol=1e-10)
        # Where the order of a sum within a row differs, a tie may be rounded either way.
        assert (
            np.abs(data.clipped_sum(loss, theta, grid=GRID, index=index, **guards) - steps).max()
            <= 2
        )


@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if isinstance(loss, GLM | Softmax)], ids=lambda loss: str(loss)
)
def test_hessians_agree_on_every_kind_of_data(loss):
    X, y, theta = sample(211, 5)[0], sample(211, 5)[1], np.linspace(-1, 1, 5 * loss.outputs)
    expected, *others = kinds(X, y).values()
    matrix = expected.hessian(loss, theta, row_norm=1.0)
    for data in others:
        np.testing.assert_allclose(
            data.hessian(loss, theta, row_norm=1.0), matrix, rtol=0, atol=1e-10
        )
        np.testing.assert_allclose(
            data.hessian_vector(loss, theta, theta, row_norm=1.0), matrix @ theta, atol=1e-10
        )
        np.testing.assert_allclose(data.gram()[0], X.T @ X, rtol=0, atol=1e-10)
        np.testing.assert_allclose(data.gram()[1], X.T @ y, rtol=0, atol=1e-10)


def test_a_loss_of_the_caller_agrees_with_the_compiled_one():
    X, y, theta = sample(5000, 6)
    for guards in ({"binary": True}, GUARDS):
        expected, found = (
            InMemory(X, y).gradient(loss, theta, **guards) for loss in (Logistic(), cubic())
        )
        assert found[0] == pytest.approx(expected[0], rel=1e-10)
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-10)


def in_jax(loss):
    """The same loss, as one would write it in JAX."""
    jax = pytest.importorskip("jax")
    numpy = jax.numpy
    square = lambda gap: 0.5 * numpy.sum(gap**2)  # noqa: E731
    functions = {
        Logistic(): lambda theta, example: jax.nn.softplus(-example[1] * (example[0] @ theta)),
        Squared(): lambda theta, example: square(example[0] @ theta - example[1]),
        Hinge(): lambda theta, example: numpy.maximum(0.0, 1.0 - example[1] * (example[0] @ theta)),
        Absolute(): lambda theta, example: numpy.abs(example[0] @ theta - example[1]),
        Distance(): lambda theta, example: numpy.sqrt(numpy.sum((theta - example[0]) ** 2)),
        SquaredDistance(): lambda theta, example: square(theta - example[0]),
        Softmax(3): lambda theta, example: (
            jax.nn.logsumexp(example[0] @ theta.reshape(-1, 3))
            - (example[0] @ theta.reshape(-1, 3))[numpy.clip(example[1], 0, 2).astype(int)]
        ),
    }
    return JaxLoss(function=functions[loss], lipschitz_bound=1.0)


@pytest.mark.parametrize(
    "loss",
    [Logistic(), Squared(), Hinge(), Absolute(), Distance(), SquaredDistance(), Softmax(3)],
    ids=str,
)
def test_a_jax_loss_agrees_with_the_compiled_one(loss):
    written = in_jax(loss)
    X, y, _ = sample(3000, 6)
    X[3, 1], X[8, 0] = np.nan, np.inf
    theta = np.random.default_rng(1).normal(size=6 * loss.outputs)
    guards = (
        GUARDS
        if getattr(loss, "binary_labels", False)
        else {**GUARDS, "binary": False, "label_lower": 0.0}
    )
    if isinstance(loss, Softmax):
        guards, y = (
            {**guards, "label_upper": 2.0},
            np.random.default_rng(2).integers(0, 3, 3000).astype(float),
        )
    if not isinstance(loss, Distance | SquaredDistance):  # which do not read labels
        y[9] = np.nan
    for data in (InMemory(X, y), in_blocks(X, y, 999), InMemory(csr_array(X), y)):
        for index in (None, np.arange(0, 3000, 7)):
            expected = data.gradient(loss, theta, index=index, **guards)
            found = data.gradient(written, theta, index=index, **guards)
            assert found[0] == pytest.approx(expected[0], rel=1e-10)
            np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-10)
            steps = data.clipped_sum(written, theta, grid=GRID, index=index, **guards)
            assert (
                np.abs(
                    steps - data.clipped_sum(loss, theta, grid=GRID, index=index, **guards)
                ).max()
                <= 2
            )


def test_one_record_of_a_custom_loss_is_bounded_whatever_it_returns():
    wild = CustomLoss(
        value_function=lambda theta, rows, labels: np.full(len(rows), np.nan),
        gradient_function=lambda theta, rows, labels: np.array(
            [[np.nan, 1.0], [1e300, 1e300], [3.0, 4.0]]
        )[: len(rows)],
        lipschitz_bound=1.0,
    )
    data = InMemory(np.zeros((3, 2)), np.zeros(3))
    steps = data.clipped_sum(wild, [0.0, 0.0], grid=GRID, clip=1.0)
    assert GRID.values(steps) == pytest.approx([0.5**0.5 + 0.6, 0.5**0.5 + 0.8], abs=1e-5)
    assert data.gradient(wild, [0.0, 0.0])[0] == 0.0


def test_losses_without_a_pass_are_refused():
    data = InMemory(np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="no pass over the data for 'NoneType'"):
        data.gradient(None, np.zeros(3))
    with pytest.raises(ValueError, match="no Hessian pass for 'loss_distance'"):
        data.hessian(Distance(), np.zeros(3))


class TestUsers:
    IDS = tuple(f"user {i // 3}" for i in range(301))

    def blocks(self, X, y):
        return Blocks(
            301,
            4,
            lambda: (
                (X[i : i + 50], y[i : i + 50], self.IDS[i : i + 50]) for i in range(0, 301, 50)
            ),
        )

    def test_ids_go_with_their_records(self):
        X, y, _ = sample()
        for data in (
            InMemory(X, y, self.IDS),
            self.blocks(X, y),
            InMemory(csr_array(X), y, self.IDS),
        ):
            chosen = np.array([5, 200, 300])
            assert data.rows(chosen).users.tolist() == [self.IDS[i] for i in chosen]
            assert data.take(chosen[::-1]).users.tolist() == [self.IDS[i] for i in chosen[::-1]]

    def test_as_many_as_records(self):
        with pytest.raises(ValueError, match=r"^users must have one id for each row"):
            InMemory(np.zeros((2, 1)), np.zeros(2), ["ann"])

    def test_from_files(self, tmp_path):
        import pyarrow as pa
        import pyarrow.parquet as parquet

        plain = table(100) | {"who": [f"p{i % 7}" for i in range(100)]}
        for part in range(2):
            rows = slice(50 * part, 50 * part + 50)
            parquet.write_table(
                pa.table({name: column[rows] for name, column in plain.items()}),
                tmp_path / f"{part}.parquet",
            )
        whole, blocks = (
            records(plain, SCHEMA, users="who"),
            scan_parquet(tmp_path, SCHEMA, users="who"),
        )
        assert (blocks.n, len(set(blocks.users))) == (100, 7)
        assert blocks.rows(np.arange(100)).users.tolist() == whole.users.tolist() == plain["who"]
        (tmp_path / "none").mkdir()
        with pytest.raises(ValueError, match=r"no \.parquet file"):
            scan_parquet(tmp_path / "none", SCHEMA)


def test_public_data_go_along():
    X, y, _ = sample()
    side = InMemory(X[:5], y[:5])
    for data in (InMemory(X, y, public=side), Blocks(301, 4, lambda: iter([(X, y)]), side)):
        assert data.rows(np.array([1, 2])).public is side
        assert data.n == 301
    with pytest.raises(ValueError, match="as wide as"):
        InMemory(X, y, public=InMemory(X[:, :2], y))


@pytest.mark.parametrize("module", ["pandas", "polars", "pyarrow"])
def test_frames_are_records(module):
    library = pytest.importorskip(module)
    plain = {"a": [1.0, None, 3.0], "b": [1, 2, 3], "stay": [0.5, 1.5, 2.5], "who": ["x", "y", "x"]}
    frame = library.table(plain) if module == "pyarrow" else library.DataFrame(plain)
    data = records_of(frame, "stay", "who")
    np.testing.assert_array_equal(data.matrix, [[1.0, 1.0], [np.nan, 2.0], [3.0, 3.0]])
    assert data.labels.tolist() == [0.5, 1.5, 2.5]
    assert data.users.tolist() == ["x", "y", "x"]
    assert records_of(frame, [0.0, 1.0, 2.0]).width == 4
    with pytest.raises(ValueError, match="no column 'height'"):
        records_of(frame, "height")
