// Package dashboard drives the pages of the dashboard in a real Chromium, which
// scripts/install-test-programs installs: every page in both themes, an abuser in a real access
// log who is found in three clicks, and keys that would do harm if they were taken for markup.
// The reports of headgate replay and headgate load are looked at in the same way.
package dashboard
