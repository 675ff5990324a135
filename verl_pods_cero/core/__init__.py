"""The mathematics of PODS and CERO, on numpy alone."""
