module github.com/longstop/longstop

go 1.26
