module github.com/headgate/headgate/store/memcached

go 1.26

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/headgate/headgate v0.1.0
)
