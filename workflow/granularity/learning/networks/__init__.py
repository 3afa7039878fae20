"""Build and load networks and prepare their images."""
