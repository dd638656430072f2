"""The answers of the public functions, as people see them."""
