package longstop_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/longstop/longstop"

// room is what one package may import beside the standard library: packages of this module and
// modules of others, each with the reason. Every package has a room; a new one is a decision.
type room struct {
	floor int
	ours  edges
	third edges
	pure  bool // no I/O, no clock
}

type edges map[string]string

const (
	words   = "the words"
	wired   = "the messages of the host contract"
	rules   = "which state may follow which"
	plainly = "the words as JSON, without reflection"
	hooks   = "marks the steps at which tests may end a process; empty in releases"
	xsys    = "system calls that package syscall lacks"
	sshGo   = "the SSH protocol"
)

// rooms is the layout of docs/map.md, held. Imports go down; the two actors, gateway and runner,
// share wire and never import each other; the command that people start links no database, no SSH
// library, no YAML and no parser of scripts, so that it starts in the time ssh does.
var rooms = map[string]room{
	".": {floor: 0, pure: true},

	"internal/lifecycle": {floor: 1, pure: true, ours: edges{".": words}},
	"internal/reconcile": {floor: 1, pure: true, ours: edges{".": words, "internal/lifecycle": rules}},
	"internal/fastjson":  {floor: 1, pure: true, ours: edges{".": words}},
	"internal/wire":      {floor: 1, pure: true, ours: edges{".": words, "internal/fastjson": plainly}},
	"internal/journal": {floor: 1, pure: true, ours: edges{".": words},
		third: edges{"golang.org/x/mod": "tlog: the journal's tree of hashes"}},

	"internal/redact": {floor: 1, pure: true, ours: edges{}},
	"internal/policy": {floor: 1, pure: true, ours: edges{".": words},
		third: edges{
			"mvdan.cc/sh/v3":     "reads scripts before launch: which programs they would run, and what they leave behind",
			"go.yaml.in/yaml/v4": "reads the policy file, with the place of each value and error",
		}},
	"internal/approver": {floor: 1, pure: true, ours: edges{".": words},
		third: edges{"golang.org/x/crypto": "argon2id: a key from a passphrase"}},

	"internal/fault": {floor: 2},
	"internal/boundary": {floor: 2, ours: edges{".": words, "internal/fault": hooks},
		third: edges{"golang.org/x/sys": xsys}},
	"internal/gate": {floor: 2, ours: edges{"internal/fault": hooks},
		third: edges{"golang.org/x/sys": xsys}},
	"internal/record": {floor: 2, ours: edges{".": words, "internal/wire": wired, "internal/lifecycle": rules, "internal/fault": hooks},
		third: edges{"golang.org/x/sys": xsys}},
	"internal/systemd": {floor: 2, ours: edges{".": words},
		third: edges{
			"github.com/godbus/dbus/v5": "D-Bus, the one way to a service manager that takes bytes as they are and says which error it was",
			"golang.org/x/sys":          xsys,
		}},
	"internal/client": {floor: 2, ours: edges{".": words, "internal/fastjson": plainly, "internal/journal": "a bundle of entries"}},
	"internal/notify": {floor: 2},
	"internal/store/sqlite": {floor: 2, ours: edges{".": words, "internal/fastjson": plainly, "internal/journal": "what an entry is", "internal/lifecycle": rules, "internal/fault": hooks,
		"internal/redact": "what is secret is never written"},
		third: edges{
			"modernc.org/sqlite":          "the database, without cgo",
			"github.com/pressly/goose/v3": "its migrations",
			"golang.org/x/mod":            "tlog: stored hashes of the journal's tree",
		}},
	"internal/sshlink": {floor: 2, ours: edges{".": words, "internal/wire": wired},
		third: edges{
			"golang.org/x/crypto":              sshGo + ", through a ControlMaster or by itself",
			"github.com/skeema/knownhosts":     "known_hosts as OpenSSH reads it",
			"github.com/kevinburke/ssh_config": "ssh_config where there is no ssh to read it",
			"golang.org/x/sys":                 xsys,
		}},
	"internal/gosshd": {floor: 2, ours: edges{".": words},
		third: edges{"golang.org/x/crypto": sshGo, "golang.org/x/sys": xsys}},
	"internal/sshlink/loopback": {floor: 2,
		ours:  edges{".": words, "internal/gosshd": "the server where no sshd is installed", "internal/sshlink": "the link it serves"},
		third: edges{"golang.org/x/crypto": "keys", "golang.org/x/sys": xsys}},
	"internal/sshlink/sshtest": {floor: 2, ours: edges{
		".": words, "internal/sshlink/loopback": "the servers it starts", "internal/sshlink": "the link under test"}},

	"internal/gateway": {floor: 3,
		ours: edges{
			".": words, "internal/wire": wired, "internal/lifecycle": rules,
			"internal/reconcile":    "what to do about what was seen",
			"internal/journal":      "what is noted",
			"internal/approver":     "whether a person is who they say",
			"internal/policy":       "what may be asked for",
			"internal/redact":       "what is secret is never kept or shown",
			"internal/sshlink":      "reaches hosts",
			"internal/store/sqlite": "keeps actions and journal",
			"internal/fault":        hooks,
		},
		third: edges{
			"golang.org/x/mod": "note: the journal's key, which signs its checkpoints",
			"golang.org/x/sys": xsys,
		}},
	"internal/runner": {floor: 3,
		ours: edges{
			".": words, "internal/wire": wired, "internal/lifecycle": rules,
			"internal/boundary": "whom to signal, and what is left",
			"internal/record":   "the host's folder",
			"internal/gate":     "the process that becomes the work",
			"internal/systemd":  "units around owners and keepers, and whether the host goes down",
			"internal/fault":    hooks,
		},
		third: edges{"golang.org/x/sys": xsys}},

	"internal/api": {floor: 4, ours: edges{
		".": words, "internal/gateway": "what it shows", "internal/wire": "shapes of output and inspect",
		"internal/lifecycle": rules, "internal/fastjson": plainly, "internal/journal": "which entries are not for agents"},
		third: edges{"golang.org/x/sys": "peer credentials of a Unix socket"}},

	"internal/demo": {floor: 4, ours: edges{
		".": words, "internal/sshlink/loopback": "its host"},
		third: edges{"golang.org/x/crypto": "plain SSH where no ssh is installed"}},
	"cmd/longstop": {floor: 5, ours: edges{
		".": words, "internal/client": "the API", "internal/lifecycle": "exit statuses", "internal/fastjson": plainly,
		"internal/journal":  "bundles and checkpoints are verified without a gateway",
		"internal/approver": "the key is made where the person types"},
		third: edges{
			"github.com/spf13/cobra": "verbs, flags, completion",
			"github.com/spf13/pflag": "flags",
			"golang.org/x/sys":       "the terminal's width",
			"golang.org/x/term":      "whether it is a terminal",
		}},
	"cmd/longstopd": {floor: 5, ours: edges{
		".": words, "internal/gateway": "the actor", "internal/api": "its face", "internal/store/sqlite": "its store",
		"internal/sshlink": "its ways to hosts", "internal/client": "where the socket is",
		"internal/notify":  "its ways to tell people",
		"internal/demo":    "`longstop demo`: here, since longstop links no SSH library",
		"internal/journal": "`longstop journal`: here, since longstop links no database",
		"internal/redact":  "what is secret, as configured"},
		third: edges{"golang.org/x/sys": xsys, "golang.org/x/mod": "note: signs what is exported"}},
	"cmd/longstop-runner": {floor: 5, ours: edges{".": words, "internal/runner": "the actor"}},

	// Tests and measurements stand outside the floors.
	"test/rig":     {floor: 6},
	"test/hostsim": {floor: 6},
	"test/hosts":   {floor: 6},
	"test/bench":   {floor: 6},
}

