"""Fixed numbers that look normal: where public starts of networks come from. They are no noise.

They are a function of a public number alone, the same on every machine and in every version, so
that a stored plan starts where it did. Nothing private may rest on them.
"""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.special import ndtri

from dpfit.noise.source import Floats
from dpfit.privacy.validate import integer


def public_normals(number: int, size: int) -> Floats:
    """Return ``size`` fixed numbers with a standard normal histogram, the same for each ``number``.

    They are normal quantiles of the 32-bit words that SHAKE-256 makes of the number.

    >>> public_normals(0, 3).round(4).tolist() == public_normals(0, 5).round(4).tolist()[:3]
    True
    """
    seed = integer("number", number, least=0).to_bytes(8, "little")
    stream = hashlib.shake_256(b"dpfit public start" + seed).digest(4 * size)
    words = np.frombuffer(stream, dtype="<u4").astype(np.float64)
    return np.asarray(ndtri((words + 0.5) * 2.0**-32))
