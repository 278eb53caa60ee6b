"""Strassen attention: attention to pairs whose weights are products of three matrices' entries."""
