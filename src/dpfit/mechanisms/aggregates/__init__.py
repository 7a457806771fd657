"""Private means of what records contribute: sampling, clipping, noise and accounting in one object."""
