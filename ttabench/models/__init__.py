"""Source classifiers: `architectures/` builds, `training/` trains, `checkpoints/` keeps their weights.

`external/` brings models from elsewhere: timm, RobustBench, official weights, a Python path.
"""
