"""How images and labels reach a network."""
