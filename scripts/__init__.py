"""What people run by hand: measurements and checks on real models."""
