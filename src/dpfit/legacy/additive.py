"""Noise on counts and answers of version 0.1.0: a class for each workload and law."""

from __future__ import annotations

from typing import Any

from dpfit.mechanisms.additive import (
    AdditiveNoise,
    GaussianNoise,
    KNormNoise,
    LaplaceNoise,
    NoisySums,
    PowerNoise,
    SumQueries,
)
from dpfit.mechanisms.truncated_generalized_gaussian import TruncatedNoise
from dpfit.privacy.spec import from_json, reads


@reads("noisy_counts")
def read_noisy_counts(value: dict[str, Any]) -> NoisySums:
    """Return noisy counts."""
    noise, workload = (
        from_json(value["noise"], AdditiveNoise),
        from_json(value["workload"], SumQueries),
    )
    return NoisySums(noise, workload, value["relation"])


@reads("noisy_answers")
def read_noisy_answers(value: dict[str, Any]) -> NoisySums:
    """Return noisy answers; their declared sensitivities hold under either relation."""
    noise, workload = (
        from_json(value["noise"], AdditiveNoise),
        from_json(value["workload"], SumQueries),
    )
    return NoisySums(noise, workload, "replace")


@reads("gaussian_count_noise")
def read_gaussian_count_noise(value: dict[str, Any]) -> GaussianNoise:
    """Return Gaussian noise on counts."""
    return GaussianNoise(value["noise_multiplier"])


@reads("gaussian_answer_noise")
def read_gaussian_answer_noise(value: dict[str, Any]) -> GaussianNoise:
    """Return Gaussian noise on answers."""
    return GaussianNoise(value["noise_multiplier"])


@reads("laplace_count_noise")
def read_laplace_count_noise(value: dict[str, Any]) -> LaplaceNoise:
    """Return Laplace noise on counts."""
    return LaplaceNoise(value["scale"])


@reads("generalized_gaussian_count_noise")
def read_generalized_gaussian_count_noise(value: dict[str, Any]) -> PowerNoise:
    """Return generalized Gaussian noise on counts."""
    return PowerNoise(value["noise_multiplier"], value["shape"])


@reads("power_answer_noise")
def read_power_answer_noise(value: dict[str, Any]) -> PowerNoise:
    """Return generalized Gaussian or Laplace noise on answers."""
    return PowerNoise(value["scale"], value["shape"], value["bound"])


@reads("k_norm_count_noise")
def read_k_norm_count_noise(value: dict[str, Any]) -> KNormNoise:
    """Return K-norm noise on counts."""
    return KNormNoise(value["epsilon"])


@reads("k_norm_answer_noise")
def read_k_norm_answer_noise(value: dict[str, Any]) -> KNormNoise:
    """Return K-norm noise on answers; the event is the one that was written."""
    return KNormNoise((1 + 2.0**-50) / value["noise_multiplier"], value["norm"])


@reads("truncated_count_noise")
def read_truncated_count_noise(value: dict[str, Any]) -> TruncatedNoise:
    """Return truncated noise on counts."""
    return TruncatedNoise(from_json(value["law"], PowerNoise), value["escape"])
