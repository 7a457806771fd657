"""Private means of contributions: sampling, clipping, noise and accounting in one object."""
