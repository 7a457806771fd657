"""Learning from batches: the answers of the session, one charge, resumed and refused."""

import copy
import pickle

import numpy as np
import pytest

from dpfit.core import InteractionClosed
from dpfit.data.dataset import InMemory
from dpfit.ledger import Ledger
from dpfit.models import LinearSVC, LogisticRegression, load, save
from dpfit.privacy import Budget
from dpfit.solvers.gradient.ftrl import ftrl

pytestmark = pytest.mark.filterwarnings("ignore:.*random_state")

ROUNDS, N = 6, 1200
RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (N, 3))
Y = X[:, 0] + 0.3 * RNG.normal(size=N) > 0
PARTS = [(X[k::ROUNDS], Y[k::ROUNDS]) for k in range(ROUNDS)]


def model(kind=LogisticRegression, **facts):
    given = {"bounds": (-2.0, 2.0), "n_declared": N, "solver": ftrl.using(rounds=ROUNDS)}
    return kind(2.0, 1e-6, **(given | facts))


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_it_gives_the_answers_of_the_session(kind):
    """The oracle: scaled rows, fed by hand to a session of the solver."""
    learner = model(kind, random_state=3)
    direct = None
    for rows, labels in PARTS:
        learner.partial_fit(rows, labels)
        inner = learner.plan_.plan
        if direct is None:
            direct = inner.open(random_state=3)
        signs = np.where(labels, 1.0, -1.0)
        direct.observe(InMemory(learner.scaling_.rows(rows), signs))
        np.testing.assert_array_equal(learner.weights_[0], direct.value)
    assert learner.guarantee_.epsilon(1e-6) <= 2.0 * (1 + 1e-9)
    assert not learner.private_
    assert np.mean(learner.predict(X) == Y) > 0.7
    with pytest.raises(InteractionClosed):
        learner.partial_fit(*PARTS[0])


def test_the_plan_of_a_stream_of_raw_records_runs_on_batches():
    learner = model(random_state=4)
    for part in PARTS:
        learner.partial_fit(*part)
    batches = [InMemory(rows, np.where(labels, 1.0, -1.0)) for rows, labels in PARTS]
    value = learner.plan_.run(batches, random_state=4).value
    np.testing.assert_allclose(value, learner.weights_[0], rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="rows of"):
        learner.plan_.open().observe(InMemory(np.ones((2, 7)), np.ones(2)))


@pytest.fixture
def book(tmp_path):
    ledger = Ledger.create(tmp_path / "book")
    ledger.register("visits", Budget(epsilon=3.0, delta=1e-5))
    return ledger


def kinds(book):
    return [entry.kind for entry in book.entries("visits")]


def test_the_horizon_is_charged_once_at_the_first_batch(book):
    learner = model(ledger=book, dataset="visits")
    for wrong in ((X[:, 0], Y), (X, Y[:5])):
        with pytest.raises(ValueError, match=r"array|entry"):
            learner.partial_fit(*wrong)
    assert kinds(book) == ["register"]
    assert not hasattr(learner, "classes_")
    learner.partial_fit(*PARTS[0])
    with pytest.raises(ValueError, match="features"):
        learner.partial_fit(X[:, :2], Y)
    for rows, labels in PARTS[1:]:
        learner.partial_fit(rows, labels)
    assert kinds(book) == ["register", "reserve", "release"]


def test_it_is_resumed_from_its_state_file(tmp_path, book):
    facts = {"ledger": book, "dataset": "visits"}
    first = model(**facts)
    for part in PARTS[:3]:
        first.partial_fit(*part, store=tmp_path / "state")
    second = model(**facts)
    # Killed after the third answer: its records are not read again.
    second.partial_fit(*PARTS[2], store=tmp_path / "state", step=3)
    assert second.session_.steps == 3
    np.testing.assert_array_equal(second.coef_, first.coef_)
    with pytest.raises(ValueError, match="at most 4"):
        second.partial_fit(*PARTS[4], step=5)
    second.partial_fit(*PARTS[3], store=tmp_path / "state")
    assert second.session_.steps == 4
    assert kinds(book) == ["register", "reserve"]
    with pytest.raises(Exception, match=r"another process|copy or a backup"):
        first.partial_fit(*PARTS[4])


def test_a_copy_predicts_and_does_not_go_on(tmp_path):
    learner = model().partial_fit(*PARTS[0], store=tmp_path / "state")
    save(learner, tmp_path / "model")
    for other in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        np.testing.assert_array_equal(other.predict(X), learner.predict(X))
        with pytest.raises(ValueError, match="copy of one"):
            other.partial_fit(*PARTS[1])
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), learner.predict(X))
    with pytest.raises(ValueError, match="copy of one"):
        loaded.partial_fit(*PARTS[1])
    loaded.partial_fit(*PARTS[1], store=tmp_path / "state")
    assert loaded.session_.steps == 2


def test_an_answer_that_was_not_stored_is_kept_back_and_its_batch_not_read_again(
    tmp_path, monkeypatch
):
    learner = model().partial_fit(*PARTS[0], store=tmp_path / "state")
    before = learner.weights_
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            learner.partial_fit(*PARTS[1])
    assert learner.weights_ is before
    learner.partial_fit(*PARTS[1])
    assert learner.session_.steps == 2


@pytest.mark.parametrize("solver", ["auto", "noisy_gd", "nonsense"])
def test_solvers_that_are_no_sessions_have_no_partial_fit(solver):
    learner = model(solver=solver)
    assert not hasattr(learner, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        _ = learner.partial_fit
    assert "solver='ftrl'" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"n_declared": None}, "needs n_declared"),
        ({"bounds": None}, "bounds, row_norm or schema"),
        ({"bounds": "from_data"}, "bounds, row_norm or schema"),
        ({"classes": "from_data"}, "declared classes"),
    ],
)
def test_what_is_not_declared_is_refused(facts, match):
    with pytest.raises(ValueError, match=match):
        model(**facts).partial_fit(*PARTS[0])


def test_classes_are_given_as_in_scikit_learn():
    learner = model(solver="ftrl")
    labels = np.where(PARTS[0][1], "well", "sick")
    learner.partial_fit(PARTS[0][0], labels, classes=["sick", "well"])
    assert learner.classes_.tolist() == ["sick", "well"]
    assert learner.partial_fit(np.zeros((1, 3)), np.array(["well"])) is learner
