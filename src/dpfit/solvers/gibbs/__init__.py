"""Private fits that are samples of Gibbs densities."""
