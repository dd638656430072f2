"""The pages that are written from the rows of bench/results. Each has a module, and none needs torch."""
