// Package dashboard drives the pages of the dashboard in a real Chromium, which
// scripts/install-test-programs installs: every page in both themes, an abuser that is found
// in three clicks, and keys that would do harm if they were taken for markup.
package dashboard
