//go:build tools

// Package tools names the commands that cluster.binaries builds, so that go.mod keeps their modules.
package tools

import (
	_ "go.etcd.io/etcd/etcdutl/v3"
)
