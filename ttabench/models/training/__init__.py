"""Training of source classifiers on clean images: recipes, augmentation and the training loop."""
