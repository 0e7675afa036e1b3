//! Texts below the help of the commands in [`cli`](super): examples, and the exit codes.

/// Below the help of the program itself.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
   0  done; the daemon: stopped cleanly     64  wrong command line
   1  spool fsck, monitor, status --check: something is or was wrong; spool run --once, work --fail: a job failed
  65  input or database is faulty           69  nobody answered; nothing fetched or taken
  70  a bug in shiftboss                    73  a file or socket cannot be made
  74  an I/O error                          75  already running; in flight, no room
  77  for operators only                    78  something needed is missing or unusable";

/// See the command of that name.
pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  shiftboss serve state.db input worker.sock
  shiftboss serve --config /etc/shiftboss.toml
  shiftboss serve --lease 2h --socket-mode 0660 --socket-group workers \\
      /var/lib/shiftboss/state.db /var/lib/shiftboss/input /run/shiftboss/worker.sock";

/// See the command of that name.
pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  shiftboss check input
  shiftboss check --json input | jq '.files[] | select(.skipped_lines > 0)'
  shiftboss check --config /etc/shiftboss.toml
  shiftboss check --database /var/lib/shiftboss/state.db";

/// See the command of that name.
pub(super) const RECOVER_EXAMPLES: &str = "\
Example:
  shiftboss recover /var/lib/shiftboss/state.db /var/lib/shiftboss/recovered.db";

/// See the command of that name.
pub(super) const ASK_EXAMPLES: &str = "\
Examples:
  shiftboss ask worker.sock READY
  shiftboss ask worker.sock 'DONE alpha 0'";

/// See the command of that name.
pub(super) const BACKUP_EXAMPLES: &str = "\
Example:
  shiftboss backup /var/lib/shiftboss/state.db /backup/state-$(date +%F).db";

/// See the command of that name.
pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  shiftboss completions bash > ~/.local/share/bash-completion/completions/shiftboss
  shiftboss completions zsh > ~/.zfunc/_shiftboss
  shiftboss completions fish > ~/.config/fish/completions/shiftboss.fish";
