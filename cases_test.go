package longstop_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kinds are failures that people who run commands on remote hosts have reported in public, by kind.
var kinds = []struct {
	name  string
	cases []reported
}{
	{"K1: SSH that does not return, or too early", []reported{
		{"C001", "a child in the background holds the streams", ""},
		{"C002", "only standard error is left open", ""},
		{"C004", "a launcher goes, its server writes on into the pipe", ""},
		{"C005", "the launcher has ended, what it started lives", ""},
		{"C007", "an SSH master keeps its caller's streams", ""},
		{"C008", "whoever waits for a command waits for all who inherited its pipe", ""},
	}},
	{"K2: work left running", []reported{
		{"C010", "the client is killed, the work goes on", ""},
		{"C011", "a loop goes on for ever when nobody is left to write to", ""},
		{"C013", "children are born between two looks of the cleaning up", ""},
		{"C014", "a stop reaches only the wrapper", ""},
		{"C016", "a deadline leaves members of a pipeline", ""},
		{"C017", "cancelled here, running there", ""},
		{"C019", "a child of root's that may not be signalled", ""},
		{"C020", "a trap that runs too late, or never", ""},
		{"C022", "a stopped process does not hear TERM", ""},
	}},
	{"K3: lost, wrong or ambiguous exit status", []reported{
		{"C023", "255 of ssh's or of the command's", ""},
		{"C025", "a channel that closes without a status", ""},
		{"C026", "who waits for a status before reading waits for ever", ""},
		{"C028", "a result that is read half written", ""},
		{"C029", "output that looks like a protocol", ""},
		{"C031", "no home, or one that is closed", ""},
		{"C032", "126, 127, 255 and codes that tools make up", ""},
	}},
	{"K4: process identity", []reported{
		{"C034", "a recorded number is somebody else's by now", ""},
		{"C035", "a recorded number is of another boot", ""},
		{"C037", "a recorded number is 0, or garbage", ""},
		{"C038", "EPERM counts as running", ""},
		{"C040", "a stop that reports an error for ever", ""},
		{"C041", "a zombie counts as alive", ""},
	}},
	{"K5: who leaves the job", []reported{
		{"C043", "a grandchild in a session of its own", "Each boundary and each way out: [escapes.md](escapes.md)."},
		{"C044", "a server that daemonises", ""},
		{"C046", "a server that forks to the background is started again and again", ""},
		{"C047", "work handed to atd or cron", "Outside every boundary: nothing claims otherwise."},
		{"C049", "each job leaves one more server", "Listed with their age, not with their memory."},
		{"C050", "a server that other jobs use goes with the job that started it", "Kept is what a run releases, all of it: there are no patterns of names."},
		{"C052", "connections pile up", ""},
		{"C053", "a group that is killed and not empty yet, or stays frozen", ""},
	}},
	{"K6: systemd", []reported{
		{"C055", "a unit that was collected looks like a success", ""},
		{"C056", "two start a unit of one name", ""},
		{"C058", "logind kills what a login leaves", ""},
		{"C059", "a user's manager goes, and all that is in it", ""},
		{"C061", "a limit on starts refuses, or shows another's result", "Each run has a unit of its own name, started once."},
		{"C062", "sshd is stopped, and takes work along", "Where work and owner are sent TERM at once, either may end first: cancelled, or finished by TERM."},
		{"C064", "a scope that says nothing of its main process", ""},
		{"C065", "dollars and per cents are rewritten", ""},
	}},
	{"K7: output", []reported{
		{"C067", "NUL and other bytes", ""},
		{"C068", "a terminal's line ends, both streams in one", ""},
		{"C070", "lines of megabytes, progress that returns the carriage", "Output is bytes from an offset: there is no view of last lines, nor of what is left of lines that returned the carriage."},
		{"C071", "start-up files that print", ""},
		{"C073", "a locale that the host does not have", ""},
		{"C074", "nothing appears before the end", ""},
		{"C076", "ssh eats a loop's input", ""},
		{"C077", "the file is cut under who follows it", "With `--leftover release` the work has its files itself: what it cuts off them before its run's end nobody notices."},
	}},
	{"K8: login shells and forced commands", []reported{
		{"C079", "fish", ""},
		{"C080", "csh", ""},
		{"C082", "a restricted shell", ""},
		{"C083", "a forced command succeeds in our place", ""},
		{"C085", "zsh's start-up file fails", ""},
		{"C086", "a start-up file exits, or becomes another shell", ""},
		{"C088", "RemoteCommand and the like in ssh_config", ""},
	}},
	{"K9: quoting, size, environment, limits", []reported{
		{"C089", "arguments are split again", ""},
		{"C091", "long commands", ""},
		{"C092", "environment that is refused", ""},
		{"C094", "any umask", ""},
		{"C095", "few processes, little memory, small files", ""},
		{"C097", "a password that has expired", ""},
	}},
	{"K10: network, host keys, authentication, limits of SSH servers", []reported{
		{"C098", "connected, and then nothing", "Each stage has its own bound (logging in 20 s, a session 10 s, the runner's first answer 15 s), and all have 40 s together."},
		{"C100", "half-open connections hang callers, and whoever comes behind them", ""},
		{"C101", "the eleventh session of a connection", ""},
		{"C103", "connections are turned away before the login", ""},
		{"C104", "a server with several host keys, one of them known", ""},
		{"C106", "RSA keys and SHA-1", ""},
		{"C107", "a second factor", "Nobody is asked for one: neither transport has a terminal."},
		{"C109", "an agent with more keys than a server lets one try", "With ssh what the agent holds comes first, as in a terminal, and the refusal names the remedy; the embedded client begins with the files."},
		{"C110", "jump hosts", ""},
		{"C112", "the connection in common dies, the work goes on", ""},
	}},
	{"K11: clocks", []reported{
		{"C113", "timers stand still, a lease is enforced late", "Keeper and owner that are stopped stand in for a host that sleeps. Leases and deadlines are instants of CLOCK_BOOTTIME: sleep counts."},
		{"C115", "gateway and host disagree about the time", ""},
		{"C116", "the wall clock is set during a job", "Records of other times stand in for a clock that is set: hosts in namespaces share the machine's."},
		{"C118", "a certificate that is not valid yet", ""},
	}},
	{"K12: host faults", []reported{
		{"C119", "the host reboots", ""},
		{"C121", "the disk is full when the result is written", ""},
		{"C122", "the state folder's disk is read-only, or turns so", ""},
		{"C124", "NFS: no locks, one home for two hosts", "Not on NFS itself, which needs a kernel that has it."},
		{"C125", "inodes run out", ""},
		{"C127", "garbage in the place of a record", ""},
	}},
	{"K13: duplicates, concurrency, locks", []reported{
		{"C128", "the answer is lost, the caller asks again", ""},
		{"C130", "one key, another command", ""},
		{"C131", "an agent makes a new key for each try", "There is no tool for agents yet."},
		{"C133", "a lock that outlives its holder", ""},
		{"C134", "a lock file removed under its holder", ""},
	}},
	{"K14: agents and their clients", []reported{
		{"C136", "a client's limit on calls", "Over HTTP: a wait ends before it. There is no tool for agents yet."},
		{"C137", "a call is given up, and its work goes or stays", ""},
		{"C139", "results of tens of megabytes", ""},
		{"C140", "a client sends its request again, unasked", ""},
		{"C142", "what was approved is changed before it runs, or a yes is used again", ""},
		{"C143", "another time than was asked for", ""},
	}},
	{"K15: status and retention", []reported{
		{"C145", "the job is green and the work failed", ""},
		{"C146", "running, for ever: the record has no owner any more", ""},
		{"C148", "a cancel and the natural end cross", ""},
		{"C149", "old records: expiry, removal by hand, a full disk", ""},
		{"C151", "success, and the real work was in the background", ""},
		{"C152", "the worker is lost, and the run is shown as passed or failed", ""},
	}},
}