// reach says which modules of others may be linked into a command at all, however indirectly.
var reach = map[string]edges{
	"cmd/longstop-runner": {
		"golang.org/x/sys":          xsys,
		"github.com/godbus/dbus/v5": "the service manager, by way of internal/systemd",
	},
	"cmd/longstop": {
		"github.com/spf13/cobra":               "verbs, flags, completion",
		"github.com/spf13/pflag":               "by way of cobra",
		"github.com/inconshreveable/mousetrap": "by way of cobra, on Windows alone",
		"golang.org/x/crypto/argon2":           "a person's key from their passphrase; nothing of SSH",
		"golang.org/x/crypto/blake2b":          "by way of argon2",
		"golang.org/x/sys":                     "terminals",
		"golang.org/x/term":                    "terminals",
		"golang.org/x/mod":                     "the journal's hashes and signed notes, by way of internal/journal",
	},
}

// impure are packages of the standard library that do what a pure room must not.
var impure = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "syscall", "io/ioutil", "database/sql", "log", "log/slog"}

// impureCalls are functions of package time that read a clock.
var impureCalls = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string
	GoFiles    []string
	Module     *struct{ Path string }
}

// list asks the go command about packages.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Standard,Imports,GoFiles,Module"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// short is a package's name in the table.
func short(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// standard reports whether an import path is of the standard library: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// allowedModule finds the module of a third-party import in a list of modules.
func allowedModule(importPath string, allowed edges) bool {
	for m := range allowed {
		if importPath == m || strings.HasPrefix(importPath, m+"/") {
			return true
		}
	}
	return false
}

func TestImports(t *testing.T) {
	t.Parallel()
	seen, judged := map[string]bool{}, map[[2]string]bool{}
	for _, tags := range []string{"", "embedrunner", "faults", "hosts"} {
		for _, p := range list(t, "-tags="+tags, "./...") {
			if len(p.GoFiles) == 0 {
				continue
			}
			name := short(p.ImportPath)
			seen[name] = true
			r, known := rooms[name]
			if !known {
				t.Errorf("%s has no room: give it one in rooms (deps_test.go) and in docs/map.md, with the reason", name)
				continue
			}
			for _, imported := range p.Imports {
				if edge := [2]string{name, imported}; !judged[edge] {
					judged[edge] = true
					judge(t, name, r, imported)
				}
			}
			if r.pure {
				readsNoClock(t, p)
			}
		}
	}
	page, err := os.ReadFile("docs/map.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("rooms has %s, which is not there", name)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/map.md does not name `%s`", name)
		}
	}
}

