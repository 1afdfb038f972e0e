"""Compares the data of a task with every data set that the packages of a runtime can load.

The modules of this package also run alone inside the sandbox, with the Python of the runtime, so they import
nothing but each other, numpy and the standard library.

- Rows of numbers match if nearly all their values do, in any order and with a tolerance of 0.3 %: a change of
  the order of rows or columns, a cast, and added or removed columns do not hide a data set. Values are also
  compared after scaling both sides to the same maximum, and after inversion.
- Rows with noise, and images of any size, match by correlation.
- Texts match if half of their sequences of five words are in a package.

Rates of matches are compared with those of a control that has the same values in other places: columns
shuffled between rows, or images mirrored.
"""
