"""The architectures: ResNets, CCT, CVT and ViT-Lite, by name (`names`) and as networks (`build`)."""
