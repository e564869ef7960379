//! The comparison that decides which handles share the monitors of a deployment.

use super::Options;

impl Options {
    /// Returns whether a client with these options and a client with `other` watch the same
    /// deployment in the same way, so that they can share its monitors. All options must be equal,
    /// apart from those that concern only selections, pools and operations, such as the
    /// application's name, the user and the read preference. The order of seeds does not matter.
    ///
    /// The comparison is strict: it is never enough that two replica sets have the same name, and
    /// two different lists of seeds count as different even if they lead to the same deployment.
    pub fn watches_alike(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.local_threshold = self.local_threshold;
        other.server_selection_timeout = self.server_selection_timeout;
        other.server_selection_try_once = self.server_selection_try_once;
        other.socket_check_interval = self.socket_check_interval;
        other.read_preference.clone_from(&self.read_preference);
        other.selection_strategy = self.selection_strategy;
        other.app_name.clone_from(&self.app_name);
        other.max_waiters = self.max_waiters;
        other.early_dial = self.early_dial;
        other.pause_after = self.pause_after;
        other.credential.clone_from(&self.credential);
        other.avoid_suspected = self.avoid_suspected;
        other.driver = self.driver.clone();
        other.uri_warnings.clone_from(&self.uri_warnings);
        other.uri_unguarded.clone_from(&self.uri_unguarded);
        other.uri_try_once = self.uri_try_once;
        let seeds = |options: &Self| {
            let mut seeds = options.distinct_seeds();
            seeds.sort_unstable();
            seeds
        };
        if seeds(self) != seeds(&other) {
            return false;
        }
        other.seeds.clone_from(&self.seeds);
        *self == other
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    fn alike(one: &str, other: &str) -> bool {
        let parse = |uri: &str| Options::parse(uri).unwrap();
        parse(one).watches_alike(&parse(other))
    }

    #[test]
    fn handles_share_a_deployment_if_its_monitors_would_be_the_same() {
        let one = "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000";
        for other in [
            one,
            "mongodb://b,a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&appName=x",
            "mongodb://u:p@a,b/db?replicaSet=rs&heartbeatFrequencyMS=5000&maxPoolSize=3",
            "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&readPreference=nearest",
        ] {
            assert!(alike(one, other), "{other}");
        }
        for other in [
            "mongodb://a,b/?replicaSet=rs",
            "mongodb://a/?replicaSet=rs&heartbeatFrequencyMS=5000",
            "mongodb://a,c/?replicaSet=rs&heartbeatFrequencyMS=5000",
            "mongodb://a,b/?replicaSet=other&heartbeatFrequencyMS=5000",
            "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&connectTimeoutMS=1",
            "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&tls=true",
            "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&proxyHost=p",
            "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=5000&serverMonitoringMode=poll",
        ] {
            assert!(!alike(one, other), "{other}");
        }
        let tls = |file: &str| format!("mongodb://a/?tls=true&tlsCertificateKeyFile={file}");
        assert!(alike(&tls("x"), &tls("x")) && !alike(&tls("x"), &tls("y")));
    }
}
