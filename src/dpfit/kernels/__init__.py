"""The hot loops: sums over records, one pass over the data each.

`dense` and `sparse` serve generalized linear losses, `softmax` the multinomial one and `vector` losses of whole
records. Import the module that is needed: compiled code is loaded with it.
"""
