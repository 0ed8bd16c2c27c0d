package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// killUserProcesses tells whether logind ends what a user left running when the user logs out, as
// logind.conf(5) says it: the drop-ins of all folders in the order of their names, over the main
// file. Known is false where no file sets it, for the built-in value differs: upstream's is yes,
// Debian's, Red Hat's and others' is no, and their packages say so in a comment of the main file.
func killUserProcesses() (kill, known bool) {
	return killUserProcessesIn("")
}

func killUserProcessesIn(root string) (kill, known bool) {
	folders := []string{"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"}
	for _, folder := range folders {
		main, err := os.ReadFile(root + folder + "/logind.conf")
		if err != nil {
			continue
		}
		if value, ok := commentedDefault(string(main)); ok {
			kill, known = value, true
		}
		if value, ok := setting(string(main)); ok {
			kill, known = value, true
		}
		break
	}
	dropIns := map[string]string{} // by name; that of an earlier folder hides a later one's
	for _, folder := range slices.Backward(folders) {
		paths, _ := filepath.Glob(root + folder + "/logind.conf.d/*.conf")
		for _, path := range paths {
			dropIns[filepath.Base(path)] = path
		}
	}
	names := make([]string, 0, len(dropIns))
	for name := range dropIns {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := os.ReadFile(dropIns[name])
		if err != nil {
			continue
		}
		if value, ok := setting(string(data)); ok {
			kill, known = value, true
		}
	}
	return kill, known
}

const killSetting = "KillUserProcesses"

// setting is the last value that a file gives.
func setting(text string) (value, found bool) {
	for line := range strings.Lines(text) {
		name, word, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && strings.TrimSpace(name) == killSetting {
			if yes, ok := boolean(strings.TrimSpace(word)); ok {
				value, found = yes, true
			}
		}
	}
	return value, found
}

// commentedDefault is the built-in value as the shipped file shows it: "#KillUserProcesses=no".
func commentedDefault(text string) (value, found bool) {
	for line := range strings.Lines(text) {
		if word, ok := strings.CutPrefix(strings.TrimSpace(line), "#"+killSetting+"="); ok {
			return boolean(word)
		}
	}
	return false, false
}

// boolean reads a boolean as systemd.syntax(7) writes it.
func boolean(word string) (value, ok bool) {
	switch strings.ToLower(word) {
	case "1", "yes", "y", "true", "t", "on":
		return true, true
	case "0", "no", "n", "false", "f", "off":
		return false, true
	}
	return false, false
}
