"""What the tests on a GPU share. Importable without one, so that its logic is tested everywhere."""
