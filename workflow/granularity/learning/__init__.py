"""Learning: what trainings share, such as networks, data, objectives and the one loop; recipes are data."""
