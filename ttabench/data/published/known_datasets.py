"""All published datasets by name, as plain data; `cifar_facts` and `imagenet_facts` hold the facts.

Sizes and checksums are those that the records themselves publish (Zenodo, the CIFAR page), which
torchvision, TensorFlow Datasets and TorchUncertainty repeat. Where no checksum is published, it is left
empty.
"""

from ttabench.data.published import cifar_facts, imagenet_facts

PUBLISHED = {facts.name: facts for facts in (*cifar_facts.DATASETS, *imagenet_facts.DATASETS)}
