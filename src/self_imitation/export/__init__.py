"""Trained policies as ONNX models."""
