//! Names of secrets, and the options with which known programs take a secret.

/// Names of secrets. A word that contains one of them has a secret value.
const ANYWHERE: &[&[u8]] = &[
    b"password",
    b"passwd",
    b"passphrase",
    b"passcode",
    b"passwort",
    b"kennwort",
    b"contrasena",
    b"motdepasse",
    b"senha",
    b"secret",
    b"token",
    b"credential",
    b"apikey",
    b"accesskey",
    b"authorization",
    b"oauth",
    b"bearer",
    b"cookie",
    b"sessionid",
    b"sessid",
    b"signature",
    b"privkey",
    b"privatekey",
    b"mnemonic",
    b"seedphrase",
    b"from-literal",
    b"connectionstring",
    b"connection-string",
    b"connection_string",
    b"jwt",
    b"sonar.login",
    b"session-id",
    b"session_id",
    b"identified",
];
/// Names of secrets that are also the begin of other words. They count at the end of a word, such
/// as in `access_key` or `accessKeyId`, and not in `keyboard`.
const AT_END: &[&[u8]] =
    &[b"key", b"keys", b"auth", b"pass", b"pwd", b"passin", b"passout", b"cred", b"creds"];
/// Names of secrets that count only as whole words.
const WHOLE: &[&[u8]] =
    &[b"sig", b"pin", b"otp", b"totp", b"mfa", b"pw", b"psk", b"sas", b"hmac", b"pat", b"cvv", b"ssn"];

/// A rule for the arguments of a program.
#[derive(Debug)]
pub(super) struct ProgramRule {
    /// The name of the program. If it ends with `*`, only its begin.
    program: &'static [u8],
    /// The argument from which the rule applies; empty if it applies from the name on.
    after: &'static [u8],
    /// What follows.
    pub(super) secret: RuleSecret,
}

/// The secrets to which a rule applies.
#[derive(Debug, Clone, Copy)]
pub(super) enum RuleSecret {
    /// The values of these short options.
    Options(&'static [u8]),
    /// All arguments that follow.
    Rest,
}

const fn options(program: &'static [u8], letters: &'static [u8]) -> ProgramRule {
    ProgramRule { program, after: b"", secret: RuleSecret::Options(letters) }
}

const fn login(program: &'static [u8], letters: &'static [u8]) -> ProgramRule {
    ProgramRule { program, after: b"login", secret: RuleSecret::Options(letters) }
}

const fn rest(program: &'static [u8], after: &'static [u8]) -> ProgramRule {
    ProgramRule { program, after, secret: RuleSecret::Rest }
}

/// The rules. A program that starts another program, such as `sudo`, needs no rule, because the
/// name of a program may be any argument.
pub(super) const PROGRAM_RULES: &[ProgramRule] = &[
    options(b"sshpass", b"p"),
    options(b"mysql*", b"p"),
    options(b"mariadb*", b"p"),
    options(b"mycli", b"p"),
    options(b"mydumper", b"p"),
    options(b"myloader", b"p"),
    options(b"pt-*", b"p"),
    options(b"mongo*", b"p"),
    options(b"cqlsh*", b"p"),
    options(b"cypher-shell*", b"p"),
    options(b"couchbase*", b"p"),
    options(b"cbq", b"p"),
    options(b"beeline", b"p"),
    options(b"influx*", b"pt"),
    options(b"redis-cli*", b"a"),
    options(b"sqlcmd*", b"P"),
    options(b"osql", b"P"),
    options(b"bcp", b"P"),
    options(b"freebcp", b"P"),
    options(b"tsql", b"P"),
    options(b"ldap*", b"w"),
    options(b"zip", b"P"),
    options(b"unzip", b"P"),
    options(b"7z*", b"p"),
    options(b"rar", b"ph"),
    options(b"unrar", b"p"),
    options(b"openssl", b"kK"),
    options(b"ipmi*", b"Pp"),
    options(b"snmp*", b"cAX"),
    options(b"mosquitto*", b"P"),
    options(b"rabbitmqadmin*", b"p"),
    options(b"xfreerdp*", b"p"),
    options(b"rdesktop", b"p"),
    options(b"ncftp*", b"p"),
    options(b"ssh-keygen", b"NP"),
    options(b"swaks", b"p"),
    options(b"sendemail", b"p"),
    options(b"sendEmail", b"p"),
    options(b"useradd", b"p"),
    options(b"usermod", b"p"),
    options(b"curl", b"bE"),
    options(b"lftp", b"u"),
    options(b"twine", b"p"),
    options(b"doctl", b"t"),
    options(b"fly*", b"t"),
    options(b"vercel", b"t"),
    options(b"codecov*", b"t"),
    options(b"hydra", b"p"),
    options(b"crackmapexec", b"pH"),
    options(b"evil-winrm", b"pH"),
    options(b"az", b"p"),
    options(b"http", b"a"),
    options(b"https", b"a"),
    options(b"xh", b"a"),
    options(b"steghide", b"p"),
    options(b"mcrypt", b"k"),
    options(b"ccrypt", b"K"),
    options(b"ldappasswd", b"sa"),
    options(b"ipa*", b"pawW"),
    options(b"ssserver", b"k"),
    options(b"sslocal", b"k"),
    options(b"ss-server", b"k"),
    options(b"ss-local", b"k"),
    options(b"swift", b"K"),
    options(b"kadmin*", b"w"),
    options(b"wpa_*", b"p"),
    options(b"sshfs", b"p"),
    options(b"plink", b"p"),
    login(b"docker*", b"p"),
    login(b"podman", b"p"),
    login(b"nerdctl", b"p"),
    login(b"buildah", b"p"),
    login(b"skopeo", b"p"),
    login(b"crane", b"p"),
    login(b"oras", b"p"),
    login(b"helm", b"p"),
    login(b"oc", b"p"),
    login(b"cf", b"p"),
    login(b"ibmcloud", b"p"),
    login(b"argocd", b"p"),
    rest(b"htpasswd", b""),
    rest(b"wpa_passphrase", b""),
    rest(b"mkpasswd", b""),
    rest(b"openssl", b"passwd"),
    rest(b"rabbitmqctl", b"add_user"),
    rest(b"rabbitmqctl", b"change_password"),
    rest(b"rabbitmqctl", b"authenticate_user"),
    rest(b"mc", b"alias"),
    rest(b"mc", b"config"),
    rest(b"mcli", b"alias"),
    rest(b"radtest", b""),
    rest(b"pulumi", b"--secret"),
    rest(b"ansible-vault", b"encrypt_string"),
    rest(b"ipmitool", b"password"),
    rest(b"b2", b"authorize-account"),
    rest(b"samba-tool", b"user"),
    rest(b"smbclient", b""),
    rest(b"sqlplus*", b""),
    rest(b"sqlldr", b""),
    rest(b"rman", b""),
    rest(b"impdp", b""),
    rest(b"expdp", b""),
    rest(b"vault", b"login"),
    rest(b"vault", b"put"),
    rest(b"vault", b"patch"),
    rest(b"vault", b"write"),
    rest(b"vault", b"unseal"),
    rest(b"net", b"user"),
    rest(b"net", b"use"),
    rest(b"net.exe", b"user"),
    rest(b"net.exe", b"use"),
    rest(b"aws", b"put-parameter"),
    rest(b"heroku", b"config:set"),
    rest(b"dokku", b"config:set"),
    rest(b"expect", b"-c"),
    rest(b"smbpasswd", b""),
    rest(b"chpasswd", b""),
];

impl ProgramRule {
    /// Returns whether the rule is about a program.
    pub(super) fn is_of(&self, program: &[u8]) -> bool {
        match self.program.strip_suffix(b"*") {
            Some(begin) => program.starts_with(begin),
            None => program == self.program,
        }
    }

