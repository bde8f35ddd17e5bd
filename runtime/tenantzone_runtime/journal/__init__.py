"""The audit journal: records of zone events in files. Each record has the hash of the previous record."""
