package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// forms are ways to run a command, which stands for CMD, by a script or by another program: those of the tables,
// with the words by which each does.
var forms = []string{
	// shells
	"CMD", "sh -c 'CMD'", "sh <<E\nCMD\nE", "sh <<< 'CMD'", "echo CMD | sh", "sh < f", "sh //dev/stdin <f", "sh /proc/self/fd/0 <f", "bash /dev/fd/../fd/0", "sh /tmp/../dev/stdin", "sh <(echo CMD)", ". <(echo CMD)",
	"busybox sh -c CMD", "ash -c CMD", "ksh -c CMD", "zsh -c CMD", "fish -c CMD", "bash --rcfile f -i", "bash --init-file=f -i", "BASH_ENV=f bash -c :", "ENV=f sh -i", "rbash -c CMD", "bash -O extglob -c CMD",
	"eval CMD", "eval \"$(echo CMD)\"", "trap CMD EXIT", "trap -- CMD 0", "trap \"$x\" EXIT", "coproc CMD", "exec -a ls CMD", "exec CMD", "command CMD", "builtin eval CMD", "command eval CMD", "time CMD", "! CMD", "x=CMD; $x", "ls() { CMD; }; ls",
	"alias ls=CMD\nls", "alias ls='CMD '\nls", "BASH_ALIASES[ls]=CMD\nls", "BASH_CMDS[ls]=/bin/CMD; ls", "hash -p /bin/CMD ls; ls", "enable -f ./x.so ls", "jobs -x CMD", "fc -s CMD", "history -r f; fc -s",
	"mapfile -C CMD -c 1 a <f", "readarray -C CMD -c1 a <f", "mapfile -tC CMD a", "compgen -C CMD x", "compgen -W '$(CMD)' x", "compgen -F CMD x", "complete -C CMD ls", "bind -x '\"a\":CMD'", "PROMPT_COMMAND=CMD", "PS4='$(CMD)'; set -x; :", "set -x; PS4='`CMD`' :",
	"x='$(CMD)'; : \"${x@P}\"", "x='a[$(CMD)]'; : $((x))", "x='a[$(CMD)]'; ((x))", "x='a[$(CMD)]'; let x", "let 'a[$(CMD)]'", "let \"$x\"", "builtin let 'a[$(CMD)]'", "x='a[$(CMD)]'; [[ x -eq 0 ]]", "[[ 'a[$(CMD)]' -eq 0 ]]", "[[ $1 -gt 0 ]]", "[[ -v 'a[$(CMD)]' ]]", "test -v 'a[$(CMD)]'",
	"[ -v 'a[$(CMD)]' ]", "test -v \"$x\"", "printf -v 'a[$(CMD)]' x", "printf '-va[$(CMD)]' x", "printf -v \"$x\" y", "read 'a[$(CMD)]' <f", "read -r \"$x\"", "read x <f; echo $((x))", "read <f; echo $((REPLY))", "unset 'a[$(CMD)]'", "unset \"$x\"", "declare 'a[$(CMD)]=1'", "typeset \"$x\"",
	"declare -i x; x='a[$(CMD)]'", "declare -i x='a[$(CMD)]'", "declare -n r=PATH; r=/tmp", "local -n r=$1", "export \"$x\"", "export $(cat f)", "readonly 'a[$(CMD)]=1'", "getopts ab 'a[$(CMD)]'", "wait -p 'a[$(CMD)]'", "x='a[$(CMD)]'; : ${y:x}", "x='a[$(CMD)]'; : ${y[x]}", "x='a[$(CMD)]'; y[x]=1", "x='a[$(CMD)]'; y=([x]=1)",
	"x='a[$(CMD)]'; for ((;x;)); do :; done", ": 'a[$(CMD)]'; echo $((_))", "set -- 'a[$(CMD)]'; echo $(($1))", "echo $(( $(echo 'a[$(CMD)]') ))", "for x in 'a[$(CMD)]'; do echo $((x)); done", ": ${x:='a[$(CMD)]'}; echo $((x))", "x='a[$(CMD)]' y=x; echo $((y))", "cd 'a[$(CMD)]'; echo $((PWD))", "mapfile x <f; echo $((x))", "echo $((BASH_EXECUTION_STRING))", "echo ${!x}; echo $((${!x}))", "echo $[x]; x=$y",
	"PATH=.; ls", "export PATH=.:$PATH; ls", "LD_PRELOAD=./x.so ls", "LD_LIBRARY_PATH=. ls", "export LD_AUDIT=./x.so; ls", "env LD_PRELOAD=./x.so ls", "sudo LD_PRELOAD=./x ls", "env PATH=. ls", "declare -x PATH=.; ls", "printf -v PATH .; ls", "read PATH <f; ls", "for PATH in .; do ls; done", ": ${BASH_ENV:=f}; bash -c :",
	"GIT_SSH_COMMAND=CMD git pull", "export GIT_SSH=CMD; git pull", "PAGER=CMD git log", "EDITOR=CMD git commit", "VISUAL=\"$x\" git commit", "MANPAGER=CMD man x", "LESSOPEN='|CMD' less f", "RSYNC_RSH=CMD rsync a:b c", "PYTHONSTARTUP=f ls", "PERL5OPT=-Mx ls", "NODE_OPTIONS='-r x' ls", "GIT_CONFIG_COUNT=1 git status", "TAR_OPTIONS=x tar cf a b", "MAKEFLAGS=x make",
	// wrappers
	"sudo CMD", "sudo -s CMD", "sudo -i CMD", "sudo -i", "sudo -u a -- CMD", "doas CMD", "doas -s", "su -c CMD", "su -s CMD", "su --shell CMD", "su --shell=CMD x", "su - x -c CMD", "su x CMD", "su --command=CMD", "runuser -u x -- CMD", "runuser -u x CMD", "runuser -c CMD", "runuser -s /bin/CMD x", "sg g CMD", "sg g -c CMD", "pkexec CMD", "run0 CMD", "newgrp g",
	"env CMD", "env -S CMD", "env -S 'A=1 CMD'", "env -i CMD", "env -u X CMD", "env -C / CMD", "env --split-string=CMD", "env -vS CMD", "nohup CMD", "setsid CMD", "timeout 5 CMD", "timeout -s KILL 5 CMD", "nice CMD", "nice -n 5 CMD", "nice -5 CMD", "ionice -c 3 CMD", "stdbuf -oL CMD", "chroot / CMD", "chroot /", "taskset 1 CMD", "chrt 1 CMD", "flock f CMD", "flock f -c CMD",
	"setpriv --reuid 1 CMD", "prlimit CMD", "numactl --localalloc CMD", "unshare CMD", "unshare -r CMD", "nsenter -t 1 CMD", "nsenter -t 1 -m -- CMD", "nsenter -t 1", "systemd-run CMD", "systemd-run --scope CMD", "systemd-run -p ExecStartPost=CMD ls", "systemd-run -E LD_PRELOAD=x ls", "strace CMD", "strace -o '|CMD' ls", "ltrace CMD", "gdb -ex '!CMD'", "watch CMD", "watch -x CMD",
	"script -c CMD", "script -qc CMD f", "script f", "script --command CMD", "busybox CMD", "toybox CMD", "xargs CMD <f", "echo CMD | xargs -I{} {}", "echo CMD | xargs env", "echo CMD | xargs sudo", "echo . -exec CMD ';' | xargs find", "echo -e CMD | xargs perl", "echo CMD | xargs timeout 5", "xargs -a f nice", "find . -exec CMD {} +", "find . -execdir CMD ';'", "find . -ok CMD ';'",
	"find . -okdir CMD ';'", "x=-exec; find . \"$x\" CMD ';'", "find . $x", "parallel CMD ::: 1", "parallel <f", "sem CMD", "/lib64/ld-linux-x86-64.so.2 /bin/CMD", "ld.so /bin/CMD", "start-stop-daemon --start --exec /bin/CMD", "start-stop-daemon -S -a CMD", "crontab -", "crontab f", "crontab <f", "at now <<E\nCMD\nE", "echo CMD | at now", "at -f f now", "batch <f", "time -p CMD", "chronic CMD", "faketime x CMD",
	// other hosts
	"ssh h CMD", "ssh -o ProxyCommand=CMD h ls", "ssh -oProxyCommand=CMD h ls", "ssh -oLocalCommand=CMD -oPermitLocalCommand=yes h ls", "ssh h -oProxyCommand=CMD ls", "ssh -F f h ls", "ssh -I ./x.so h ls", "ssh h", "ssh $x ls", "scp -S CMD a h:", "scp -oProxyCommand=CMD a h:", "sftp -S CMD h", "sftp h <f", "mosh h CMD", "dbclient h CMD", "autossh h CMD", "pdsh -w h CMD", "parallel-ssh -H h CMD", "pssh -h f CMD", "rsync -e CMD a h:", "rsync -ae CMD a h:",
	"rsync --rsh=CMD a h:", "rsync --rsync-path CMD a h:", "rsync $x a b", "ansible all -a CMD", "socat EXEC:CMD -", "nc -e CMD h 1",
	// programs that are told
	"awk 'BEGIN{system(\"CMD\")}'", "awk 'BEGIN { \"CMD\" | getline }'", "awk '{print | \"CMD\"}' f", "awk \"$x\" f", "awk -f f", "gawk -e 'BEGIN{system(\"CMD\")}'", "gawk --source='BEGIN{system(\"CMD\")}'", "gawk --sou 'BEGIN{system(\"CMD\")}'", "sed e f", "sed '1e CMD' f", "sed 's/x/CMD/e' f", "sed -e p -e 's/x/CMD/e' f", "sed -n '/x/{e CMD\n}' f", "sed -f f g", "sed \"s/x/$y/\" f", "sed --expression='1e CMD' f",
	"sed 's/x/y/;1e CMD' f", "sed -ne '1e CMD' f", "sed f -e '1e CMD'", "sed 'y/a/b/;e' f", "sed 's[a[b[;e CMD' f", "sed 's/[/]/b/e' f", "sed 's/x/CMD/w f' f", "tar cf a --checkpoint-action=exec=CMD b", "tar cf a b --checkpoint=1 --checkpoint-a=exec=CMD", "tar xf a --to-command=CMD", "tar xf a --to-command CMD", "tar -I CMD -xf a", "tar cIf CMD a b", "tar --use-compress-program=CMD -xf a", "tar -F CMD -cf a b", "tar cf a *", "tar cf a $x",
	"vim -c '!CMD'", "vi f", "ex -sc '!CMD'", "ed f <g", "less +!CMD f", "man -P CMD x", "git -c core.sshCommand=CMD pull", "git -c alias.x='!CMD' x", "git x", "git config alias.x '!CMD'", "git config --global core.pager CMD", "git rebase -x CMD", "git rebase --exec CMD", "git rebase --exe=CMD", "git submodule foreach CMD", "git bisect run CMD", "git difftool -x CMD", "git clone -u CMD h:x", "git clone 'ext::CMD'", "git fetch --upload-pack=CMD h:x",
	"git grep -OCMD x", "git $x", "git pull \"$x\"", "git filter-branch --tree-filter CMD", "git --exec-path=. ls", "git -C d x", "git log --ext-diff", "docker exec c CMD", "docker run i CMD", "docker -H x exec c CMD", "podman run i CMD", "docker compose exec c CMD", "kubectl exec p -- CMD", "kubectl -n a exec p -- CMD", "kubectl debug p", "kubectl --kubeconfig f get pods", "nerdctl run i CMD", "lxc exec c CMD", "ip netns exec n CMD", "ip -b f",
	"python -c 'CMD'", "python3 -Bc 'CMD'", "python - <f", "python3 <<E\nCMD\nE", "echo x | python3", "python3 -m pdb", "python3 \"$x\"", "python3 /dev/stdin", "perl -e 'CMD'", "perl -ne 'CMD' f", "perl -lane 'CMD' f", "perl <f", "perl -Mx f", "ruby -e 'CMD'", "node -e 'CMD'", "node --eval 'CMD'", "node --ev=CMD", "node -r ./x.js y.js", "php -r 'CMD'", "php <f", "lua -e 'CMD'", "tclsh <f", "Rscript -e CMD",
	"fd -x CMD", "fd x -X CMD", "fd --exec CMD", "fd -HIx CMD", "fd --exec-b CMD", "rg --pre CMD x", "sort --compress-program=CMD f", "split --filter=CMD f", "zip a b -T -TT CMD", "apt-get -o APT::Update::Pre-Invoke::=CMD update", "dpkg --pre-invoke=CMD -i x", "rpm --eval '%(CMD)'", "rpm -E '%(CMD)'", "wget --use-askpass=CMD x", "tcpdump -zCMD -w f", "m4 f", "make -f - <f", "make --eval='$(shell CMD)'", "make 'X=$(shell CMD)'",
	"make SHELL=CMD", "go test -exec CMD", "go generate", "gcc -wrapper CMD x.c", "psql -c '\\! CMD'", "psql <f", "mysql -e '\\! CMD'", "sqlite3 d '.shell CMD'", "systemctl edit x", "systemctl link ./x.service", "systemctl set-environment A=b", "cpio --rsh-command=CMD", "screen -dm CMD", "tmux new CMD", "expect -c 'spawn CMD'", "bwrap CMD", "npx CMD", "entr CMD", "hyperfine CMD", "run-parts d", "env perl -e CMD", "sudo git -c alias.x='!CMD' x", "timeout 5 python3 -c CMD",
	// what wins where there are two, and what a name, a number or a file descriptor hides
	"env a.b=1 CMD", "env 1=2 CMD", "su -c ls -c CMD", "su -c ls -s /tmp/x", "su -c ls --session-command=CMD", "script -c ls -c CMD f", "script -c ls --command=CMD f", "echo CMD | xargs -i% %", "echo CMD | xargs -J % %", "sudo -e f", "X=CMD sudo -s '$X'", "doas -s CMD",
	"sh <<A <f\nls\nA", "sh <f <<A\nls\nA", "sh 3<<A\nls\nA", "sh <<A <<B\nls\nA\nCMD\nB", "sh <<A 0<&3\nls\nA", "sh 0<>f <<A\nls\nA", "sh <<<ls <f", "sh <<'E'\nexec <f\nE", "sh <<'E'\nhead -c 4 >/dev/null\n: '\nCMD\n: '\nE", "sh <<'E'\nread x\n: '\nCMD\n'\nE",
	"re\x00CMD", "OLDPWD=/sbin/CMD; ~-", "HOME=/sbin/CMD; ~", "unset PATH; ls", "set -k; ls LD_PRELOAD=./x.so", "set -o keyword; ls LD_PRELOAD=./x.so", "!(CMD)", "f() CMD; f", "/usr//local/bin/CMD", "/usr/./local/bin/CMD", "sed p \"$f\"", "sed p *.conf", "tar cf a ?b", "openvt CMD", "scriptlive f",
	// files
	"./CMD", "/tmp/CMD", "echo x >f; . ./f", "sh f", "python3 f", "perl f", "source f",
}

