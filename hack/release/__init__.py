"""What a release is: one version, the schemas that it promises, and the files that it consists of."""
