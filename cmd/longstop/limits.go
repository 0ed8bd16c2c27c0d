package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/longstop/longstop"
)

var limitNames = []string{"open_files", "processes", "cpu_s", "file_bytes", "memory_bytes", "cpu_percent", "tasks"}

func limitFields(l *longstop.Limits) []*int64 {
	return []*int64{&l.OpenFiles, &l.Processes, &l.CPUS, &l.FileBytes, &l.MemoryBytes, &l.CPUPercent, &l.Tasks}
}

// limitTerms are the limits that were asked for.
func limitTerms(l *longstop.Limits) string {
	text := ""
	if l != nil {
		for i, n := range limitFields(l) {
			if *n > 0 {
				text += " " + limitNames[i] + "=" + strconv.FormatInt(*n, 10)
			}
		}
	}
	if text == "" {
		return ""
	}
	return "limits" + text
}

// limits reads --limit.
func limits(list []string) (*longstop.Limits, error) {
	if len(list) == 0 {
		return nil, nil
	}
	l := new(longstop.Limits)
	fields := limitFields(l)
	for _, item := range list {
		name, text, _ := strings.Cut(item, "=")
		i := slices.Index(limitNames, strings.ReplaceAll(name, "-", "_"))
		if i < 0 {
			return nil, usage("one of "+strings.Join(limitNames, ", "), "--limit %s is not known", plain(name))
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && strings.HasSuffix(limitNames[i], "_bytes") {
			var bytes *int64
			if bytes, err = size("--limit", text); err == nil {
				n = *bytes
			}
		}
		if err != nil || n <= 0 {
			return nil, usage("as in --limit open_files=256 or --limit memory_bytes=512M", "--limit %s: not NAME=N with a number above 0", plain(item))
		}
		*fields[i] = n
	}
	return l, nil
}

// limitOffers say which limits on a whole run a host can hold, and why not the others: those together that
// one remedy would help.
func limitOffers(offers []longstop.BoundaryOffer) (lines []string) {
	var held []string
	type lack struct {
		names           []string
		because, remedy string
	}
	var lacks []lack
	for _, name := range longstop.LimitsOfRun {
		in, because, remedy := limitOffer(offers, name)
		same := func(l lack) bool { return l.remedy == remedy && (remedy != "" || l.because == because) }
		if in != nil {
			held = append(held, name+" ("+strings.Join(in, ", ")+")")
		} else if i := slices.IndexFunc(lacks, same); i >= 0 {
			lacks[i].names = append(lacks[i].names, name)
		} else if because != "" {
			lacks = append(lacks, lack{[]string{name}, because, remedy})
		}
	}
	if held != nil {
		lines = append(lines, "limits on a whole run: "+strings.Join(held, ", "))
	}
	for _, l := range lacks {
		line := "no limit " + strings.Join(l.names, ", ") + " on a whole run: " + plain(l.because)
		if l.remedy != "" {
			line += between + plain(l.remedy)
		}
		lines = append(lines, line)
	}
	return lines
}

// limitOffer is which boundaries hold a limit on a whole run, and why the best that cannot does not.
func limitOffer(offers []longstop.BoundaryOffer, name string) (in []string, because, remedy string) {
	for _, b := range offers {
		for _, l := range b.Limits {
			switch {
			case l.Name == name && l.Can:
				in = append(in, plain(string(b.Kind)))
			case l.Name == name && b.Kind != longstop.BoundaryTree && because == "":
				because, remedy = l.Because, l.Remedy
			}
		}
	}
	return in, because, remedy
}

// oomWords name what the host's memory killer did to a run's work.
func oomWords(o *longstop.OOM) string {
	if o == nil {
		return ""
	}
	if o.AtLimit {
		return "the memory killer struck, at its own limit"
	}
	return "the memory killer struck, at no limit of its own"
}
