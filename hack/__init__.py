"""The tools around the product: control plane, node, images, demo, generators. No part of the product."""
