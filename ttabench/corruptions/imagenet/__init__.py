"""The 19 corruptions of ImageNet-C at 224 pixels, one image (224, 224, 3) at a time.

A step of one image of this size fits into the caches of a core, a step of many does not. So these functions
are not those of 32 and 64 pixels, which work on many images at once.
"""
