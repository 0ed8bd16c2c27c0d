package policy

import (
	"testing"

	"github.com/longstop/longstop"
)

// What many scripts do is seen through: a rule that denies another command leaves it alone.
func TestPlainScriptsAreSeenThrough(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		"i=0; while [ $i -lt 3 ]; do i=$((i+1)); done", "for i in 1 2 3; do echo $((i*2)); done", "for ((i=0; i<3; i++)); do ls; done", "n=$#; echo $((n-1)) $((RANDOM % 6))",
		"read -r a b; echo \"$a\"", "read -p 'sure? ' a", "mapfile -t lines < f", "printf '%s\\n' \"$x\"", "printf \"$x\"", "unset x y", "declare -a l=(a b); echo \"${l[0]}\" ${l[@]}", "local x=1", "export A=\"$b\" C=d",
		"[[ $x == a* ]]", "[[ -n $x && 3 -eq 3 ]]", "[ \"$n\" -eq 3 ]", "test -f x", "PATH=/usr/local/bin:$PATH make", "PATH=\"$PATH:/sbin\"", "IFS=: read -r a b", "LANG=C ls", "PAGER=cat git log",
		"sed -n '1,5p' f", "sed -i.bak 's/a/b/g; s|/x|/y|' ./*.conf", "sed -E -e 's/([a-z]+)[^/]*/\\1/' -e '/^#/d' -- \"$f\"", "sed '$!N;P;D' f", "sed 's/[[:space:]]*$//' f",
		"awk '{print $1}' \"$f\"", "awk -F '|' '$3 > 5 {print $2}' f", "awk -F'|' '{s+=$1} END {print s}' f",
		"tar xzf a.tgz -C /srv", "tar -czf \"$out\" dir", "git pull", "git -C \"$d\" status", "git push --set-upstream origin main", "git commit -m 'x y'", "make -j4 install PREFIX=/usr", "make -f Makefile.linux",
		"docker ps -a", "kubectl -n prod get pods", "python3 x.py -c $y", "perl x.pl -e", "node app.js", "sort -u f", "sort -- \"$f\"", "set -euo pipefail; set -- $x", "env A=\"$x\" ls", "sh <<E >f\nls\nE", "exec </dev/null", "find \"$d\" -name '*.o' -print", "rsync -az a/ b/", "less f", "ip addr show", "crontab -l",
		"apt-get install -y x", "curl -fsS https://x.example", "systemctl status x", "x=${y:-a}; echo ${x%%.*} ${#x} ${x/a/b} ${x:1:3}", "hash -r", "bind -p", "ssh -p 22 web-1 ls", "exec >log 2>&1", "trap - EXIT",
	} {
		if read := Read(&longstop.Request{Script: script}); read.Dynamic != "" {
			t.Errorf("%q: %s", script, read.Dynamic)
		}
	}
}