// Every way to run a command is one that a rule on that command sees, and that no rule on the way's own name covers.
func TestNoFormGetsPastARule(t *testing.T) {
	t.Parallel()
	deny := mustParse(t, "rules:\n- {commands: [reboot], decision: deny}\n")
	for _, form := range forms {
		script := strings.ReplaceAll(form, "CMD", "reboot")
		for _, outer := range []string{script, "if true; then\n" + script + "\nfi", "f() {\n" + script + "\n}; f", "x=$(\n" + script + "\n)"} {
			r := longstop.Request{Script: outer, Owner: longstop.OwnerAuto}
			read := Read(&r)
			onFile := read.Beyond && strings.Contains("./CMD /tmp/CMD echo x >f; . ./f sh f python3 f perl f source f", form)
			if v := deny.Decide(Question{Request: r}); v.Decision != Deny && !onFile {
				t.Errorf("%q gets past a rule that denies reboot: %s", outer, names(read))
			}
			if v := allowsAllBut(t, read, "reboot").Decide(Question{Request: r}); v.Decision == Allow {
				t.Errorf("%q is let through by a rule for %s", outer, names(read))
			}
		}
	}
}

// allowsAllBut is a policy that allows what a script names itself, but for one program.
func allowsAllBut(t *testing.T, read *Reading, but string) *Policy {
	t.Helper()
	allowed := []string{"ls"}
	for _, c := range read.Commands {
		if c.Name != but && c.Name != "ls" && !strings.ContainsAny(c.Name, `[]{}\ "'$`+"`") {
			allowed = append(allowed, "'"+strings.ReplaceAll(c.Name, "'", "''")+"'")
		}
	}
	return mustParse(t, "default: deny\nrules:\n- {commands: ["+strings.Join(allowed, ", ")+"], decision: allow}\n")
}

