"""Samplers of Gibbs densities, each with a certificate of closeness for every dataset."""
