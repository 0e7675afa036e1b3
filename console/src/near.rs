//! "Did you mean": the known name that is nearest to a mistyped one. Used wherever a name from a user is looked up; for
//! commands and flags clap itself does this.

/// How alike two words are, from 0 to 1, when one is taken for the other. clap's figure.
const ALIKE: f64 = 0.7;

/// The end of an error's sentence, with the known name that is most like `word`, if any is like it:
/// `; did you mean "alpha"?`, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let rated = known.into_iter().map(|name| (strsim::jaro(word, name), name));
    let best = rated.filter(|(alike, _)| *alike > ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(String::new(), |(_, name)| format!("; did you mean {name:?}?"))
}

/// The one of these that a word is but for one letter: too many, missing, wrong, or in its neighbour's place.
pub fn one_slip_from<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().find(|name| strsim::osa_distance(word, name) == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A typing error is recognised; a different word is not taken for one.
    #[test]
    fn a_slip_is_found() {
        let known = ["lease", "socket_mode", "socket", "fetcher"];
        for (word, name) in
            [("leese", "lease"), ("socket-mode", "socket_mode"), ("fetchers", "fetcher")]
        {
            assert_eq!(did_you_mean(word, known), format!("; did you mean {name:?}?"));
        }
        assert_eq!(did_you_mean("sockt", known), "; did you mean \"socket\"?");
        assert_eq!(did_you_mean("user", known), "");
        assert_eq!(did_you_mean("", known), "");
    }
}
