"""The Metadata API by SOAP: components one by one, and packages of them. What they mean is in `access/metadata`."""
