"""Reading files of images and labels: arrays, image files, CIFAR's pickles, and their fingerprints."""
