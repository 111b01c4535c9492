"""The rounding certificate: a sound bound of what rounding did to one inference (docs/certificate.md).

The frozen graph is evaluated as *balls*: a centre in multi-word fixed point and a radius in binary64 that is proved to
hold the exact real-number result. The bound of an engine's output is its distance from the centre plus the radius.
"""
