"""Regularize what a network represents."""
