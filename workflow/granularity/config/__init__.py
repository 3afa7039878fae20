"""All options, and the files that set them."""
