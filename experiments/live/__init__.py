# SPDX-License-Identifier: Apache-2.0
"""`--live`: a running lab on a page in the browser, with buttons that cut and mend its links."""
