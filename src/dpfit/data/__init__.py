"""How solvers see data: sizes and sums, whatever the records are kept in."""
