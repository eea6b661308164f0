//! Tests of the secret filter.

use proptest::prelude::*;

use super::secret_filter::scrubbed;

/// Returns a filtered command line. Blanks separate the arguments, and `_` within an argument
/// stands for a blank if the word begins with a tilde.
fn scrub(words: &str) -> String {
    let argument = |word: &str| match word.strip_prefix('~') {
        Some(script) => script.replace('_', " "),
        None => word.to_owned(),
    };
    let line = words.split(' ').map(argument).collect::<Vec<_>>().join("\0");
    String::from_utf8(scrubbed(line.as_bytes(), false).as_bytes().to_vec()).unwrap()
}

// Proves that command lines without secrets stay as they are.
#[test]
fn ordinary_arguments_stay() {
    for line in [
        "/usr/bin/postgres -D /var/lib/postgresql/16/main -c config_file=/etc/postgresql/16/main/postgresql.conf",
        "shardd --shard 3",
        "python3 -m http.server --bind 127.0.0.1 8080",
        "java -Xmx4096m -jar /srv/app/app-1.24.0-SNAPSHOT.jar --server.port=8080",
        "java -cp /opt/kafka/libs/kafka_2.13-3.6.1.jar kafka.Kafka config/server.properties",
        "git clone git@github.com:example/project.git",
        "rsync -a root@backup.example.com:/srv/ /srv/",
        "ssh -p 2222 deploy@10.0.0.7",
        "curl -s https://example.com/@user/post?page=2",
        "qemu-system-x86_64 -k de -device usb-keyboard",
        "/lib/systemd/systemd-networkd-wait-online --interface=eth0",
        "nginx: worker process",
        "postgres: alice orders 10.0.0.1(5432) idle in transaction",
        "sshd: alice [priv]",
        "sh -c ~while_true;_do_date;_sleep_5;_done",
        "docker run -p 8080:80 --name web nginx:1.25",
        "redis-server 127.0.0.1:6379",
        "/usr/sbin/sshd -D -o Port=22",
        "tar -czf /backup/home.tar.gz /home",
        "find / -name *.log -mtime +7",
        "stress-ng --cpu 4 --timeout 60s",
    ] {
        let plain = line.replace('~', "");
        let expected = if line.contains('~') { plain.replace('_', " ") } else { plain };
        assert_eq!(scrub(line), expected);
    }
}

// Proves that secrets of each form are removed, and that the rest stays.
#[test]
fn secrets_are_removed() {
    for (line, expected) in [
        ("app --db-password hunter2 --port 8", "app --db-password *** --port 8"),
        ("app --password=hunter2 -v", "app --password=*** -v"),
        ("env PGPASSWORD=hunter2 psql db", "env PGPASSWORD=*** psql db"),
        ("env API_KEY=x AWS_SECRET_ACCESS_KEY=y run", "env API_KEY=*** AWS_SECRET_ACCESS_KEY=*** run"),
        ("app -DaccessKeyId=hunter2", "app -DaccessKeyId=***"),
        ("curl -H ~Authorization:_Bearer_hunter2 http://x", "curl -H Authorization: *** http://x"),
        ("curl -H Authorization: Bearer hunter2 http://x", "curl -H Authorization: Bearer *** http://x"),
        ("curl -u bob:hunter2 http://x", "curl -u bob:*** http://x"),
        ("curl -ubob:hunter2 http://x", "curl -ubob:*** http://x"),
        ("curl https://bob:hunter2@example.com/a", "curl https://***@example.com/a"),
        ("curl http://x/?a=1&token=hunter2", "curl http://x/?a=1&token=***"),
        ("sqlplus scott/hunter2@db", "sqlplus ***"),
        ("app scott/hunter2@db", "app ***@db"),
        ("rpcclient -U bob%hunter2 x", "rpcclient -U bob%*** x"),
        ("sshpass -p hunter2 ssh x", "sshpass -p *** ssh x"),
        ("mysql -uroot -phunter2 db", "mysql -uroot -p*** db"),
        ("sudo mysql -uroot -phunter2 db", "sudo mysql -uroot -p*** db"),
        ("mongo -password hunter2 db", "mongo -p*** *** db"),
        ("redis-cli -a hunter2 ping", "redis-cli -a *** ping"),
        ("ldapsearch -xw hunter2 -b dc=x", "ldapsearch -xw *** -b dc=x"),
        ("docker login -u bob -p hunter2 host", "docker login -u bob -p *** host"),
        ("sh -c ~export_TOKEN=hunter2;_run", "sh -c export TOKEN=***"),
        ("sh -c ~echo_hunter2_|_sudo_-S_true", "sh -c echo ***"),
        ("sh -c ~cat_<<<hunter2_x", "sh -c cat <<***"),
        ("sh -c ~cd_/x;mysql_-phunter2_db", "sh -c cd /x;mysql -p***"),
        ("vault login s.x1Y2z3A4b5C6d7E8f9G0h1J2", "vault login ***"),
        ("app {\"password\":\"hunter2\"}", "app {\"password\":\"***"),
        ("openssl rsa -passin pass:hunter2", "openssl rsa -passin ***"),
        ("kubectl create secret generic x --from-literal=a=hunter2", "kubectl create secret ***"),
        ("htpasswd -b file bob hunter2", "htpasswd ***"),
        ("~app_--user_x_--password_hunter2_--verbose", "app --user x --password ***"),
        ("xfreerdp /u:bob /p:hunter2", "xfreerdp /u:bob /p:***"),
    ] {
        assert_eq!(scrub(line), expected);
    }
}

