"""All that a deployment needs: load an artifact, run it from any thread. Imports only numpy and TVM's runtime."""

from .pool import threads as threads
