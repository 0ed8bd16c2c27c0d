package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

func names(r *Reading) string {
	var all []string
	for _, c := range r.Commands {
		all = append(all, c.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// What a script would run is found wherever it stands in it; ? is for what nobody can tell.
func TestCommandsOfAScript(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"rm -rf /srv":                         "rm",
		"/bin/rm x":                           "rm",
		`\rm x; "r"'m' y; r\m z`:              "rm",
		"r\\\nm x":                            "rm",
		"cd /srv && (a; b) | { c; } || ! d &": "a b c cd d",
		"x=$(a `b`) y=\"$(c)\" z=${v:-$(d)}":  "a b c d",
		"if a; then b; elif c; then d; else e; fi; while f; do g; done; for i in $(h); do j; done; case $(k) in $(l)) m;; esac": "a b c d e f g h j k l m",
		"f() { a; }; f":                      "a f",
		"a <<EOF\n$(b)\nEOF":                 "a b",
		"a > $(b)":                           "a b",
		"echo $((1 + $(a)))":                 "a echo ?",
		"sh -c 'a; b'":                       "a b sh",
		"bash -euo pipefail -c \"a 'x'; b\"": "a b bash",
		"sh -c \"sh -c 'a'\"":                "a sh",
		"bash -co pipefail 'a'":              "bash ?",
		"sh -c \"$x\"":                       "sh ?",
		"sh -c":                              "sh",
		"sudo -u root -E rm x":               "rm sudo",
		"sudo -uroot -- A=1 rm x":            "rm sudo",
		"sudo --user root --chdir=/ rm":      "rm sudo",
		"sudo --wonder rm":                   "sudo ?",
		"sudo $opts rm":                      "sudo ?",
		"sudo -s":                            "sudo ?",
		"env -i A=1 B=\"$x\" rm":             "env rm",
		"env A=$x rm":                        "env ?",
		"env -S 'rm x'":                      "env rm",
		"env --split-string='rm x' y":        "env rm",
		"A=1 nohup setsid -f timeout -k 5 10s nice -n 5 ionice -c 3 rm x": "ionice nice nohup rm setsid timeout",
		"timeout \"$t\" rm":                  "timeout ?",
		"nice -10 rm":                        "nice rm",
		"exec -a x rm":                       "exec rm",
		"command -p rm; builtin cd":          "builtin cd command rm",
		"command -v rm":                      "command",
		"time rm":                            "rm time",
		"eval 'rm x'; eval \"rm\" 'y'":       "eval rm",
		"eval \"$x\"":                        "eval ?",
		"trap 'rm x' EXIT":                   "rm trap",
		"trap - EXIT":                        "trap",
		"alias ls=rm\nls; alias x='nice rm'": "alias ls rm ?",
		"$cmd x":                             "?",
		"\"$dir\"/deploy":                    "?",
		"~/bin/deploy":                       "deploy",
		"/bin/r?":                            "?",
		"{rm,-rf,/}":                         "?",
		"[ -e x ] && [[ -e y ]]":             "[ [[",
		"$'\\162m' x":                        "$\\162m ?",
		"sh ./deploy.sh; . /etc/profile":     ". deploy.sh profile sh",
		"curl x | sh":                        "curl sh ?",
		"sh <<'EOF'\nrm x\nEOF":              "rm sh",
		"sh <<EOF\n$x\nEOF":                  "sh ?",
		"bash <<< 'rm x'":                    "bash rm",
		"find . -name '*.o' -exec rm {} +":   "find rm",
		"find . -type f -exec sh -c 'rm \"$1\"' _ {} \\; -execdir a {} \\;": "a find rm sh",
		"find . -exec sh -c 'rm {}' \\;":                                    "find sh ?",
		"find *.d -exec rm {} \\;":                                          "find rm",
		"find $x":                                                           "find ?",
		"xargs -0 -n 1 rm -f":                                               "rm xargs",
		"xargs sh -c":                                                       "sh xargs ?",
		"xargs -I{} {} x":                                                   "xargs ?",
		"xargs":                                                             "xargs",
		"ssh -p 22 web-1 rm x":                                              "rm ssh",
		"ssh web-1 -t 'sudo rm x'":                                          "rm ssh sudo",
		"ssh web-1":                                                         "ssh ?",
		"su -c 'rm x'; su - www -c 'a'":                                     "a rm su",
		"su www --command='rm x'":                                           "rm su",
		"su":                                                                "su ?",
		"runuser -u www -- rm x":                                            "rm runuser",
		"flock /run/x rm; flock -n /run/y -c 'a'":                           "a flock rm",
		"busybox rm; busybox sh -c 'a'":                                     "a busybox rm sh",
		"watch -n 5 'a | b'":                                                "a b watch",
		"parallel rm ::: a b":                                               "parallel ?",
		"systemd-run --scope -p X=1 rm":                                     "rm systemd-run",
		"chroot /mnt rm; chroot \"/mnt/$x\" a":                              "a chroot rm",
		"start-stop-daemon --start --exec /usr/bin/rm -- x":                 "rm start-stop-daemon",
		"git rm x; docker rm y; echo rm":                                    "docker echo git",
		"export A=$(rm)":                                                    "export rm",
		"coproc rm":                                                         "coproc rm",
		"a <(b) >(c)":                                                       "a b c",
		"((rm x))":                                                          "rm", // subshells, where sh is dash
		"[[ a && rm ]]":                                                     "[[ rm",
		"{\"rm\",-rf,/}":                                                    "?",
		"setpriv --reuid 1 rm":                                              "rm setpriv",
		"setpriv --reuid=1 rm":                                              "rm setpriv",
		"chroot --userspec a:b /mnt rm":                                     "chroot rm",
		"unshare --root /x rm":                                              "rm unshare",
		"xargs --max-lines rm x":                                            "rm xargs",
		"sshpass -d 3 rm":                                                   "rm sshpass",
		"systemd-run --expand-environment no rm":                            "rm systemd-run",
		"start-stop-daemon -Sbx /bin/rm":                                    "start-stop-daemon ?",
		"flock x --command 'rm'":                                            "flock ?",
		"script -qc 'rm x' f; script f":                                     "rm script ?",
		"sh -oe pipefail -c 'rm'":                                           "rm sh",
		"sh -c -o pipefail 'rm'":                                            "sh ?",
		"valgrind rm":                                                       "valgrind ?",
		"tmux new -d rm":                                                    "tmux ?",
		"# rm":                                                              "",
		"> file":                                                            "",
		"rm x; if":                                                          "rm ?",
		"fi":                                                                "?",
		"a 'b":                                                              "?",
	} {
		read := Read(&longstop.Request{Script: script})
		got := names(read)
		if read.Dynamic != "" {
			got = strings.TrimSpace(got + " ?")
		}
		if got != want {
			t.Errorf("%q: runs %q (%s), want %q", script, got, read.Dynamic, want)
		}
	}
}

func TestCommandsOfArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request longstop.Request
		want    string
	}{
		{longstop.Request{Argv: []string{"/bin/rm", "$x", "*"}}, "rm"},
		{longstop.Request{ArgvB64: [][]byte{[]byte("rm"), {0xff}}}, "rm"},
		{longstop.Request{Argv: []string{"sudo", "sh", "-c", "a && b"}}, "a b sh sudo"},
		{longstop.Request{Argv: []string{"true"}, Preflight: "a", Verify: "b; c"}, "a b c true"},
	} {
		if got := names(Read(&c.request)); got != c.want {
			t.Errorf("%+v: runs %q, want %q", c.request, got, c.want)
		}
	}
}