func judge(t *testing.T, name string, r room, imported string) {
	t.Helper()
	switch {
	case ours(imported):
		to := short(imported)
		if _, ok := r.ours[to]; ok || r.floor == 6 {
			return
		}
		t.Errorf("%s (floor %d) imports %s (floor %d), which is not among its edges: %s.\n"+
			"Move the code down, or add the edge with its reason to rooms in deps_test.go.",
			name, r.floor, to, rooms[to].floor, strings.Join(slices.Sorted(maps.Keys(r.ours)), ", "))
	case standard(imported):
		if r.pure && slices.Contains(impure, imported) {
			t.Errorf("%s imports %s: it is pure, without I/O", name, imported)
		}
	case r.floor != 6 && !allowedModule(imported, r.third):
		t.Errorf("%s imports %s: not among the modules of others that it may use (rooms in deps_test.go)", name, imported)
	}
}

// readsNoClock finds calls of package time that read one.
func readsNoClock(t *testing.T, p listed) {
	t.Helper()
	files := token.NewFileSet()
	for _, file := range p.GoFiles {
		parsed, err := parser.ParseFile(files, filepath.Join(p.Dir, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureCalls, sel.Sel.Name) {
					t.Errorf("%s: time.%s: %s is pure, without a clock", files.Position(sel.Pos()), sel.Sel.Name, short(p.ImportPath))
				}
			}
			return true
		})
	}
}

// TestImportEdgesGoDown holds the table itself: no edge leads up, and the actors stay apart.
func TestImportEdgesGoDown(t *testing.T) {
	t.Parallel()
	for name, r := range rooms {
		for to, why := range r.ours {
			target, known := rooms[to]
			switch {
			case !known:
				t.Errorf("%s → %s: no such room", name, to)
			case target.floor > r.floor:
				t.Errorf("%s (floor %d) → %s (floor %d) leads up", name, r.floor, to, target.floor)
			case target.floor == r.floor && r.floor >= 3:
				t.Errorf("%s → %s: neighbours on floor %d do not import each other", name, to, r.floor)
			case why == "":
				t.Errorf("%s → %s: no reason", name, to)
			}
		}
	}
}

func TestThirdPartiesLinked(t *testing.T) {
	t.Parallel()
	for command, allowed := range reach {
		for _, p := range list(t, "-deps", "./"+command) {
			if p.Standard || ours(p.ImportPath) || standard(p.ImportPath) || allowedModule(p.ImportPath, allowed) {
				continue
			}
			t.Errorf("%s links %s: only %s may be", command, p.ImportPath, strings.Join(slices.Sorted(maps.Keys(allowed)), ", "))
		}
	}
}

// runnerLimit is how much the runner may weigh: it is copied to every host.
const runnerLimit = 6 << 20

func TestRunnerIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		out := filepath.Join(t.TempDir(), "longstop-runner")
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./cmd/longstop-runner")
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		if msg, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build for %s: %v\n%s", arch, err, msg)
		}
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > runnerLimit {
			t.Errorf("the runner for %s has %d bytes, over %d: what does it link? go list -deps ./cmd/longstop-runner", arch, info.Size(), runnerLimit)
		}
		t.Logf("linux/%s: %d bytes", arch, info.Size())
	}
}
