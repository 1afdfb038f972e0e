"""Language models behind one narrow protocol."""
