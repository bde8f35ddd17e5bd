"""What a replay prints: tables, pictures, pages and advice."""
