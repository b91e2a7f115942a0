"""The published corruption benchmarks, one module per layout: `cifar`, `cifar_bar`, `imagenet`
and `natural_shifts`.

`facts` has their names, sizes, addresses and checksums, as `description` describes them.
"""
