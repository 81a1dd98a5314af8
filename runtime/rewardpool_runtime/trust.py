"""Verifying a router's certificate: the same for trainers and for the operator."""

import ssl


def verifying_context(pem: str) -> ssl.SSLContext:
    """A client's TLS settings that trust these certificates, and no others.

    Args:
        pem: certificates, one after the other.

    Raises:
        ValueError: they cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A certificate that is not a CA's is trusted as itself; its host name is checked in any case.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise ValueError(f"no certificates in PEM: {error.reason or error}") from None
    return context
