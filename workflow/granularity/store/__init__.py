"""Where results live: artifacts, manifests, claims, checkpoints, the cache, the digest of code."""
