// SPDX-License-Identifier: Apache-2.0

// Package example is the stage of bpf/example, which is built for tests alone, with the tag example. It shows what a stage
// may do beside forwarding packets itself: leave another destination to the stages behind it, and take headers off in front
// of the pipeline. docs/development.md, "Adding a stage", walks through it.
package example
