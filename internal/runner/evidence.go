package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// The files that the work may write of itself. Whoever answers for the run reads them, strictly and at
// most so much: they are the work's word, not ours.
const (
	evidenceFile = "evidence"
	progressFile = "progress"

	progressTail = 4 << 10 // of a file to which every step adds a line
	maxOddities  = 5       // of a file, named one by one
)

// heard is what a file of the work's was when it was last read.
type heard struct {
	size     int64
	modified unix.Timespec
}

// hear takes what the work has written of itself since the last time, and reports whether that is
// something new. What is wrong with it is named at the end: until then a line may be half written.
func (c *custody) hear(end bool) (news bool) {
	if file := c.listen(evidenceFile, &c.evidence, end); file != nil {
		data, err := io.ReadAll(io.LimitReader(file, longstop.MaxEvidenceInFile+1))
		file.Close()
		if !end {
			data = data[:bytes.LastIndexByte(data, '\n')+1]
		}
		var odd []string
		if err == nil {
			c.rec.Evidence, odd = parseEvidence(data)
			news = true
		} else {
			odd = []string{err.Error()}
		}
		for i := 0; end && i < len(odd); i++ {
			c.doubt("evidence: " + odd[i])
		}
	}
	if file := c.listen(progressFile, &c.progress, end); file != nil {
		progress, odd := readProgress(file)
		file.Close()
		if progress != nil {
			c.rec.Progress, news = progress, true
		}
		if odd != "" && end {
			c.doubt("progress: " + odd)
		}
	}
	return news
}

// listen opens a file of the work's, if it is there and has changed, or at the end. What is no file of
// this user's own is refused, and said.
func (c *custody) listen(name string, last *heard, end bool) *os.File {
	file, err := c.run.File(name, unix.O_RDONLY)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.doubt(name + " is not read: " + err.Error())
		}
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil || !end && *last == (heard{st.Size, st.Mtim}) {
		file.Close()
		return nil
	}
	*last = heard{st.Size, st.Mtim}
	return file
}

// isKey reports whether a word is an evidence key: a letter or underscore, then those, digits, dots and
// hyphens.
func isKey(word string) bool {
	first := strings.TrimLeft(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
	return first != word && strings.Trim(first, keyLetters) == "" && len(word) <= longstop.MaxEvidenceKey
}

const keyLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.-"

// parseEvidence reads lines of KEY=VALUE. A line that is none, or one too many, is named and left out;
// the others count. Of one key the last value does, and that there were two is said.
func parseEvidence(data []byte) (evidence map[string]string, odd []string) {
	count := 0
	say := func(format string, args ...any) {
		if count++; count <= maxOddities {
			odd = append(odd, fmt.Sprintf(format, args...))
		}
	}
	if len(data) > longstop.MaxEvidenceInFile {
		data = data[:bytes.LastIndexByte(data[:longstop.MaxEvidenceInFile], '\n')+1]
		say("the file has more than %d bytes: the rest was not read", longstop.MaxEvidenceInFile)
	}
	room := longstop.MaxEvidenceBytes
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line == "" {
			continue
		}
		key, value, is := strings.Cut(line, "=")
		old, twice := evidence[key]
		need := len(key) + len(value) - len(old)
		switch {
		case !is || !isKey(key):
			say("line %d is not KEY=VALUE", i+1)
			continue
		case !clean(value):
			say("the value of %s is not plain UTF-8 text", key)
			continue
		case len(value) > longstop.MaxEvidenceValue:
			say("the value of %s has %d bytes, more than %d", key, len(value), longstop.MaxEvidenceValue)
			continue
		case !twice && len(evidence) == longstop.MaxEvidence, need > room:
			say("there is no room for %s: at most %d keys and %d bytes are kept", key, longstop.MaxEvidence, longstop.MaxEvidenceBytes)
			continue
		case twice && old != value:
			say("%s was given twice: the last value counts", key)
		}
		if evidence == nil {
			evidence = map[string]string{}
		}
		evidence[key] = value
		room -= need
	}
	if count > maxOddities {
		odd = append(odd, fmt.Sprintf("and %d more", count-maxOddities))
	}
	return evidence, odd
}

// clean reports whether text is UTF-8 without control characters, as people can be shown it.
func clean(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// readProgress takes a file's last line, and the time when it was written.
func readProgress(file *os.File) (p *longstop.Progress, odd string) {
	info, err := file.Stat()
	if err != nil {
		return nil, err.Error()
	}
	tail := make([]byte, progressTail)
	n, err := file.ReadAt(tail, max(0, info.Size()-progressTail))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err.Error()
	}
	if p, odd = parseProgress(tail[:n]); p != nil {
		p.At = longstop.At(info.ModTime())
	}
	return p, odd
}

// parseProgress takes the last line of text that has anything in it: as people would see it, so what
// stands before a carriage return is written over. It has to be plain text, and is cut where it is long.
func parseProgress(tail []byte) (p *longstop.Progress, odd string) {
	lines := strings.FieldsFunc(string(tail), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(strings.ReplaceAll(lines[i], "\t", " "))
		if line == "" {
			continue
		}
		if i == 0 && len(tail) == progressTail {
			line = strings.ToValidUTF8(line, "") // the tail may begin in the middle of a letter
		}
		if !clean(line) {
			return nil, "its last line is not plain UTF-8 text"
		}
		if len(line) > longstop.MaxProgressLine {
			line = strings.ToValidUTF8(line[:longstop.MaxProgressLine], "")
		}
		return &longstop.Progress{Line: line, Percent: percentOf(line)}, ""
	}
	return nil, ""
}

// percentOf is the first word of a line that is a percentage, as "42%" or "(42.5%)".
func percentOf(line string) *float64 {
	for _, word := range strings.Fields(line) {
		number, is := strings.CutSuffix(strings.Trim(word, "()[],:;"), "%")
		if !is || strings.Trim(number, "0123456789.") != "" {
			continue
		}
		if n, err := strconv.ParseFloat(number, 64); err == nil && n >= 0 && n <= 100 {
			return &n
		}
	}
	return nil
}
