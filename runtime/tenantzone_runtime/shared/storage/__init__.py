"""Reads and writes chunks in the storages that engines share: files, S3 buckets and Mooncake's memory pool."""
