"""Linear classifiers: logistic regression and a support vector machine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from dpfit.core import Interaction, Release
from dpfit.data.cells import has_no_dtype
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Category
from dpfit.losses import Logistic, SmoothedHinge, Softmax
from dpfit.losses.base import Loss
from dpfit.models.base import atomic_fit
from dpfit.models.inputs import (
    Column,
    Floats,
    Matrix,
    Rows,
    Values,
    as_numbers,
    dtypes_of,
    holds_numbers,
    is_boolean,
    labels_of,
    require_numbers,
)
from dpfit.models.leaks import (
    CLASSES_LEAK,
    LeakWarning,
    is_from_data,
    warn_caller,
    warn_of_classes,
    warn_of_score,
)
from dpfit.models.linear import PrivateModel
from dpfit.models.request import named_solver
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer


def _reads_batches(model: PrivateModel) -> bool:
    """Return whether the solver reads records that arrive; AttributeError with a hint if not."""
    try:
        options = named_solver(model.solver).options
    except ValueError:
        options = ()
    if "stream" not in options:
        raise AttributeError(
            f"{type(model).__name__} learns from batches with solver='ftrl' alone, got "
            f"solver={model.solver!r}; pass that solver, or call fit"
        )
    return True


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateModel):  # type: ignore[misc]
    """Classes from public facts, margins from the weights."""

    _: KW_ONLY
    classes: Column = None

    @atomic_fit
    def fit(self, X: Rows, y: Column, user_ids: Column = None) -> Self:
        """Fit the model; charges the ledger, if there is one, before the records are read.

        Classes are public: those of ``classes``, of a boolean or categorical dtype, the categories
        of the target of ``schema`` for strings, or 0 and 1 for numbers, which a `ClassesAssumed`
        warning says.
        """
        rows, labels = self._validated(X, y)
        if is_from_data(self.classes):
            self.classes_ = _classes_from_data(labels)
        else:
            self._set_classes(self.classes, y)
        if len(self.classes_) < 2:
            raise ValueError("a classifier needs at least two declared classes; got 1 class")
        release, scaling, weights = self._release(rows, self._public_labels(labels), user_ids)
        self._set_weights(weights, scaling)
        self._set_fitted(release, scaling)
        self.__dict__.pop("session_", None)
        return self

    def _set_classes(self, classes: Column, y: Column) -> None:
        self.classes_ = public_classes(classes, y, self._categories)
        if classes is None and is_assumed(y):
            warn_of_classes()

    @available_if(_reads_batches)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Rows,
        y: Column,
        classes: Column = None,
        *,
        store: str | Path | None = None,
        step: int | None = None,
    ) -> Self:
        """Learn from a batch of records that no batch before it held; ``solver="ftrl"`` alone.

        The first call opens a session and charges its whole horizon: ``n_declared`` records in as
        many batches as the solver has ``rounds``. Later calls observe. Columns and classes are
        declared before; an empty batch stands for a step without records.

        Parameters
        ----------
        classes
            The classes, if the model does not declare them, as in scikit-learn.
        store
            A private state file, written before each call returns. If it exists, the first call of
            a model resumes it: in another process, or after a kill.
        step
            Number of the batch, from 1. The records of a step that was answered are not read again:
            give it where a call may be repeated after a kill.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfit.solvers.gradient.ftrl import ftrl
        >>> X = np.linspace(-1, 1, 20_000)[:, None]
        >>> model = LogisticRegression(
        ...     1.0, 1e-6, bounds=(-1, 1), n_declared=20_000, solver=ftrl.using(rounds=50)
        ... )
        >>> for batch in range(50):
        ...     _ = model.partial_fit(X[batch::50], X[batch::50, 0] > 0)
        >>> model.predict([[-0.9], [0.9]])
        array([False,  True])
        """
        before = dict(self.__dict__)
        try:
            if step is not None:
                integer("step", step)
            rows, labels = self._batch(X, y)
            if self._session is None:
                self._start(rows, y, classes, store)
        except BaseException:
            self.__dict__ = before
            raise
        session: Interaction = self.session_
        if session.withheld:
            session.retry()
        elif step is None or step == session.steps + 1:
            session.observe(InMemory(rows, self._public_labels(labels)))
            if session.done:
                session.close()
        elif step > session.steps:
            raise ValueError(f"step must be at most {session.steps + 1}, the next one, got {step}")
        self._set_weights(np.asarray(session.value, dtype=np.float64), self.scaling_)
        return self

    @property
    def _session(self) -> Interaction | None:
        found: Interaction | None = self.__dict__.get("session_")
        return found

    def _batch(self, X: Rows, y: Column) -> tuple[Matrix, Values]:
        """Return rows and labels of a batch, with the columns of the first one."""
        if self._session is not None:
            if self.schema is None:
                require_numbers("X", X, axes=2)
            self._known_rows(X)
        return self._validated(X, y)

    def _start(self, rows: Matrix, y: Column, classes: Column, store: str | Path | None) -> None:
        """Open or resume the session of a model, and set the public attributes."""
        declared = classes if self.classes is None else self.classes
        if is_from_data(declared):
            raise ValueError("learning from batches needs declared classes; pass classes=[...]")
        self._set_classes(declared, y)
        session, scaling = self._open(rows, store)
        self._set_fitted(Release(None, session.plan, self.random_state is None), scaling)
        self.session_ = session

    def __getstate__(self) -> dict[str, object]:
        """Return the state of a copy: a session stays with one model."""
        state = dict(super().__getstate__())
        state.pop("session_", None)
        return state

    def _set_weights(self, weights: Floats, scaling: Scaling) -> None:
        if len(self.classes_) > 2:
            weights = weights.reshape(-1, len(self.classes_)).T
        self.weights_ = np.atleast_2d(weights)
        self.coef_, self.intercept_ = scaling.unscaled(self.weights_)

    @property
    def _categories(self) -> tuple[str, ...] | None:
        """The categories of the target, if there is a schema that has them."""
        target = None if self.schema is None else self.schema.target
        return target.categories if isinstance(target, Category) else None

    def _leaks(self) -> tuple[str, ...]:
        return (CLASSES_LEAK,) if is_from_data(self.classes) else ()

    def _public_labels(self, labels: Column) -> Floats:
        codes = class_codes(self.classes_, labels)
        return codes if len(self.classes_) > 2 else 2 * codes - 1

    def _n_classes(self) -> int:
        """Return the number of classes: declared, or those of the fit; two if unknown."""
        if self.classes is None or is_from_data(self.classes):
            return len(getattr(self, "classes_", self._categories or (0, 1)))
        return len(sorted_classes(self.classes))

    def decision_function(self, X: Rows) -> Floats:
        """Margins: one number per row for two classes, one per class for more."""
        return self._margins(self._rows(X))

    def _margins(self, rows: Matrix) -> Floats:
        margins = self._outputs(rows)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Rows) -> Values:
        """The class with the largest margin."""
        margins = self.decision_function(X)
        places = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return np.asarray(self.classes_[places])

    def score(self, X: Rows, y: Column, sample_weight: Column = None) -> float:
        """Mean accuracy: NOT private if the records are; `dpfit.models.private_score` is."""
        warn_of_score()
        return float(super().score(X, y, sample_weight))


class ProbabilisticClassifier(PrivateClassifier):
    """Margins are logits: their softmax, or logistic function, gives probabilities."""

    def _logits(self, X: Rows) -> Floats:
        return self.decision_function(X)

    def predict_proba(self, X: Rows) -> Floats:
        """The probability of each class."""
        margins = self._logits(X)
        logits = (
            np.stack([np.zeros_like(margins), margins], axis=1) if margins.ndim == 1 else margins
        )
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Rows) -> Floats:
        """The logarithm of the probability of each class."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class LogisticRegression(ProbabilisticClassifier):
    """Logistic regression under differential privacy; binary and multinomial.

    Guarantee: (epsilon, delta)-DP for one record, pure if ``delta`` is 0; ``guarantee_`` has it
    with its basis.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit.
    relation, n_declared, max_rows_per_user
        The neighbouring relation: "replace" (one record changes its values; the number of records
        is public) or "add_remove" (then ``n_declared``, a public number near that of the records,
        must be given). With ``user_ids`` in `fit`, users are protected instead of records: at most
        ``max_rows_per_user`` records of each are used.
    row_norm, bounds
        Public facts about the columns: ranges ``(lower, upper)`` (numbers, or one for each column),
        which scale the columns to [-1, 1]; or the largest norm of a row. Longer rows are scaled
        down. With ranges alone that happens where noise is large, and coefficients are then up to
        1.8 times the effects of columns (docs/explanation/models.md). Neither given: ranges are
        found with a tenth of the budget. "from_data": ranges are read off the records, which leaks.
    classes
        The classes, if neither the dtype of ``y`` or the target of ``schema`` gives them nor they
        are 0 and 1. "from_data" leaks.
    public
        ``(X0, y0)``: records that need no protection, such as open data of the same kind. The fit
        starts from them; the guarantee is for the private records only. Needs ``delta > 0``.
    fit_intercept, ridge
        The objective is the mean loss plus ``ridge / 2`` times the squared norm of the scaled
        weights.
    l1_radius
        Declares that few columns matter: the coefficients of the scaled columns sum to at most this
        number in absolute value; the intercept does not count. ``solver="auto"`` then considers
        `sparse_descent`, and ``chosen_columns_`` names the columns of the fit. Needs ``bounds`` or
        ``schema``.
    solver, max_passes
        "auto", the name of a minimizer of `dpfit algorithms`, or the object:
        ``solver=noisy_gd.using(clip_norm=0.5)``.
    ledger, dataset
        A `dpfit.Ledger` (or its path) and the name under which the data's budget is registered. Its
        currency decides among solvers: those with the lowest privacy cost come first.
    random_state
        An RNG seed, for tests: a seeded fit is not private.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, X[:, 0] > 0.1)
    >>> model.predict([[-0.9], [0.9]])
    array([False,  True])
    >>> print(model.guarantee_)
    epsilon = 1, with one record replaced
    """

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        number = self._n_classes()
        return (Softmax(number) if number > 2 else Logistic(),)

    def _logits(self, X: Rows) -> Floats:
        """Margins; those of a long row are the ones of the shortened record."""
        rows = self._rows(X)
        return np.asarray((self._margins(rows).T * self.scaling_.shortened_by(rows)).T)


