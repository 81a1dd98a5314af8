"""Verifying a router's certificate: the same for trainers and for the operator."""

import ssl


def verifying_context(pem: str) -> ssl.SSLContext:
    """A client's TLS settings that trust these certificates, and no others.

    A certificate that is no CA is trusted as itself, so that one without a CA of its own can be verified too; its host
    name is checked in any case.

    Args:
        pem: certificates, one after the other.

    Raises:
        ValueError: they cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise ValueError(f"no certificates in PEM: {error.reason or error}") from None
    return context
