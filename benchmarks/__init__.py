"""Side-by-side measurements, one command each."""