    /// Returns whether the rule applies after an argument. Without an argument, returns whether it
    /// applies after the name of the program.
    pub(super) fn applies_after(&self, argument: Option<&[u8]>) -> bool {
        self.after == argument.unwrap_or_default()
    }
}

/// Returns the end of the first name of a secret in a word.
pub(super) fn first_name_end(word: &[u8]) -> Option<usize> {
    (0..word.len()).find_map(|at| name_end(word, at))
}

/// Returns whether a word ends with the name of a secret, such as `db.password` or `tokens`.
pub(super) fn ends_with_name(word: &[u8]) -> bool {
    let number = word.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let word = word.get(..word.len() - number).unwrap_or_default();
    let singular = word.strip_suffix(b"s").unwrap_or(word);
    (0..word.len()).any(|at| name_end(word, at).is_some_and(|end| end >= singular.len()))
}

/// Returns the end of the name of a secret that begins at `at`.
fn name_end(word: &[u8], at: usize) -> Option<usize> {
    let first = word.get(at)?.to_ascii_lowercase();
    // Most names differ in the first byte, so it is compared before the others.
    let is_at = |name: &&&[u8]| {
        name.first() == Some(&first)
            && word.get(at..at + name.len()).is_some_and(|part| part.eq_ignore_ascii_case(name))
    };
    let begins_word = at
        .checked_sub(1)
        .and_then(|before| word.get(before))
        .is_none_or(|byte| !byte.is_ascii_alphanumeric());
    // A word ends before anything but a lower-case letter, as in `accessKeyId`. A word of capitals
    // ends before anything but a letter.
    let ends_word = |end: usize| {
        let is_upper = word.get(at..end).is_some_and(|name| name.iter().all(u8::is_ascii_uppercase));
        let next = word.get(end);
        next.is_none_or(|byte| !(byte.is_ascii_lowercase() || is_upper && byte.is_ascii_uppercase()))
    };
    let anywhere = ANYWHERE.iter().find(is_at);
    let at_end = || AT_END.iter().filter(is_at).find(|name| ends_word(at + name.len()));
    let whole = || WHOLE.iter().filter(is_at).find(|name| begins_word && ends_word(at + name.len()));
    anywhere.or_else(at_end).or_else(whole).map(|name| at + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that names of secrets are found in any notation, and that other words that contain the
    // same letters are not names of secrets.
    #[test]
    fn names_are_found() {
        for word in [
            "--db-password",
            "PGPASSWORD",
            "accessKeyId",
            "AWS_SECRET_ACCESS_KEY",
            "x-api-key",
            "auth",
            "--pin",
            "_authToken",
            "storepass",
            "keys",
            "API_KEY2",
            "wifi-sec.psk",
            "Pwd",
            "HMAC",
        ] {
            assert!(first_name_end(word.as_bytes()).is_some(), "{word}");
        }
        for word in [
            "keyboard",
            "authority",
            "AUTHORS",
            "passive",
            "pinning",
            "signal",
            "hotkeyed",
            "compassion",
            "spinner",
            "patch",
            "keycloak",
        ] {
            assert_eq!(first_name_end(word.as_bytes()), None, "{word}");
        }
        assert!(ends_with_name(b"db.password") && ends_with_name(b"tokens") && ends_with_name(b"password1"));
        assert!(!ends_with_name(b"TokenService") && !ends_with_name(b"token-refresh"));
    }
}
