//! Under which address producers are told to write: never one that a client made up.
//!
//! A request's URL holds the host that the client named. Where the service is deployed, only the names of its own zone and of its Worker
//! lead to it, so an `https` address is its own. A local server takes any name, over plain HTTP; of those only the machine's own are believed,
//! which lead nowhere else. Everything else needs the configured `PUBLIC_URL`.

use super::route::origin;

/// The service's own address, without a slash at its end: the configured one, else the request's when its host is verified. `None` when it
/// is not.
pub fn own_address<'a>(configured: Option<&'a str>, request_url: &'a str) -> Option<&'a str> {
    configured.or_else(|| Some(origin(request_url)).filter(|origin| is_verified(origin)))
}

fn is_verified(origin: &str) -> bool {
    match origin.split_once("://") {
        Some(("https", host)) => !host.is_empty(),
        Some(("http", host)) => is_own_machine(host),
        _ => false,
    }
}

/// Whether a host, with its port, is a loopback address or a name that always leads there (RFC 6761).
fn is_own_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return rest.split_once(']').is_some_and(|(address, _)| address == "::1"),
        None => host.split(':').next().unwrap_or_default().to_ascii_lowercase(),
    };
    let numbers: Vec<&str> = name.split('.').collect();
    let is_v4 = numbers.len() == 4 && numbers.iter().all(|number| number.parse::<u8>().is_ok());
    name == "localhost" || name.ends_with(".localhost") || (is_v4 && name.starts_with("127."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_a_client_made_up_is_not_believed() {
        for (url, expected) in [
            ("https://chat.example.com/api/chat?x", Some("https://chat.example.com")),
            ("https://rejoin.me.workers.dev/", Some("https://rejoin.me.workers.dev")),
            ("http://localhost:8787/api/chat", Some("http://localhost:8787")),
            ("http://app.localhost/x", Some("http://app.localhost")),
            ("http://127.0.0.1:8787/", Some("http://127.0.0.1:8787")),
            ("http://[::1]:8787/", Some("http://[::1]:8787")),
            ("http://evil.example/", None),
            ("http://127.0.0.1.evil.example/", None),
            ("http://127.evil/", None),
            ("http://localhost.evil.example:80/", None),
            ("http://10.0.0.1/", None),
            ("http://[fe80::1]/", None),
            ("ftp://localhost/", None),
        ] {
            assert_eq!(own_address(None, url), expected, "{url}");
        }
    }

    proptest! {
        #[test]
        fn the_configured_address_wins_over_any_host(host in "[a-z0-9.:\\[\\]-]{0,30}", secure in any::<bool>()) {
            let url = format!("{}://{host}/api/chat", if secure { "https" } else { "http" });
            prop_assert_eq!(own_address(Some("https://own.example/base"), &url), Some("https://own.example/base"));
        }

        #[test]
        fn plain_http_is_believed_of_this_machine_only(host in "[a-z0-9-]{1,10}(\\.[a-z0-9-]{1,10}){0,3}") {
            let url = format!("http://{host}:1/");
            let own = host == "localhost" || host.ends_with(".localhost") || host.starts_with("127.");
            prop_assert!(own || own_address(None, &url).is_none());
        }
    }
}
