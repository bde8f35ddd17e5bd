"""The output of a replay: tables, pictures, pages and advice."""
