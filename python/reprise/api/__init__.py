"""The public functions of Reprise that need a model."""