class LinearSVC(PrivateClassifier):
    """A linear support vector machine with smoothed hinge and two classes, under DP.

    Guarantee and parameters as `LogisticRegression`.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> LinearSVC(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, X[:, 0] > 0.1).predict([[-0.9], [0.9]])
    array([False,  True])
    """

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        if self._n_classes() > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                "use LogisticRegression"
            )
        return (SmoothedHinge(0.5),)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def public_classes(classes: Column, y: Column, categories: tuple[str, ...] | None = None) -> Values:
    """The classes that are public, sorted.

    These are the declared ones, those of a boolean or categorical dtype, 0 and 1 for numbers, or
    the ``categories`` of a schema for texts.

    >>> public_classes(["well", "sick"], None), public_classes(None, np.array([True, False]))
    (array(['sick', 'well'], dtype='<U4'), array([False,  True]))
    """
    if classes is not None:
        declared = sorted_classes(classes)
        if (
            y is not None
            and declared.dtype.kind not in "biufO"
            and any(map(holds_numbers, dtypes_of(y)))
        ):
            raise ValueError(
                "classes are strings but y is numeric; declare numeric classes, or convert y to "
                "strings"
            )
        return declared
    if has_no_dtype(y):
        if categories is not None:
            return sorted_classes(categories)
        raise ValueError(
            "classes must be declared for labels in a list, which has no dtype; pass "
            "classes=[0, 1], or an array of labels"
        )
    dtype = dtypes_of(y)[0]
    listed = getattr(dtype, "categories", None)
    # Those of a Categorical of polars are not in its dtype: they are what occurred so far, in this
    # column or another.
    if listed is not None and np.ndim(listed) == 1:
        return sorted_classes(listed)
    if is_boolean(dtype):
        return np.array([False, True])
    if holds_numbers(dtype):
        return np.array([0, 1])
    if categories is not None:
        return sorted_classes(categories)
    raise ValueError(
        "classes must be declared for labels that are strings or objects, since reading them off "
        "the records would reveal which ones occur; pass classes=[...], or a column whose dtype "
        "lists them (category of pandas, Enum of polars)"
    )


