"""Samplers of Gibbs densities, each with a certificate of how close to its target it is, for every dataset."""
