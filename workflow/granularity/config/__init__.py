"""Every option, and the files that set them."""
