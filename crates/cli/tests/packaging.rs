//! What `deploy/` says of the gateway, held against the gateway; completions and manual.
#![expect(clippy::unwrap_used, reason = "a helper of tests may fail them")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clap::Parser as _;
use seawall_cli::args::{Cli, Command as Asked, ProbeArgs, Question};
use seawall_gateway::{GatewayConfig, parse_duration};
use serde_json::Value;

const SEAWALL: &str = env!("CARGO_BIN_EXE_seawall");

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

fn seawall(args: &[&str]) -> Output {
    Command::new(SEAWALL).args(args).output().unwrap()
}

/// The documents of a manifest.
fn documents(file: &str) -> Vec<Value> {
    text(file).split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// The pod of a manifest, the container of the gateway in it, and the gateway's configuration.
fn pod(file: &str, containers: &str) -> (Value, Value, GatewayConfig) {
    let documents = documents(file);
    let pod = documents[1]["spec"]["template"]["spec"].clone();
    let mut all = pod[containers].as_array().unwrap().iter();
    let gateway = all.find(|one| one["name"] == "seawall").unwrap().clone();
    let yaml = documents[0]["data"]["seawall.yaml"].as_str().unwrap();
    let (config, warnings) = GatewayConfig::parse(yaml, file).unwrap_or_else(|e| panic!("{e}"));
    assert!(warnings.is_empty(), "{file}");
    // What the container is told to run is what the command line takes.
    let args = gateway["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let asked = Cli::try_parse_from(["seawall"].into_iter().chain(args)).unwrap().command;
    assert!(matches!(asked, Asked::Run(_)), "{asked:?}");
    (pod, gateway, config)
}

/// What a probe of a container asks, where.
fn asked(gateway: &Value, probe: &str) -> ProbeArgs {
    let words = gateway[probe]["exec"]["command"].as_array().unwrap();
    let words = words.iter().map(|word| word.as_str().unwrap());
    match Cli::try_parse_from(words).unwrap().command {
        Asked::Probe(args) => args,
        other => panic!("{other:?}"),
    }
}

fn drain(config: &GatewayConfig) -> Duration {
    config.drain.accept + config.drain.in_flight + config.drain.close
}

#[test]
fn the_manifests_agree_with_drain_probes_and_ports_of_the_gateway() {
    for (file, containers, first) in [
        ("kubernetes/inbound.yaml", "containers", "readinessProbe"),
        ("kubernetes/outbound.yaml", "initContainers", "startupProbe"),
    ] {
        let (pod, gateway, config) = pod(file, containers);
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(drain(&config).as_secs() < grace, "{file}: the drain ends within the grace");
        let said = gateway["env"][0].clone();
        assert_eq!(said["name"], "SEAWALL_TERMINATION_GRACE");
        let said = parse_duration(said["value"].as_str().unwrap()).unwrap();
        assert_eq!(said, Duration::from_secs(grace), "{file}");
        assert!(gateway.get("lifecycle").is_none(), "{file}: the drain needs no preStop");
        for (probe, what) in [(first, Question::Ready), ("livenessProbe", Question::Live)] {
            let asked = asked(&gateway, probe);
            assert_eq!((asked.what, asked.admin), (what, config.admin), "{file}: {probe}");
        }
        let security = &gateway["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["runAsNonRoot"], true);
    }
}

#[test]
fn in_front_the_service_stays_for_as_long_as_the_gateway_sends() {
    let (pod, gateway, config) = pod("kubernetes/inbound.yaml", "containers");
    let service = &pod["containers"][1];
    let stays = service["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let sends = config.drain.accept + config.drain.in_flight;
    assert_eq!(Duration::from_secs(stays), sends);
    let port = gateway["ports"][0]["containerPort"].as_u64().unwrap();
    assert_eq!(port, u64::from(config.listeners[0].address.tcp().unwrap().port()));
    assert!(config.listeners[0].address.tcp().unwrap().ip().is_unspecified());
    assert_eq!(documents("kubernetes/inbound.yaml")[2]["spec"]["ports"][0]["targetPort"], "http");
}

#[test]
fn a_sidecar_for_outgoing_calls_is_native_and_reached_from_its_pod_alone() {
    let (pod, gateway, config) = pod("kubernetes/outbound.yaml", "initContainers");
    assert_eq!(gateway["restartPolicy"], "Always");
    assert!(config.listeners[0].address.tcp().unwrap().ip().is_loopback());
    let url = pod["containers"][0]["env"][0]["value"].as_str().unwrap();
    assert_eq!(url, format!("http://{}", config.listeners[0].address));
}

#[test]
fn the_image_runs_what_the_command_line_takes_as_nobody() {
    let file = text("Dockerfile");
    let words = |mark: &str| -> Vec<String> {
        let (_, rest) = file.split_once(mark).unwrap();
        serde_json::from_str(rest.lines().next().unwrap()).unwrap()
    };
    let (entry, command) = (words("\nENTRYPOINT "), words("\nCMD "));
    let run = Cli::try_parse_from(entry.iter().chain(&command)).unwrap().command;
    assert!(matches!(run, Asked::Run(_)));
    let health = Cli::try_parse_from(words(" CMD ")).unwrap().command;
    assert!(matches!(health, Asked::Probe(ProbeArgs { what: Question::Ready, .. })));
    assert!(file.contains("\nUSER 65532:65532\n"));
    // The compiler of the image is the one this is written for.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let (_, version) = manifest.split_once("\nrust-version = \"").unwrap();
    let version = version.split('"').next().unwrap();
    assert!(file.contains(&format!("FROM rust:{version}-alpine AS build")));
}

#[test]
fn the_unit_leaves_the_drain_its_time_and_systemd_takes_it() {
    let unit = text("systemd/seawall.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{key}")).to_owned()
    };
    let (config, _) = GatewayConfig::for_upstream("http://127.0.0.1:9000", None, None).unwrap();
    let stop = Duration::from_secs(value("TimeoutStopSec").parse().unwrap());
    assert!(drain(&config) < stop);
    let grace = value("Environment");
    let grace = grace.strip_prefix("SEAWALL_TERMINATION_GRACE=").unwrap();
    assert_eq!(parse_duration(grace).unwrap(), stop);
    let start = value("ExecStart");
    assert!(Cli::try_parse_from(start.split(' ')).is_ok(), "{start}");

    let Ok(help) = Command::new("systemd-analyze").arg("--version").output() else { return };
    assert!(help.status.success());
    // As installed, but with a program that is here.
    let folder = std::env::temp_dir().join(format!("seawall-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("seawall.service");
    std::fs::write(&copy, unit.replace("/usr/bin/seawall", SEAWALL)).unwrap();
    let said = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&copy)
        .output()
        .unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && !told.contains("seawall.service"), "{told}");
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops_and_a_probe_sees_both() {
    let path = std::env::temp_dir().join(format!("seawall-ready-{}", std::process::id()));
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 64];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    let mut gateway = Command::new(SEAWALL)
        .args(["run", "--upstream", "http://127.0.0.1:1", "--workers", "1"])
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stderr.take().unwrap()).lines().map_while(Result::ok);
    let admin = lines.find_map(|line| Some(line.split_once("admin on http://")?.1.to_owned()));
    let admin = admin.unwrap();
    let admin = admin.split_whitespace().next().unwrap();
    let probe = |what: &str| seawall(&["probe", what, "--admin", admin]).status.code();
    let kill = |signal: &str| {
        let pid = gateway.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    };
    assert_eq!(told(), "READY=1");
    assert_eq!((probe("ready"), probe("live")), (Some(0), Some(0)));
    kill("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!((probe("ready"), probe("live")), (Some(1), Some(0)));
    kill("TERM");
    kill("TERM");
    assert!(gateway.wait().unwrap().success());
    assert_eq!(probe("live"), Some(2));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn completions_know_every_command_and_are_read_by_their_shells() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let written = seawall(&["completions", shell]).stdout;
        let told = String::from_utf8_lossy(&written);
        for word in
            ["run", "check", "schema", "demo", "probe", "completions", "man", "upstream", "workers"]
        {
            assert!(told.contains(word), "{shell}: {word}");
        }
        let Ok(mut reads) = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn() else {
            continue;
        };
        reads.stdin.take().unwrap().write_all(&written).unwrap();
        assert!(reads.wait().unwrap().success(), "{shell} reads it");
    }
    assert_eq!(seawall(&["completions", "cmd"]).status.code(), Some(2));
}

#[test]
fn the_manual_has_a_page_of_all_and_one_of_each_command() {
    let page = |args: &[&str]| String::from_utf8(seawall(args).stdout).unwrap();
    let all = page(&["man"]);
    assert!(all.contains(".TH seawall 1"), "{all}");
    let install = include_str!("../../../docs/install.md");
    let commands = |page: &str| -> Vec<String> {
        let names = page.lines().filter_map(|line| line.strip_prefix("seawall\\-"));
        let names = names.filter_map(|line| line.strip_suffix("(1)"));
        names.map(|name| name.replace("\\-", " ")).collect()
    };
    // Each page that another names is there, and is installed.
    let mut told = commands(&all);
    assert!(["run", "check", "lab"].iter().all(|one| told.iter().any(|it| it == one)), "{all}");
    while let Some(command) = told.pop() {
        let words: Vec<_> = command.split(' ').collect();
        let one = page(&[&["man"], &words[..]].concat());
        assert!(one.contains(&format!(".TH seawall-{} 1", words.join("-"))), "{command}: {one}");
        let (of, name) = command.split_once(' ').unwrap_or(("", &command));
        let made = format!("seawall man {of} $c").replace("  ", " ");
        let is_made = |line: &str| {
            line.contains(&made) && line.replace(';', " ;").split(' ').any(|word| word == name)
        };
        assert!(install.lines().any(is_made), "docs/install.md does not install {command}");
        told.extend(commands(&one));
    }
    let run = page(&["man", "run"]);
    for option in ["upstream", "config", "listen", "admin", "workers"] {
        assert!(run.contains(&format!("\\-\\-{option}")), "{run}");
    }
    for wrong in [&["dance"][..], &["run", "dance"], &["lab", "dance"]] {
        assert_eq!(seawall(&[&["man"], wrong].concat()).status.code(), Some(2));
    }
}

#[test]
fn the_image_is_built_from_all_that_the_build_reads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let ignored = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
    let let_in: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let mut included = 0;
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // What only tests read is not part of the binary.
            if path.is_dir() && name != "tests" {
                folders.push(path);
                continue;
            }
            if !name.ends_with(".rs") || name == "tests.rs" {
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for rest in source.split("include_str!(\"").skip(1) {
                let file = rest.split('"').next().unwrap();
                let file = path.parent().unwrap().join(file).canonicalize().unwrap();
                let file = file.strip_prefix(&root).unwrap();
                let top = file.components().next().unwrap().as_os_str().to_str().unwrap();
                assert!(let_in.contains(&top), "{} includes {}", path.display(), file.display());
                included += 1;
            }
        }
    }
    assert!(included > 0);
}
