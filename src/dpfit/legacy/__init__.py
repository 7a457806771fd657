"""Readers of plans that earlier versions of dpfit wrote."""
