package longstop

// Version is this release's, set at build time with -ldflags "-X".
var Version = "0.1.0-dev"
