"""Attention to pairs of positions by trilinear logits, with causal windows and grouped queries."""
