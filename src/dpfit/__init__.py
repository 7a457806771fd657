"""dpfit: fit models, draw samples and answer queries under differential privacy."""

__version__ = "0.1.0"
