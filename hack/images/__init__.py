"""Builds the images of the Dockerfile without an image registry and without a package index, and describes them.

buildah builds them, as root, on a base that debootstrap makes and with wheels that were downloaded before. With a
registry none of this is needed: ``docker build`` is enough.
"""

from hack.images.build import Image, ImageError, build

__all__ = ["Image", "ImageError", "build"]
