// Package tools pins what `make check` uses, in a module of its own (see go.mod) so that none of it
// reaches the product's requirements. Update with `go get -tool NAME@latest` in this folder.
package tools
