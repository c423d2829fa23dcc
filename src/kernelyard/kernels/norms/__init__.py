"""CUDA C++ that layer_norm, rms_norm and fused_add_rms_norm share: the forward and the backward of a normalisation."""
