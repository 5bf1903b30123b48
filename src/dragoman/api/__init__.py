"""The HTTP surface: health, metrics and a versioned JSON API.

`values` and `ports` say what is exchanged and what the node must offer, and are cheap to import;
`listener` takes connections and loads the rest when the first one comes.
"""
