"""The HTTP surface: health, metrics and a versioned JSON API.

`operations` declares the API once, `values` has its JSON types; both are cheap to import. `node`
and the services beside it (`topics`, `groups`, `cluster`, `captures`, `pipelines`) answer for a
running node through ports of their own. `listener` takes connections and loads the rest (`app`,
`endpoints`, `connection`) when the first one comes.
"""
