"""AlphaFold's triangle attention and triangle multiplication, with the argument names of cuEquivariance."""
