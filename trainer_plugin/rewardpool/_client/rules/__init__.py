"""Rules of sending: what is tried again, hedged, held back or given up."""
