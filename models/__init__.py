"""Networks to train under a budget, defined here: a measurement depends on nobody's model zoo."""
