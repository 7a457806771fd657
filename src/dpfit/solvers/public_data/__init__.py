"""Descent on private records with the help of public ones, which need no protection."""
