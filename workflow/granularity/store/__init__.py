"""Where results are stored: artifacts, manifests, locks, checkpoints, and the digest of the code."""
