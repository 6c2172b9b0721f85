"""``nearfar export``: a model folder -> one ONNX or OpenVINO graph."""
