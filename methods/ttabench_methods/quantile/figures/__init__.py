"""The figures of the quantile-matching paper: one file each, which computes numbers and then draws them."""
