"""From a model to the program of its training step."""
