"""The models of the Foundation Model Stack (`ibm-fms`)."""
