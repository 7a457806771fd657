"""Threads of BLAS: one during a pass that shares products among threads, then as before."""

import pytest
from threadpoolctl import ThreadpoolController

from dpfit.kernels.threads import one_blas_thread

BLAS = ThreadpoolController().select(user_api="blas")


def threads():
    return {each["num_threads"] for each in BLAS.info()}


@pytest.mark.skipif(not BLAS, reason="no BLAS whose threads can be set")
def test_the_last_pass_to_leave_restores_the_threads_of_blas():
    with BLAS.limit(limits=2):
        before = threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert threads() == {1}
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before
        with pytest.raises(KeyError), one_blas_thread():
            raise KeyError
        assert threads() == before
