# SPDX-License-Identifier: Apache-2.0
"""Messages and services that the parts of railweave speak over gRPC, generated from the .proto files beside this one."""
