package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// The texts below are all that a login shell is ever given beside plain words. Each runs as
//
//	exec sh -c 'TEXT'
//
// which bash, zsh, dash, ash, fish and tcsh read alike as long as TEXT has no single quote,
// backslash, exclamation mark (csh replaces it even in quotes) or newline. What is filled in for a
// word that begins with @ is hexadecimal, a number, or a path that wire.PlainPath allows.
//
// An answer is the lines between "BEGIN <nonce>" and "END <nonce>". In the text the nonce stands
// apart from those words, so that a shell or forced command that repeats the text answers nothing.
const (
	probeText = `N=@nonce; LC_ALL=C; export LC_ALL; echo; echo "BEGIN $N"; ` +
		`echo "system=$(uname -s)"; echo "machine=$(uname -m)"; echo "uid=$(id -u)"; ` +
		`echo "home=$HOME"; echo "data=$XDG_DATA_HOME"; echo "END $N"`

	// 1. Each candidate folder in turn: made if absent, ours, 0700, no link, and executable, which
	//    a file that is run there shows. 2. What has the runner's name there already.
	placeText = `N=@nonce; LC_ALL=C; export LC_ALL; umask 077; echo; echo "BEGIN $N"; ` +
		`for D in @folders; do ` +
		`M=$(mkdir -p "$D" 2>&1) || { echo "not=$D: "$M; continue; }; ` +
		`if [ -h "$D" ]; then echo "not=$D: it is a link"; continue; fi; ` +
		`set -- $(ls -ldn "$D"); ` +
		`if [ "$3" -ne @uid ]; then echo "not=$D: it belongs to uid $3"; continue; fi; ` +
		`case $1 in drwx--[-S]---*) ;; *) echo "not=$D: its mode is $1, not 0700"; continue;; esac; ` +
		`find "$D" -name ".push-*" -mtime +0 -exec rm -f {} + 2>/dev/null; ` +
		`T="$D/.try-$N"; { echo "exit 42" >"$T"; } 2>/dev/null; chmod 700 "$T" 2>/dev/null; "$T" 2>/dev/null; R=$?; ` +
		`W=no; if [ -s "$T" ]; then W=yes; fi; rm -f "$T"; ` +
		`if [ $W = no ]; then echo "not=$D: a file cannot be written there"; continue; fi; ` +
		`if [ $R -ne 42 ]; then echo "not=$D: nothing can be run from there (noexec)"; continue; fi; ` +
		`echo "folder=$D"; F="$D/@base"; ` +
		`if [ -f "$F" ]; then echo "have=yes"; chmod 700 "$F" 2>/dev/null; ` +
		`H=$( (sha256sum "$F" || "$F" version --sha256) 2>/dev/null ); echo "sha256=${H%% *}"; fi; ` +
		`break; done; echo "END $N"`

	// 1. The bytes go to a name of their own. 2. Size and SHA-256 are compared there. 3. They get
	//    their name by a link, which replaces nothing; where links cannot be made, by a rename. What
	//    had the name with other bytes (torn by a crash) is moved aside first: who runs it keeps it.
	pushText = `N=@nonce; LC_ALL=C; export LC_ALL; umask 077; F="@folder/@base"; T="@folder/.push-$N"; ` +
		`M=$( { cat >"$T"; } 2>&1 ); chmod 700 "$T" 2>/dev/null; S=$(wc -c 2>/dev/null <"$T"); ` +
		`H=$( (sha256sum "$T" || "$T" version --sha256) 2>/dev/null ); H=${H%% *}; R=no; ` +
		`if [ "$S" -eq @size ] && [ "$H" = @sum ]; then ` +
		`if [ @aside = yes ]; then mv "$F" "$F.damaged-$N"; fi; ` +
		`if ln "$T" "$F" 2>/dev/null; then R=yes; elif [ -f "$F" ]; then R=already; elif mv "$T" "$F"; then R=yes; fi; fi; ` +
		`rm -f "$T"; echo; echo "BEGIN $N"; echo "size="$S; echo "sha256=$H"; echo "named=$R"; echo "why="$M; echo "END $N"`
)

// fill puts values for the @words of a text.
func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// shellLimit bounds what is kept of a login shell's noise and answer together.
const shellLimit = 64 << 10

// Bounds of the three steps; the last is for a slow line and 6 MB.
const (
	shellWithin = 20 * time.Second
	pushWithin  = 5 * time.Minute
)

// runnerPrefix and the first 12 digits of a binary's SHA-256 are a runner's name on a host.
const runnerPrefix = "longstop-runner-"

// loginShell speaks with whatever the server runs for a login.
type loginShell struct {
	link sshlink.Link
	to   sshlink.Target // for messages
}

// probed is what the login shell says of its host.
type probed struct {
	goarch string
	uid    int
	home   string
	data   string // XDG_DATA_HOME
	noise  string
}

