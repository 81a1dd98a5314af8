//go:build tools

// Package tools names the commands that cluster.binaries builds, so that go.mod keeps their modules.
package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
