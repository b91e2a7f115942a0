"""What is checked once about a network from elsewhere, so that no method gives a wrong number in silence.

`private_copy` its copies, `gradient_flow` its gradients, `norm_lookalikes` its norm layers, `noise_logits`
what it computes, `last_layer` whether the layer that is named makes its logits, `usable_tensors` its tensors.
"""
