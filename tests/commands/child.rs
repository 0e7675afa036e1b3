//! Running commands: what they are given, how they end, and that nothing of them is left behind.
//!
//! The module is called as its owners in the program call it, with the built binary as guardian. What
//! ends with a kill, or counts descriptors, runs in a process of its own (a role).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::child::{command, plays, wait_word};
use crate::common::left::{is_running, wait_ended};
use crate::common::{wait_equal, wait_until};
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

/// Processes of which `parent` is the parent: id, state and command line.
fn children_of(parent: u32) -> Vec<(i32, char, String)> {
    let stat_of = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = stat.rsplit(") ").next()?.to_owned();
        let mut words = rest.split(' ');
        let (state, ppid) = (words.next()?.chars().next()?, words.next()?.parse::<u32>().ok()?);
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        (ppid == parent).then(|| (pid, state, line.replace('\0', " ")))
    };
    let names = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| stat_of(name.parse().ok()?)).collect()
}

fn guardian_of(parent: u32) -> Option<i32> {
    let is_guardian =
        |(_, state, line): &(i32, char, String)| *state != 'Z' && line.ends_with(" guardian ");
    children_of(parent).into_iter().find(is_guardian).map(|(pid, ..)| pid)
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Ends are told as a shell tells them.
#[test]
fn ends_are_told() {
    assert_eq!(run("exit 3").0, End::Code(3));
    assert_eq!(run("kill -KILL $$").0, End::Signal(9));
    assert_eq!(run("kill -TERM $$").0.shell_code(), 143);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    let refused = |program: &std::path::Path| {
        in_runtime(async {
            start(&guardian(), (CommandSpec::new(program), Said::default().output())).err()
        })
    };
    assert_eq!(refused(&file).unwrap().shell_code(), 126);
    assert_eq!(refused(directory.path()).unwrap().shell_code(), 126);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(refused(&file).is_none());
    let missing = refused(&directory.path().join("missing")).unwrap();
    assert!(matches!(missing, StartError::NotFound(_)));
    assert_eq!(missing.shell_code(), 127);
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

/// Many at once, each with an end of its own.
#[test]
fn many_run_at_once() {
    in_runtime(async {
        let guardian = guardian();
        let begin = |code: u8| {
            start(&guardian, shell(&format!("exit {code}"), Said::default().output())).unwrap()
        };
        let mut all: Vec<(u8, Running)> = (0..100).map(|code| (code, begin(code))).collect();
        for (code, running) in &mut all {
            assert_eq!(running.wait().await, End::Code(*code));
        }
    });
}

/// Both streams arrive whole and apart, and what is asked for is in the environment.
#[test]
fn output_arrives() {
    in_runtime(async {
        let said = Said::default();
        let mut spec = shell("printf \"$WORD\"; echo bad >&2; exit 1", said.output());
        spec.0.environment.push(("WORD".into(), "no line end".into()));
        assert_eq!(start(&guardian(), spec).unwrap().wait().await, End::Code(1));
        assert_eq!(*said.0.lock().unwrap(), ("no line end".to_owned(), "bad\n".to_owned()));
        let mut file = tempfile::tempfile().unwrap();
        let spec = shell("echo out; echo err >&2", Output::File(file.try_clone().unwrap()));
        assert!(start(&guardian(), spec).unwrap().wait().await.is_success());
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "out\nerr\n");
    });
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

/// A role: runs a command that shows its signals.
#[test]
fn signals_role() {
    if plays("child::signals_role") {
        let (_, out, _) = run("grep -E '^Sig(Blk|Ign)' /proc/self/status");
        println!("\nsignals {}", out.replace('\n', " "));
    }
}

/// Signals that we were started with ignored are not ignored by a command.
#[test]
fn signals_are_as_usual() {
    let role = command("child::signals_role");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' HUP INT QUIT USR1 PIPE; exec \"$@\"", "sh"]);
    shell.arg(role.get_program()).args(role.get_args());
    shell.envs(role.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let said = wait_word(&mut child, "signals ");
    child.wait().unwrap();
    let masks = said.split_whitespace().filter(|word| !word.ends_with(':'));
    // The first 31 are the standard signals; those after them are the C library's and programs' own.
    let standard = masks.map(|mask| u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff);
    assert_eq!(standard.collect::<Vec<_>>(), [0; 2]);
}

/// What a command leaves in its group goes with it, at once; its output was passed on.
#[test]
fn nothing_is_left_of_a_command() {
    let start = Instant::now();
    let (end, out, _) = run(&format!("{GRANDCHILD}; exit 7"));
    assert_eq!(end, End::Code(7));
    wait_ended(out.trim());
    assert!(start.elapsed() < Duration::from_secs(20));
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

/// The time limit ends the whole group: by TERM, or by KILL where TERM is ignored.
#[test]
fn the_time_limit_ends_a_group() {
    for ignore in ["", "trap '' TERM; "] {
        in_runtime(async {
            let said = Said::default();
            let script = format!("{ignore}{GRANDCHILD}; while :; do wait; done");
            let mut spec = shell(&script, said.output());
            spec.0.time_limit = Some(Duration::from_millis(300));
            spec.0.grace = if ignore.is_empty() {
                Duration::from_secs(1000)
            } else {
                Duration::from_millis(200)
            };
            let mut running = start(&guardian(), spec).unwrap();
            let grandchild = said.pid().await;
            assert!(is_running(grandchild));
            assert_eq!(running.wait().await, End::TimedOut);
            assert_eq!(running.wait().await.shell_code(), 124);
            wait_ended(grandchild);
        });
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

/// A role: runs many commands, and much output, and says what it has used.
#[test]
fn usage_role() {
    if !plays("child::usage_role") {
        return;
    }
    in_runtime(async {
        let guardian = guardian();
        let run = async |script: &str, sink: Output| {
            start(&guardian, shell(script, sink)).unwrap().wait().await
        };
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        run("exit 0", Said::default().output()).await;
        let before = descriptors();
        for _ in 0..100 {
            run("exit 0", Said::default().output()).await;
            let missing =
                start(&guardian, (CommandSpec::new("/nowhere"), Said::default().output()));
            assert!(missing.is_err());
        }
        println!("\ndescriptors {}", descriptors() - before);
        let zombies = children_of(std::process::id()).iter().filter(|child| child.1 == 'Z').count();
        println!("zombies {zombies}");
        let memory = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let (before, bytes) = (memory(), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&bytes);
        let sink =
            Output::Sink(Box::new(move |_, piece: &[u8]| *counted.lock().unwrap() += piece.len()));
        run("head -c 100000000 /dev/zero", sink).await;
        println!("bytes {}", bytes.lock().unwrap());
        println!("kib {}", memory() - before);
    });
}

/// Two hundred commands leave no descriptor and no zombie, and 100 MB without a line end take no
/// memory.
#[test]
fn nothing_adds_up() {
    let mut child = command("child::usage_role").spawn().unwrap();
    assert_eq!(wait_word(&mut child, "descriptors "), "0");
    assert_eq!(wait_word(&mut child, "zombies "), "0");
    assert_eq!(wait_word(&mut child, "bytes "), "100000000");
    let kib: u64 = wait_word(&mut child, "kib ").parse().unwrap();
    assert!(kib < 2_048, "{kib} KiB more");
    child.wait().unwrap();
}

/// A role: keeps two commands running; says their grandchildren.
#[test]
fn owner_role() {
    if !plays("child::owner_role") {
        return;
    }
    in_runtime(async {
        let guardian = guardian();
        let mut all: Vec<Running> = Vec::new();
        for _ in 0..2 {
            let said = Said::default();
            let script = format!("trap '' TERM; {GRANDCHILD}; wait; wait");
            all.push(start(&guardian, shell(&script, said.output())).unwrap());
            println!("\ngrandchild {}", said.pid().await);
        }
        std::future::pending::<()>().await;
    });
}

/// The owner as a process, and its commands' grandchildren.
fn owner() -> (Child, [i32; 2]) {
    let mut owner = command("child::owner_role").spawn().unwrap();
    let grandchildren =
        [(); 2].map(|()| wait_word(&mut owner, "grandchild ").parse::<i32>().unwrap());
    assert!(grandchildren.iter().all(|pid| is_running(*pid)));
    (owner, grandchildren)
}

fn end(mut owner: Child, grandchildren: [i32; 2]) {
    owner.kill().unwrap();
    owner.wait().unwrap();
    grandchildren.into_iter().for_each(wait_ended);
}

/// `kill -9` of the owner ends its commands with all that is in their groups; the guardian too.
#[test]
fn commands_do_not_outlive_a_killed_owner() {
    let (owner, grandchildren) = owner();
    let guardian = guardian_of(owner.id()).unwrap();
    // What ends others does not end the guardian.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_raw(guardian).unwrap(), signal).unwrap();
    }
    end(owner, grandchildren);
    wait_ended(guardian);
}

/// A role: with a guardian that is frozen, starts commands until there is another; one of the first
/// runs on.
#[test]
fn frozen_role() {
    if !plays("child::frozen_role") {
        return;
    }
    in_runtime(async {
        let guardian = guardian();
        let said = Said::default();
        let _kept = start(&guardian, shell(&format!("{GRANDCHILD}; wait"), said.output())).unwrap();
        println!("\ngrandchild {}", said.pid().await);
        let frozen = guardian_of(std::process::id()).unwrap();
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
        let last =
            start(&guardian, shell("exit 5", Said::default().output())).unwrap().wait().await;
        println!("\nlast {last:?}");
        std::future::pending::<()>().await;
    });
}

/// A guardian that takes nothing any more is replaced when its pipe is full; commands go on.
#[test]
fn a_frozen_guardian_is_replaced() {
    let mut owner = command("child::frozen_role").spawn().unwrap();
    let grandchild: i32 = wait_word(&mut owner, "grandchild ").parse().unwrap();
    assert_eq!(wait_word(&mut owner, "last "), "Code(5)");
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_ended(grandchild);
}

/// A guardian that is killed is replaced, and its successor knows what runs.
#[test]
fn a_killed_guardian_is_replaced() {
    let (owner, grandchildren) = owner();
    let first = guardian_of(owner.id()).unwrap();
    kill(first);
    wait_until("there is another guardian", || {
        guardian_of(owner.id()).is_some_and(|pid| pid != first)
    });
    wait_equal("the first one is reaped", &None, || {
        children_of(owner.id()).into_iter().find(|child| child.0 == first)
    });
    end(owner, grandchildren);
}