// reported is one such failure, in a few words, and what is to be said beside its tests or in their place.
type reported struct{ id, words, note string }

var testName = regexp.MustCompile(`(?m)^func (Test\w*C\d{3}\w*)\(`)

// caseTests are the names of all tests that bear a case's number, by number.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testName.FindAllSubmatch(text, -1) {
			for _, id := range regexp.MustCompile(`C\d{3}`).FindAllString(string(m[1]), -1) {
				if found[id] == nil {
					found[id] = map[string]bool{}
				}
				found[id][string(m[1])] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for id, set := range found {
		names[id] = slices.Sorted(maps.Keys(set))
	}
	return names
}

func casesPage(tests map[string][]string) string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from cases_test.go by go generate. Do not edit. -->

# Cases from the field

What has gone wrong for people who run commands on remote hosts, as they have reported it in public, and the tests
that show what happens here. A test bears the number of its case.
`)
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n## %s\n\n| case | what | tests |\n|---|---|---|\n", k.name)
		for _, c := range k.cases {
			var shown []string
			if names := tests[c.id]; len(names) > 0 {
				shown = append(shown, "`"+strings.Join(names, "`, `")+"`")
			}
			if c.note != "" {
				shown = append(shown, c.note)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.id, c.words, strings.Join(shown, ". "))
		}
	}
	return b.String()
}

var update = flag.Bool("update", false, "write docs/cases.md")

// TestCasesPage holds docs/cases.md: every test that bears a case's number is on it, and every case has a test, or why
// it has none.
func TestCasesPage(t *testing.T) {
	t.Parallel()
	tests, known := caseTests(t), map[string]bool{}
	for _, k := range kinds {
		for _, c := range k.cases {
			known[c.id] = true
			if len(tests[c.id]) == 0 && c.note == "" {
				t.Errorf("%s has no test, and nothing says why", c.id)
			}
		}
	}
	for id, names := range tests {
		if !known[id] {
			t.Errorf("%v: %s is no case in cases_test.go", names, id)
		}
	}
	want := casesPage(tests)
	if *update {
		if err := os.WriteFile("docs/cases.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("docs/cases.md"); err != nil || string(got) != want {
		t.Errorf("docs/cases.md is not what the tests are: go generate . (%v)", err)
	}
}