// probe asks for the kind of machine, the user and the folders, and refuses what no runner is made for.
func (s loginShell) probe(ctx context.Context) (probed, error) {
	answer, noise, err := s.ask(ctx, shellWithin, probeText, nil)
	if err != nil {
		return probed{}, err
	}
	p := probed{home: answer["home"], data: answer["data"], noise: noise}
	if p.uid, err = strconv.Atoi(answer["uid"]); err != nil || p.uid < 0 {
		return probed{}, &longstop.Error{Code: longstop.CodeBadAnswer, Noise: noise,
			Message: fmt.Sprintf("%s: the shell gave %q for the user's number", s.to.Name, answer["uid"])}
	}
	if answer["system"] == "Linux" {
		switch answer["machine"] {
		case "x86_64", "amd64":
			p.goarch = "amd64"
		case "aarch64", "arm64":
			p.goarch = "arm64"
		}
	}
	if p.goarch == "" {
		return probed{}, &longstop.Error{Code: longstop.CodeUnsupported,
			Message: fmt.Sprintf("%s is %s on %s: there are runners for Linux on x86_64 and aarch64 alone",
				s.to.Name, answer["system"], answer["machine"])}
	}
	return p, nil
}

// places lists where the runner may live, best first, and the reasons against others.
func (p probed) places() (dirs, unfit []string) {
	var wanted []string
	if p.data != "" {
		wanted = append(wanted, path.Join(p.data, "longstop"))
	}
	if p.home != "" {
		wanted = append(wanted, path.Join(p.home, ".local/share/longstop"))
	}
	own := "longstop-" + strconv.Itoa(p.uid)
	wanted = append(wanted, path.Join("/var/tmp", own), path.Join("/tmp", own))
	for _, dir := range wanted {
		if !wire.PlainPath(dir) {
			unfit = append(unfit, fmt.Sprintf("%q: it has characters that shells read differently", dir))
			continue
		}
		dirs = append(dirs, dir)
	}
	return dirs, unfit
}

// install makes sure that the runner is on the host and whole. It returns its absolute path, its
// SHA-256 and what the login shell printed beside.
func (s loginShell) install(ctx context.Context, runners Runners, note func(string)) (where, sum, noise string, err error) {
	found, err := s.probe(ctx)
	if err != nil {
		return "", "", "", err
	}
	binary, sum, err := runners.Runner(found.goarch)
	if err != nil {
		return "", "", "", err
	}
	base := runnerPrefix + sum[:12]
	folder, there, err := s.place(ctx, found, base)
	if err != nil {
		return "", "", "", err
	}
	where = path.Join(folder, base)
	if there == sum {
		return where, sum, found.noise, nil
	}
	tell(note, fmt.Sprintf("copying the runner to %s (%.1f MB)…", s.to.Name, float64(len(binary))/1e6))
	return where, sum, found.noise, s.push(ctx, folder, base, binary, sum, there != "")
}

// place finds the folder for the runner, and the SHA-256 of what has its name there already: empty
// for nothing, and not the runner's own for something damaged.
func (s loginShell) place(ctx context.Context, found probed, base string) (folder, there string, err error) {
	dirs, unfit := found.places()
	answer, noise, err := s.ask(ctx, shellWithin,
		fill(placeText, "@uid", strconv.Itoa(found.uid), "@base", base, "@folders", strings.Join(dirs, " ")), nil)
	if err != nil {
		return "", "", fmt.Errorf("find a place for the runner on %s: %w", s.to.Name, err)
	}
	folder = answer["folder"]
	switch {
	case folder == "":
		if answer["not"] != "" {
			unfit = append(unfit, strings.Split(answer["not"], "\n")...)
		}
		return "", "", &longstop.Error{Code: longstop.CodeStateFolder, Noise: noise,
			Message: fmt.Sprintf("%s has no place for the runner: %s", s.to.Name, strings.Join(unfit, "; ")),
			Hint:    "make one of these a folder of your own with mode 0700, on a file system without noexec"}
	case !slices.Contains(dirs, folder):
		return "", "", &longstop.Error{Code: longstop.CodeBadAnswer, Noise: noise,
			Message: fmt.Sprintf("%s: the shell chose the folder %q, which it was not offered", s.to.Name, folder)}
	case answer["have"] == "":
		return folder, "", nil
	case answer["sha256"] == "":
		return folder, "unreadable", nil
	}
	return folder, answer["sha256"], nil
}

