//! Running commands: what they are given, how they end, and that nothing of them is left behind.
//!
//! The module is called as its owners in the program call it, with the built binary as guardian. What happens when an owner or a
//! guardian is killed, and that nothing adds up, `work::children` shows.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::left::{is_running, wait_ended};
use rustix::process::{Pid, Signal, kill_process};
use shiftboss_runner::child::{CommandSpec, End, Guardian, Output, Running, StartError, Stream};

/// A grandchild that would outlive its parent; it says its process id.
const GRANDCHILD: &str = "sleep 1000 & echo $!";

fn guardian() -> Guardian {
    Guardian::of(env!("CARGO_BIN_EXE_shiftboss"))
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

/// What a command wrote, by stream.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<(String, String)>>);

impl Said {
    fn output(&self) -> Output {
        let said = Arc::clone(&self.0);
        Output::Sink(Box::new(move |stream, piece: &[u8]| {
            let mut said = said.lock().unwrap();
            let text = if stream == Stream::Out { &mut said.0 } else { &mut said.1 };
            text.push_str(std::str::from_utf8(piece).unwrap());
        }))
    }

    fn out(&self) -> String {
        self.0.lock().unwrap().0.clone()
    }

    /// The process id in the first line, once it is there.
    async fn pid(&self) -> i32 {
        while !self.out().contains('\n') {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        self.out().lines().next().unwrap().parse().unwrap()
    }
}

fn shell(script: &str, output: Output) -> (CommandSpec, Output) {
    let mut spec = CommandSpec::new("sh");
    spec.arguments = vec!["-c".into(), script.into()];
    (spec, output)
}

fn start(guardian: &Guardian, spec: (CommandSpec, Output)) -> Result<Running, StartError> {
    guardian.start(&spec.0, None, spec.1)
}

/// Runs a script to its end.
fn run(script: &str) -> (End, String, String) {
    in_runtime(async {
        let said = Said::default();
        let end = start(&guardian(), shell(script, said.output())).unwrap().wait().await;
        let (out, err) = said.0.lock().unwrap().clone();
        (end, out, err)
    })
}

/// The guardians that this process has.
fn guardians() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let children = tasks.map(|task| fs::read_to_string(task.join("children")).unwrap_or_default());
    let pids = children.collect::<String>();
    let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
    let line = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(|pid| line(pid).ends_with(b"\0guardian\0")).collect()
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// A program is looked for in the command's own PATH, from the command's own directory, and a script without `#!` is
/// a shell's: as `execvp` has it.
#[test]
fn programs_are_executed_as_a_shell_executes_them() {
    let directory = tempfile::tempdir().unwrap();
    for (name, mode) in [("denied/program", 0o600), ("allowed/program", 0o700)] {
        let path = directory.path().join(name);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "echo \"$0 $*\"").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let run = |path: &str, program: &str| {
        let mut spec = CommandSpec::new(program);
        spec.arguments = vec!["one".into(), "two".into()];
        spec.environment = vec![("PATH".into(), path.into())];
        spec.directory = Some(directory.path().to_owned());
        let said = Said::default();
        in_runtime(async {
            let mut running = start(&guardian(), (spec, said.output()))
                .map_err(|error| error.shell_code().to_string())?;
            assert_eq!(running.wait().await, End::Code(0));
            Ok::<_, String>(said.out())
        })
    };
    let found = Ok("allowed/program one two\n".to_owned());
    assert_eq!(run("nowhere:denied:allowed", "program"), found);
    assert_eq!(run("", "allowed/program"), found);
    assert_eq!(run("denied:nowhere", "program"), Err("126".to_owned()));
    assert_eq!(run("nowhere", "program"), Err("127".to_owned()));
}

/// Without a guardian nothing is run.
#[test]
fn no_command_without_a_guardian() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let spec = shell(&format!("echo > {}", file.display()), Said::default().output());
    let refused = in_runtime(async { start(&Guardian::of("/nowhere"), spec).err().unwrap() });
    assert!(refused.to_string().contains("cannot start the guardian"), "{refused}");
    assert!(!file.exists());
}

/// A command that reads finds nothing to read, rather than waiting.
#[test]
fn standard_input_is_empty() {
    assert_eq!(run("cat; echo end"), (End::Code(0), "end\n".to_owned(), String::new()));
}

/// A command has its three descriptors, those that we were ourselves given to pass on, and none of
/// ours.
#[test]
fn no_descriptor_is_passed_on() {
    let _ours = fs::File::open("/dev/null").unwrap();
    let (_, out, _) = run("exec ls /proc/self/fd");
    let mut plain = std::process::Command::new("ls");
    let given = plain.arg("/proc/self/fd").stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(out, String::from_utf8(given.stdout).unwrap());
}

/// A process that left the group keeps the pipes, and does not keep the command from having ended.
#[test]
fn who_left_the_group_is_not_waited_for() {
    let (end, out, _) = run("setsid sleep 1000 & echo $!; exit 0");
    assert_eq!(end, End::Code(0));
    let pid: i32 = out.trim().parse().unwrap();
    // It runs on, unless it had no time to leave the group.
    if is_running(pid) {
        kill(pid);
    }
}

/// A command that was stopped hears of its end.
#[test]
fn a_stopped_command_can_be_ended() {
    in_runtime(async {
        let mut spec = shell("kill -STOP $$", Said::default().output());
        spec.0.time_limit = Some(Duration::from_millis(200));
        spec.0.grace = Duration::from_secs(1000);
        assert_eq!(start(&guardian(), spec).unwrap().wait().await, End::TimedOut);
    });
}

/// The owner can ask a command to end, which may clean up then; or kill it; or forget it.
#[test]
fn the_owner_ends_a_command() {
    in_runtime(async {
        let begin = async |script: &str| {
            let said = Said::default();
            let running = start(&guardian(), shell(script, said.output())).unwrap();
            let pid = said.pid().await;
            (running, pid)
        };
        let script = format!("trap 'exit 5' TERM; {GRANDCHILD}; wait");
        let (mut asked, grandchild) = begin(&script).await;
        asked.terminate();
        assert_eq!(asked.wait().await, End::Code(5));
        wait_ended(grandchild);
        let script = format!("trap '' TERM; {GRANDCHILD}; wait; wait");
        let (mut killed, grandchild) = begin(&script).await;
        killed.terminate();
        killed.kill();
        assert_eq!(killed.wait().await, End::Signal(9));
        wait_ended(grandchild);
        let (forgotten, grandchild) = begin(&script).await;
        let pid = forgotten.pid();
        drop(forgotten);
        while fs::exists(format!("/proc/{pid}")).unwrap() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        wait_ended(grandchild);
    });
}

/// A guardian that takes nothing any more is replaced when its pipe is full; commands go on.
#[test]
fn a_frozen_guardian_is_replaced() {
    in_runtime(async {
        // Those of tests beside this one, where the runner gives them no processes of their own.
        let others = guardians();
        let guardian = guardian();
        let said = Said::default();
        let kept = start(&guardian, shell(&format!("{GRANDCHILD}; wait"), said.output())).unwrap();
        let grandchild = said.pid().await;
        let frozen = guardians().into_iter().find(|pid| !others.contains(pid)).unwrap();
        kill_process(Pid::from_raw(frozen).unwrap(), Signal::STOP).unwrap();
        let mut count = 0;
        while is_running(frozen) {
            // Registered, not executed, taken off again: the pipe fills fastest so.
            let missing =
                start(&guardian, (CommandSpec::new("/nowhere"), Said::default().output()));
            assert!(matches!(missing, Err(StartError::NotFound(_))));
            count += 1;
        }
        assert!(count > 1_000, "{count}");
        let mut last = start(&guardian, shell("exit 5", Said::default().output())).unwrap();
        assert_eq!(last.wait().await, End::Code(5));
        drop(kept);
        wait_ended(grandchild);
    });
}
