"""The experiments of the quantile-matching paper: what each measures, and how it is rehearsed small."""
