package policy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// tricks are scripts that run rm, or would in another shell, in a way that hides it.
var tricks = []string{
	"rm", `\rm`, `r"m"`, `"r"'m'`, "r\\\nm", "X=1 rm", "! rm", "{ rm; }", "(rm)", "((rm))", "[[ a && rm ]]", "[ a ] && rm", "true | rm", "rm &\nwait",
	"$(rm)", "`rm`", `x=$(rm)`, `: "${x:-$(rm)}"`, `: $(( $(rm; echo 1) ))`, "cat <<EOF\n$(rm)\nEOF", "cat <(rm)", "$'rm'", `$"rm"`, "{rm,x}", `{"rm",x}`, `x=rm; $x`,
	`set -- rm; "$@"`, "function rm2 { rm; }; rm2", "f() { rm; }; f", "alias l=rm\nl", "eval rm", "eval 'r''m'", "trap rm EXIT", "trap -- rm EXIT", "command rm", "command -- rm", "exec rm",
	"exec -a x rm", "builtin command rm", "time rm", "time -p rm", "coproc rm\nwait", "if rm; then :; fi", "case $(rm) in *) ;; esac", "for i in $(rm); do :; done", "while rm; do break; done",
	"sh -c rm", "sh -ec rm", "sh -c -- rm", "sh -c -e rm", "sh -oe noglob -c rm", "sh -eo noglob -c rm", "sh -c -o noglob rm", "sh -co noglob rm", "bash -O extglob -c rm", `sh -c '$0' rm`, `sh -c '"$@"' x rm`,
	"echo rm | sh", "sh <<< rm", "sh <<EOF\nrm\nEOF", "sh -s <<'EOF'\nrm\nEOF", "echo rm > f; . ./f", "echo rm > f; sh f", "sh < f", ". /dev/stdin <<EOF\nrm\nEOF",
	"env rm", "env -i PATH=$PATH rm", `env "PATH=$PATH" rm`, "env -u X rm", "env -S rm", "env -S'rm x'", "env --split-string rm", "env - PATH=$PATH rm", "nohup rm", "nohup -- rm", "setsid -w rm", "setsid --wait rm",
	"timeout 5 rm", "timeout -k 1 5 rm", "timeout --signal KILL 5 rm", "timeout --signal=KILL -k1 5 rm", "nice rm", "nice -n 1 rm", "nice -1 rm", "nice --adjustment 1 rm", "stdbuf -oL rm", "stdbuf -o L rm", "flock f rm", "flock f -c rm",
	"flock -n f --command rm", "echo x | xargs rm", "echo rm | xargs", "echo rm | xargs -I{} {}", "echo rm | xargs -I{} sh -c {}", "echo rm | xargs sh -c", "echo x | xargs -n 1 rm", "echo x | xargs --max-lines rm x", "echo x | xargs -l rm",
	"find . -maxdepth 0 -exec rm {} ';'", "find . -maxdepth 0 -exec sh -c rm ';'", "find . -maxdepth 0 -exec env rm {} +", "echo '#!/bin/sh\nrm' > g; chmod +x g; ./g", "nohup nice timeout 5 env sh -c 'eval \"rm\"'",
	"true # \\\nrm", "true # a\\\n# b\\\nrm", "true \\\r\nrm", "true &>/dev/null rm", "true &>>/dev/null rm", "coproc rm >|f\nwait", "coproc a=1 rm\nwait",
	"echo rm | xargs -I% %", "echo rm | xargs -I X X", "echo rm | xargs -I@ sh -c @", "env -S '-i PATH='$PWD/bin' rm'", "env -S '-u X rm'", "env '--split-string=-u X rm'", `env -S 'rm\_x'`, `env -S 'rm\tx'`, `env -vS'-u X rm'`,
	"[ -e f ] || rm", "true;rm", "true&rm", "true&&rm", "#\nrm", "a=b\n\trm\n", "cat <<A; rm\nx\nA", "sh -c 'sh -c \"sh -c rm\"'", "x='a' ; eval \"$x; rm\"", "alias n='nice '\nn rm", "unset x; ${x-rm}", "rm() { command rm; }; rm",
}

// What real shells run of a script is known before, or it is known that it is not.
func TestWhatShellsRunIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin, log := filepath.Join(dir, "bin"), filepath.Join(dir, "ran")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("sh bash dash env nohup setsid timeout nice stdbuf flock xargs find cat chmod") {
		if path, err := exec.LookPath(name); err == nil {
			os.Symlink(path, filepath.Join(bin, name))
		}
	}
	stub := "#!/bin/sh\necho rm >> " + log + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "rm"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, shell := range []string{"dash", "bash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("there is no %s here", shell)
			continue
		}
		for _, script := range tricks {
			os.Remove(log)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			c := exec.CommandContext(ctx, path, "-c", script)
			c.Args[0], c.Dir, c.Env = "sh", dir, []string{"PATH=" + bin, "HOME=" + dir}
			c.Run() // how it ends is not what is asked
			cancel()
			if _, err := os.Stat(log); err != nil {
				continue // this shell reads it otherwise
			}
			ran++
			read := Read(&longstop.Request{Script: script})
			if read.Dynamic == "" && !slices.ContainsFunc(read.Commands, func(c Command) bool { return c.Name == "rm" }) &&
				!slices.ContainsFunc(read.Findings, func(f longstop.Finding) bool { return f.Kind == longstop.FindingFile }) {
				t.Errorf("%s ran rm for %q, of which only %q is known", shell, script, names(read))
			}
		}
	}
	if ran < len(tricks) {
		t.Errorf("rm ran %d times for %d scripts: the shells here cannot show anything", ran, len(tricks))
	}
}
