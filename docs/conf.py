"""How Sphinx builds these pages: make docs."""

project = "TenantZone"
html_show_copyright = False

extensions = ["myst_parser"]
# GitHub makes the same anchors, so that links to headings work in both places; the build says which do not.
myst_heading_anchors = 4
nitpicky = True
highlight_language = "none"
# Pygments knows PromQL, but no names of recording rules, which have colons.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "TenantZone"
html_copy_source = False

# Asked over the network, by `make docs-links` only.
linkcheck_ignore = [r"http://localhost"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]  # a script makes them
