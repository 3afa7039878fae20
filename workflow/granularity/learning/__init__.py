"""Code that all trainings share: networks, data, objectives and the one training loop. Recipes are data."""
