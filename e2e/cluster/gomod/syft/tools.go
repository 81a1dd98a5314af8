//go:build tools

// Package tools names the commands that cluster.binaries builds, so that go.mod keeps their modules.
package tools

import (
	_ "github.com/anchore/syft/cmd/syft"
)
