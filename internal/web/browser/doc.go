// SPDX-License-Identifier: Apache-2.0

// Package browser has the tests of the page to look at in a real browser, against a lab with traffic: they are built with the tag
// `browser`, and 'make test-web' runs them.
package browser
