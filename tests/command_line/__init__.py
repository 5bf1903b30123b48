"""How every command behaves: rows to run, and the page that shows them."""
