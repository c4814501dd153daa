module github.com/headgate/headgate/examples/memcached

go 1.26

require (
	github.com/headgate/headgate v0.0.0
	github.com/headgate/headgate/store/memcached v0.0.0
)

require github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c // indirect

replace (
	github.com/headgate/headgate => ../..
	github.com/headgate/headgate/store/memcached => ../../store/memcached
)
