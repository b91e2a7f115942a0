"""The published corruption benchmarks, one module per layout: `cifar` and `imagenet`.

`facts` holds their names, sizes, archives and checksums.
"""
