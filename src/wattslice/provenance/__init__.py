"""Where every number comes from: code digests, environment, manifests."""
