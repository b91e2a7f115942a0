"""Reading single files and folders of images.

`array_files` (.npy, .npz), `read_image`, `image_folders`, `decoded_cache`, `unpickle` (CIFAR's batches),
`fingerprint` (SHA-256 of files and folders), `generated_cache` (arrays computed on first use),
`postscript` (which is no image).
"""
