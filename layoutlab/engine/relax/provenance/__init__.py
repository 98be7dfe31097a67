"""Which operators of the .tflite file each function of a built variant computes."""
