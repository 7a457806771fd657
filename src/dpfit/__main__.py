"""``python -m dpfit``."""

from dpfit.cli import main

main()
