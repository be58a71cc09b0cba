"""Pictures: score curve, tree, paths, advantages."""
