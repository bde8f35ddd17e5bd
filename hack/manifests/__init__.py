"""The Helm chart's generated files, and the tools and schemas that manifests are checked with."""