// Proves that nothing of a command line after the limit of the read is written, even if the limit
// splits a secret.
#[test]
fn a_secret_at_the_limit_of_the_read_is_removed() {
    let line = b"app\0--name\0ghp_abcdefghijklmnop";
    for length in 12..line.len() {
        assert_eq!(scrubbed(&line[..length], true).as_bytes(), b"app --name ***");
    }
    assert_eq!(scrubbed(b"no-blank-at-all", true).as_bytes(), b" ***");
}

// Proves that a long command line is filtered only as far as it is written.
#[test]
fn the_text_is_bounded() {
    let line = b"x ".repeat(1 << 20);
    let text = scrubbed(&line, true);
    assert!((256..300).contains(&text.as_bytes().len()));
}

proptest! {
    // Proves that a planted secret is in no filtered line, whatever the other arguments are.
    #[test]
    fn a_planted_secret_is_removed(
        secret in "[A-Za-z0-9!#%^*+.,/_=-]{6,40}",
        form in 0..FORMS.len(),
        before in prop::collection::vec("[a-z0-9./-]{1,12}", 0..4),
        after in prop::collection::vec("[a-z0-9./-]{1,12}", 0..3),
    ) {
        // Plain words could also be in other arguments.
        let secret = format!("Zq7{secret}");
        let planted = FORMS[form].replace("{}", &secret);
        let mut words: Vec<String> = vec!["program".to_owned()];
        words.extend(before);
        words.extend(planted.split('|').map(|word| word.replace('\u{a6}', "|")));
        words.extend(after);
        for separator in ["\0", " "] {
            let line = words.join(separator);
            let found = String::from_utf8(scrubbed(line.as_bytes(), false).as_bytes().to_vec()).unwrap();
            prop_assert!(!found.contains("Zq7"), "{found}");
        }
    }

    // Proves that random tokens of 24 characters are removed wherever they are.
    #[test]
    fn a_random_token_is_removed(
        token in "[A-Z][a-z][0-9][A-Z]{2}[0-9][a-z][0-9][A-Z][0-9][A-Za-z0-9]{14}",
        form in prop::sample::select(&["app|{}", "app|--id={}", "sh|-c|run {} now", "x|http://h/{}/y", "[{\"v\":\"{}\"}]"][..]),
    ) {
        let line = form.replace("{}", &token).replace('|', "\0");
        let found = String::from_utf8(scrubbed(line.as_bytes(), false).as_bytes().to_vec()).unwrap();
        prop_assert!(!found.contains(&token[..6]), "{found}");
    }

    // Proves that any bytes are accepted, and that the text has at most its length.
    #[test]
    fn any_bytes_are_accepted(line in prop::collection::vec(any::<u8>(), 0..600), is_cut: bool) {
        prop_assert!(scrubbed(&line, is_cut).as_bytes().len() <= 264);
    }

    // Proves that text of the characters on which the rules depend is accepted.
    #[test]
    fn any_text_of_separators_is_accepted(line in "[-a-p/:=@%\"'|<>& \u{0}]{0,80}", is_cut: bool) {
        prop_assert!(scrubbed(line.as_bytes(), is_cut).as_bytes().len() <= 264);
    }
}

