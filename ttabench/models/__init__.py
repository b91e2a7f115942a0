"""Source classifiers: `architectures/` builds them, `training/` trains them, `checkpoints/` stores them.

`external/` brings models from elsewhere: timm, RobustBench, official weights, a Python path.
"""
