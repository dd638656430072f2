"""Pages that are written from the rows of bench/results, one module for each; without torch."""
