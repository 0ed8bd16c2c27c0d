package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process is one process of this machine, as its process table shows it.
type process struct {
	pid     int
	start   string // ticks since boot: with the pid, an identity
	command string
}

// look reads one process; false if there is none, or only a zombie.
func look(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // proc_pid_stat(5), from field 3
	if len(fields) < 20 || fields[0] == "Z" {
		return process{}, false
	}
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return process{pid, fields[19], strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))}, true
}

func alive(pid int) bool {
	_, ok := look(pid)
	return ok
}

// here reports whether the very process is still there.
func (p process) here() bool {
	now, ok := look(p.pid)
	return ok && now.start == p.start
}

func (p process) kill() {
	if p.here() {
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// naming finds the processes of whose arguments one holds the text: the keeper of a state folder
// names it, and lets nobody but root read its environment.
func naming(text string) (found []process) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if p, ok := look(pid); ok {
				found = append(found, p)
			}
		}
	}
	return found
}

// tagged finds the processes whose environment holds name=value.
func tagged(name, value string) (found []process) {
	entry := []byte(name + "=" + value)
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for pair := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(pair, entry) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				if p, ok := look(pid); ok {
					found = append(found, p)
				}
				break
			}
		}
	}
	return found
}
