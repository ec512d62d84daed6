// SPDX-License-Identifier: Apache-2.0

//go:build !example

package example

import "culvert/internal/stage"

// Stage is none: the product has nothing of the example.
var Stage stage.Stage
