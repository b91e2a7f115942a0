"""The published corruption benchmarks, one module per layout: `cifar`, `cifar_bar` and `imagenet`.

`facts` has their names, sizes, addresses and checksums.
"""
