"""What a network is: built, loaded, and the encoders of images."""
