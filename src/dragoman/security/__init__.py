"""Who a caller is, and what it may do.

`access` has the words of a decision, `rules` the access rules and their index, `rule_filter` the
search for rules, `authorizer` the decision, `identity` the caller of a connection before any login,
and `users` what the metadata knows about users. Everything is allowed until rules are enforced.
`secrets` seals what the metadata stores encrypted, with the keys of `key_file`; `audit` writes who
did what.

`logins` examines what clients present: passwords (`passwords`, `password_cache`, `scram`) and
tokens (`bearer_tokens`, `token_keys`), by the mechanisms of `sasl`. `login_failures` delays
guesses, which `waiting_logins` bounds, and `login_admission` bounds the connections without a
login; both keep room for the addresses that `login_origins` knows.
"""
