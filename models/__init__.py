"""Networks to train inside a budget. They are defined here, so that measurements do not depend on another model zoo."""
