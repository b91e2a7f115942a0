"""The published corruption benchmarks, one module per layout: `cifar` and `imagenet`.

`facts` has their names, sizes, addresses and checksums.
"""
