"""Per-example losses with their constants, and guards that make the constants true."""

from dpfit.losses.base import Bounds, Constant, Loss
from dpfit.losses.custom import CustomLoss, JaxLoss
from dpfit.losses.dense import DenseLayers
from dpfit.losses.envelope import LipschitzEnvelope
from dpfit.losses.glm import (
    GLM,
    Absolute,
    Hinge,
    Huber,
    Logistic,
    SmoothedHinge,
    Squared,
)
from dpfit.losses.guards import (
    BinaryLabels,
    Classes,
    FeatureBox,
    LabelInterval,
    RowBall,
    clip_gradients,
)
from dpfit.losses.quantile import Pinball, QuantileHuber
from dpfit.losses.robust import GemanMcClure, TruncatedAbsolute
from dpfit.losses.smoothed import GaussianSmoothed, smoothing_width
from dpfit.losses.softmax import Softmax
from dpfit.losses.vector import Distance, HuberDistance, LinearLoss, SquaredDistance, VectorLoss
from dpfit.losses.wells import Wells

__all__ = [
    "GLM",
    "Absolute",
    "BinaryLabels",
    "Bounds",
    "Classes",
    "Constant",
    "CustomLoss",
    "DenseLayers",
    "Distance",
    "FeatureBox",
    "GaussianSmoothed",
    "GemanMcClure",
    "Hinge",
    "Huber",
    "HuberDistance",
    "JaxLoss",
    "LabelInterval",
    "LinearLoss",
    "LipschitzEnvelope",
    "Logistic",
    "Loss",
    "Pinball",
    "QuantileHuber",
    "RowBall",
    "SmoothedHinge",
    "Softmax",
    "Squared",
    "SquaredDistance",
    "TruncatedAbsolute",
    "VectorLoss",
    "Wells",
    "clip_gradients",
    "smoothing_width",
]