def is_assumed(y: Column) -> bool:
    """Return whether the dtype of labels is one of numbers, so that classes 0 and 1 are assumed."""
    dtype = None if has_no_dtype(y) else dtypes_of(y)[0]
    listed = getattr(dtype, "categories", None)
    return holds_numbers(dtype) and not is_boolean(dtype) and listed is None


def sorted_classes(classes: Column) -> Values:
    """Declared classes in scikit-learn's order: metrics expect sorted probability columns."""
    given = np.asarray(classes)
    try:
        found = np.unique(given)
        values = np.unique(found.astype(np.float64)) if found.dtype.kind in "biuf" else found
    except TypeError:
        raise ValueError(
            "classes must be all numbers or all strings; convert them to one type"
        ) from None
    finite = values.dtype.kind != "f" or bool(np.isfinite(values).all())
    if given.ndim != 1 or len(values) < len(given) or not finite:
        raise ValueError("classes must be a list of strings or finite numbers, each of them once")
    return found


def _classes_from_data(labels: Values) -> Values:
    warn_caller(
        "classes='from_data' reads the classes off the records: the guarantee does not cover "
        "what they tell",
        LeakWarning,
    )
    found = np.asarray(labels.tolist()) if labels.dtype == object else labels
    check_classification_targets(found)
    return np.unique(found)


def class_codes(classes: Values, labels: Column) -> Floats:
    """The place of each label among the sorted classes, from that label alone.

    Numbers go to the nearest class. What is neither a number nor a class is a missing outcome, NaN.

    >>> class_codes(np.array([0, 1, 5]), [-np.inf, 1, 1e300, None, 4]).tolist()
    [0.0, 1.0, 2.0, nan, 2.0]
    """
    if classes.dtype.kind in "biuf":
        numbers, kinds = as_numbers(labels), classes.astype(np.float64)
        nearest = np.searchsorted(kinds[:-1] / 2 + kinds[1:] / 2, numbers)
        return np.where(np.isnan(numbers), np.nan, nearest)
    places = {label: float(place) for place, label in enumerate(classes.tolist())}
    return np.array(
        [_place(places, label) for label in labels_of(labels).tolist()], dtype=np.float64
    )


def _place(places: dict[Hashable, float], label: Hashable) -> float:
    try:
        return places.get(label, np.nan)
    except TypeError:  # a list, say, which cannot be looked up
        return np.nan
