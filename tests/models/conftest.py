import numpy as np
import pytest


@pytest.fixture
def line():
    """Records on a line: x uniform in [-1, 1], and whether it is above a threshold."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    return x, (x[:, 0] > 0.2).astype(int), 5 + 3 * x[:, 0] - x[:, 1]