// push sends the binary and has the host verify it before it gets its name.
func (s loginShell) push(ctx context.Context, folder, base string, binary []byte, sum string, damaged bool) error {
	aside := "no"
	if damaged {
		aside = "yes"
	}
	answer, noise, err := s.ask(ctx, pushWithin,
		fill(pushText, "@folder", folder, "@base", base, "@size", strconv.Itoa(len(binary)), "@sum", sum, "@aside", aside),
		bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("copy the runner to %s: %w", s.to.Name, err)
	}
	if answer["named"] == "no" || answer["sha256"] != sum {
		return &longstop.Error{Code: longstop.CodeStateFolder, Noise: noise,
			Message: fmt.Sprintf("the runner did not arrive whole on %s: %s of %d bytes, SHA-256 %q, in %s: %s",
				s.to.Name, strings.TrimSpace(answer["size"]), len(binary), answer["sha256"], folder, answer["why"]),
			Hint: "look for a full disk or quota there: " + s.to.Command() + " df " + folder}
	}
	return nil
}

// ask runs one text in the login shell and returns the lines of its answer by name ("not" may come
// several times), and what came before it.
func (s loginShell) ask(ctx context.Context, within time.Duration, text string, stdin io.Reader) (map[string]string, string, error) {
	nonce := wire.NewNonce()
	text = fill(text, "@nonce", nonce)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	got, err := sshlink.Run(ctx, s.link, "exec sh -c '"+text+"'", stdin, shellLimit)
	said := bounded(join(got.Stdout, got.Stderr))
	if err != nil {
		if code := longstop.CodeOf(err); code == longstop.CodeTimeout || ctx.Err() != nil {
			return nil, said, &longstop.Error{Code: longstop.CodeTimeout, Noise: said, Err: err,
				Message: fmt.Sprintf("the login shell of %s did not start sh within %v%s", s.to.Name, within, quoted(said)),
				Hint:    "look at the start-up files of that login: " + s.to.Command() + " true must end by itself"}
		}
		return nil, said, err
	}
	noise, answer, ok := cutAnswer(string(got.Stdout), nonce)
	if !ok {
		return nil, said, s.ranSomethingElse(got.Exit, said)
	}
	return answer, bounded([]byte(noise)), nil
}

// ranSomethingElse is the error for a login shell from which no framed answer came.
func (s loginShell) ranSomethingElse(exit sshlink.Exit, said string) error {
	if exit.State == longstop.SSHLost {
		return &longstop.Error{Code: longstop.CodeUnreachable, Noise: said, Message: "the connection to " + s.to.Name + " was lost"}
	}
	if strings.Contains(said, wire.ForcedRefusal) {
		return &longstop.Error{Code: longstop.CodeNoRunner, Noise: said,
			Message: "the key that logs in to " + s.to.Name + " is bound to the forced command longstop-runner forced, which gives no shell",
			Hint:    "enrol it as such: longstop host add " + s.to.Name + " --forced"}
	}
	code := longstop.CodeNoRunner
	if accountClosed(said) {
		code = longstop.CodeAccessRefused
	}
	return &longstop.Error{Code: code, Noise: said,
		Message: fmt.Sprintf("the login shell of %s ran something else: it %s%s", s.to.Name, exitWords(exit), quoted(said)),
		Hint:    "this must print ok, and nothing else: " + s.to.Command() + " 'exec sh -c \"echo ok\"'"}
}

// cutAnswer separates noise and answer. Nothing but whole lines counts, and nothing after END.
func cutAnswer(out, nonce string) (noise string, answer map[string]string, ok bool) {
	noise, rest, found := strings.Cut(out, "\nBEGIN "+nonce+"\n")
	if !found {
		return out, nil, false
	}
	body, _, found := strings.Cut("\n"+rest, "\nEND "+nonce+"\n")
	if !found {
		return out, nil, false
	}
	answer = map[string]string{}
	for line := range strings.Lines(body) {
		name, value, isPair := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !isPair {
			continue
		}
		if earlier, again := answer[name]; again {
			value = earlier + "\n" + value
		}
		answer[name] = value
	}
	return noise, answer, true
}

// exitWords says how a command ended, for the middle of a sentence.
func exitWords(e sshlink.Exit) string {
	switch e.State {
	case longstop.SSHExited:
		return fmt.Sprintf("exited %d", e.Status)
	case longstop.SSHSignaled:
		return "died of SIG" + e.Signal
	case longstop.SSHLost:
		return "was cut off with the connection"
	}
	return "ended without a status"
}

// noiseShown bounds noise in messages; noiseKept bounds it where it is kept.
const (
	noiseShown = 300
	noiseKept  = 4 << 10
)

// quoted is said for a message, or that there was nothing.
func quoted(said string) string {
	said = strings.TrimSpace(said)
	if said == "" {
		return " and printed nothing"
	}
	return fmt.Sprintf(" and printed %q", clipped(said))
}

// clipped is noise for a message.
func clipped(said string) string {
	if len(said) > noiseShown {
		said = strings.ToValidUTF8(said[:noiseShown], "") + "…"
	}
	return said
}

func bounded(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > noiseKept {
		b = b[:noiseKept]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func join(stdout, stderr []byte) []byte {
	if len(stderr) == 0 {
		return stdout
	}
	return bytes.Join([][]byte{bytes.TrimSpace(stdout), stderr}, []byte("\n"))
}
