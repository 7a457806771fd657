"""Error laws, rates and printed constants, for choosing plans and comparing plots."""
