//! The names of processes: recorded by default, without secrets, and shown by `explain`.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use flatcap_schemas::host;

use crate::explaining;
use crate::rig::Rig;

/// Begin of each planted secret. It occurs nowhere else.
const PLANTED: &str = "Zq7Xw";
/// Number of secrets that are planted in each form.
const SECRETS: usize = 4;

/// Forms of secrets in arguments, which are separated by `|`. A broken bar stands for a pipe.
const FORMS: &[&str] = &[
    "mysql|-uroot|-p{}|db",
    "sudo|mysqldump|-u|root|-p{}|db",
    "curl|-u|bob:{}|http://h",
    "curl|-H|Authorization: Bearer {}|http://h",
    "curl|-H|X-Api-Key: {}|http://h",
    "curl|-b|sid={}|http://h",
    "curl|--data|{\"user\":\"x\",\"password\":\"{}\"}|http://h",
    "curl|https://h/x?a=1&access_token={}&b=2",
    "env|PGPASSWORD={}|psql|db",
    "app|--password|{}",
    "app|--password={}",
    "app|--db-pass|{}",
    "app|--token|{}",
    "app|--client-secret={}",
    "java|-Dspring.datasource.password={}|-jar|x.jar",
    "redis-cli|-u|redis://:{}@h:6379/0",
    "redis-cli|-a|{}|ping",
    "sshpass|-p|{}|ssh|h",
    "docker|login|-u|x|-p|{}|h",
    "docker|run|-e|POSTGRES_PASSWORD={}|postgres",
    "az|login|-u|x|-p|{}",
    "aws|configure|set|aws_secret_access_key|{}",
    "git|clone|https://x:{}@github.com/a/b.git",
    "sh|-c|mysql -uroot -p{} db",
    "sh|-c|export TOKEN={}; run",
    "sh|-c|echo {} \u{a6} docker login --password-stdin",
    "openssl|rsa|-passin|pass:{}",
    "ldapsearch|-x|-w|{}",
    "kubectl|create|secret|generic|x|--from-literal=any={}",
    "helm|install|x|--set|auth.password={}",
    "ansible-playbook|--extra-vars|ansible_become_pass={} x=1",
    "xfreerdp|/u:x|/p:{}",
    "mongosh|mongodb://u:{}@h/db",
    "app|--broker=amqp://u:{}@h:5672/",
    "rpcclient|-U|bob%{}|h",
    "mount|-t|cifs|-o|username=u,password={}",
    "vault|kv|put|secret/x|value={}",
    "htpasswd|-b|file|bob|{}",
    "7z|a|-p{}|x.7z",
    "unzip|-P|{}|x.zip",
    "snmpget|-v3|-A|{}|h",
    "nmcli|dev|wifi|connect|x|password|{}",
    "sqlplus|scott/{}@db",
    "app|Server=h;Uid=u;Pwd={};",
    "set -e\nexport PASSWORD={}\nrun",
    "app|ghp_{}",
    "app|sk-{}abcdefghijkl",
    "app|eyJhbGciOiJIUzI1NiJ9.{}.x",
    "app|-----BEGIN PRIVATE KEY-----\n{}",
    "app: worker --url=postgres://u:{}@h/db idle",
    "app: worker --password {} idle",
];

/// Processes that sleep, and end with the test.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill();
            let _status = child.wait();
        }
    }
}

