//! `${NAME}` and `${NAME:-default}` in values.
//!
//! Expanded after the file is parsed, so what a variable holds is always one value and never
//! structure. `$${` is a plain `${`. A `$` before anything else is itself. What a variable holds
//! is not expanded again.

/// Where variables come from.
pub(super) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The text with its variables filled in.
///
/// # Errors
/// A fragment that says what is wrong: an unset variable, a name that cannot be one, no `}`.
pub(super) fn expand(text: &str, lookup: &Lookup<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            expanded.push_str(&rest[..at - 1]);
            expanded.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        expanded.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = inner.find('}').ok_or("`${` has no `}`; write `$${` for a plain `${`")?;
        expanded.push_str(&value(&inner[..end], lookup)?);
        rest = &inner[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn value(reference: &str, lookup: &Lookup<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        // Not repeated: it may be a value in which `:-` was forgotten, or no variable at all.
        return Err(
            "what stands in `${…}` cannot be the name of a variable: give letters, digits \
                    and `_`, and a default after `:-`; write `$${` for a plain `${`"
                .to_owned(),
        );
    }
    // As in a shell, an empty variable takes the default too.
    match (lookup(name).filter(|value| default.is_none() || !value.is_empty()), default) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the variable `{name}` is not set; set it, or give a default as ${{{name}:-…}}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<String, String> {
        expand(text, &|name| match name {
            "PORT" => Some("8080".into()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${PORT}: [".into()),
            _ => None,
        })
    }

    #[test]
    fn variables_and_defaults_are_filled_in() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${PORT}", "8080"),
            ("http://h:${PORT}/", "http://h:8080/"),
            ("${PORT}${PORT}", "80808080"),
            ("${NOPE:-5s}", "5s"),
            ("${NOPE:-}", ""),
            ("${EMPTY:-5s}", "5s"),
            ("${EMPTY}", ""),
            ("${PORT:-1}", "8080"),
            ("$PORT $ $$", "$PORT $ $$"),
            ("$${PORT}", "${PORT}"),
            ("a$${b}${PORT}", "a${b}8080"),
            ("${TRICK}", "${PORT}: ["),
            ("ä${PORT}ö", "ä8080ö"),
        ] {
            assert_eq!(check(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_says_why() {
        for (text, part) in [
            ("${NOPE}", "`NOPE` is not set"),
            ("${PORT", "no `}`"),
            ("${}", "cannot be the name"),
            ("${1A}", "cannot be the name"),
            ("${A-b}", "cannot be the name"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
