//! The parameters of a request.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use seawall_policy::ConfigError;

/// Parameters by name, each at most once.
#[derive(Debug, Default)]
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads a query; every name must be one of `known`.
    ///
    /// # Errors
    /// An unknown name, a name twice, or what is not UTF-8.
    pub(super) fn parse(
        query: &'a str,
        known: &'static [&'static str],
    ) -> Result<Self, ConfigError> {
        let mut read = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.iter().any(|known| *known == name) {
                return Err(ConfigError::new("query", name, allowed(known)));
            }
            if read.iter().any(|(before, _)| *before == name) {
                return Err(ConfigError::new(name.into_owned(), value, "it once"));
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    /// The value of a parameter; an empty one is a value.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }
}

/// What to give instead of an unknown name.
fn allowed(known: &[&str]) -> String {
    match known {
        [] => "no parameter".to_owned(),
        known => format!("only {}", known.join(", ")),
    }
}

/// Undoes percent-encoding, and `+` for a space.
fn decode(text: &str) -> Result<Cow<'_, str>, ConfigError> {
    let spaced =
        if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    let decoded = match &spaced {
        Cow::Borrowed(text) => percent_decode_str(text).decode_utf8(),
        Cow::Owned(text) => {
            percent_decode_str(text).decode_utf8().map(|text| Cow::Owned(text.into_owned()))
        }
    };
    decoded.map_err(|_| ConfigError::new("query", text, "UTF-8, percent-encoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_known_by_name() {
        let query = Query::parse("a=1&&b=x+y%3D%C3%A9&c", &["a", "b", "c", "d"]).unwrap();
        assert_eq!(query.value("a"), Some("1"));
        assert_eq!(query.value("b"), Some("x y=é"));
        assert_eq!(query.value("c"), Some(""));
        assert_eq!(query.value("d"), None);
    }

    #[test]
    fn what_is_unknown_or_repeated_or_not_text_is_refused_by_name() {
        let refused = |query| {
            let error = Query::parse(query, &["a", "b"]).unwrap_err();
            error.to_string()
        };
        assert_eq!(refused("z=1"), "field `query`: z is not allowed; give only a, b");
        assert_eq!(refused("a=1&%61=2"), "field `a`: 2 is not allowed; give it once");
        assert_eq!(
            refused("a=%ff"),
            "field `query`: %ff is not allowed; give UTF-8, percent-encoded"
        );
        let error = Query::parse("a", &[]).unwrap_err();
        assert_eq!(error.allowed(), "no parameter");
    }
}