/// Forms of secrets in arguments, which are separated by `|`. A broken bar stands for a pipe.
pub(super) const FORMS: &[&str] = &[
    "--password|{}",
    "--password={}",
    "--password|=|{}",
    "--db-pass|{}",
    "--token|{}",
    "--auth-token={}",
    "--api-key|{}",
    "--apikey={}",
    "--secret|{}",
    "--client-secret={}",
    "--credential|{}",
    "--credentials={}",
    "--auth|{}",
    "--access_key={}",
    "-Dpassword={}",
    "-Djavax.net.ssl.keyStorePassword={}",
    "PASSWORD={}",
    "MY_TOKEN={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "DB_PWD={}",
    "-u|bob:{}",
    "-ubob:{}",
    "--user|bob:{}",
    "--user=bob:{}",
    "-U|bob%{}",
    "https://bob:{}@example.com/x",
    "--url=amqp://bob:{}@example.com/x",
    "redis://:{}@h:6379/0",
    "Authorization: Bearer {}",
    "Authorization:|Bearer|{}",
    "-H|X-Api-Key: {}",
    "-H|Cookie: id={}",
    "sh|-c|mysql --password={} db",
    "sh|-c|mysql -uroot -p{} db",
    "sh|-c|sshpass -p '{}' ssh h",
    "sh|-c|echo {} \u{a6} docker login --password-stdin",
    "sh|-c|curl -u bob:{} http://h",
    "mysql|-p{}",
    "sudo|mysqldump|-u|root|-p{}|db",
    "sshpass|-p|{}",
    "docker|login|-u|x|-p|{}",
    "az|login|-u|x|-p|{}",
    "redis-cli|-a|{}",
    "ldapsearch|-x|-w|{}",
    "mosquitto_pub|-P|{}",
    "7z|a|-p{}|x.7z",
    "unzip|-P|{}|x.zip",
    "--header=Authorization: Basic {}",
    "password:{}",
    "{\"token\": \"{}\"}",
    "{\"user\":\"x\",\"password\":\"{}\"}",
    "--passphrase|{}",
    "-passin|pass:{}",
    "--private-key={}",
    "--jwt|{}",
    "--set|auth.password={}",
    "--from-literal=any={}",
    "kubectl|create|secret|generic|x|{}",
    "-e|POSTGRES_PASSWORD={}",
    "--extra-vars|ansible_become_pass={} x=1",
    "jdbc:mysql://h/db?user=u&password={}",
    "Server=h;Uid=u;Pwd={};",
    "/pass:{}",
    "xfreerdp|/p:{}",
    "htpasswd|-b|file|bob|{}",
    "vault|kv|put|x|value={}",
    "mc|alias|set|x|http://h|key|{}",
    "snmpget|-A|{}",
    "nmcli|dev|wifi|connect|x|password|{}",
    "config|set|aws_secret_access_key|{}",
    "curl|-b|sid={}|http://h",
    "http://h/x?sig={}",
    "lftp|-u|bob,{}|h",
    "mount|-o|username=u,password={}",
    "psql|host=h user=u password={} dbname=d",
    "curl|--data|grant_type=password&username=u&password={}",
    "ansible-playbook|-e|{\"ansible_ssh_pass\":\"{}\"}",
    "terraform|apply|-var=db_password={}",
    "git|clone|https://oauth2:{}@gitlab.com/x.git",
    "git|-c|http.extraheader=AUTHORIZATION: bearer {}|fetch",
    "npm|config|set|//registry.npmjs.org/:_authToken|{}",
    "rabbitmqctl|change_password|u|{}",
    "redis-server|--requirepass|{}",
    "mongodump|--uri|mongodb+srv://u:{}@cluster/db",
    "sqlcmd|-S|h|-U|sa|-P|{}",
    "impdp|scott/{}|directory=d",
    "restic|--password-command|echo {}",
    "openssl|dgst|-hmac|{}",
    "openssl|enc|-k|{}",
    "pdftk|in.pdf|input_pw|{}|output|o",
    "sh|-c|echo 'root:{}' \u{a6} chpasswd",
    "sh|-c|kinit u <<<{}",
    "sh|-c|set -e\nexport TOKEN={}\nrun",
    "smbclient|//h/s|{}",
    "mysqladmin|-u|root|password|{}",
    "lftp|-e|open -u u,{} h",
    "x11vnc|-passwd|{}",
    "https://hooks.slack.com/services/T0/B0/{}",
    "https://api.telegram.org/bot1:{}/send",
    "az|storage|--connection-string|AccountName=n;AccountKey={}",
    "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={}",
    "sqlplus|-s|u/{}",
    "iwconfig|wlan0|key|s:{}",
    "cmdkey|/password|{}",
    "curl|--cert|c.pem:{}",
    "curl|-E|c.pem:{}",
    "ssserver|-k|{}",
    "ngrok|authtoken|{}",
    "u:{}@tcp(h:3306)/db",
    "app: worker --db-url=postgres://u:{}@h/db idle",
    "--config|{auth: {pass: {}}}",
    "-Dsonar.login={}",
    "expect|-c|send {}",
    "kafka-configs|--add-config|SCRAM-SHA-256=[password={}]",
    "gpg|--batch|--passphrase={}|-d|f",
    "wget|--user=u|--password={}|http://h",
    "rclone|config|create|x|s3|access_key_id=A|secret_access_key={}",
    "docker|build|--build-arg|NPM_TOKEN={}|.",
    "kubectl|config|set-credentials|x|--token={}",
    "consul|kv|get|-token={}|k",
    "nomad|run|-consul-token|{}",
    "influx|-username|u|-password|{}",
    "svn|co|--username|u|--password|{}|http://h",
    "tailscale|up|--authkey|{}",
    "gitlab-runner|register|--registration-token|{}",
    "jenkins-cli|-auth|u:{}",
    "openstack|--os-password|{}|server|list",
    "samba-tool|user|create|u|{}",
    "net|use|x:|\\\\h\\s|{}|/user:u",
    "python3|app.py|--db|mysql+pymysql://u:{}@h/db",
    "celery|-A|x|-b|amqp://u:{}@h//",
    "node|server.js|--jwt-secret|{}",
    "s3cmd|--access_key=A|--secret_key={}|ls",
    "b2|authorize-account|id|{}",
    "http|-a|u:{}|h",
    "grpcurl|-H|authorization:{}|h",
    "mysqlsh|--uri|u:{}@h:3306",
    "cqlsh|-u|u|-p|{}",
    "pg_dump|--dbname=postgresql://u:{}@h/db",
    "rsync|rsync://u:{}@h/m",
    "ssh|h|mysql -u root -p{}",
    "bash|-lc|PGPASSWORD='{}' psql -h h",
    "bash|-c|curl -H \"Authorization: Bearer {}\" h",
    "su|-|x|-c|app --api-token {}",
    "supervisord: env SECRET_KEY={}",
    "java|-javaagent:x.jar=license_key={}",
    "app|--config={\"db\":{\"pass\":\"{}\"}}",
    "app|https://x.blob.core.windows.net/c?sv=1&sig={}",
    "app|cookie=session={}",
    "app|--session-id|{}",
    "app|--otp|{}",
    "radtest|u|{}|h|0|x",
    "snmpset|-c|{}|h",
    "kadmin|-w|{}",
    "mutt|-e|set smtp_pass={}",
    "swaks|-ap|{}",
    "git|remote|add|o|https://{}@h/x.git",
    "gh|secret|set|X|--body|{}",
    "fly|secrets|set|X={}",
    "vault|operator|unseal|{}",
    "keytool|-keypass|{}",
    "signtool|/p|{}",
    "rar|a|-hp{}|x",
    "mcrypt|-k|{}",
    "aws|ssm|put-parameter|--value|{}",
    "aws|secretsmanager|create-secret|--secret-string|{}",
    "pulumi|config|set|--secret|k|{}",
    "dotnet|user-secrets|set|k|{}",
    "ansible-vault|encrypt_string|{}",
    "psql|-c|ALTER USER x PASSWORD '{}'",
    "mysql|-e|CREATE USER x IDENTIFIED BY '{}'",
    "redis-cli|AUTH|{}",
    "redis-cli|CONFIG|SET|requirepass|{}",
    "ldappasswd|-s|{}",
    "ipmitool|user|set|password|2|{}",
    "wg|set|wg0|private-key|{}",
    "app|-----BEGIN PRIVATE KEY-----\n{}",
    "app|key: -----BEGIN CERTIFICATE-----\n{}",
];
