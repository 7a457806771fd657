"""The hot loops: sums over records, one pass over the data each.

`passes` is what to call. Behind it there is one loop for each family of losses (`glm`, `softmax`,
`vector`, `custom`), written once for dense and compressed rows (`rows`) with the guards of
`bounds`. Import the module that is needed: compiled code is loaded with it.
"""