/// Starts a process with these arguments, whatever they are.
fn sleeper(arguments: &[String]) -> Child {
    let mut command = Command::new("/bin/sleep");
    if let [title] = arguments {
        command.arg0(title).arg("600");
    } else {
        // The shell waits for input. The other arguments belong to its script, which ignores them.
        command = Command::new("/bin/sh");
        command.args(["-c", "read -r line"]).args(arguments);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Starts processes with secrets, and returns the secrets.
fn planted() -> (Sleepers, Vec<String>) {
    let (mut sleepers, mut secrets) = (Vec::new(), Vec::new());
    for (number, form) in FORMS.iter().enumerate() {
        for variant in 0..SECRETS {
            let secret = format!("{PLANTED}{}9{number:02}a{variant}", ["t", "#", "-", "T.8"][variant]);
            let words = form.replace("{}", &secret);
            let words = words.split('|').map(|word| word.replace('\u{a6}', "|"));
            sleepers.push(sleeper(&words.collect::<Vec<_>>()));
            secrets.push(secret);
        }
    }
    // A secret at the limit of the recorded text, and one that is not UTF-8.
    let long = format!("{}{PLANTED}5cut", "x".repeat(236));
    for arguments in [
        vec!["app".to_owned(), "--token".to_owned(), long],
        vec!["a".repeat(230), "--key".to_owned(), format!("{PLANTED}5end")],
    ] {
        sleepers.push(sleeper(&arguments));
    }
    (Sleepers(sleepers), secrets)
}

/// Returns the files below a directory that contain a planted secret.
fn files_with_secrets(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with_secrets(&entry.path()));
        } else if let Ok(content) = fs::read(entry.path())
            && content.windows(PLANTED.len()).any(|part| part == PLANTED.as_bytes())
        {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

/// Records the processes of this host, and returns the recorded command lines.
fn command_lines(rig: &Rig, keys: &str) -> Vec<String> {
    let config = rig.write("names.toml", format!("[compress]\nenabled = false\n[source.process]\n{keys}\n"));
    let called = rig.record(&["--config", config.to_str().unwrap(), "--source", "process", "--for", "4s"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let rows = rig.call(&["dump", "flatcap-data", "--source", "process", "--format", "jsonl"]).lines();
    let lists = rows.iter().filter_map(|row| row["data"]["command_lines"].as_array());
    lists.flatten().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

// Proves that no file of a recording with default settings contains a secret of a command line, in
// about 50 forms, and that the other arguments are readable. The same secrets are in the files if
// whole command lines are configured, and no command line is if they are turned off.
#[test]
fn secrets_are_in_no_file() {
    let (_sleepers, secrets) = planted();
    let rig = Rig::new();
    let lines = command_lines(&rig, "");
    let own: Vec<&String> = lines.iter().filter(|line| line.contains("read -r line")).collect();
    assert!(own.len() >= secrets.len() * 9 / 10, "{} of {}", own.len(), secrets.len());
    let found: Vec<&String> = lines.iter().filter(|line| line.contains(PLANTED)).collect();
    assert_eq!(found, Vec::<&String>::new());
    for folder in rig.folders() {
        assert_eq!(files_with_secrets(folder), Vec::<String>::new());
    }
    for readable in
        ["--password *** ", "docker login -u x -p *** h", "https://***@github.com/a/b.git", "curl -u bob:***"]
    {
        assert!(lines.iter().any(|line| (line.clone() + " ").contains(readable)), "{readable}");
    }
    let rig = Rig::new();
    assert!(command_lines(&rig, "command_lines = \"full\"").iter().any(|line| line.contains(PLANTED)));
    assert!(!files_with_secrets(&rig.data()).is_empty(), "the search finds what is there");
    let rig = Rig::new();
    assert_eq!(command_lines(&rig, "command_lines = \"off\""), Vec::<String>::new());
}

fn text<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or(0))
}

/// Returns the payload of a sample in which one process computes. An early sample contains its
/// names. A sample after the window contains them again.
fn sample_with_names(sample: u64) -> Vec<u8> {
    let payload = explaining::payload(&explaining::computing(sample), sample);
    let found = flatbuffers::root::<host::Process<'_>>(&payload).unwrap();
    let mut processes: Vec<host::ProcessCounters> = found.processes().iter().copied().collect();
    for process in &mut processes {
        process.set_user(1000);
    }
    let (pid, start) = (812, 812);
    let (line, path, user) = match sample {
        10 => ("/bin/billing --shard 3\u{1b} --token ***", "/system.slice/billing@3.service", "bob"),
        250 => ("later", "/later.service", "later"),
        _ => ("", "", ""),
    };
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let has_names = !line.is_empty();
    let lines: Vec<_> =
        has_names.then(|| host::CommandLine::new(pid, start, 1, &text(line))).into_iter().collect();
    let groups: Vec<_> = lines.iter().map(|_| host::ProcessGroup::new(pid, start, &text(path))).collect();
    let users: Vec<_> = lines.iter().map(|_| host::UserName::new(1000, &text(user))).collect();
    let arguments = host::ProcessArgs {
        count: processes.len() as u64,
        processes: Some(builder.create_vector(&processes)),
        exits: Some(builder.create_vector::<host::ProcessExit>(&[])),
        command_lines: Some(builder.create_vector(&lines)),
        groups: Some(builder.create_vector(&groups)),
        users: Some(builder.create_vector(&users)),
        ..host::ProcessArgs::default()
    };
    let root = host::Process::create(&mut builder, &arguments);
    builder.finish_minimal(root);
    let mut bytes = builder.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

// Proves that `explain` shows the names that were recorded long before the window, and no later
// ones. Control characters are escaped.
#[test]
fn explain_shows_the_names_of_a_process() {
    let rig = Rig::new();
    fs::create_dir_all(rig.data()).unwrap();
    let sources = vec![explaining::process_source(0, "process")];
    explaining::write_samples(&rig.data(), ("db1", 1), sources, |sample| vec![sample_with_names(sample)]);
    let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).json();
    assert_eq!(spikes.as_array().unwrap().len(), 1, "names are no departures: {spikes}");
    let found = rig.call(&["explain", "flatcap-data", "--json"]).json();
    let expected = serde_json::json!({
        "command_line": "/bin/billing --shard 3\u{1b} --token ***",
        "unit": "billing@3.service",
        "user": "bob",
    });
    assert_eq!(
        (&found["suspects"][0]["name"], &found["suspects"][0]["identity"]),
        (&"billing".into(), &expected)
    );
    let text = rig.call(&["explain", "flatcap-data"]).text();
    let line = "  /bin/billing --shard 3\\u{1b} --token *** \u{b7} unit billing@3.service \u{b7} user bob";
    assert!(text.lines().any(|own| own == line), "{text}");
}
