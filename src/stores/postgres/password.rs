//! The password for a server whose URL has none: from `PGPASSWORD`, or the file that `PGPASSFILE` names (`~/.pgpass`),
//! as PostgreSQL's own programs take it. Used where a connection is prepared.

use std::borrow::Cow;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tokio_postgres::config::{Config, Host};

/// Others may not read a file of passwords.
const OTHERS: u32 = 0o077;
/// Another name of a socket's directory in the file, besides its path.
const LOCAL: &str = "localhost";

/// `None`: there is none, and the server may not need one.
pub(super) fn find(config: &Config) -> Result<Option<Vec<u8>>, String> {
    if let Some(password) = env::var_os("PGPASSWORD").filter(|password| !password.is_empty()) {
        return Ok(Some(password.into_encoded_bytes()));
    }
    let text = match env::var_os("PGPASSFILE") {
        Some(named) => read(Path::new(&named))?,
        // One that cannot be used may be meant for others.
        None => env::home_dir().and_then(|home| read(&home.join(".pgpass")).ok()?),
    };
    Ok(text.and_then(|text| password_in(&text, config)).map(String::into_bytes))
}

/// `None`: there is no file, or it is not a regular one (`/dev/null`).
fn read(path: &Path) -> Result<Option<String>, String> {
    let shown = path.display();
    let failed = |error| format!("cannot read the file of passwords {shown}: {error}");
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.map_err(failed)?,
    };
    // A pipe in its place must not hold up its reader.
    if !found.is_file() {
        return Ok(None);
    }
    if found.mode() & OTHERS != 0 {
        return Err(format!("others may read the file of passwords {shown}: chmod 600 {shown}"));
    }
    fs::read_to_string(path).map(Some).map_err(failed)
}

pub(super) fn port(config: &Config, at: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(at).or(ports.first()).copied().unwrap_or(5432)
}

/// The password of the first line that fits: host:port:database:user:password, * for any.
fn password_in(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user().map_or_else(user_name, str::to_owned);
    let database = config.get_dbname().unwrap_or(&user);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = port(config, at).to_string();
        match host {
            Host::Tcp(name) => (Cow::Borrowed(name.as_str()), None, port),
            Host::Unix(directory) => (directory.to_string_lossy(), Some(LOCAL), port),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields: [String; 5] = fields(line).try_into().ok()?;
        let [host, port, of_database, of_user, password] = fields;
        let fits = |field: &str, value: &str| field == "*" || field == value;
        let is_host = hosts.iter().any(|(name, other, of_port)| {
            (fits(&host, name) || *other == Some(&host)) && fits(&port, of_port)
        });
        (is_host && fits(&of_database, database) && fits(&of_user, &user)).then_some(password)
    })
}

/// The parts between colons; \: and \\ are a colon and a backslash. The whole fifth field is the password.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let is_end = letter == ':' && fields.len() < 5;
        let letter = if letter == '\\' { letters.next() } else { Some(letter) };
        match (is_end, fields.last_mut()) {
            (false, Some(field)) => field.extend(letter),
            _ => fields.push(String::new()),
        }
    }
    fields
}

/// The user if the URL names none.
fn user_name() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    user.ok().flatten().map_or_else(String::new, |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, url: &str) -> Option<String> {
        password_in(text, &url.parse().unwrap())
    }

    /// The first line that fits counts, with escapes and wildcards.
    #[test]
    fn a_line_fits() {
        let text =
            "# h:1:d:u:no\nh:1:d:u:a\\:b\\\\c\n*:*:*:v:any:thing\nlocalhost:*:d:w:local\nshort:1\n";
        assert_eq!(found(text, "postgres://u@h:1/d").unwrap(), "a:b\\c");
        assert_eq!(found(text, "postgres://u@g:2,h:1/d").unwrap(), "a:b\\c");
        let local = "postgres://w@%2Frun%2Fserver/d";
        assert_eq!(found(text, local).unwrap(), "local");
        assert_eq!(found("/run/server:5432:d:w:mine", local).unwrap(), "mine");
        assert_eq!(found("/run/other:5432:d:w:theirs", local), None);
        assert_eq!(found(text, "postgres://v@x/y").unwrap(), "any:thing");
        assert_eq!(found(text, "postgres://w@%2Frun/d").unwrap(), "local");
        assert_eq!(found(text, "postgres://u@h:2/d"), None);
    }

    /// A file that others may read is refused, as PostgreSQL's programs pass it over.
    #[test]
    fn others_may_not_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pgpass");
        assert_eq!(read(&file), Ok(None));
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&file).unwrap_err().contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), "text");
    }
}