// Every entry of the tables does what it says: what a program runs by it counts.
func TestEveryEntryOfTheTablesCounts(t *testing.T) {
	t.Parallel()
	counts := func(argv ...string) {
		t.Helper()
		r := longstop.Request{Argv: argv, Owner: longstop.OwnerAuto}
		read := Read(&r)
		if read.Dynamic == "" && !slices.ContainsFunc(read.Commands, func(c Command) bool { return c.Name == "reboot" }) {
			t.Errorf("%q: what it runs is not known, and that is not either: %s", argv, names(read))
		}
		if v := allowsAllBut(t, read, "reboot").Decide(Question{Request: r}); v.Decision == Allow {
			t.Errorf("%q is let through by a rule for %s", argv, names(read))
		}
	}
	for name := range opaque {
		counts(name, "reboot")
		counts(name)
	}
	for name := range otherShells {
		counts(name, "-c", "reboot")
	}
	for name := range shells {
		counts(name, "-c", "reboot")
		counts(name)
	}
	for name, w := range wrappers {
		if !w.shellOnly {
			counts(append(append([]string{name}, slices.Repeat([]string{"1"}, w.operands)...), "reboot")...)
		}
		if w.script != "" {
			counts(append(append([]string{name}, slices.Repeat([]string{"1"}, w.operands)...), "-"+w.script, "reboot")...)
		}
	}
	for name, h := range hidings {
		for _, letter := range h.short {
			counts(name, "-"+string(letter), "reboot")
			counts(name, "-"+string(letter)+"reboot")
		}
		for option := range strings.FieldsSeq(h.long) {
			counts(name, "--"+option, "reboot")
			counts(name, "--"+option+"=reboot")
		}
		for word := range strings.FieldsSeq(h.words) {
			counts(name, word, "reboot")
		}
		for part := range strings.FieldsSeq(h.within) {
			counts(name, "x"+part+"reboot")
		}
		if h.only != "" {
			counts(name, "reboot")
		}
	}
}

// FuzzWrapped puts wrappers before a command, in any order, some with options that there may be or not: the command
// counts, or nobody knows what runs.
func FuzzWrapped(f *testing.F) {
	all := slices.Sorted(maps.Keys(wrappers))
	f.Add([]byte{1, 2, 3}, "-n")
	f.Add([]byte{9, 30}, "--x=1")
	f.Fuzz(func(t *testing.T, chain []byte, option string) {
		var argv []string
		for i, b := range chain[:min(len(chain), maxWrapped/2)] {
			name := all[int(b)%len(all)]
			if wrappers[name].shellOnly {
				continue
			}
			argv = append(argv, name)
			if i == 0 && strings.HasPrefix(option, "--") && name != "command" && strings.Contains(option, "=") {
				argv = append(argv, option)
			}
			argv = append(argv, slices.Repeat([]string{"1"}, wrappers[name].operands)...)
		}
		read := Read(&longstop.Request{Argv: append(argv, "reboot")})
		if read.Dynamic == "" && !slices.ContainsFunc(read.Commands, func(c Command) bool { return c.Name == "reboot" }) {
			t.Errorf("%q: reboot is not seen: %s", argv, names(read))
		}
	})
}
