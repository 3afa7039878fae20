"""Where results live: artifacts, manifests, claims, checkpoints, the digest of code."""
