"""What the public functions answer, as people see it."""
