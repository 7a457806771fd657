"""`public=` on models: which solver is planned goes by the number of public records alone."""

import numpy as np
import pytest

from dpfit.models import LogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore:random_state fixes the noise")


def drawn(n, rng):
    rows = rng.uniform(-1, 1, (n, 4))
    return rows, (rows @ [2.0, -2.0, 1.0, 0.0] + rng.logistic(size=n) > 0).astype(int)


def planned(records, **options):
    private = drawn(2000, np.random.default_rng(0))
    public = None if records is None else drawn(records, np.random.default_rng(1))
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), public=public, random_state=1, **options)
    return model.fit(*private)


def test_very_few_public_records_change_nothing():
    """Five parameters with the intercept: seven records are fewer than one and a half for each."""
    alone, few = planned(None), planned(7)
    assert few.plan_ == alone.plan_
    assert np.array_equal(few.coef_, alone.coef_)


@pytest.mark.parametrize(("records", "kind"), [(8, "warm_start_gd"), (100, "pda_dpmd")])
def test_more_public_records_are_used(records, kind):
    model = planned(records)
    assert kind in str(model.plan_.to_json())
    assert "not protected" in model.plan_.explain()


def test_a_solver_that_is_named_is_taken():
    assert "warm_start_gd" in str(planned(7, solver="warm_start_gd").plan_.to_json())
