// Package wire is what gateway and runner say to each other: messages, frames, strict JSON, the
// record's MAC. It is pure: bytes in, values out, no I/O of its own, no clock.
package wire