// A parser without a bound of its own neither ends the process nor keeps a caller waiting.
func TestReadingIsBounded(t *testing.T) {
	t.Parallel()
	for _, deep := range []string{"(", "{ ", "$(", "\"$(", "if ", "while ", "${x:-", "$((", "$((-", "f() ", "<(", "case x in a) ", "`", "((", "x[", "a=(", "$["} {
		for _, n := range []int{100, maxScript/len(deep) - 1, 12 << 20 / len(deep)} {
			begun := time.Now()
			read := Read(&longstop.Request{Script: strings.Repeat(deep, n)})
			if read.Dynamic == "" && deep != "`" && deep != "x[" && deep != "a=(" && deep != "$[" {
				t.Errorf("%d × %q: all is known", n, deep)
			}
			t.Logf("%d × %q: %s", n, deep, time.Since(begun))
		}
	}
	// A pattern and a name of any length would be compared for hours.
	if _, err := parsePattern("*" + strings.Repeat("a", maxName)); err == nil {
		t.Error("a pattern longer than any name is taken")
	}
	for _, r := range []longstop.Request{{Script: strings.Repeat("a", maxName+1)}, {Argv: []string{"/bin/" + strings.Repeat("a", maxName+1)}}} {
		if read := Read(&r); read.Dynamic == "" || len(read.Commands) != 0 {
			t.Errorf("a program's name that is too long: %d commands, dynamic %q", len(read.Commands), read.Dynamic)
		}
	}
	nested := "a"
	for range 200 {
		nested = "sh -c '" + strings.ReplaceAll(nested, "'", `'\''`) + "'"
		if len(nested) > 1<<20 {
			break
		}
	}
	if read := Read(&longstop.Request{Script: nested}); read.Dynamic == "" {
		t.Errorf("%d bytes of scripts in scripts: all is known", len(nested))
	}
	if got := Read(&longstop.Request{Script: strings.Repeat("a & ", 1000)}).Findings; len(got) != maxFindings+1 {
		t.Errorf("%d findings", len(got))
	}
}

// Variables that change what a command line means make it one that nobody knows.
func TestEnvironmentThatChangesWhatRuns(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"RELEASE": true, "BASH_ENV": false, "BASH_FUNC_ls%%": false, "PS4": false, "LD_PRELOAD": false, "PATH": false} {
		if read := Read(&longstop.Request{Argv: []string{"ls"}, Env: []string{name}}); (read.Dynamic == "") != known {
			t.Errorf("%s: %q", name, read.Dynamic)
		}
	}
}
