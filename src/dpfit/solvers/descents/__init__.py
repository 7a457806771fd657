"""Descents: a public optimizer asks a private mean."""
