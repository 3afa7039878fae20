"""Train and evaluate networks."""
