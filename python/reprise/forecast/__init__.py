"""Predicts a step before it runs, at any batch size and on any device."""
