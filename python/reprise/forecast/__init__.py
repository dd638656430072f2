"""A step before it runs: at any batch size, on any device."""
