# SPDX-License-Identifier: Apache-2.0
"""What the parts of railweave say to each other over gRPC, generated from the .proto files beside."""
