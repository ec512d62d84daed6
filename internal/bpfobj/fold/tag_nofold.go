// SPDX-License-Identifier: Apache-2.0

//go:build nofold

package fold

const enabled = false
