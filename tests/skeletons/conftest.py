"""Skeletons are imported as ``skeletons.<module>``, once: pytest must not import them under a second name."""

collect_ignore_glob = ["[!t]*.py"]
