//! What the command line says yes and no to.

use super::*;

fn flags(args: &[&str]) -> Result<Supervise, String> {
    let args = ["moq-supervise"].iter().chain(args);
    match Cli::try_parse_from(args) {
        Ok(cli) => Ok(cli.supervise.expect("no command was named")),
        Err(error) => Err(one_line(&error.render().to_string())),
    }
}

fn refusal(args: &[&str]) -> String {
    flags(args).expect_err("refused")
}

#[test]
fn defaults_are_those_of_the_manual() {
    let flags = flags(&["--exec", "moq-relay"]).expect("parsed");
    assert_eq!(flags.drain_timeout, Duration::from_mins(10));
    assert_eq!(flags.stop_timeout, None);
    assert_eq!(flags.ready_timeout, Duration::from_secs(30));
    assert_eq!(flags.probation, Duration::from_secs(2));
    assert_eq!(flags.max_generations, 4);
    assert!(flags.args.is_empty());
}

/// A program's own flags, and its words that are ours too, are after `--`.
#[test]
fn the_programs_arguments_are_passed_untouched() {
    let flags = flags(&["--exec", "relay", "--probation", "0s", "--", "--listen", "[::]:0", "status"]).expect("parsed");
    assert_eq!(flags.args, ["--listen", "[::]:0", "status"]);
    assert_eq!(flags.probation, Duration::ZERO);
}

#[test]
fn commands_take_the_control_path_and_no_flags_of_the_supervisor() {
    let cli = Cli::try_parse_from(["moq-supervise", "upgrade", "--control", "/x/y", "--evict-oldest"]).expect("parsed");
    let Some(Request::Upgrade { control: Some(control), evict_oldest: true, timeout: None }) = cli.command else {
        panic!("{cli:?}")
    };
    assert_eq!(control, std::path::Path::new("/x/y"));
    assert!(cli.supervise.is_none());
    assert!(Cli::try_parse_from(["moq-supervise", "--exec", "relay", "status"]).is_err());
}

#[test]
fn each_bad_value_is_one_line_that_names_the_flag_and_the_remedy() {
    let cases: [(&[&str], &str, &str); 12] = [
        (&["--drain-timeout", "10"], "--drain-timeout", "10m"),
        (&["--drain-timeout", "1000y"], "--drain-timeout", "at most 366 days"),
        (&["--stop-timeout", "-1s"], "--stop-timeout", "number with a unit"),
        (&["--ready-timeout", "0s"], "--ready-timeout", "more than zero"),
        (&["--probation", "soon"], "--probation", "30s"),
        (&["--max-generations", "1"], "--max-generations", "from 2 to 16"),
        (&["--max-generations", "17"], "--max-generations", "from 2 to 16"),
        (&["--check-command", " "], "--check-command", "leave the flag out"),
        (&["--health-url", "https://localhost/health"], "--health-url", "--health-command"),
        (&["--health-url", "localhost:8080"], "--health-url", "http://127.0.0.1"),
        (&["--log-level", "a=b=c"], "--log-level", ""),
        (&["--frobnicate"], "--frobnicate", ""),
    ];
    for (args, flag, remedy) in cases {
        let line = refusal(&[&["--exec", "relay"], args].concat());
        assert!(line.contains(flag) && line.contains(remedy) && !line.contains('\n'), "{args:?}: {line}");
    }
}

#[test]
fn a_missing_program_is_named() {
    let line = refusal(&["--probation", "1s"]);
    assert!(line.contains("--exec"), "{line}");
}

#[test]
fn one_kind_of_health_probe_at_a_time() {
    let args = ["--exec", "relay", "--health-url", "http://localhost/", "--health-command", "true"];
    assert!(refusal(&args).contains("--health-command"));
}

#[test]
fn a_health_url_is_taken_apart_once() {
    let url = |text: &str| values::health_url(text).expect("accepted");
    let full = url("http://[::1]:8080/health?deep=1");
    assert_eq!((full.host.as_str(), full.port, full.path.as_str()), ("::1", 8080, "/health?deep=1"));
    assert_eq!(full.authority, "[::1]:8080");
    let bare = url("http://localhost");
    assert_eq!((bare.host.as_str(), bare.port, bare.path.as_str()), ("localhost", 80, "/"));
    for bad in ["http://user@localhost/", "http:///x", "ftp://localhost/", ""] {
        assert!(values::health_url(bad).is_err(), "{bad}");
    }
}
