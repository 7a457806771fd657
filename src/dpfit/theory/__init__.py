"""Laws of errors, rates and printed constants: what plans are chosen by and plots are compared with."""
