TINY = [
    "tiny_conv",
    "tiny_mobilenet",
    "tiny_odd",
    "tiny_dense",
    "tiny_se",
    "tiny_resnet",
    "tiny_inception",
    "tiny_groups",
    "tiny_resize",
    "tiny_dynamic",
    "tiny_int8",
]
