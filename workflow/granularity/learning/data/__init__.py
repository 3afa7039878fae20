"""Feed images and labels to a network."""
